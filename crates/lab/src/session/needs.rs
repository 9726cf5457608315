//! What a run needs, said before it begins: time, and space on the file system under `--dir`.
//!
//! It follows from the plan and from how long each thing took on the reference machine
//! (`docs/reference/lab.md`). A slower device takes longer. It rounds up, and measures nothing.

use std::time::Duration;

use ringwise_measure::quantity::{bytes_text, duration_text};

use crate::session::suite::Suite;

/// The idle machine is looked at, reports are drawn.
const REST: Duration = Duration::from_secs(3);

/// What a run needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Needs {
    /// How long it takes, without further blocks where intervals are wide.
    pub time: Duration,
    /// The most that its files take at once in a directory, where there is room for all.
    pub space_bytes: u64,
    /// The least that they take where room is short.
    pub space_bytes_least: u64,
}

impl Needs {
    /// Of a suite, in all of its runs.
    pub fn of(suite: &Suite) -> Needs {
        let planned = &suite.workloads;
        let once: Duration = planned.iter().map(|own| own.work.time(&suite.samples_of(own))).sum();
        let runs = u32::try_from(suite.plan.self_check.unwrap_or(1)).unwrap_or(u32::MAX);
        // What stays until the run ends, and beside it the most that a workload has for itself.
        let passing = planned.iter().map(|own| own.work.passing_bytes(suite.timing(own)));
        let passing = passing.max().unwrap_or(0);
        let space = |least| {
            let kept: u64 = planned.iter().map(|own| own.work.kept_bytes(least)).sum();
            kept + passing
        };
        Needs {
            time: REST + once.saturating_mul(runs),
            space_bytes: space(false),
            space_bytes_least: space(true),
        }
    }

    /// What the files of so many directories take, if a run has as many on one file system.
    pub fn times(&self, directories: u64) -> Needs {
        Needs {
            space_bytes: self.space_bytes * directories,
            space_bytes_least: self.space_bytes_least * directories,
            ..*self
        }
    }

    /// Why it cannot be begun with so much free, if so.
    pub fn lack(&self, free_bytes: u64) -> Option<String> {
        (self.space_bytes_least > free_bytes).then(|| {
            format!(
                "test files need {} and {} are free: lower --size, or point --dir to a larger file \
                 system",
                bytes_text(self.space_bytes_least),
                bytes_text(free_bytes)
            )
        })
    }

    /// The time in words.
    pub fn time_text(&self) -> String {
        duration_text(Duration::from_secs(self.time.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        args::Args,
        dataset::{Directory, Layout},
        plan::typed::Typed,
        sampling::job::Extent,
        session::suite::Planned,
        testing::read_groups,
        workload::{
            chain,
            copy::plan::{CopyPlan, DataSet},
            form::cost::writing,
            latency,
            read::group::Group,
        },
    };

    const GIB: u64 = 1 << 30;

    fn suite(change: impl FnOnce(&mut Args)) -> Suite {
        let mut args = Args::default();
        change(&mut args);
        Suite::new(&args).unwrap()
    }

    #[test]
    fn the_quick_suite_needs_two_minutes_and_little_space() {
        let needs = Needs::of(&suite(|_| {}));
        assert!((95..150).contains(&needs.time.as_secs()), "{needs:?}");
        assert!(
            needs.space_bytes < GIB && needs.space_bytes_least < needs.space_bytes,
            "{needs:?}"
        );
    }

    /// Thousands of handshakes take longer than many a sample.
    #[test]
    fn connections_are_made_before_a_sample_begins() {
        let of = |transport: &str, connections: &str| {
            let suite = suite(|args| {
                args.workload = Some("log".to_owned());
                args.transport = Some(transport.to_owned());
                args.connections = Some(connections.to_owned());
                args.engines = Some("uring,epoll".to_owned());
                args.guarantee = Some("durable".to_owned());
                args.rate = Some("50000".to_owned());
                args.repeats = Some("2".to_owned());
            });
            Needs::of(&suite).time.as_secs_f64()
        };
        // Two daemons and one of them again, in two repeats forwards and backwards, and counted in.
        let handshakes = (of("tls", "2000") - of("tls", "1")) / (3.0 * 5.0);
        assert!((0.7..0.9).contains(&handshakes), "{handshakes} s for 2000");
        assert!(of("plain", "2000") - of("plain", "1") < 1.0);
    }

    #[test]
    fn all_that_the_full_suite_does_is_in_what_it_needs() {
        let full = suite(|args| args.full = true);
        let needs = Needs::of(&full);
        let is_timed = |planned: &&Planned| planned.work.sample_text().is_none();
        // Its samples alone, as they are timed.
        let timed = |planned: &Planned| {
            let Extent::Time(time) = full.timing(planned).extent else { unreachable!("timed") };
            time * full.samples_of(planned).count
        };
        let samples: Duration = full.workloads.iter().filter(is_timed).map(timed).sum();
        // Each copy goes to the device, and so do the files of the others.
        let copies = full.workloads.iter().find(|planned| !is_timed(planned)).unwrap();
        let sets = CopyPlan::of_suite(&Args { full: true, ..Args::default() }).unwrap().sets;
        let count = u64::from(full.samples_of(copies).count) / sets.len() as u64;
        let copied: u64 = sets.iter().map(|set| set.bytes() * (count + 1)).sum();
        let written = writing(copied + 11 * GIB);
        assert!(needs.time > samples + written, "{needs:?}, of which {samples:?} and {written:?}");
        let log = full.workloads.last().unwrap();
        let logged = log.work.time(&full.samples_of(log));
        assert!(logged > timed(log).mul_f64(1.3), "{needs:?}");
        // A copy beside its source, beside the files that stay.
        let largest = sets.iter().map(DataSet::bytes).max().unwrap();
        assert!(needs.space_bytes >= 11 * GIB - (24 << 20) + 2 * largest, "{needs:?}");
        assert_eq!(needs.lack(GIB).unwrap().matches("GiB").count(), 2);
        assert_eq!(needs.lack(40 * GIB), None);
    }

    #[test]
    fn the_space_of_test_files_is_what_they_take() {
        let parent = crate::testing::directory();
        for (workload, full) in [("read", true), ("latency", false), ("chain", false)] {
            let args = Args {
                workload: Some(workload.to_owned()),
                full,
                size: Some("40m".to_owned()),
                ..Args::default()
            };
            let groups: Vec<Group> = match workload {
                "read" => read_groups(&args).unwrap(),
                "latency" => latency::groups(&args).unwrap(),
                _ => {
                    let chains = chain::plan::groups(&Typed::of(&args).unwrap()).unwrap();
                    chains.into_iter().map(|chain| chain.group).collect()
                }
            };
            let directory = Directory::open(parent.path(), false).unwrap();
            let mut files = BTreeMap::new();
            for group in groups {
                let layout =
                    Layout { set: group.set, files: group.files, size: group.size, seed: 1 };
                let laid = layout.lay(&directory, &mut |_| true).unwrap();
                files.extend(laid.into_iter().map(|file| (file.path, file.bytes)));
            }
            let taken: u64 = files.values().sum();
            assert_eq!(taken, Needs::of(&Suite::new(&args).unwrap()).space_bytes, "{workload}");
        }
    }
}
