//! The groups of `read`, checked: profiles, engines, the state of the cache and the files' size.

use std::{collections::HashSet, time::Duration};

use ringwise_measure::{
    cpu::allowed_cpus,
    quantity::{bytes_text, parse_size, size_text},
};

use super::group::Group;
use crate::{
    args::Args,
    dataset::{Size, block::BLOCK_BYTES},
    engine::{
        Named,
        handle::Ringwise,
        mmap::Mapped,
        name::EngineName,
        uring::{Switch, Switches},
    },
    error::LabError,
    plan::{
        scale::Scale,
        typed::{COUNT_MAX, invalid, list, number, unknown, usage},
    },
    sampling::job::{Cache, Pattern, Profile},
};

/// The most memory for buffers: what one registered pool can hold.
const BUFFERS_BYTES_MAX: u64 = 1 << 30;
const BLOCK_BYTES_MAX: u64 = 64 << 20;
/// What every direct read is at least a multiple of.
const SECTOR_BYTES: u64 = 512;
const MIB: u64 = 1 << 20;

/// The block that all depths are tried with.
const BLOCK: usize = 4096;

/// The other blocks that a run of this size tries, and at which depths.
fn sweep(scale: Scale) -> (&'static [usize], &'static [usize]) {
    const KIB: usize = 1 << 10;
    match scale {
        Scale::Quick => (&[], &[]),
        Scale::Standard => (&[512, 64 * KIB, 1024 * KIB, 4096 * KIB], &[32]),
        Scale::Full => (&[512, 16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB], &[1, 32]),
    }
}

/// A group for each profile and block. Larger runs try more blocks than the usual one, at fewer depths.
///
/// # Errors
///
/// [`LabError::Usage`], which names the value and what is accepted.
pub(crate) fn groups(args: &Args, depths: Option<&[usize]>) -> Result<Vec<Group>, LabError> {
    let scale = Scale::of(args);
    let own = depths.map_or_else(
        || match scale {
            Scale::Quick => vec![1, 32],
            Scale::Standard => vec![1, 8, 32, 128, 256],
            Scale::Full => vec![1, 4, 8, 16, 32, 64, 128, 256],
        },
        <[usize]>::to_vec,
    );
    let blocks = args.block.as_deref().map_or_else(|| Ok(vec![BLOCK]), blocks)?;
    // A bound leaves large blocks no room, and is about another question.
    let is_bounded = args.cache.as_deref().is_some_and(|cache| cache.starts_with("bounded"));
    let (swept, few) = match args.block.is_some() || is_bounded {
        true => sweep(Scale::Quick),
        false => sweep(scale),
    };
    let few = depths.unwrap_or(few);
    let mut groups = Vec::new();
    for profile in profiles(args)? {
        for &block_bytes in &blocks {
            groups.push(group(args, profile, block_bytes, &own)?);
        }
        for &block_bytes in swept {
            let mut swept = Group { is_swept: true, ..group(args, profile, block_bytes, few)? };
            if args.engines.is_none() {
                // One block tells what a runtime adds.
                swept.engines.retain(|engine| !engine.is_handle());
            }
            groups.push(swept);
        }
    }
    let polling = match args.engines.is_none() && scale != Scale::Quick {
        true => polling(),
        false => Vec::new(),
    };
    for group in groups.iter_mut().filter(|group| !group.is_swept) {
        group.engines.extend(&polling);
    }
    if args.engines.is_none() {
        groups.iter_mut().for_each(Group::leave_out_impossible);
    }
    if args.cache.is_some() && groups.iter().all(|group| group.cache == Cache::Bypassed) {
        let what = "direct reads go past the page cache; use --profile buffered, or a bounded \
                    cache and engine mmap";
        return Err(usage("--cache", what));
    }
    Ok(groups)
}

/// Rings that poll, for what is to be submitted and for what is done: what larger runs have beside the
/// engines of all. SQPOLL excludes DEFER_TASKRUN.
fn polling() -> Vec<EngineName> {
    let default = Switches::DEFAULT;
    let submission = default.with(Switch::DeferTaskrun, false).with(Switch::Sqpoll, true);
    [submission, default.with(Switch::Iopoll, true)].map(EngineName::Uring).to_vec()
}

/// The profiles asked for.
pub(crate) fn profiles(args: &Args) -> Result<Vec<Profile>, LabError> {
    Ok(match args.profile.as_deref() {
        None => vec![Profile::Buffered, Profile::Direct],
        Some("buffered") => vec![Profile::Buffered],
        Some("direct") => vec![Profile::Direct],
        Some(other) => return Err(unknown("--profile", other, "buffered, direct")),
    })
}

/// Refuses more in flight than there may be memory for.
pub(crate) fn buffers_fit(depths: &[usize], bytes_each: usize) -> Result<(), LabError> {
    let most = depths.iter().copied().max().unwrap_or(1) as u64 * bytes_each as u64;
    if most > BUFFERS_BYTES_MAX {
        return Err(usage("--depth", "times --block: expected at most 1 GiB of buffers"));
    }
    Ok(())
}

fn group(
    args: &Args,
    profile: Profile,
    block_bytes: usize,
    depths: &[usize],
) -> Result<Group, LabError> {
    let is_direct = profile == Profile::Direct;
    if is_direct && !(block_bytes as u64).is_multiple_of(SECTOR_BYTES) {
        let why = "direct reads take a multiple of 512, such as 512 or 4k";
        return Err(invalid("--block", &block_bytes.to_string(), why));
    }
    buffers_fit(depths, block_bytes)?;
    let files = number("--files", args.files.as_deref(), 1, COUNT_MAX)?;
    let files = files.unwrap_or(if is_direct { 1 } else { 10 });
    let threads = number("--threads", args.threads.as_deref(), 1, COUNT_MAX)?;
    let threads =
        threads.map_or_else(|| allowed_cpus().map_or(1, |cpus| cpus.len()), |n| n as usize);
    let engines = engines(args)?;
    let (cache, bound_bytes) = cache(args)?;
    let cache = match profile {
        // Only a mapping has nothing else than the page cache.
        Profile::Direct
            if cache != Cache::Bounded || !engines.contains(&EngineName::Mmap(Mapped)) =>
        {
            Cache::Bypassed
        }
        _ => cache,
    };
    let group = Group {
        set: if is_direct { "direct" } else { "buffered" },
        profile,
        pattern: pattern(args, profile, cache)?,
        cache,
        bound_bytes,
        block_bytes,
        is_swept: false,
        depths: depths.to_vec(),
        threads,
        engines,
        files,
        size: size(args, profile)?,
    };
    let least = files * (block_bytes as u64).next_multiple_of(BLOCK_BYTES as u64);
    if group.size.least < least {
        let why = format!("{files} files of at least one block need {least} bytes");
        return Err(match args.size.as_deref() {
            Some(text) => invalid("--size", text, why),
            None => usage("--size", format_args!("is needed: {why}")),
        });
    }
    if group.cache == Cache::Bounded {
        bound(&group)?;
    }
    Ok(group)
}

/// A bound must leave room for the engines' own memory, and none for all of the files.
fn bound(group: &Group) -> Result<(), LabError> {
    let Some(bytes) = group.bound_bytes else { return Ok(()) };
    let (least, files) = (group.bound_bytes_min(), group.size.most);
    let typed = format!("bounded:{}", size_text(bytes));
    if bytes < least {
        let why = format!(
            "threads and buffers of depth {} may need {} by themselves; expected at least {}k",
            group.depth_max(),
            bytes_text(least),
            least.div_ceil(1024)
        );
        return Err(invalid("--cache", &typed, why));
    }
    if bytes >= files {
        let why =
            format!("test files of {} would fit; lower it or raise --size", bytes_text(files));
        return Err(invalid("--cache", &typed, why));
    }
    Ok(())
}

fn pattern(args: &Args, profile: Profile, cache: Cache) -> Result<Pattern, LabError> {
    let is_random = profile == Profile::Direct || cache == Cache::Bounded;
    Ok(match args.pattern.as_deref() {
        None if is_random => Pattern::Random,
        // What a cache that is too small holds of a sequence is chance.
        Some("seq") if cache == Cache::Bounded => {
            let why = "a bounded cache needs --pattern random";
            return Err(invalid("--pattern", "seq", why));
        }
        None | Some("seq") => Pattern::Sequential,
        Some("random") => Pattern::Random,
        Some(other) => return Err(unknown("--pattern", other, "seq, random")),
    })
}

/// The state, and the size of a bound that was typed.
fn cache(args: &Args) -> Result<(Cache, Option<u64>), LabError> {
    Ok(match args.cache.as_deref() {
        None | Some("warm") => (Cache::Warm, None),
        Some("cold") => (Cache::Cold, None),
        Some("bounded") => (Cache::Bounded, None),
        Some(other) => match other.strip_prefix("bounded:") {
            Some(size) => {
                let bytes = parse_size(size).map_err(|error| invalid("--cache", other, error))?;
                (Cache::Bounded, Some(bytes))
            }
            None => {
                let accepted = "warm, cold, bounded or bounded:SIZE";
                return Err(unknown("--cache", other, accepted));
            }
        },
    })
}

fn size(args: &Args, profile: Profile) -> Result<Size, LabError> {
    if let Some(text) = args.size.as_deref() {
        let bytes = parse_size(text).map_err(|error| invalid("--size", text, error))?;
        return Ok(Size::exactly(bytes));
    }
    Ok(match (args.full, profile) {
        (true, Profile::Buffered) => Size::exactly(1000 * MIB),
        (true, Profile::Direct) => Size::exactly(10 << 30),
        // The suite has other things to do too.
        (false, _) if args.workload.is_none() && Scale::of(args) == Scale::Quick => {
            Size { most: 120 * MIB, least: 64 * MIB, time: Duration::from_secs(2) }
        }
        // Less of it measures the same in a warm cache; a device shows its worst over much data.
        (false, _) => Size { most: 1000 * MIB, least: 64 * MIB, time: Duration::from_secs(6) },
    })
}

fn engines(args: &Args) -> Result<Vec<EngineName>, LabError> {
    let mut engines = Vec::new();
    match args.engines.as_deref() {
        None => engines.extend(EngineName::DEFAULT),
        Some(text) => {
            for name in text.split(',').map(str::trim) {
                let accepted = format!(
                    "{}; the last three take switches, such as ringwise+one-worker, uring+sqpoll, \
                     uring-registered-buffers, fio+fixed and fio+batches",
                    EngineName::FAMILIES.join(", ")
                );
                let engine =
                    EngineName::parse(name).ok_or_else(|| match name.contains(['+', '-']) {
                        // No family is meant by a switch that is wrong.
                        true => invalid("--engines", name, format_args!("expected {accepted}")),
                        false => unknown("--engines", name, &accepted),
                    })?;
                engines.push(engine);
            }
        }
    }
    if args.ablate {
        engines.push(EngineName::Uring(Switches::DEFAULT));
        engines.extend(Switches::ablations().into_iter().map(EngineName::Uring));
    }
    // fio looks at nothing that it reads; its counterpart must not either.
    let has_fio = engines.iter().any(|engine| matches!(engine, EngineName::Fio(_)));
    if has_fio && engines.iter().any(|engine| engine.is_uring()) {
        let unverified = Switches::DEFAULT.with(Switch::Unverified, true);
        engines.push(EngineName::Uring(unverified));
    }
    let tasks = |engine: &EngineName| match *engine {
        EngineName::Ringwise(engine) => Some(engine),
        _ => None,
    };
    if has_fio {
        let unverified = engines.iter().filter_map(tasks);
        let unverified = unverified.map(|engine| Ringwise { unverified: true, ..engine });
        engines.extend(unverified.map(EngineName::Ringwise).collect::<Vec<_>>());
    }
    let mut seen = HashSet::new();
    engines.retain(|engine| seen.insert(*engine));
    Ok(engines)
}

/// Reads lengths of blocks.
pub(crate) fn blocks(text: &str) -> Result<Vec<usize>, LabError> {
    list(text, |item| {
        let bytes = parse_size(item).map_err(|error| invalid("--block", item, error))?;
        if (1..=BLOCK_BYTES_MAX).contains(&bytes) {
            Ok(bytes as usize)
        } else {
            Err(invalid("--block", item, "expected 1 to 64m"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::read_groups;

    fn args(change: impl FnOnce(&mut Args)) -> Args {
        let mut args = Args { workload: Some("read".to_owned()), ..Args::default() };
        change(&mut args);
        args
    }

    #[test]
    fn full_is_the_published_size() {
        let groups = read_groups(&args(|args| args.full = true)).unwrap();
        let of = |profile| groups.iter().filter(move |group| group.profile == profile);
        assert!(of(Profile::Direct).all(|group| group.size == Size::exactly(10 << 30)));
        assert!(of(Profile::Buffered).all(|group| group.size == Size::exactly(1000 * MIB)));
    }

    #[test]
    fn larger_runs_have_depth_256_all_blocks_and_the_polling_modes() {
        for (standard, suite) in [(false, false), (true, false), (false, true), (true, true)] {
            let groups = read_groups(&args(|args| {
                args.workload = args.workload.take().filter(|_| !suite);
                (args.standard, args.full) = (standard, !standard);
            }));
            let groups = groups.unwrap();
            for profile in [Profile::Buffered, Profile::Direct] {
                let own: Vec<&Group> = groups.iter().filter(|own| own.profile == profile).collect();
                let (main, swept) = own.split_first().unwrap();
                assert_eq!((main.block_bytes, main.depths.last()), (4096, Some(&256)));
                let blocks: Vec<usize> = swept.iter().map(|own| own.block_bytes).collect();
                assert_eq!((blocks[0], blocks[blocks.len() - 1]), (512, 4 << 20));
                assert!(swept.iter().all(|own| own.is_swept && own.depths.contains(&32)));
                let has = |name| main.engines.iter().any(|own| own.to_string() == name);
                assert!(has("uring-defer-taskrun+sqpoll"));
                assert_eq!(has("uring+iopoll"), profile == Profile::Direct);
                let mut swept = swept.iter().flat_map(|own| &own.engines);
                assert!(swept.all(|name| EngineName::DEFAULT.contains(name) && !name.is_handle()));
            }
        }
        let quick = read_groups(&args(|_| {})).unwrap();
        assert_eq!(quick.len(), 2);
        let are_usual =
            |own: &Group| own.engines.iter().all(|own| EngineName::DEFAULT.contains(own));
        assert!(quick.iter().all(are_usual));
        let typed = read_groups(&args(|args| {
            (args.full, args.block) = (true, Some("8k".to_owned()));
            args.engines = Some("uring".to_owned());
        }));
        let typed = typed.unwrap();
        assert!(typed.iter().all(|own| own.block_bytes == 8192 && own.engines.len() == 1));
    }

    #[test]
    fn lists_are_lists() {
        let groups = read_groups(&args(|args| {
            args.engines = Some("sync, uring,uring-registered-files+sqpoll,uring,fio+fixed".into());
            args.depth = Some("8,1,8".into());
            args.block = Some("4k,32k".into());
            args.profile = Some("direct".into());
        }))
        .unwrap();
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[1].block_bytes, 32 << 10);
        assert_eq!(groups[0].depths, [8, 1]);
        let names: Vec<String> = groups[0].engines.iter().map(|name| name.to_string()).collect();
        assert_eq!(
            names,
            ["sync", "uring", "uring-registered-files+sqpoll", "fio+fixed", "uring+unverified"]
        );
    }

    #[test]
    fn ablation_adds_each_switch_once() {
        let groups = read_groups(&args(|args| {
            args.engines = Some("sync,uring+iopoll".into());
            args.ablate = true;
        }))
        .unwrap();
        let names: Vec<String> = groups[0].engines.iter().map(|name| name.to_string()).collect();
        assert_eq!(names.len(), 8);
        assert_eq!(names.iter().filter(|name| *name == "uring+iopoll").count(), 1);
    }

    #[test]
    fn a_bounded_cache_is_for_all_that_reads_through_it() {
        let groups = read_groups(&args(|args| {
            args.cache = Some("bounded:256m".into());
            args.engines = Some("mmap,uring".into());
            args.depth = Some("32".into());
        }))
        .unwrap();
        let [buffered, direct] = &groups[..] else { panic!("{groups:?}") };
        assert_eq!(buffered.bound_bytes, Some(256 * MIB));
        assert_eq!((buffered.pattern, direct.pattern), (Pattern::Random, Pattern::Random));
        let caches = |group: &Group| ["mmap", "uring"].map(|engine| group.cache_of(engine));
        assert_eq!(caches(buffered), [Cache::Bounded, Cache::Bounded]);
        assert_eq!(caches(direct), [Cache::Bounded, Cache::Bypassed]);
        let without = read_groups(&args(|args| {
            args.cache = Some("bounded".into());
            args.engines = Some("uring".into());
        }));
        assert_eq!(without.unwrap()[1].cache, Cache::Bypassed, "nothing to be bounded");
    }

    #[test]
    fn odd_blocks_are_fine_through_the_cache() {
        let groups = read_groups(&args(|args| {
            args.block = Some("3000".into());
            args.profile = Some("buffered".into());
        }));
        assert_eq!(groups.unwrap()[0].block_bytes, 3000);
    }
}
