//! `latency`: reads one at a time, through the page cache, warm and cold, and past it, by all engines
//! and by the ring with each of its switches.

use std::time::Duration;

use super::{
    form::{Context, Entry, Keep, Workload},
    read::{
        self, QUESTION,
        group::Group,
        plan::{self, profiles},
    },
};
use crate::{
    args::Args,
    error::LabError,
    plan::{Defaults, typed::unknown},
    results::verdict::{self, Figure},
    sampling::job::Profile,
    workload::form::{columns, cost::Samples, facts::Facts},
};

/// What the rest of the lab knows of this workload.
pub static FACTS: Facts =
    Facts { name: "latency", depth_is: "depth", columns: columns::FILES, question: &QUESTION };

/// Its line in the table.
pub static ENTRY: Entry = Entry {
    facts: &FACTS,
    suite_s: 20,
    has_files: true,
    flags: &["engines", "block", "profile", "cache", "size", "keep", "reads"],
    defaults: Defaults::of,
    plan: |typed| Ok(Box::new(Latency { groups: groups(typed.args)? })),
};

/// All that can have one read at a time; `threads` is `sync` then.
const ENGINES: &str = "sync,mmap,tokio,aio,ringwise,uring";
const SIZE: &str = "64m";
const BLOCK: &str = "4k";

/// What is measured: a group for each state of the cache.
#[derive(Debug)]
struct Latency {
    groups: Vec<Group>,
}

impl Workload for Latency {
    fn rows(&self) -> usize {
        self.groups.iter().map(|group| read::rows(group).len()).sum()
    }

    fn time(&self, samples: &Samples) -> Duration {
        read::time(&self.groups, self.kept_bytes(false), samples)
    }

    fn kept_bytes(&self, least: bool) -> u64 {
        self.groups.first().map_or(0, |group| group.size.of(least))
    }

    fn run(&self, context: &Context<'_>, keep: &mut Keep<'_>) -> Result<(), LabError> {
        self.groups.iter().try_for_each(|group| {
            let mut outcome = read::run(context, &FACTS, group);
            let (section, seed) = (&mut outcome.section, context.plan.seed);
            for &depth in &group.depths {
                section.switches.extend(verdict::costs(
                    &section.rows,
                    depth,
                    Figure::Latency,
                    seed,
                ));
            }
            section.summarise();
            keep(outcome)
        })
    }
}

/// What `latency` reads one at a time: through the page cache, warm and cold, and past it, over one
/// file, by all engines and the ring with each of its switches.
///
/// # Errors
///
/// As for [`plan::groups`].
pub(crate) fn groups(args: &Args) -> Result<Vec<Group>, LabError> {
    let caches = match args.cache.as_deref() {
        None => vec!["warm", "cold"],
        Some(state @ ("warm" | "cold")) => vec![state],
        Some(other) => return Err(unknown("--cache", other, "warm, cold")),
    };
    let mut groups = Vec::new();
    for profile in profiles(args)? {
        let states = match profile {
            Profile::Buffered => caches.iter().copied().map(Some).collect(),
            // A state that has no effect is refused below.
            Profile::Direct => vec![args.cache.as_deref().filter(|_| args.profile.is_some())],
        };
        for state in states {
            let own = Args {
                profile: Some(profile.to_string()),
                pattern: Some("random".to_owned()),
                cache: state.map(str::to_owned),
                engines: args.engines.clone().or_else(|| Some(ENGINES.to_owned())),
                ablate: args.ablate || args.engines.is_none(),
                block: args.block.clone().or_else(|| Some(BLOCK.to_owned())),
                size: args.size.clone().or_else(|| Some(SIZE.to_owned())),
                files: Some("1".to_owned()),
                threads: Some("1".to_owned()),
                ..args.clone()
            };
            let of_profile = plan::groups(&own, Some(&[1]))?;
            groups.extend(of_profile.into_iter().map(|group| Group { set: "latency", ..group }));
        }
    }
    if args.engines.is_none() {
        groups.iter_mut().for_each(Group::leave_out_impossible);
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::name::EngineName,
        sampling::job::{Cache, Pattern},
    };

    #[test]
    fn latency_is_one_at_a_time_in_each_state_of_the_cache() {
        let args = Args { workload: Some("latency".into()), ..Args::default() };
        let groups = groups(&args).unwrap();
        let states: Vec<(Profile, Cache)> =
            groups.iter().map(|group| (group.profile, group.cache)).collect();
        assert_eq!(
            states,
            [
                (Profile::Buffered, Cache::Warm),
                (Profile::Buffered, Cache::Cold),
                (Profile::Direct, Cache::Bypassed)
            ]
        );
        for group in &groups {
            assert_eq!((&group.depths[..], group.pattern), (&[1][..], Pattern::Random));
            let names: Vec<String> = group.engines.iter().map(EngineName::to_string).collect();
            let is_direct = group.profile == Profile::Direct;
            let has = |name: &str| names.iter().any(|own| own == name);
            assert!(
                ["sync", "tokio", "aio", "ringwise", "uring"].into_iter().all(has),
                "{names:?}"
            );
            assert_eq!(
                (has("mmap"), has("uring+iopoll"), names.len()),
                (!is_direct, is_direct, 11),
                "{names:?}"
            );
            assert_eq!((group.set, group.files), ("latency", 1));
        }
    }
}
