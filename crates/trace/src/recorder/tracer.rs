//! A tracer: it sees the stops of traced threads and tells what they mean. It also follows a command to its end.
//!
//! With tracepoints, it tells only which file each open gave, and the requests of Linux AIO, whose memory it reads while
//! the command is stopped. Without, it tells every syscall that matters. All waits are in one thread, the one that
//! started the command or attached to it, because ptrace(2) allows no other. `attached` follows running processes.

use std::{
    collections::HashMap,
    io::IoSliceMut,
    process::{Child, Command},
    sync::mpsc::SyncSender,
};

use nix::{
    sys::{
        ptrace::{self, Options},
        uio::{RemoteIoVec, process_vm_readv},
    },
    unistd::Pid,
};

use super::{
    clock,
    error::{self, RecordError},
    event::{AioName, AioRequest, Event, Stamped},
    process, requests,
    stop::{self, Stop},
    tracee::Stops,
};
use crate::call::{CALLS, Call};

/// The most control blocks or completions that are read at a time.
const AIO_BATCH_MAX: u64 = 4096;

/// The number of a stop at a filter (`PTRACE_EVENT_SECCOMP`).
const AT_FILTER: i32 = libc::PTRACE_EVENT_SECCOMP;

/// The number of a stop of a thread that was attached, or that such a thread made.
pub(super) const STOPPED: i32 = libc::PTRACE_EVENT_STOP;

/// What a tracer is told of: new threads and children, other programs, and which stops are of syscalls.
pub(super) const OPTIONS: Options = Options::PTRACE_O_TRACESYSGOOD
    .union(Options::PTRACE_O_TRACEFORK)
    .union(Options::PTRACE_O_TRACEVFORK)
    .union(Options::PTRACE_O_TRACECLONE)
    .union(Options::PTRACE_O_TRACEEXEC);

/// Where threads stop at a syscall that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// At their filter, which stops only what matters.
    Filter,
    /// At each syscall, because a running program cannot be given a filter.
    Every,
}

/// Threads that are traced.
pub(super) struct Tracer {
    stops: Stops,
    entry: Entry,
    pub(super) threads: HashMap<Pid, TracedThread>,
    events: SyncSender<Stamped>,
    has_run: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TracedThread {
    /// Its process, once it was asked for.
    pid: Option<u32>,
    /// Whether its next stop at a syscall is the end of one.
    is_inside: bool,
    /// The syscall that it is in, if its end matters.
    call: Option<(Call, [u64; 6])>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// As a shell gives it: the exit status, or 128 and the number of the signal.
    pub(super) status: u8,
    /// Whether the command itself ran.
    pub(super) has_run: bool,
}

/// Starts this program again as the child that becomes the command, and waits until it stops.
///
/// # Errors
///
/// The child did not start, or may not be traced.
pub(super) fn start(mut command: Command) -> Result<Child, RecordError> {
    let child =
        command.spawn().map_err(|error| RecordError::on("starting", "/proc/self/exe", &error))?;
    wait_for_stop(&child)?;
    Ok(child)
}

/// Waits until the child lets itself be traced.
pub(super) fn wait_for_stop(child: &Child) -> Result<(), RecordError> {
    let pid = Pid::from_raw(child.id().cast_signed());
    match stop::of_child(pid) {
        Ok(Stop::Signal(libc::SIGSTOP)) => {}
        Ok(Stop::Exited(status)) => {
            return Err(RecordError::NotStarted { status: u8::try_from(status).unwrap_or(1) });
        }
        Ok(other) => {
            return Err(RecordError::Failed(format!("the command did not stop: {other:?}")));
        }
        Err(error) => return Err(error::ptrace(error)),
    }
    let options = OPTIONS | Options::PTRACE_O_TRACESECCOMP | Options::PTRACE_O_EXITKILL;
    ptrace::setoptions(pid, options).map_err(error::ptrace)
}

impl Tracer {
    /// A tracer that knows no thread yet.
    pub(super) fn new((stops, entry): (Stops, Entry), events: SyncSender<Stamped>) -> Tracer {
        Tracer { stops, entry, threads: HashMap::new(), events, has_run: false }
    }

    /// Lets a command run that was started as `child`, and returns when it and all its children have ended.
    ///
    /// # Errors
    ///
    /// What ptrace(2) or wait(2) report. The kernel kills the command when the recorder ends.
    pub(super) fn run(mut self, child: &Child) -> Result<Ended, RecordError> {
        let child = Pid::from_raw(child.id().cast_signed());
        let (mut status, mut stops) = (1, Vec::new());
        self.threads.entry(child).or_default();
        self.resume(child, 0);
        loop {
            match stop::next(&mut stops) {
                Ok(()) => {}
                Err(rustix::io::Errno::CHILD) => {
                    return Ok(Ended { status, has_run: self.has_run });
                }
                Err(error) => return Err(error::ptrace(error)),
            }
            for (pid, stop) in stops.drain(..) {
                match stop {
                    Stop::Exited(code) if pid == child => status = u8::try_from(code).unwrap_or(1),
                    Stop::Killed(signal) if pid == child => {
                        status = u8::try_from(128 + signal).unwrap_or(u8::MAX);
                    }
                    _ => {}
                }
                self.stopped(pid, stop);
            }
        }
    }

    /// Tells what a stop means, and lets the thread go on.
    pub(super) fn stopped(&mut self, thread: Pid, stop: Stop) {
        match stop {
            Stop::Exited(_) | Stop::Killed(_) => self.ended(thread),
            Stop::Event(AT_FILTER, _) => self.enter(thread),
            Stop::Event(STOPPED, signal) => {
                self.threads.entry(thread).or_default();
                // It was attached or interrupted, or is new, or SIGCONT came.
                if signal == libc::SIGTRAP {
                    return self.resume(thread, 0);
                }
                // If this fails the thread is gone, and the next wait says so.
                let _ = requests::listen(thread);
            }
            Stop::Event(kind, _) => self.event(thread, kind),
            Stop::Syscall => match self.threads.get(&thread).is_some_and(|own| own.is_inside) {
                true => self.exit(thread),
                false => self.enter(thread),
            },
            Stop::Signal(signal) => {
                // A new thread of a command begins with a stop that nobody sent.
                let is_first = !self.threads.contains_key(&thread);
                self.threads.entry(thread).or_default();
                let is_sent = !is_first || signal != libc::SIGSTOP;
                self.resume(thread, if is_sent { signal } else { 0 });
            }
        }
    }

    /// Lets a thread go on, to the end of its syscall if that matters.
    fn resume(&mut self, thread: Pid, signal: i32) {
        let is_in_call = self.threads.get(&thread).is_some_and(|state| state.call.is_some());
        // If this fails the thread is gone, and the next wait says so.
        let _ = match is_in_call || self.entry == Entry::Every {
            true => requests::go_on_to_syscall(thread, signal),
            false => requests::go_on(thread, signal),
        };
    }

    fn send(&mut self, thread: Pid, event: Event) {
        let tid = thread.as_raw().cast_unsigned();
        let state = self.threads.entry(thread).or_default();
        let pid = *state.pid.get_or_insert_with(|| process::process_of(tid).unwrap_or(tid));
        // After the end of the recording nobody listens.
        let _ = self.events.send(Stamped { time_ns: clock::now_ns(), pid, tid, event });
    }

    fn ended(&mut self, thread: Pid) {
        if self.stops == Stops::All {
            self.send(thread, Event::Ended);
        }
        self.threads.remove(&thread);
    }

    fn event(&mut self, thread: Pid, kind: i32) {
        // All of them happen within a syscall, whose begin may have been before the tracer came.
        let state = self.threads.entry(thread).or_default();
        state.is_inside = true;
        match kind {
            libc::PTRACE_EVENT_EXEC => {
                let pid = thread.as_raw().cast_unsigned();
                (state.pid, state.call, self.has_run) = (Some(pid), None, true);
                let table = process::descriptors(pid).unwrap_or_default();
                let (since_ns, is_foreign) = (clock::now_ns(), process::is_foreign(pid));
                self.send(thread, Event::Table { table, since_ns, is_foreign });
            }
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE
                if self.stops == Stops::All =>
            {
                self.spawned(thread);
            }
            _ => {}
        }
        self.resume(thread, 0);
    }

    /// A child begins with the descriptors that its parent has now.
    fn spawned(&mut self, parent: Pid) {
        let Ok(child) = ptrace::getevent(parent) else { return };
        let Ok(child) = u32::try_from(child) else { return };
        let own = parent.as_raw().cast_unsigned();
        let own =
            self.threads.get(&parent).and_then(|state| state.pid).or(process::process_of(own));
        if let (Some(parent), Some(pid)) = (own, process::process_of(child))
            && pid != parent
        {
            let event = Event::Forked { parent };
            let _ = self.events.send(Stamped { time_ns: clock::now_ns(), pid, tid: child, event });
        }
    }

    fn enter(&mut self, thread: Pid) {
        self.threads.entry(thread).or_default().is_inside = true;
        let found = registers(thread).and_then(|registers| {
            let place = CALLS.iter().position(|(_, number, _)| *number == registers.number)?;
            Some((place, registers.arguments))
        });
        if let Some((place, arguments)) = found {
            let call = CALLS[place].2;
            if !self.stops.includes(call) {
                return self.resume(thread, 0);
            }
            self.threads.entry(thread).or_default().call = Some((call, arguments));
            if call == Call::AioSubmit {
                let requests = aio_requests(thread, &arguments);
                self.send(thread, Event::AioSubmit(requests));
            } else if self.stops == Stops::All && !is_told_by_effect(call) {
                self.send(thread, Event::Enter { call: place as u16, arguments });
            }
        }
        self.resume(thread, 0);
    }

    fn exit(&mut self, thread: Pid) {
        let state = self.threads.entry(thread).or_default();
        state.is_inside = false;
        let call = state.call.take();
        let registers = registers(thread);
        if let (Some((call, arguments)), Some(Registers { result, .. })) = (call, registers) {
            match call {
                Call::Open => self.opened(thread, result as i32),
                Call::Pair if result == 0 => {
                    let place = if arguments[0] <= 0xffff { 3 } else { 0 };
                    let pair = read_memory::<8>(thread, arguments[place]);
                    for half in pair.iter().flat_map(|bytes| bytes.chunks_exact(4)) {
                        self.opened(
                            thread,
                            i32::from_ne_bytes(half.try_into().unwrap_or_default()),
                        );
                    }
                }
                Call::AioSubmit => {
                    let accepted = u64::try_from(result).unwrap_or(0) as usize;
                    let requests = aio_requests(thread, &arguments).into_iter().skip(accepted);
                    let refused: Vec<AioName> = requests.map(|request| request.name).collect();
                    if !refused.is_empty() {
                        self.send(thread, Event::AioRefused(refused));
                    }
                }
                Call::AioReap => {
                    let count = u64::try_from(result).unwrap_or(0).min(AIO_BATCH_MAX);
                    let completions = aio_completions(thread, arguments[3], count);
                    if !completions.is_empty() {
                        self.send(thread, Event::AioReap(completions));
                    }
                }
                _ if self.stops == Stops::All && !is_told_by_effect(call) => {
                    self.send(thread, Event::Exit { result });
                }
                _ => {}
            }
        }
        self.resume(thread, 0);
    }

    fn opened(&mut self, thread: Pid, descriptor: i32) {
        if descriptor < 0 {
            return;
        }
        let tid = thread.as_raw().cast_unsigned();
        if let Some(described) = process::describe(tid, descriptor) {
            let (described, since_ns) = (Box::new(described), clock::now_ns());
            self.send(thread, Event::Opened { descriptor, described, since_ns });
        }
    }
}

/// Calls whose effect is an event of its own.
fn is_told_by_effect(call: Call) -> bool {
    matches!(call, Call::Open | Call::Pair | Call::AioSubmit | Call::AioReap)
}

/// What of a thread's registers matters.
#[derive(Clone, Copy, Debug)]
struct Registers {
    number: i64,
    arguments: [u64; 6],
    /// Only at the end of a syscall.
    result: i64,
}

#[cfg(target_arch = "x86_64")]
fn registers(thread: Pid) -> Option<Registers> {
    let found = ptrace::getregs(thread).ok()?;
    Some(Registers {
        number: found.orig_rax.cast_signed(),
        arguments: [found.rdi, found.rsi, found.rdx, found.r10, found.r8, found.r9],
        result: found.rax.cast_signed(),
    })
}

#[cfg(target_arch = "aarch64")]
fn registers(thread: Pid) -> Option<Registers> {
    let found = ptrace::getregs(thread).ok()?.regs;
    let [a, b, c, d, e, f, ..] = found;
    let (number, result) = (found[8].cast_signed(), a.cast_signed());
    Some(Registers { number, arguments: [a, b, c, d, e, f], result })
}

fn read_bytes(thread: Pid, address: u64, bytes: &mut [u8]) -> Option<()> {
    let remote = RemoteIoVec { base: usize::try_from(address).ok()?, len: bytes.len() };
    let len = bytes.len();
    let count = process_vm_readv(thread, &mut [IoSliceMut::new(bytes)], &[remote]).ok()?;
    (count == len).then_some(())
}

fn read_memory<const N: usize>(thread: Pid, address: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    read_bytes(thread, address, &mut bytes)?;
    Some(bytes)
}

/// The control blocks of io_submit(2): a context, their number, and an array of pointers.
fn aio_requests(thread: Pid, arguments: &[u64; 6]) -> Vec<AioRequest> {
    let count = arguments[1].min(AIO_BATCH_MAX) as usize;
    let mut pointers = vec![0; count * 8];
    if read_bytes(thread, arguments[2], &mut pointers).is_none() {
        return Vec::new();
    }
    let request = |pointer: &[u8]| {
        let address = u64::from_ne_bytes(pointer.try_into().ok()?);
        let block = read_memory::<64>(thread, address)?;
        let long = |at: usize| u64::from_ne_bytes(block[at..at + 8].try_into().unwrap_or_default());
        Some(AioRequest {
            name: AioName { address, data: long(0) },
            opcode: u16::from_ne_bytes([block[16], block[17]]),
            descriptor: i32::from_ne_bytes([block[20], block[21], block[22], block[23]]),
            bytes: long(32),
            offset: long(40),
        })
    };
    pointers.chunks_exact(8).filter_map(request).collect()
}

/// The results of io_getevents(2): for each, the program's value, the address of the block, and two results.
fn aio_completions(thread: Pid, address: u64, count: u64) -> Vec<(AioName, i64)> {
    let mut events = vec![0; count as usize * 32];
    if count == 0 || read_bytes(thread, address, &mut events).is_none() {
        return Vec::new();
    }
    let long = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    let completion = |event: &[u8]| {
        let name = AioName { data: long(&event[..8]), address: long(&event[8..16]) };
        (name, long(&event[16..24]).cast_signed())
    };
    events.chunks_exact(32).map(completion).collect()
}
