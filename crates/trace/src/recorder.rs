//! Records the I/O of a command or of a running process into a trace.
//!
//! Tracepoints (`perf`) tell the syscalls. A tracer (`tracer`) tells which files a command opens, and without tracepoints
//! also the syscalls, of a running process too (`attached`). `assembly` makes operations of both, and `sink` writes them.
//! Two threads share the work: one waits for stops, the other one takes events, writes the trace, and looks at signals
//! and clocks.
//!
//! Memory is bounded by the rings and by a queue of events. If the recorder falls behind, events are lost and counted.

mod assembly;
mod attached;
mod calibration;
mod clock;
mod error;
mod event;
mod fifo;
mod perf;
mod process;
mod recording;
mod requests;
mod sink;
mod stop;
mod tracee;
mod tracer;

use std::{
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{atomic::AtomicUsize, mpsc::sync_channel},
    thread,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open, setrlimit};

use self::{
    attached::Attached,
    fifo::Fifo,
    perf::{Perf, Start},
    recording::{Events, Recording},
    tracee::Stops,
    tracer::{Ended, Entry, Tracer},
};
pub use self::{error::RecordError, tracee::run_tracee};
use crate::{
    call::Call,
    model::{End, Header},
    summary::Summary,
};

/// The most events that wait in the queue from the tracer. The program waits while it is full.
const QUEUE_EVENTS: usize = 1 << 13;

/// What is recorded, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is recorded.
    pub target: Target,
    /// How events are observed.
    pub method: Method,
    /// The recording ends after this time. None: when the recorded processes end.
    pub duration: Option<Duration>,
    /// The trace. The file must not exist, unless it is a FIFO.
    pub out: PathBuf,
    /// Whether names of files are hashed, with a key that is not kept.
    pub is_private: bool,
    /// The most memory for events of perf that wait to be written, in bytes. Rings have half of it, and each at least 64
    /// KiB. It says nothing of ptrace: the program waits while the queue of its tracer is full.
    pub memory_bytes: usize,
    /// The program that writes the trace, with its version.
    pub recorder: String,
    /// A program and words that call [`run_tracee`] with the words that follow.
    pub helper: Vec<OsString>,
}

/// What is recorded.
#[derive(Clone, Debug)]
pub enum Target {
    /// A command with its arguments, from its begin on.
    Command(Vec<OsString>),
    /// A running process with its threads.
    Process(u32),
}

/// How events are observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By tracepoints if that is allowed, otherwise by ptrace(2).
    Auto,
    /// By tracepoints.
    Perf,
    /// By ptrace(2), which stops a command at each syscall that matters, and a running process at each syscall.
    Ptrace,
}

/// What came of a recording.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the trace has.
    pub summary: Summary,
    /// Its end record, with the reason if it could not be written.
    pub end: End,
    /// Its header.
    pub header: Header,
    /// The exit status of the command, as a shell gives it. None: a running process was recorded.
    pub status: Option<u8>,
    /// Why tracepoints were not used, if they were wanted.
    pub fallback: Option<String>,
    /// Whether the end record could be written.
    pub has_end: bool,
}

/// Records until the target ends, the time is over, or `signal` is not 0 any more.
///
/// A signal that is stored there is passed on to the command, also after the recording has ended. The function returns
/// when the command and its children have ended.
///
/// # Errors
///
/// The recording could not begin: the message names what is missing, and the remedy.
pub fn record(options: &Options, signal: &AtomicUsize) -> Result<Report, RecordError> {
    match &options.target {
        Target::Command(words) => record_command(options, words, signal),
        Target::Process(pid) => record_process(options, *pid, signal),
    }
}

fn record_command(
    options: &Options,
    words: &[OsString],
    signal: &AtomicUsize,
) -> Result<Report, RecordError> {
    refuse_existing(options)?;
    let probe = match options.method {
        Method::Ptrace => Err(None),
        // The tracepoints of this thread stand for those of the command.
        _ => Perf::probe(options.memory_bytes / 2).map_err(Some),
    };
    let (stops, fallback) = match (probe, options.method) {
        (Ok(()), _) => (Stops::Few, None),
        (Err(Some(error)), Method::Perf) => return Err(error),
        (Err(error), _) => (Stops::All, error.map(|error| error.to_string())),
    };
    let failed = || RecordError::Failed("no program to start the command with".to_owned());
    let mut command = calibration::helper_command(&options.helper).ok_or_else(failed)?;
    command.arg(stops.word()).args(words);
    let fifo = Fifo::open(&options.out, signal)?;
    let mut child = tracer::start(command)?;
    let perf = match stops {
        Stops::Few => {
            let start = Start::AtExec(child.id());
            Perf::open(start, options.memory_bytes / 2, is_wanted(stops)).map(Some)
        }
        Stops::All => Ok(None),
    };
    let begun =
        perf.and_then(|perf| Recording::begin(options, (child.id(), stops), (perf, 0), fifo));
    let mut recording = begun.inspect_err(|_| {
        // The command has not run yet.
        let _ = child.kill();
        let _ = child.wait();
    })?;
    recording.fallback = fallback;
    let (sender, receiver) = sync_channel(QUEUE_EVENTS);
    let events = Events::Command(child.id(), receiver);
    let (ended, report) = thread::scope(|scope| {
        let taken = scope.spawn(move || recording.run(events, signal));
        let ended = Tracer::new((stops, Entry::Filter), sender).run(&child);
        (ended, taken.join())
    });
    let Ended { status, has_run } = ended?;
    let mut report = report
        .map_err(|_| RecordError::Failed("the thread that writes the trace ended".to_owned()))?;
    if !has_run {
        // It said so itself; the trace has nothing.
        let _ = std::fs::remove_file(&options.out);
        return Err(RecordError::NotStarted { status });
    }
    report.status = Some(status);
    Ok(report)
}

fn record_process(
    options: &Options,
    pid: u32,
    signal: &AtomicUsize,
) -> Result<Report, RecordError> {
    refuse_existing(options)?;
    // Asks for permission before anything is written.
    process::descriptors(pid).map_err(|error| error::process(pid, &error))?;
    // The process must not wait for a reader.
    let fifo = Fifo::open(&options.out, signal)?;
    let threads = process::threads(pid).map_err(|error| error::process(pid, &error))?;
    let children = process::descendants(pid);
    let perf = match options.method {
        Method::Ptrace => Err(None),
        _ => observe(options, threads, &children).map_err(Some),
    };
    let (perf, stops, fallback) = match (perf, options.method) {
        (Ok(perf), _) => (Some(perf), Stops::Few, None),
        (Err(Some(RecordError::NotAllowed(why))), Method::Auto) => (None, Stops::All, Some(why)),
        (Err(Some(error)), _) => return Err(error),
        (Err(None), _) => (None, Stops::All, None),
    };
    let (events, refused) = match perf {
        Some(_) => (Events::Process(handle(pid)?), 0),
        None => {
            let attached = Attached::to(pid, &options.helper, sync_channel(QUEUE_EVENTS))?;
            let refused = attached.refused;
            (Events::Attached(attached), refused)
        }
    };
    // An operation of this moment may be in a position that is read or not.
    let began_ns = clock::now_ns();
    let table = process::descriptors(pid).map_err(|error| error::process(pid, &error))?;
    let since_ns = clock::now_ns();
    let mut recording = Recording::begin(options, (pid, stops), (perf, refused), fifo)?;
    recording.fallback = fallback;
    recording.begin_with(pid, table, (began_ns, since_ns));
    for child in children {
        let asked_ns = clock::now_ns();
        if let Ok(table) = process::descriptors(child) {
            recording.knows(child, table, (asked_ns, clock::now_ns()));
        }
    }
    Ok(recording.run(events, signal))
}

/// A handle that tells when a process has ended.
fn handle(pid: u32) -> Result<OwnedFd, RecordError> {
    let ended = || error::process(pid, &io::Error::from_raw_os_error(libc::ESRCH));
    let pid = Pid::from_raw(pid.cast_signed()).ok_or_else(ended)?;
    pidfd_open(pid, PidfdFlags::empty()).map_err(|_| ended())
}

/// Observes these threads, and those of these children, by tracepoints.
fn observe(
    options: &Options,
    mut threads: Vec<u32>,
    children: &[u32],
) -> Result<Perf, RecordError> {
    // One that ends meanwhile is missed by nobody.
    threads.extend(children.iter().filter_map(|child| process::threads(*child).ok()).flatten());
    raise_descriptors();
    let wanted = |call| !matches!(call, Call::RingEnter | Call::Spawn | Call::Execute);
    Perf::open(Start::Now(&threads), options.memory_bytes / 2, wanted)
}

/// Allows as many open files as the hard limit does: each thread needs several.
fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If they do not suffice, the open that fails says so.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn refuse_existing(options: &Options) -> Result<(), RecordError> {
    match options.out.symlink_metadata().is_ok() && !fifo::is_fifo(&options.out) {
        true => Err(exists(options)),
        false => Ok(()),
    }
}

fn exists(options: &Options) -> RecordError {
    let out = options.out.display();
    RecordError::Failed(format!(
        "{out}: the file exists; remove it or choose another one with --out"
    ))
}

/// Which syscalls tracepoints tell.
fn is_wanted(stops: Stops) -> impl Fn(Call) -> bool {
    move |call| {
        call != Call::RingEnter
            && !stops.includes(call)
            && !matches!(call, Call::Spawn | Call::Execute)
    }
}
