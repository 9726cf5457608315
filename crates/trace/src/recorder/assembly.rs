//! Makes operations of events: pairs begins with ends, and follows descriptors and positions.
//!
//! It makes no syscalls except to ask for the name of a new thread. Descriptors that it does not know are asked for
//! with [`Assembly::take_questions`]; the answer is an event. Until then their operations have no file.

mod ring;

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap, HashSet},
    ffi::OsStr,
    hash::{BuildHasher, RandomState},
    os::unix::ffi::OsStrExt,
};

use self::ring::Requests;
use super::event::{AioName, AioRequest, Described, Event, Stamped};
use crate::{
    call::{CALLS, Call, Io, Length, Offset},
    descriptor::{Descriptors, Identity, OpenFile},
    model::{
        End, FileId, FileKind, Interface, Kind, Lost, Name, OpenFlags, Operation, Outcome, Record,
        Source, ThreadId,
    },
    registry::{Opened, Registry},
};

/// The bytes of a page in the page cache.
const PAGE_BYTES: u64 = 4096;

/// The most files that are known by device and number.
const IDENTITIES_MAX: usize = 1 << 16;

/// The most requests of io_uring that are followed at a time, and as many of Linux AIO.
const REQUESTS_MAX: usize = 1 << 16;

/// Tells the name of a thread of a process.
type ThreadName = fn(u32, u32) -> String;

/// What depends on the recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    pub(super) began_ns: u64,
    /// The same moment since 1970, to tell which files were made later.
    pub(super) began_unix_ns: u64,
    pub(super) is_private: bool,
    /// Whether events tell when pages come into the page cache and when a thread waits.
    pub(super) sees_pages: bool,
    /// Whether events tell when a thread has a processor.
    pub(super) sees_processors: bool,
    /// Whether opens come as [`Event::Opened`], so that nobody has to ask.
    pub(super) has_opens: bool,
    pub(super) thread_name: ThreadName,
}

/// Events on their way to be operations.
#[derive(Debug)]
pub(super) struct Assembly {
    situation: Situation,
    /// The key of the hashes of names.
    key: RandomState,
    descriptors: Descriptors,
    registry: Registry,
    /// The files of each device and number, with whether they are open for direct I/O.
    identities: HashMap<Identity, Vec<(FileId, bool)>>,
    /// Processes whose syscalls have other numbers.
    foreign: HashSet<u32>,
    calls: HashMap<u32, InCall>,
    /// What threads do since their last operation by a syscall.
    pauses: HashMap<u32, Pause>,
    requests: Requests,
    /// By process and name: the thread, the begin and the request.
    aio: HashMap<(u32, AioName), (u32, u64, AioRequest)>,
    in_flight: InFlight,
    questions: Questions,
    records: Vec<Record>,
    /// What the end record will say.
    end: End,
}

/// What the recorder has to look up in `/proc`.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// Descriptors of processes.
    pub(super) descriptors: HashSet<(u32, i32)>,
    /// Processes with all their descriptors.
    pub(super) processes: HashSet<u32>,
}

/// A syscall that has not returned.
#[derive(Debug)]
struct InCall {
    place: u16,
    pid: u32,
    arguments: [u64; 6],
    begin_ns: u64,
    /// How long the thread computed before it.
    computed_ns: Option<u64>,
    watch: Watch,
}

/// The time of a thread after an operation.
#[derive(Clone, Copy, Debug)]
struct Pause {
    since_ns: u64,
    /// How much of it the thread had no processor.
    away_ns: u64,
    /// Since when it has none.
    left_ns: Option<u64>,
}

/// What was seen of the page cache and of the device during a read.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    /// The pages that are read: the file, the first and the last.
    wanted: Option<(Identity, u64, u64)>,
    /// The offset and the bytes of a direct operation.
    direct: Option<(Identity, u64, u64)>,
    has_missed: bool,
    /// Pages came into the page cache, and nobody can tell whether they were wanted.
    may_have_missed: bool,
    has_waited: bool,
}

impl Watch {
    fn added(&mut self, identity: Identity, first: u64, count: u64) {
        match self.wanted {
            Some((wanted, from, to)) if wanted == identity => {
                self.has_missed |= first <= to && from < first.saturating_add(count);
            }
            Some(_) => {}
            None => self.may_have_missed = true,
        }
    }
}

/// How many operations are in flight, and how often there were how many.
#[derive(Debug, Default)]
struct InFlight {
    now: u64,
    counts: BTreeMap<u64, u64>,
}

impl InFlight {
    fn begin(&mut self) {
        self.now += 1;
        *self.counts.entry(self.now).or_default() += 1;
    }

    fn end(&mut self) {
        self.now = self.now.saturating_sub(1);
    }

    fn max(&self) -> u64 {
        self.counts.last_key_value().map_or(0, |(count, _)| *count)
    }

    fn median(&self) -> u64 {
        let half = self.counts.values().sum::<u64>().div_ceil(2);
        let mut seen = 0;
        let median = self.counts.iter().find(|(_, times)| {
            seen += **times;
            seen >= half
        });
        median.map_or(0, |(count, _)| *count)
    }
}

impl Assembly {
    pub(super) fn new(situation: Situation) -> Assembly {
        Assembly {
            situation,
            key: RandomState::new(),
            descriptors: Descriptors::default(),
            registry: Registry::default(),
            identities: HashMap::new(),
            foreign: HashSet::new(),
            calls: HashMap::new(),
            pauses: HashMap::new(),
            requests: Requests::default(),
            aio: HashMap::new(),
            in_flight: InFlight::default(),
            questions: Questions::default(),
            records: Vec::new(),
            end: End::default(),
        }
    }

    /// Takes the next event. Events come in the order of their times.
    pub(super) fn take(&mut self, stamped: Stamped) {
        let Stamped { time_ns, pid, tid, event } = stamped;
        match event {
            Event::Enter { call, arguments } => self.enter(call, arguments, (time_ns, pid, tid)),
            Event::Exit { result } => self.exit(result, (time_ns, tid)),
            Event::RingSubmit { .. } | Event::RingFile { .. } | Event::RingComplete { .. } => {
                self.ring_event(event, (time_ns, pid, tid));
            }
            Event::PagesAdded { identity, first, count } => {
                self.watch(tid, |watch| watch.added(identity, first, count));
            }
            Event::PagesWanted { identity, first, last } => self.watch(tid, |watch| {
                watch.wanted.get_or_insert((identity, first, last));
            }),
            Event::DirectBegin { identity, offset, bytes } => self.watch(tid, |watch| {
                watch.direct.get_or_insert((identity, offset, bytes));
            }),
            Event::Waited => {
                self.watch(tid, |watch| watch.has_waited = true);
                self.requests.submission_ended(tid);
                self.left(tid, time_ns);
            }
            Event::Preempted => self.left(tid, time_ns),
            Event::Resumed => self.resumed(tid, time_ns),
            Event::AioSubmit(_) | Event::AioRefused(_) | Event::AioReap(_) => {
                self.aio_event(event, (time_ns, pid, tid));
            }
            Event::Lost { events } => self.lost(time_ns, events),
            other => self.process_event(other, (time_ns, pid, tid)),
        }
    }

    /// Begins and ends of processes, and what their descriptors refer to.
    fn process_event(&mut self, event: Event, (time_ns, pid, tid): (u64, u32, u32)) {
        match event {
            Event::Forked { parent } => {
                self.descriptors.fork(parent, pid);
                if self.foreign.contains(&parent) {
                    self.foreign.insert(pid);
                }
            }
            // The tracer of a command tells its descriptors at once.
            Event::Executed if self.situation.has_opens => {}
            Event::Executed => {
                self.descriptors.forget(pid);
                self.questions.processes.insert(pid);
            }
            Event::Ended => self.thread_ended(time_ns, pid, tid),
            Event::Opened { descriptor, described, since_ns } => {
                self.opened((pid, descriptor), *described, since_ns);
            }
            Event::Table { table, since_ns, is_foreign } => {
                self.descriptors.forget(pid);
                match is_foreign {
                    true => self.foreign.insert(pid),
                    false => self.foreign.remove(&pid),
                };
                for (descriptor, described) in table {
                    self.opened((pid, descriptor), described, since_ns);
                }
            }
            _ => {}
        }
    }

    fn aio_event(&mut self, event: Event, (time_ns, pid, tid): (u64, u32, u32)) {
        match event {
            Event::AioSubmit(requests) => {
                for request in requests.into_iter().filter(|request| aio_kind(request).is_some()) {
                    if self.aio.len() >= REQUESTS_MAX {
                        self.end.unseen_requests += 1;
                        continue;
                    }
                    let name = (pid, request.name);
                    self.in_flight.begin();
                    if self.aio.insert(name, (tid, time_ns, request)).is_some() {
                        // The end of the earlier request was not seen. The two have the same name.
                        self.in_flight.end();
                        self.end.unseen_requests += 1;
                    }
                }
            }
            Event::AioRefused(names) => {
                for name in names {
                    if self.aio.remove(&(pid, name)).is_some() {
                        self.in_flight.end();
                    }
                }
            }
            Event::AioReap(completions) => {
                completions.iter().for_each(|done| self.aio_completed(pid, *done, time_ns));
            }
            _ => {}
        }
    }

    /// The records so far.
    pub(super) fn take_records(&mut self) -> std::vec::Drain<'_, Record> {
        self.records.drain(..)
    }

    /// What has to be looked up.
    pub(super) fn take_questions(&mut self) -> Questions {
        std::mem::take(&mut self.questions)
    }

    /// Whether the program was seen to use io_uring.
    pub(super) fn uses_ring(&self) -> bool {
        self.requests.were_seen()
    }

    /// Ends all operations that are in flight, and returns what is known of the recording.
    pub(super) fn finish(&mut self, time_ns: u64) -> End {
        let mut tids: Vec<u32> = self.calls.keys().copied().collect();
        tids.sort_unstable();
        tids.into_iter().for_each(|tid| self.unfinished(time_ns, tid));
        self.end_requests(time_ns);
        let mut aio: Vec<_> = std::mem::take(&mut self.aio).into_iter().collect();
        aio.sort_by_key(|((pid, name), (_, begin_ns, _))| (*begin_ns, *pid, *name));
        for ((pid, _), submitted) in aio {
            self.aio_operation((pid, submitted), Outcome::Unfinished, time_ns);
        }
        self.end.in_flight_max = self.in_flight.max();
        self.end.in_flight_median = self.in_flight.median();
        std::mem::take(&mut self.end)
    }

    /// A thread has no processor from now on.
    fn left(&mut self, tid: u32, time_ns: u64) {
        if let Some(pause) = self.pauses.get_mut(&tid) {
            pause.left_ns.get_or_insert(time_ns);
        }
    }

    fn resumed(&mut self, tid: u32, time_ns: u64) {
        if let Some(pause) = self.pauses.get_mut(&tid)
            && let Some(left_ns) = pause.left_ns.take()
        {
            pause.away_ns += time_ns.saturating_sub(left_ns);
        }
    }

    fn watch(&mut self, tid: u32, change: impl FnOnce(&mut Watch)) {
        if let Some(call) = self.calls.get_mut(&tid)
            && matches!(CALLS[usize::from(call.place)].2, Call::Io(_))
        {
            change(&mut call.watch);
        } else if let Some(request) = self.requests.being_submitted(tid) {
            change(&mut request.watch);
        }
    }

    fn enter(&mut self, place: u16, arguments: [u64; 6], (time_ns, pid, tid): (u64, u32, u32)) {
        let Some((_, _, call)) = CALLS.get(usize::from(place)) else { return };
        if self.foreign.contains(&pid) {
            return;
        }
        let (mut watch, mut computed_ns) = (Watch::default(), None);
        if let Call::Io(io) = call {
            self.in_flight.begin();
            let pause = self.pauses.remove(&tid);
            computed_ns =
                pause.map(|own| time_ns.saturating_sub(own.since_ns).saturating_sub(own.away_ns));
            if io.kind == Kind::Read && self.situation.sees_pages {
                watch.wanted = self.wanted(*io, pid, &arguments);
            }
        }
        let entered = InCall { place, pid, arguments, begin_ns: time_ns, computed_ns, watch };
        if let Some(before) = self.calls.insert(tid, entered)
            && matches!(CALLS[usize::from(before.place)].2, Call::Io(_))
        {
            // Its end was lost.
            self.in_flight.end();
        }
    }

    /// The pages that a read wants, as far as its arguments tell.
    fn wanted(&self, io: Io, pid: u32, arguments: &[u64; 6]) -> Option<(Identity, u64, u64)> {
        let open = self.descriptors.get(pid, arguments[io.descriptor?] as i32)?.get();
        let identity = open.identity.filter(|_| open.has_cache)?;
        let offset = match io.offset {
            Offset::Argument(place) => arguments[place],
            Offset::Position => open.position?,
            _ => return None,
        };
        let Length::Argument(place) = io.length else { return None };
        let last = offset.checked_add(arguments[place])?.checked_sub(1)?;
        Some((identity, offset / PAGE_BYTES, last / PAGE_BYTES))
    }

    fn exit(&mut self, result: i64, (time_ns, tid): (u64, u32)) {
        self.requests.submission_ended(tid);
        // Without a begin, it began before the recording, or the begin was lost.
        let Some(call) = self.calls.remove(&tid) else { return };
        let outcome = outcome(result);
        match (CALLS[usize::from(call.place)].2, outcome) {
            (Call::Io(io), outcome) => {
                self.in_flight.end();
                if self.situation.sees_processors {
                    let pause = Pause { since_ns: time_ns, away_ns: 0, left_ns: None };
                    self.pauses.insert(tid, pause);
                }
                self.syscall((io, call), outcome, (time_ns, tid));
            }
            (Call::AioSubmit | Call::RingEnter, Outcome::Done { bytes }) => {
                self.end.unseen_requests += bytes;
            }
            (Call::Close, _) => self.descriptors.close(call.pid, call.arguments[0] as i32),
            (other, Outcome::Done { bytes }) => {
                self.descriptor_call((other, &call), bytes, time_ns)
            }
            _ => {}
        }
    }

    fn descriptor_call(&mut self, (kind, call): (Call, &InCall), result: u64, time_ns: u64) {
        let (pid, arguments) = (call.pid, &call.arguments);
        let (first, new) = (arguments[0] as i32, result as i32);
        match kind {
            Call::Open if !self.situation.has_opens => {
                self.descriptors.close(pid, new);
                self.questions.descriptors.insert((pid, new));
            }
            Call::Socket => {
                // A busy server has too many of them to look at each.
                let name = self.name("socket".as_ref());
                let socket = Opened::new(name, FileKind::Socket, OpenFlags::default());
                let file = self.registry.file(socket, None, &mut self.records);
                let open = OpenFile { file, since_ns: time_ns, ..OpenFile::default() };
                self.descriptors.open(pid, new, open, true);
            }
            Call::Duplicate => self.descriptors.duplicate(pid, first, new, false),
            Call::Control => match arguments[1] as i32 {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
                    self.descriptors.duplicate(pid, first, new, false);
                }
                libc::F_SETFL => {
                    self.descriptors.close(pid, first);
                    self.questions.descriptors.insert((pid, first));
                }
                _ => {}
            },
            Call::CloseRange if arguments[2] as u32 & libc::CLOSE_RANGE_CLOEXEC == 0 => {
                self.descriptors.close_range(pid, arguments[0] as u32, arguments[1] as u32);
            }
            Call::Seek => {
                if let Some(open) = self.descriptors.get(pid, first) {
                    open.set(OpenFile { position: Some(result), ..open.get() });
                }
            }
            _ => {}
        }
    }

    fn syscall(&mut self, (io, call): (Io, InCall), outcome: Outcome, (time_ns, tid): (u64, u32)) {
        let outcome = match outcome {
            Outcome::Done { .. }
                if io.length == Length::Messages
                    || matches!(io.kind, Kind::Sync | Kind::DataSync) =>
            {
                Outcome::Done { bytes: 0 }
            }
            other => other,
        };
        let moved = match outcome {
            Outcome::Done { bytes } => Some(bytes),
            Outcome::Failed { .. } => Some(0),
            Outcome::Unfinished => None,
        };
        let is_bad = outcome == Outcome::Failed { errno: libc::EBADF as u16 };
        let mut side = |place: usize, offset, kind| {
            let descriptor = call.arguments[place] as i32;
            let Some(open) = self.descriptors.get(call.pid, descriptor) else {
                if !is_bad {
                    self.questions.descriptors.insert((call.pid, descriptor));
                }
                return (OpenFile::default(), None);
            };
            let at = begin_of(open, (offset, kind), (&call, moved));
            (open.get(), at)
        };
        let (open, offset) = match io.descriptor {
            Some(place) => side(place, io.offset, io.kind),
            None => (OpenFile::default(), None),
        };
        let target = io.target.and_then(|(place, offset)| side(place, offset, Kind::Write).0.file);
        let asked_bytes = match io.length {
            _ if matches!(io.kind, Kind::Sync | Kind::DataSync) => Some(0),
            Length::Argument(place) => Some(call.arguments[place]),
            Length::None | Length::Vector(_) | Length::Message(_) | Length::Messages => None,
        };
        let source = self.source(io.kind, &open, (&call.watch, outcome));
        let operation = Operation {
            thread: self.thread(call.pid, tid),
            file: open.file,
            target,
            kind: io.kind,
            offset,
            asked_bytes,
            outcome,
            begin_ns: self.since_began(call.begin_ns),
            duration_ns: time_ns.saturating_sub(call.begin_ns),
            is_direct: open.flags.is_direct,
            source,
            interface: Interface::Syscall,
            computed_ns: call.computed_ns,
        };
        self.add(operation);
    }

    /// Where the data of an operation came from or went to.
    fn source(&self, kind: Kind, open: &OpenFile, (watch, outcome): (&Watch, Outcome)) -> Source {
        let has_moved = matches!(outcome, Outcome::Done { bytes: 1.. });
        match kind {
            Kind::Sync | Kind::DataSync if outcome == (Outcome::Done { bytes: 0 }) => {
                Source::Device
            }
            Kind::Read | Kind::Write if !open.has_cache || !has_moved => Source::Unknown,
            Kind::Read | Kind::Write if open.flags.is_direct => Source::Device,
            Kind::Write if open.flags.is_sync || open.flags.is_data_sync => Source::Device,
            Kind::Read if watch.has_missed => Source::Device,
            Kind::Read | Kind::Write
                if self.situation.sees_pages && !watch.has_waited && !watch.may_have_missed =>
            {
                Source::Cache
            }
            _ => Source::Unknown,
        }
    }

    fn opened(&mut self, (pid, descriptor): (u32, i32), described: Described, since_ns: u64) {
        let Described { name, kind, size_bytes, flags, is_close_on_exec, position, .. } = described;
        let identity = described.identity;
        let made_ns = described
            .made_unix_ns
            .and_then(|made_ns| made_ns.checked_sub(self.situation.began_unix_ns));
        let opened = Opened { name: self.name(&name), kind, flags, made_ns };
        let file = self.registry.file(opened, size_bytes, &mut self.records);
        if let Some(file) = file {
            if self.identities.len() >= IDENTITIES_MAX {
                self.identities.clear();
            }
            let files = self.identities.entry(identity).or_default();
            if !files.iter().any(|(known, _)| *known == file) && files.len() < 16 {
                files.push((file, flags.is_direct));
            }
        }
        let open = OpenFile {
            file,
            flags,
            position,
            has_cache: matches!(kind, FileKind::Regular | FileKind::Block),
            identity: Some(identity),
            since_ns,
        };
        self.descriptors.open(pid, descriptor, open, is_close_on_exec);
    }

    fn name(&self, name: &OsStr) -> Name {
        match self.situation.is_private {
            true => Name::Hash(self.key.hash_one(name.as_bytes())),
            false => Name::Path(name.to_owned()),
        }
    }

    fn thread(&mut self, pid: u32, tid: u32) -> ThreadId {
        let Situation { thread_name, is_private, .. } = self.situation;
        // A thread is called as its program, unless that gave it another name.
        let name = || if is_private { String::new() } else { thread_name(pid, tid) };
        self.registry.thread(tid, || (pid, name()), &mut self.records)
    }

    fn thread_ended(&mut self, time_ns: u64, pid: u32, tid: u32) {
        self.unfinished(time_ns, tid);
        self.requests.submission_ended(tid);
        self.pauses.remove(&tid);
        self.registry.forget_thread(tid);
        if pid == tid {
            self.foreign.remove(&pid);
            self.descriptors.forget(pid);
        }
    }

    /// A thread is still in a syscall at the end.
    fn unfinished(&mut self, time_ns: u64, tid: u32) {
        if let Some(call) = self.calls.remove(&tid)
            && let Call::Io(io) = CALLS[usize::from(call.place)].2
        {
            self.in_flight.end();
            self.syscall((io, call), Outcome::Unfinished, (time_ns, tid));
        }
    }

    fn lost(&mut self, time_ns: u64, events: u64) {
        self.end.lost_events += events;
        let at_ns = self.since_began(time_ns);
        self.records.push(Record::Lost(Lost { at_ns, events }));
        // An end can be among them, and the begin after it: the next end is not that of the begin before.
        self.calls.clear();
        self.pauses.clear();
        self.requests.forget();
        self.in_flight.now = self.aio.len() as u64;
        // A close, a seek or an open can be among them too.
        self.descriptors.forget_positions();
        self.questions.processes.extend(self.descriptors.processes());
    }

    fn aio_completed(&mut self, pid: u32, (name, result): (AioName, i64), time_ns: u64) {
        if let Some(submitted) = self.aio.remove(&(pid, name)) {
            self.in_flight.end();
            self.aio_operation((pid, submitted), outcome(result), time_ns);
        }
    }

    fn aio_operation(
        &mut self,
        (pid, (tid, begin_ns, request)): (u32, (u32, u64, AioRequest)),
        outcome: Outcome,
        time_ns: u64,
    ) {
        let Some((kind, has_length)) = aio_kind(&request) else { return };
        let open = self.descriptors.get(pid, request.descriptor).map(Cell::get).unwrap_or_default();
        let is_sync = matches!(kind, Kind::Sync | Kind::DataSync);
        let watch = Watch { has_waited: true, ..Watch::default() };
        let source = self.source(kind, &open, (&watch, outcome));
        let operation = Operation {
            thread: self.thread(pid, tid),
            file: open.file,
            target: None,
            kind,
            offset: (!is_sync).then_some(request.offset),
            asked_bytes: if is_sync { Some(0) } else { has_length.then_some(request.bytes) },
            outcome,
            begin_ns: self.since_began(begin_ns),
            duration_ns: time_ns.saturating_sub(begin_ns),
            is_direct: open.flags.is_direct,
            source,
            interface: Interface::LinuxAio,
            computed_ns: None,
        };
        self.add(operation);
    }

    fn add(&mut self, operation: Operation) {
        self.end.unknown_files += u64::from(operation.file.is_none());
        self.records.push(Record::Operation(operation));
    }

    fn since_began(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.situation.began_ns)
    }
}

/// Where an operation began in an open file. Moves its position, if the operation does.
fn begin_of(
    open: &Cell<OpenFile>,
    (offset, kind): (Offset, Kind),
    (call, moved): (&InCall, Option<u64>),
) -> Option<u64> {
    let state = open.get();
    let is_append = kind == Kind::Write && state.flags.is_append;
    let explicit = match offset {
        Offset::None => return None,
        Offset::Argument(place) => Some(call.arguments[place]),
        Offset::ArgumentOrPosition(place) if call.arguments[place] != u64::MAX => {
            Some(call.arguments[place])
        }
        // The offset is in the memory of the process.
        Offset::Pointer(place) if call.arguments[place] != 0 => return None,
        Offset::ArgumentOrPosition(_) | Offset::Pointer(_) | Offset::Position => None,
    };
    if explicit.is_some() {
        return explicit.filter(|_| !is_append);
    }
    // What is known of the position may include this operation already.
    let is_known = state.since_ns <= call.begin_ns && !is_append;
    let begin = state.position.filter(|_| is_known);
    let position = begin.zip(moved).and_then(|(begin, moved)| begin.checked_add(moved));
    open.set(OpenFile { position, ..state });
    begin
}

/// What a syscall or a request returned.
fn outcome(result: i64) -> Outcome {
    match result {
        // The kernel restarts the call: linux/errno.h, ERESTARTSYS to ERESTART_RESTARTBLOCK.
        -516..=-512 => Outcome::Failed { errno: libc::EINTR as u16 },
        -4095..=-1 => Outcome::Failed { errno: -result as u16 },
        _ => Outcome::Done { bytes: result.max(0).cast_unsigned() },
    }
}

/// What a request of Linux AIO does, and whether it says how many bytes (linux/aio_abi.h).
fn aio_kind(request: &AioRequest) -> Option<(Kind, bool)> {
    match request.opcode {
        0 => Some((Kind::Read, true)),
        1 => Some((Kind::Write, true)),
        2 => Some((Kind::Sync, true)),
        3 => Some((Kind::DataSync, true)),
        7 => Some((Kind::Read, false)),
        8 => Some((Kind::Write, false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
