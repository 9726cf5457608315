//! What a replay does: for each recorded thread its steps, and the files that they need.
//!
//! A step may begin when as many steps of its thread have ended as had ended when it began in the recording. For a
//! thread of syscalls that is the program's order; for a thread with a ring it keeps the recorded depth. What the thread
//! did in between is its think time. Order between threads is kept only by time, and without think time not at all.
//!
//! Left out and counted: sockets, pipes, copies, files of the kernel such as /proc, operations without a known file,
//! offset or result, and those that failed.

use std::collections::HashMap;

use ringwise_trace::{
    File, FileId, FileKind, Interface, Kind, Name, OpenFlags, Operation, Outcome, Source,
};

use super::{
    lives::{self, Made},
    ranges::Ranges,
};
use crate::program::{
    explain::in_flight::InFlight,
    traced::{Traced, end_ns, is_asynchronous, is_sync},
};

/// No syscall moves more (MAX_RW_COUNT in include/linux/fs.h).
const BYTES_MAX: u64 = 0x7fff_f000;

/// What of the page cache is prepared for reads whose source is unknown, or for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheChoice {
    /// As the trace says; unknown sources are cached.
    Recorded,
    /// Everything that is read is cached.
    Warm,
    /// Nothing is.
    Cold,
}

/// All that is replayed.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub bodies: Vec<Body>,
    pub handles: Vec<Handle>,
    /// The steps of each thread, in the order of their begins.
    pub threads: Vec<Vec<Step>>,
    pub left_out: LeftOut,
    /// The most steps that were in flight at once.
    pub depth: usize,
    /// From the begin of the first step to the end of the last.
    pub span_ns: u64,
    /// Whether its times have the recorder's cost, as those of a replay that is recorded.
    pub is_recorded_too: bool,
    /// Whether the source of any read was unknown, and so taken for the page cache.
    pub has_unknown_sources: bool,
}

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Body {
    /// Its length before the replay.
    pub bytes: u64,
    /// The most that the replay makes of it.
    pub bytes_max: u64,
    /// Where it has data before the replay: what is read or overwritten.
    pub filled: Ranges,
    /// What is in the page cache before the replay.
    pub cached: Ranges,
    /// Whether the replay writes to it.
    pub is_written: bool,
    /// How it is made, unless it is there before the replay.
    pub made: Option<Made>,
}

/// A body, opened with flags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Handle {
    pub body: usize,
    pub flags: OpenFlags,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    pub kind: StepKind,
    pub handle: usize,
    pub offset: u64,
    /// How much is asked for.
    pub length: usize,
    /// How much was moved, and has to be moved again.
    pub bytes: usize,
    /// So many steps of the thread have to have ended.
    pub after: usize,
    /// The time between the end of the last of them, or the begin of the replay, and the begin of this step.
    pub think_ns: u64,
    /// How much of that time the thread computed. 0: unknown, or nothing.
    pub computed_ns: u64,
    /// The time between the begin of the replay and the begin of this step in the recording.
    pub begin_ns: u64,
    /// How long it took in the recording, without what recording added.
    pub recorded_ns: u64,
    pub interface: Interface,
    /// The body that is made before it.
    pub makes: Option<usize>,
    /// Whether it is the first one with its handle, which the program has just opened.
    pub is_first: bool,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    Read,
    Write,
    Sync,
    DataSync,
}

/// Operations that are not replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub sockets: u64,
    pub pipes: u64,
    pub copies: u64,
    /// Without a known file or offset, on files of the kernel, or larger than a syscall can be.
    pub unknown: u64,
    /// Failed or not finished.
    pub failed: u64,
}

impl LeftOut {
    /// What is left out, in words, with its number.
    pub fn words(&self) -> Vec<String> {
        let all = [
            (self.sockets, "on sockets"),
            (self.pipes, "on pipes and terminals"),
            (self.copies, "copies inside the kernel"),
            (self.unknown, "on files or at offsets that are unknown"),
            (self.failed, "that failed or did not end"),
        ];
        let counted = all.into_iter().filter(|(count, _)| *count > 0);
        counted.map(|(count, words)| format!("{count} {words}")).collect()
    }
}

impl Script {
    /// The script of a trace. The recorder's cost is not part of its durations, unless the replay has it too.
    pub fn of(traced: &Traced, cache: CacheChoice, is_recorded_too: bool) -> Script {
        let added_ns = traced.end.as_ref().filter(|_| !is_recorded_too);
        let added_ns = added_ns.and_then(|end| end.added_ns_in_duration).unwrap_or(0);
        let mut builder = Builder { cache, added_ns, ..Builder::default() };
        let mut left_out = LeftOut::default();
        let mut by_thread: HashMap<_, Vec<&Operation>> = HashMap::new();
        for operation in &traced.operations {
            match reason(traced, operation) {
                None => by_thread.entry(operation.thread).or_default().push(operation),
                Some(Reason::Socket) => left_out.sockets += 1,
                Some(Reason::Pipe) => left_out.pipes += 1,
                Some(Reason::Copy) => left_out.copies += 1,
                Some(Reason::Unknown) => left_out.unknown += 1,
                Some(Reason::Failed) => left_out.failed += 1,
            }
        }
        // Sizes grow in the order of time, over all threads.
        let mut lengths: HashMap<*const Operation, usize> = HashMap::new();
        let replayed = traced.operations.iter().filter(|own| reason(traced, own).is_none());
        let mut all: Vec<&Operation> = replayed.collect();
        all.sort_by_key(|operation| end_ns(operation));
        for operation in all {
            let Some(file) = traced.file(operation.file) else { continue };
            lengths.insert(std::ptr::from_ref(operation), builder.account(file, operation));
        }
        let mut threads: Vec<_> = by_thread.into_iter().collect();
        threads.sort_by_key(|(id, _)| *id);
        let computed = computed(traced);
        for (_, operations) in threads {
            let length = |own: &Operation| lengths.get(&std::ptr::from_ref(own)).copied();
            let mut steps = builder.steps(&operations, &|own| length(own).unwrap_or(0));
            for (step, own) in steps.iter_mut().zip(&operations) {
                step.computed_ns = computed.get(&std::ptr::from_ref(*own)).copied().unwrap_or(0);
            }
            builder.script.threads.push(steps);
        }
        builder.script.left_out = left_out;
        builder.script.is_recorded_too = is_recorded_too;
        let steps = || traced.operations.iter().filter(|own| reason(traced, own).is_none());
        let first_ns = steps().map(|own| own.begin_ns).min().unwrap_or(0);
        let last_ns = steps().map(end_ns).max().unwrap_or(0);
        builder.script.depth = InFlight::of(steps(), last_ns).most as usize;
        builder.script.span_ns = last_ns - first_ns;
        // The replay begins with the first step.
        for step in builder.script.threads.iter_mut().flatten() {
            step.begin_ns -= first_ns;
            if step.after == 0 {
                step.think_ns = step.begin_ns;
            }
            // It may have computed before the replay begins, or while operations were in flight.
            step.computed_ns = step.computed_ns.min(step.think_ns);
        }
        builder.script.mark_first();
        lives::mark(&mut builder.script, &builder.bodies);
        builder.script
    }

    fn mark_first(&mut self) {
        let mut first: Vec<Option<(u64, &mut bool)>> = self.handles.iter().map(|_| None).collect();
        for step in self.threads.iter_mut().flatten() {
            let own = &mut first[step.handle];
            if own.as_ref().is_none_or(|(begin_ns, _)| step.begin_ns < *begin_ns) {
                *own = Some((step.begin_ns, &mut step.is_first));
            }
        }
        first.into_iter().flatten().for_each(|(_, is_first)| *is_first = true);
    }

    /// How many steps there are.
    pub fn steps(&self) -> usize {
        self.threads.iter().map(Vec::len).sum()
    }

    /// The sum of the recorded durations.
    pub fn recorded_ns(&self) -> u64 {
        self.threads.iter().flatten().map(|step| step.recorded_ns).sum()
    }

    /// All bytes that are moved.
    pub fn moved_bytes(&self) -> u64 {
        self.threads.iter().flatten().map(|step| step.bytes as u64).sum()
    }

    /// What the files take at most.
    pub fn space_bytes(&self) -> u64 {
        let grown = |body: &Body| body.bytes_max.saturating_sub(body.bytes);
        self.bodies.iter().map(|body| body.filled.bytes() + grown(body)).sum()
    }

    /// Whether any thread made operations that it did not wait for.
    pub fn is_asynchronous(&self) -> bool {
        self.threads.iter().any(|steps| Means::of(steps) != Means::Calls)
    }
}

/// By what a thread makes its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    Calls,
    Ring,
    LinuxAio,
}

impl Means {
    /// What a thread used in the recording for most of its steps. The block layer does not tell; a ring has the depth
    /// that it shows.
    pub fn of(steps: &[Step]) -> Means {
        let by = |interface| steps.iter().filter(|step| step.interface == interface).count();
        let (calls, aio) = (by(Interface::Syscall), by(Interface::LinuxAio));
        match (steps.len() - calls) * 2 > steps.len() {
            true if aio * 2 > steps.len() - calls => Means::LinuxAio,
            true => Means::Ring,
            false => Means::Calls,
        }
    }
}

enum Reason {
    Socket,
    Pipe,
    Copy,
    Unknown,
    Failed,
}

/// Why an operation is not replayed.
fn reason(traced: &Traced, operation: &Operation) -> Option<Reason> {
    let file = traced.file(operation.file);
    let kind = file.map_or(FileKind::Unknown, |file| file.kind);
    match (operation.kind, kind) {
        (Kind::Copy, _) => return Some(Reason::Copy),
        (Kind::Send | Kind::Receive, _) | (_, FileKind::Socket) => return Some(Reason::Socket),
        (_, FileKind::Pipe | FileKind::Other) => return Some(Reason::Pipe),
        _ => {}
    }
    let Some(file) = file.filter(|file| is_ordinary(file)) else { return Some(Reason::Unknown) };
    let Outcome::Done { bytes } = operation.outcome else { return Some(Reason::Failed) };
    let is_append = operation.kind == Kind::Write && file.flags.is_append;
    let has_place = is_sync(operation.kind) || is_append || operation.offset.is_some();
    let asked = operation.asked_bytes.unwrap_or(bytes);
    (!has_place || asked.max(bytes) > BYTES_MAX).then_some(Reason::Unknown)
}

/// Whether a file has content that a laid-out file can have: not one of the kernel's.
fn is_ordinary(file: &File) -> bool {
    let Name::Path(path) = &file.name else { return true };
    let path = path.as_encoded_bytes();
    let is_kernels = [&b"/dev/"[..], b"/proc/", b"/sys/"].iter().any(|own| path.starts_with(own));
    let is_memory = path.starts_with(b"/dev/shm/") || file.kind == FileKind::Block;
    !is_kernels || is_memory
}

struct Builder {
    script: Script,
    cache: CacheChoice,
    /// What recording added to the duration of a syscall.
    added_ns: u64,
    /// By name, and by the time at which a file was made.
    bodies: HashMap<(Name, Option<u64>), usize>,
    handles: HashMap<FileId, usize>,
    states: Vec<State>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            script: Script::default(),
            cache: CacheChoice::Recorded,
            added_ns: 0,
            bodies: HashMap::new(),
            handles: HashMap::new(),
            states: Vec::new(),
        }
    }
}

/// A body while operations are gone through.
#[derive(Default)]
struct State {
    /// Its length now.
    bytes: u64,
    is_size_known: bool,
    /// What was read or written so far.
    touched: Ranges,
    /// Where reads of runs ended, and whether the run began with data from the device: what follows came with it.
    cold_ends: HashMap<u64, bool>,
}

impl Builder {
    fn handle(&mut self, file: &File) -> usize {
        if let Some(handle) = self.handles.get(&file.id) {
            return *handle;
        }
        let body = *self.bodies.entry((file.name.clone(), file.made_ns)).or_insert_with(|| {
            let bytes = match file.made_ns {
                // What it had when the recorder looked, the program had written.
                Some(_) => Some(0),
                None => file.size_bytes.filter(|_| file.kind != FileKind::Block),
            };
            self.script.bodies.push(Body { bytes: bytes.unwrap_or(0), ..Body::default() });
            self.states.push(State {
                bytes: bytes.unwrap_or(0),
                is_size_known: bytes.is_some(),
                ..State::default()
            });
            self.states.len() - 1
        });
        self.script.handles.push(Handle { body, flags: file.flags });
        let handle = self.script.handles.len() - 1;
        self.handles.insert(file.id, handle);
        handle
    }

    /// Accounts an operation to its body. Returns how much the replay asks for: as much as the program, unless that
    /// would give more than the program got, because the file was longer or shorter than it is in the replay.
    fn account(&mut self, file: &File, operation: &Operation) -> usize {
        let handle = self.handle(file);
        let index = self.script.handles[handle].body;
        let (body, state) = (&mut self.script.bodies[index], &mut self.states[index]);
        let bytes = operation.bytes();
        let asked = operation.asked_bytes.unwrap_or(bytes).max(bytes);
        let offset = match operation.kind {
            Kind::Write if file.flags.is_append => state.bytes,
            _ => operation.offset.unwrap_or(0),
        };
        let end = offset.saturating_add(bytes);
        match operation.kind {
            Kind::Write => {
                body.is_written = true;
                body.filled.add(offset.min(body.bytes), end.min(body.bytes));
                state.touched.add(offset, end);
                state.bytes = state.bytes.max(end);
                body.bytes_max = body.bytes_max.max(state.bytes);
                bytes as usize
            }
            Kind::Read => {
                if end > state.bytes && bytes > 0 {
                    // It was that long, whatever made it so.
                    body.bytes = body.bytes.max(end);
                    state.bytes = end;
                    body.bytes_max = body.bytes_max.max(end);
                }
                body.filled.add(offset.min(body.bytes), end.min(body.bytes));
                let is_cached = is_cached(self.cache, state, operation, (offset, end));
                self.script.has_unknown_sources |=
                    bytes > 0 && operation.source == Source::Unknown && !operation.is_direct;
                if is_cached && !operation.is_direct {
                    state
                        .touched
                        .gaps(offset, end)
                        .for_each(|(from, to)| body.cached.add(from, to));
                }
                state.touched.add(offset, end);
                let there = state.bytes.saturating_sub(offset).min(asked);
                let is_short = there != bytes && (state.is_size_known || there > bytes);
                if is_short { bytes as usize } else { asked as usize }
            }
            _ => 0,
        }
    }

    fn steps(&self, operations: &[&Operation], length: &dyn Fn(&Operation) -> usize) -> Vec<Step> {
        // The program would not have taken it without the recorder.
        let added_ns = |own: &Operation| if is_asynchronous(own) { 0 } else { self.added_ns };
        let mut ends: Vec<u64> = operations.iter().map(|own| end_ns(own)).collect();
        ends.sort_unstable();
        let step = |operation: &&Operation| {
            // A syscall without a duration does not overlap with the next one.
            let after = ends.partition_point(|end| *end <= operation.begin_ns);
            let index = operations.partition_point(|own| own.begin_ns < operation.begin_ns);
            let after = if is_asynchronous(operation) { after } else { after.min(index) };
            let since = if after == 0 { 0 } else { ends[after - 1] };
            Step {
                kind: match operation.kind {
                    Kind::Write => StepKind::Write,
                    Kind::Sync => StepKind::Sync,
                    Kind::DataSync => StepKind::DataSync,
                    _ => StepKind::Read,
                },
                handle: operation.file.and_then(|id| self.handles.get(&id)).copied().unwrap_or(0),
                offset: operation.offset.unwrap_or(0),
                length: length(operation),
                bytes: operation.bytes() as usize,
                after,
                think_ns: operation.begin_ns.saturating_sub(since),
                begin_ns: operation.begin_ns,
                computed_ns: 0,
                recorded_ns: operation.duration_ns.saturating_sub(added_ns(operation)),
                interface: operation.interface,
                makes: None,
                is_first: false,
            }
        };
        operations.iter().map(step).collect()
    }
}

/// How long its thread computed before each operation that is replayed, since the last one that is.
fn computed(traced: &Traced) -> HashMap<*const Operation, u64> {
    let (mut found, mut so_far) = (HashMap::new(), HashMap::new());
    for operation in &traced.operations {
        let sum: &mut u64 = so_far.entry(operation.thread).or_default();
        *sum = sum.saturating_add(operation.computed_ns.unwrap_or(0));
        if reason(traced, operation).is_none() {
            found.insert(std::ptr::from_ref(operation), std::mem::take(sum));
        }
    }
    found
}

/// Whether data were in the page cache before the program read them. What it reads from the cache because read-ahead
/// brought it there was not: a run of sequential reads that began on the device is on the device.
fn is_cached(
    cache: CacheChoice,
    state: &mut State,
    operation: &Operation,
    (offset, end): (u64, u64),
) -> bool {
    match cache {
        CacheChoice::Warm => true,
        CacheChoice::Cold => false,
        CacheChoice::Recorded => {
            let before = state.cold_ends.get(&offset).copied().unwrap_or(false);
            let is_cold = before || operation.source == Source::Device;
            state.cold_ends.insert(end, is_cold);
            !is_cold
        }
    }
}

#[cfg(test)]
mod tests {
    use ringwise_trace::{End, Interface};

    use super::*;
    use crate::program::traced::tests::{file, number, operation, traced};

    fn at(operation: Operation, offset: u64) -> Operation {
        Operation { offset: Some(offset), ..operation }
    }

    fn script(operations: Vec<Operation>) -> Script {
        Script::of(&traced(operations), CacheChoice::Recorded, false)
    }

    #[test]
    fn a_thread_waits_for_what_it_had_waited_for_and_thinks_as_long() {
        let script = script(vec![
            operation(1, Kind::Read, (100, 50)),
            operation(2, Kind::Read, (110, 500)),
            operation(1, Kind::Read, (170, 30)),
            operation(1, Kind::DataSync, (200, 40)),
        ]);
        assert_eq!(script.threads.len(), 2);
        let order: Vec<_> =
            script.threads[0].iter().map(|step| (step.after, step.think_ns)).collect();
        assert_eq!(order, [(0, 0), (1, 20), (2, 0)]);
        assert_eq!((script.threads[1][0].think_ns, script.depth, script.span_ns), (10, 2, 510));
        assert_eq!((script.steps(), script.recorded_ns()), (4, 50 + 30 + 40 + 500));
    }

    #[test]
    fn a_thread_computes_as_long_as_it_did_between_the_steps_that_are_replayed() {
        let computing = |kind, at, computed_ns| Operation { computed_ns, ..operation(1, kind, at) };
        let script = script(vec![
            computing(Kind::Read, (0, 1), None),
            computing(Kind::Receive, (50, 1), Some(20)),
            computing(Kind::Read, (100, 1), Some(30)),
            computing(Kind::Read, (200, 1), Some(40)),
        ]);
        let steps = script.threads[0].iter().map(|step| (step.think_ns, step.computed_ns));
        assert_eq!(steps.collect::<Vec<_>>(), [(0, 0), (99, 50), (99, 40)]);
    }

    #[test]
    fn a_ring_keeps_its_depth() {
        let ring = |begin, duration| Operation {
            interface: Interface::IoUring,
            ..operation(1, Kind::Read, (begin, duration))
        };
        // Two in flight; the third begins when the second has ended, before the first.
        let script = script(vec![ring(0, 100), ring(0, 40), ring(50, 100), ring(160, 10)]);
        let order: Vec<_> =
            script.threads[0].iter().map(|step| (step.after, step.think_ns)).collect();
        assert_eq!(order, [(0, 0), (0, 0), (1, 10), (3, 10)]);
        assert!(script.is_asynchronous());
    }

    #[test]
    fn a_thread_has_what_it_had_for_most_of_its_operations() {
        use Interface::{BlockLayer, IoUring, LinuxAio, Syscall};
        let means = |interfaces: &[Interface]| {
            let operations = interfaces.iter().zip(0_u64..);
            let script = script(
                operations
                    .map(|(interface, at)| Operation {
                        interface: *interface,
                        ..operation(1, Kind::Read, (at * 10, 1))
                    })
                    .collect(),
            );
            Means::of(&script.threads[0])
        };
        assert_eq!(means(&[Syscall, Syscall, LinuxAio]), Means::Calls);
        assert_eq!(means(&[Syscall, LinuxAio]), Means::Calls);
        assert_eq!(means(&[Syscall, LinuxAio, LinuxAio, IoUring]), Means::LinuxAio);
        assert_eq!(means(&[IoUring, LinuxAio]), Means::Ring);
        assert_eq!(means(&[BlockLayer]), Means::Ring);
    }

    #[test]
    fn files_have_what_is_read_and_grow_as_they_grew() {
        let script = script(vec![
            at(operation(1, Kind::Read, (0, 1)), 8192),
            at(operation(1, Kind::Write, (10, 1)), 1 << 20),
            at(operation(1, Kind::Read, (20, 1)), 1 << 20),
            at(operation(1, Kind::Write, (30, 1)), 0),
        ]);
        let body = &script.bodies[0];
        assert_eq!((body.bytes, body.bytes_max), (1 << 20, (1 << 20) + 4096));
        assert_eq!(body.filled.bytes(), 8192, "what is read and what is overwritten");
        assert_eq!(body.cached.bytes(), 4096, "what is read back after a write is not prepared");
        assert_eq!(script.space_bytes(), 8192 + 4096);
        assert!(script.has_unknown_sources);
    }

    #[test]
    fn a_file_that_was_made_again_is_empty_again() {
        let write = |begin| operation(1, Kind::Write, (begin, 1));
        let again = Operation { file: Some(FileId(number(2))), ..write(10) };
        let mut trace = traced(vec![write(0), again]);
        let made = |id, made_ns| File {
            name: Name::Path("/journal".into()),
            made_ns: Some(made_ns),
            ..file(id, 4096)
        };
        trace.files = vec![made(1, 0), made(2, 9)];
        let script = Script::of(&trace, CacheChoice::Recorded, false);
        let lengths = |body: &Body| (body.bytes, body.bytes_max);
        assert_eq!(script.bodies.iter().map(lengths).collect::<Vec<_>>(), [(0, 4096); 2]);
    }

    #[test]
    fn the_first_step_of_each_handle_is_marked_over_all_threads() {
        let read = |thread, begin| operation(thread, Kind::Read, (begin, 1));
        let other = Operation { file: Some(FileId(number(2))), ..read(2, 5) };
        let mut trace = traced(vec![read(1, 20), read(1, 30), other, read(2, 10)]);
        trace.files = vec![file(1, 4096), file(2, 4096)];
        trace.operations.sort_by_key(|own| own.begin_ns);
        let script = Script::of(&trace, CacheChoice::Recorded, false);
        let of = |thread: usize| script.threads[thread].iter().map(|step| step.is_first);
        assert_eq!(of(0).collect::<Vec<_>>(), [false, false]);
        assert_eq!(of(1).collect::<Vec<_>>(), [true, true]);
    }

    #[test]
    fn read_ahead_is_no_warm_cache() {
        let read = |begin, offset, source| Operation {
            source,
            ..at(operation(1, Kind::Read, (begin, 1)), offset)
        };
        let operations = vec![
            read(0, 0, Source::Device),
            read(10, 4096, Source::Cache),
            read(20, 65536, Source::Cache),
        ];
        let cached = |cache| {
            let script = Script::of(&traced(operations.clone()), cache, false);
            script.bodies[0].cached.clone()
        };
        let mut expected = Ranges::default();
        expected.add(65536, 65536 + 4096);
        assert_eq!(cached(CacheChoice::Recorded), expected);
        assert_eq!(cached(CacheChoice::Cold).bytes(), 0);
        assert_eq!(cached(CacheChoice::Warm).bytes(), 3 * 4096);
    }

    #[test]
    fn what_a_read_got_is_asked_for_where_the_file_is_longer_now() {
        let short = |begin, offset, bytes| Operation {
            asked_bytes: Some(65536),
            outcome: Outcome::Done { bytes },
            ..at(operation(1, Kind::Read, (begin, 1)), offset)
        };
        // At the end of 1 MiB the rest is short, and after that nothing: the file ends there in the replay too.
        let end = script(vec![short(0, (1 << 20) - 100, 100), short(10, 1 << 20, 0)]);
        assert!(end.threads[0].iter().all(|step| step.length == 65536));
        // In the middle it was short for another reason.
        let middle = script(vec![short(0, 0, 100)]);
        assert_eq!((middle.threads[0][0].length, middle.threads[0][0].bytes), (100, 100));
    }

    #[test]
    fn what_recording_added_is_no_time_of_the_program() {
        let read = |begin, duration| operation(1, Kind::Read, (begin, duration));
        let ring = Operation { interface: Interface::IoUring, ..read(2000, 900) };
        let mut trace = traced(vec![read(0, 1500), read(5000, 300), ring]);
        trace.end = Some(End { added_ns_in_duration: Some(400), ..End::default() });
        assert_eq!(Script::of(&trace, CacheChoice::Recorded, false).recorded_ns(), 1100 + 900);
        assert_eq!(Script::of(&trace, CacheChoice::Recorded, true).recorded_ns(), 1500 + 300 + 900);
    }

    #[test]
    fn what_cannot_be_replayed_is_counted() {
        let mut trace = traced(vec![
            operation(1, Kind::Read, (0, 1)),
            operation(1, Kind::Send, (1, 1)),
            operation(1, Kind::Copy, (2, 1)),
            Operation { file: None, ..operation(1, Kind::Write, (3, 1)) },
            Operation { offset: None, ..operation(1, Kind::Read, (4, 1)) },
            Operation { outcome: Outcome::Unfinished, ..operation(1, Kind::Read, (5, 1)) },
        ]);
        let counted = LeftOut { sockets: 1, pipes: 0, copies: 1, unknown: 2, failed: 1 };
        let replayed = Script::of(&trace, CacheChoice::Recorded, false);
        assert_eq!((replayed.left_out, replayed.steps()), (counted, 1));
        assert_eq!(counted.words()[0], "1 on sockets");
        trace.files[0] = File { name: Name::Path("/proc/self/stat".into()), ..file(1, 0) };
        assert_eq!(Script::of(&trace, CacheChoice::Recorded, false).steps(), 0);
        trace.files[0] = File { kind: FileKind::Pipe, ..file(1, 0) };
        assert_eq!(Script::of(&trace, CacheChoice::Recorded, false).left_out.pipes, 3);
    }
}
