//! What a run needs, said before it begins: time, and space on the file system under `--dir`.
//!
//! It follows from the plan and from how long each thing took on the reference machine
//! (`docs/benchmarking.md`): a slower device takes longer. More is said rather than less: who starts a
//! run of hours should not find out after two of them. It measures nothing.

use std::time::Duration;

use ringwise_measure::quantity::{bytes_text, duration_text};

use crate::{
    job::{Extent, Timing},
    plan::{DataSet, Group, LogGroup, Plan, Profile, Transport, Workload},
    suite::{sample_count, timing},
    workload::{COUNTING, SAMPLE_OVERHEAD, log::rows_per_count},
};

/// What a device takes of test files, a second, and a page cache gives of a copy that is compared.
const WRITTEN_BYTES_PER_S: f64 = 200e6;
const COMPARED_BYTES_PER_S: f64 = 1e9;
/// To make an empty file and to remove it; to copy one, compare it and remove it.
const EMPTY_FILE: Duration = Duration::from_micros(40);
const COPIED_FILE: Duration = Duration::from_micros(250);
/// What no sample is without: a server that starts and is connected to; a daemon that starts, and whose
/// files are read at the end; a program that copies.
const SERVER: Duration = Duration::from_millis(60);
const DAEMON: Duration = Duration::from_millis(300);
const PROGRAM: Duration = Duration::from_millis(250);
/// Before a sample begins all of its connections are there: one of TCP, and one with its handshake of
/// TLS 1.3, a thread on either side.
const CONNECTION: Duration = Duration::from_micros(30);
const HANDSHAKE: Duration = Duration::from_micros(400);
/// The lab's own time is calibrated so long for each depth.
const CALIBRATION: Duration = Duration::from_millis(130);
/// The idle machine is looked at, reports are drawn.
const REST: Duration = Duration::from_secs(3);
/// A name and an inode, on a file system that has none in reserve.
const FILE_BYTES: u64 = 1 << 10;
/// As many lines as any daemon takes of one processor's load.
const LINES_PER_S: u64 = 2_000_000;

/// What a run needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Needs {
    /// How long it takes, without further blocks where intervals are wide.
    pub time: Duration,
    /// The most that its files take at once, where there is room for all.
    pub space_bytes: u64,
    /// The least that they take where room is short.
    pub space_bytes_least: u64,
}

impl Needs {
    /// Of a plan, in all of its runs.
    pub fn of(plan: &Plan) -> Needs {
        let once: Duration = plan.workloads.iter().map(|&workload| time(plan, workload)).sum();
        let runs = u32::try_from(plan.self_check.unwrap_or(1)).unwrap_or(u32::MAX);
        let space = |least| space_bytes(plan, least);
        Needs {
            time: REST + once.saturating_mul(runs),
            space_bytes: space(false),
            space_bytes_least: space(true),
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

/// How long a workload takes.
fn time(plan: &Plan, workload: Workload) -> Duration {
    let samples = u32::try_from(sample_count(plan, workload)).unwrap_or(u32::MAX);
    let rows = samples / u32::try_from(2 * plan.repeats.max(1)).unwrap_or(u32::MAX);
    let Timing { warm_up, extent } = timing(plan, workload);
    let measured = match extent {
        Extent::Time(time) => time,
        // How long so many take is what is asked.
        Extent::Operations(_) => Duration::ZERO,
    };
    let sample = warm_up + measured + SAMPLE_OVERHEAD;
    let Timing { warm_up, extent: Extent::Time(counted) } = COUNTING else { unreachable!("timed") };
    let counting = warm_up + counted + SAMPLE_OVERHEAD;
    let laying = writing(kept_bytes(plan, workload, false));
    match workload {
        Workload::Nop => sample * samples,
        Workload::Read => laying + reading(&plan.groups, sample * samples + counting * rows),
        Workload::Latency => laying + reading(&plan.latency, sample * samples + counting * rows),
        // System calls are counted in a pass, and threads are looked at in another.
        Workload::Chain => laying + sample * samples + counting * 2 * rows,
        Workload::Stat => {
            let files = u32::try_from(plan.stat.files).unwrap_or(u32::MAX);
            EMPTY_FILE * files + sample * samples + counting * rows
        }
        Workload::Echo => (sample + SERVER) * (samples + rows),
        Workload::Log => (sample + DAEMON) * (samples + rows) + connecting(plan),
        Workload::Copy => {
            let each = samples / u32::try_from(plan.copy.sets.len().max(1)).unwrap_or(1);
            plan.copy.sets.iter().map(|set| copied(set, 1) + copied(set, each)).sum()
        }
    }
}

/// What all samples of log daemons, those that are counted in among them, take until they begin.
fn connecting(plan: &Plan) -> Duration {
    let connections: usize = plan.log.connections.iter().sum();
    let connections = u32::try_from(connections).unwrap_or(u32::MAX);
    let samples = u32::try_from(2 * plan.repeats + 1).unwrap_or(u32::MAX);
    let of_group = |&group: &LogGroup| {
        let each = if group.transport == Transport::Tls { HANDSHAKE } else { CONNECTION };
        let rows = u32::try_from(rows_per_count(&plan.log, group)).unwrap_or(u32::MAX);
        each.saturating_mul(connections).saturating_mul(rows).saturating_mul(samples)
    };
    plan.log.groups.iter().map(of_group).sum()
}

fn reading(groups: &[Group], samples: Duration) -> Duration {
    let depths: usize = groups.iter().map(|group| group.depths.len()).sum();
    samples + CALIBRATION * u32::try_from(depths).unwrap_or(u32::MAX)
}

fn writing(bytes: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / WRITTEN_BYTES_PER_S)
}

/// So many copies of a set, each until it is durable, compared and removed.
fn copied(set: &DataSet, times: u32) -> Duration {
    let files = u32::try_from(set.files()).unwrap_or(u32::MAX);
    let compared = Duration::from_secs_f64(2.0 * set.bytes() as f64 / COMPARED_BYTES_PER_S);
    (PROGRAM + writing(set.bytes()) + compared + COPIED_FILE * files).saturating_mul(times)
}

/// What is there until the run ends, and beside it the most that a workload has for itself.
fn space_bytes(plan: &Plan, least: bool) -> u64 {
    let kept: u64 = plan.workloads.iter().map(|&own| kept_bytes(plan, own, least)).sum();
    kept + plan.workloads.iter().map(|&own| passing_bytes(plan, own)).max().unwrap_or(0)
}

/// Bytes of test files that stay until the run ends: what a later group or workload has of the same
/// name is the same.
fn kept_bytes(plan: &Plan, workload: Workload, least: bool) -> u64 {
    let size = |group: &Group| if least { group.size.least } else { group.size.most };
    let first = |groups: &[Group], profile| {
        groups.iter().find(|group| group.profile == profile).map_or(0, size)
    };
    match workload {
        Workload::Read => {
            first(&plan.groups, Profile::Buffered) + first(&plan.groups, Profile::Direct)
        }
        Workload::Latency => plan.latency.first().map_or(0, size),
        Workload::Chain => plan.chain.first().map_or(0, |chain| size(&chain.group)),
        _ => 0,
    }
}

/// Bytes of files that are gone when the workload is over.
fn passing_bytes(plan: &Plan, workload: Workload) -> u64 {
    match workload {
        Workload::Stat => plan.stat.files * FILE_BYTES,
        // The source, and a copy of it.
        Workload::Copy => plan.copy.sets.iter().map(|set| 2 * set.bytes()).max().unwrap_or(0),
        // What a daemon stores of one sample.
        Workload::Log => {
            let rates = plan.log.groups.iter().map(|group| group.offered_per_s);
            let rate = rates.map(|rate| rate.unwrap_or(LINES_PER_S)).max().unwrap_or(0);
            let Extent::Time(time) = timing(plan, workload).extent else { return 0 };
            (time.as_secs_f64() * rate as f64) as u64 * plan.log.line_bytes as u64
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        args::Args,
        dataset::{Directory, Layout},
    };

    const GIB: u64 = 1 << 30;

    fn plan(change: impl FnOnce(&mut Args)) -> Plan {
        let mut args = Args::default();
        change(&mut args);
        Plan::new(&args).unwrap()
    }

    #[test]
    fn the_quick_suite_needs_two_minutes_and_little_space() {
        let needs = Needs::of(&plan(|_| {}));
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
            let plan = plan(|args| {
                args.workload = Some("log".to_owned());
                args.transport = Some(transport.to_owned());
                args.connections = Some(connections.to_owned());
                args.engines = Some("uring,epoll".to_owned());
                args.guarantee = Some("durable".to_owned());
                args.rate = Some("50000".to_owned());
                args.repeats = Some("2".to_owned());
            });
            Needs::of(&plan).time.as_secs_f64()
        };
        // Two daemons and one of them again, in two repeats forwards and backwards, and counted in.
        let handshakes = (of("tls", "2000") - of("tls", "1")) / (3.0 * 5.0);
        assert!((0.7..0.9).contains(&handshakes), "{handshakes} s for 2000");
        assert!(of("plain", "2000") - of("plain", "1") < 1.0);
        let standard = plan(|args| args.standard = true);
        assert!(connecting(&standard) > Duration::from_secs(20), "{:?}", connecting(&standard));
    }

    #[test]
    fn all_that_the_full_suite_does_is_in_what_it_needs() {
        let full = plan(|args| args.full = true);
        let needs = Needs::of(&full);
        // Its samples alone, as they are timed.
        let timed = |&workload: &Workload| {
            let Extent::Time(time) = timing(&full, workload).extent else { unreachable!("timed") };
            time * sample_count(&full, workload) as u32
        };
        let others = full.workloads.iter().filter(|own| **own != Workload::Copy);
        let samples: Duration = others.clone().map(timed).sum();
        // Each copy goes to the device, and so do the files of the others.
        let sets = &full.copy.sets;
        let copies = sample_count(&full, Workload::Copy) as u64 / sets.len() as u64;
        let copied: u64 = sets.iter().map(|set| set.bytes() * (copies + 1)).sum();
        let written = writing(copied + 11 * GIB);
        assert!(needs.time > samples + written, "{needs:?}, of which {samples:?} and {written:?}");
        assert!(time(&full, Workload::Log) > timed(&Workload::Log).mul_f64(1.3), "{needs:?}");
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
            let plan = plan(|args| {
                args.workload = Some(workload.to_owned());
                (args.full, args.size) = (full, Some("40m".to_owned()));
            });
            let chains = plan.chain.iter().map(|chain| &chain.group);
            let groups = plan.groups.iter().chain(&plan.latency).chain(chains);
            let directory = Directory::open(parent.path(), false).unwrap();
            let mut files = BTreeMap::new();
            for group in groups {
                let layout =
                    Layout { set: group.set, files: group.files, size: group.size, seed: 1 };
                let laid = layout.lay(&directory, &mut |_| true).unwrap();
                files.extend(laid.into_iter().map(|file| (file.path, file.bytes)));
            }
            let taken: u64 = files.values().sum();
            assert_eq!(taken, Needs::of(&plan).space_bytes, "{workload}");
        }
    }
}
