//! The figures of a trace: where its time went, in what sizes and order, and how much was in flight.
//!
//! It only counts. Words, drawings and the prediction are made from these figures.

use std::collections::{BTreeMap, HashMap};

use ringwise_measure::{Latency, statistics::median};
use ringwise_trace::{FileId, FileKind, Kind, Operation, Source, ThreadId};

use super::in_flight::InFlight;
use crate::{
    program::traced::{Traced, end_ns, is_asynchronous},
    sampling::heat::Heat,
};

/// What a thread waits for. Reads and writes of sockets count as receives and sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Group {
    Reads,
    Writes,
    Syncs,
    Receives,
    Sends,
    /// Reads and writes of pipes, terminals and other files without offsets.
    Pipes,
    Copies,
}

impl Group {
    pub const ALL: [Group; 7] = [
        Group::Reads,
        Group::Writes,
        Group::Syncs,
        Group::Receives,
        Group::Sends,
        Group::Pipes,
        Group::Copies,
    ];

    /// The group of an operation.
    pub fn of(traced: &Traced, operation: &Operation) -> Group {
        match (operation.kind, traced.file_kind(operation)) {
            (Kind::Sync | Kind::DataSync, _) => Group::Syncs,
            (Kind::Copy, _) => Group::Copies,
            (Kind::Send, _) | (Kind::Write, FileKind::Socket) => Group::Sends,
            (Kind::Receive, _) | (Kind::Read, FileKind::Socket) => Group::Receives,
            (_, FileKind::Pipe | FileKind::Other) => Group::Pipes,
            (Kind::Read, _) => Group::Reads,
            (Kind::Write, _) => Group::Writes,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Group::Reads => "reads",
            Group::Writes => "writes",
            Group::Syncs => "syncs",
            Group::Receives => "receives",
            Group::Sends => "sends",
            Group::Pipes => "pipes",
            Group::Copies => "copies",
        }
    }

    /// Whether io_uring has the operation. It has splice(2), but neither sendfile(2) nor copy_file_range(2), and a
    /// trace does not tell them apart.
    pub fn is_for_rings(self) -> bool {
        self != Group::Copies
    }
}

/// What was counted of a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    pub operations: u64,
    pub bytes: u64,
    pub failed: u64,
    /// The sum of the durations.
    pub waited_ns: u64,
    /// Of that, by where the data came from.
    pub cache_ns: u64,
    pub device_ns: u64,
    /// Bytes by where they came from. The rest is unknown.
    pub cache_bytes: u64,
    pub device_bytes: u64,
    /// Of operations whose offset is known, those that went on where the one before had ended, and the others.
    pub sequential: u64,
    pub random: u64,
    /// The waiting time of the sequential ones.
    pub sequential_ns: u64,
    /// Operations by the power of two of their bytes: 0, 1, 2 to 3, 4 to 7 and so on.
    pub sizes: BTreeMap<u32, u64>,
    /// Their durations.
    pub latency: Latency,
}

/// How a thread spent its time.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadTime {
    pub first_ns: u64,
    pub last_ns: u64,
    /// The time in which at least one of its operations was in flight.
    pub waited_ns: u64,
    /// The same for each group.
    pub by_group: [u64; Group::ALL.len()],
    until_ns: u64,
    group_until_ns: [u64; Group::ALL.len()],
}

impl ThreadTime {
    /// From its first operation to the end of its last.
    pub fn span_ns(&self) -> u64 {
        self.last_ns - self.first_ns
    }

    fn add(&mut self, group: Group, operation: &Operation) {
        let (begin_ns, end_ns) = (operation.begin_ns, end_ns(operation));
        let longer = |until_ns: &mut u64| {
            let more = end_ns.saturating_sub(begin_ns.max(*until_ns));
            *until_ns = end_ns.max(*until_ns);
            more
        };
        self.waited_ns += longer(&mut self.until_ns);
        let group = group as usize;
        self.by_group[group] += longer(&mut self.group_until_ns[group]);
        self.last_ns = self.last_ns.max(end_ns);
    }
}

/// What is between two syncs of the same thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct SyncGaps {
    /// From the end of a sync to the begin of the next one: the median.
    pub median_ns: Option<u64>,
    /// Bytes written between them: the median.
    pub median_bytes: Option<u64>,
    /// Gaps by the power of two of their time, and by that of the bytes written.
    pub times: BTreeMap<u32, u64>,
    pub sizes: BTreeMap<u32, u64>,
}

/// The figures.
#[derive(Debug)]
pub(crate) struct Analysis {
    pub elapsed_ns: u64,
    groups: Vec<Counted>,
    /// The threads that waited longest come first.
    pub threads: Vec<(ThreadId, ThreadTime)>,
    /// All operations.
    pub in_flight: InFlight,
    /// Those that a ring can take.
    pub for_rings: InFlight,
    /// The waiting time of operations that already are on a ring or Linux AIO.
    pub asynchronous_ns: u64,
    /// What is between two syncs of a thread.
    pub sync_gaps: SyncGaps,
    /// How long threads computed between operations, as far as the trace says so.
    pub computed_ns: Option<u64>,
    /// Which latencies came when.
    pub heat: Heat,
    /// All latencies.
    pub latency: Latency,
}

impl Analysis {
    pub fn of(traced: &Traced) -> Analysis {
        let elapsed_ns = traced.elapsed_ns();
        let mut analysis = Analysis {
            elapsed_ns,
            groups: vec![Counted::default(); Group::ALL.len()],
            threads: Vec::new(),
            in_flight: InFlight::of(traced.operations.iter(), elapsed_ns),
            for_rings: InFlight::of(
                traced.operations.iter().filter(|own| Group::of(traced, own).is_for_rings()),
                elapsed_ns,
            ),
            asynchronous_ns: 0,
            sync_gaps: SyncGaps::default(),
            computed_ns: None,
            heat: Heat::new(),
            latency: Latency::new(),
        };
        let mut threads: HashMap<ThreadId, ThreadTime> = HashMap::new();
        let mut ends: HashMap<(ThreadId, FileId), u64> = HashMap::new();
        for operation in &traced.operations {
            let group = Group::of(traced, operation);
            let is_sequential = is_sequential(traced, operation, &mut ends);
            analysis.groups[group as usize].add(operation, is_sequential);
            analysis.latency.record_ns(operation.duration_ns);
            analysis.heat.record(end_ns(operation), elapsed_ns, operation.duration_ns);
            if is_asynchronous(operation) {
                analysis.asynchronous_ns += operation.duration_ns;
            }
            let first_ns = operation.begin_ns;
            let new = || ThreadTime { first_ns, ..ThreadTime::default() };
            threads.entry(operation.thread).or_insert_with(new).add(group, operation);
        }
        analysis.threads = threads.into_iter().collect();
        analysis.threads.sort_by_key(|(id, time)| (std::cmp::Reverse(time.waited_ns), id.0));
        analysis.sync_gaps = SyncGaps::of(traced);
        let computed = traced.operations.iter().filter_map(|operation| operation.computed_ns);
        analysis.computed_ns = computed.reduce(|all, own| all.saturating_add(own));
        analysis
    }

    /// What was counted of a group.
    pub fn group(&self, group: Group) -> &Counted {
        &self.groups[group as usize]
    }

    /// The groups with operations.
    pub fn groups(&self) -> impl Iterator<Item = (Group, &Counted)> {
        let all = Group::ALL.into_iter().zip(&self.groups);
        all.filter(|(_, counted)| counted.operations > 0)
    }

    /// The sum of all durations.
    pub fn waited_ns(&self) -> u64 {
        self.groups.iter().map(|counted| counted.waited_ns).sum()
    }
}

impl Counted {
    fn add(&mut self, operation: &Operation, is_sequential: Option<bool>) {
        let (bytes, duration_ns) = (operation.bytes(), operation.duration_ns);
        self.operations += 1;
        self.bytes += bytes;
        self.failed +=
            u64::from(matches!(operation.outcome, ringwise_trace::Outcome::Failed { .. }));
        self.waited_ns += duration_ns;
        match operation.source {
            Source::Cache => {
                (self.cache_ns, self.cache_bytes) =
                    (self.cache_ns + duration_ns, self.cache_bytes + bytes)
            }
            Source::Device => {
                (self.device_ns, self.device_bytes) =
                    (self.device_ns + duration_ns, self.device_bytes + bytes)
            }
            Source::Unknown => {}
        }
        match is_sequential {
            Some(true) => {
                self.sequential += 1;
                self.sequential_ns += duration_ns;
            }
            Some(false) => self.random += 1,
            None => {}
        }
        *self.sizes.entry(power(bytes)).or_default() += 1;
        self.latency.record_ns(duration_ns);
    }

    /// The share of the bytes that came from the page cache, of those whose source is known.
    pub fn cached_share(&self) -> Option<f64> {
        share(self.cache_bytes, self.cache_bytes + self.device_bytes)
    }

    /// The share of sequential operations, of those whose offset is known.
    pub fn sequential_share(&self) -> Option<f64> {
        share(self.sequential, self.sequential + self.random)
    }

    /// The largest power of two that is at most the median number of bytes; 0 if the median is 0.
    pub fn median_bytes(&self) -> u64 {
        let mut seen = 0;
        let half = self.operations.div_ceil(2);
        let reached = |(_, count): &(&u32, &u64)| {
            seen += **count;
            seen >= half
        };
        match self.sizes.iter().find(reached) {
            Some((power @ 1.., _)) => 1 << (power - 1),
            _ => 0,
        }
    }
}

/// A share, if there is a whole.
pub(crate) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Whether an operation goes on where the thread's last one on the file had ended. None: its offset is unknown. The
/// first operation on a file is sequential at offset 0.
fn is_sequential(
    traced: &Traced,
    operation: &Operation,
    ends: &mut HashMap<(ThreadId, FileId), u64>,
) -> Option<bool> {
    let id = operation.file?;
    let is_append = traced.file(Some(id)).is_some_and(|file| file.flags.is_append);
    if operation.kind == Kind::Write && is_append {
        return Some(true);
    }
    let offset = operation.offset?;
    let end = ends.entry((operation.thread, id)).or_insert(0);
    let is_next = *end == offset;
    *end = offset.saturating_add(operation.bytes());
    Some(is_next)
}

/// The power of two of a number: 0, 1, 2 to 3, 4 to 7 and so on.
fn power(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

impl SyncGaps {
    fn of(traced: &Traced) -> SyncGaps {
        let (mut times, mut sizes) = (Vec::new(), Vec::new());
        let mut gaps = SyncGaps::default();
        let mut since: HashMap<ThreadId, (u64, u64)> = HashMap::new();
        for operation in &traced.operations {
            match Group::of(traced, operation) {
                Group::Writes => {
                    since.entry(operation.thread).and_modify(|own| own.1 += operation.bytes());
                }
                Group::Syncs => {
                    let now = (end_ns(operation), 0);
                    if let Some((last_ns, bytes)) = since.insert(operation.thread, now) {
                        let time_ns = operation.begin_ns.saturating_sub(last_ns);
                        *gaps.times.entry(power(time_ns)).or_default() += 1;
                        *gaps.sizes.entry(power(bytes)).or_default() += 1;
                        times.push(time_ns as f64);
                        sizes.push(bytes as f64);
                    }
                }
                _ => {}
            }
        }
        let whole = |values: &[f64]| median(values).map(|value| value as u64);
        (gaps.median_ns, gaps.median_bytes) = (whole(&times), whole(&sizes));
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::traced::tests::{file, number, operation, traced};

    fn at(operation: Operation, offset: u64) -> Operation {
        Operation { offset: Some(offset), ..operation }
    }

    #[test]
    fn a_thread_waits_once_for_operations_that_overlap() {
        let trace = traced(vec![
            operation(1, Kind::Read, (0, 100)),
            operation(1, Kind::Read, (50, 100)),
            operation(1, Kind::Write, (100, 200)),
            operation(2, Kind::Sync, (1000, 10)),
        ]);
        let analysis = Analysis::of(&trace);
        let (first, time) = &analysis.threads[0];
        assert_eq!(first.0, number(1), "it waited longest");
        assert_eq!((time.waited_ns, time.span_ns()), (300, 300));
        assert_eq!(time.by_group[Group::Reads as usize], 150);
        assert_eq!(time.by_group[Group::Writes as usize], 200);
        assert_eq!(analysis.group(Group::Reads).waited_ns, 200, "both durations");
        assert_eq!(analysis.waited_ns(), 410);
    }

    #[test]
    fn order_sizes_and_sources_are_counted() {
        let read = |offset, source, duration| {
            let own = at(operation(1, Kind::Read, (offset, duration)), offset);
            Operation { source, ..own }
        };
        let trace = traced(vec![
            read(0, Source::Device, 80),
            read(4096, Source::Cache, 2),
            read(8192, Source::Cache, 2),
            read(65536, Source::Cache, 2),
            Operation { offset: None, ..operation(1, Kind::Read, (90_000, 14)) },
        ]);
        let analysis = Analysis::of(&trace);
        let reads = analysis.group(Group::Reads);
        assert_eq!((reads.sequential, reads.random, reads.sequential_ns), (3, 1, 84));
        assert_eq!(reads.sequential_share(), Some(0.75));
        assert_eq!(reads.cached_share(), Some(0.75));
        assert_eq!((reads.cache_ns, reads.device_ns, reads.waited_ns), (6, 80, 100));
        assert_eq!((reads.median_bytes(), reads.sizes[&13]), (4096, 5));
    }

    #[test]
    fn gaps_between_syncs_have_their_time_and_bytes() {
        let trace = traced(vec![
            operation(1, Kind::Write, (0, 10)),
            operation(1, Kind::DataSync, (10, 90)),
            operation(1, Kind::Write, (150, 10)),
            operation(1, Kind::Write, (160, 10)),
            operation(1, Kind::DataSync, (300, 50)),
        ]);
        let analysis = Analysis::of(&trace);
        assert_eq!(
            (analysis.sync_gaps.median_ns, analysis.sync_gaps.median_bytes),
            (Some(200), Some(8192))
        );
    }

    #[test]
    fn sockets_and_pipes_are_no_files() {
        let mut trace = traced(vec![
            operation(1, Kind::Read, (0, 1)),
            operation(1, Kind::Write, (1, 1)),
            operation(1, Kind::Copy, (2, 1)),
        ]);
        let groups = |trace: &Traced| -> Vec<Group> {
            trace.operations.iter().map(|own| Group::of(trace, own)).collect()
        };
        assert_eq!(groups(&trace), [Group::Reads, Group::Writes, Group::Copies]);
        trace.files[0] = ringwise_trace::File { kind: FileKind::Socket, ..file(1, 0) };
        assert_eq!(groups(&trace), [Group::Receives, Group::Sends, Group::Copies]);
        trace.files[0].kind = FileKind::Pipe;
        assert_eq!(groups(&trace), [Group::Pipes, Group::Pipes, Group::Copies]);
        assert!(!Group::Copies.is_for_rings() && Group::Sends.is_for_rings());
    }
}
