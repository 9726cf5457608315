//! The loop of a recording: it takes events from where they come, orders them, and writes what they become.
//!
//! Events of several rings and of the tracer come out of order. They wait until no older one can come. The loop also
//! looks at the clock and at signals, and answers the questions of the assembly from `/proc`.

use std::{
    os::fd::OwnedFd,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{
    Options, Report, Target,
    assembly::{Assembly, Situation},
    attached::Attached,
    calibration, clock,
    error::{self, RecordError},
    event::{Described, Event, Stamped},
    fifo::Fifo,
    perf::{Drained, Perf},
    process,
    sink::Sink,
    tracee::Stops,
};
use crate::{
    model::{End, Header, Reason},
    summary::Summary,
};

/// How long the loop sleeps if there is little to do. The rings hold more than a second of a busy program.
const PAUSE: Duration = Duration::from_millis(5);

/// With fewer records than this at a time, there is little to do.
const FEW_RECORDS: usize = 4096;

/// An event comes at most this long after its time.
const SLACK_NS: u64 = 2_000_000;

/// How often what was recorded is written, at least.
const FLUSH_NS: u64 = 1_000_000_000;

/// The most descriptors that are looked up at a time.
const QUESTIONS_MAX: usize = 256;

/// Where events come from, apart from the rings, and what tells that the target has ended.
#[derive(Debug)]
pub(super) enum Events {
    /// The tracer of this command. The queue ends with it.
    Command(u32, Receiver<Stamped>),
    /// The tracer that is attached to a process. The queue ends with it.
    Attached(Attached),
    /// Nowhere; the process has ended when this is readable.
    Process(OwnedFd),
}

impl Events {
    /// What a tracer tells, or the handle of a process that has none.
    fn queue(&self) -> Result<&Receiver<Stamped>, &OwnedFd> {
        match self {
            Events::Command(_, queue) => Ok(queue),
            Events::Attached(attached) => Ok(&attached.events),
            Events::Process(handle) => Err(handle),
        }
    }
}

/// A recording that has begun.
pub(super) struct Recording<'a> {
    options: &'a Options,
    stops: Stops,
    perf: Option<Perf>,
    sink: Option<Sink<'a>>,
    header: Header,
    began_ns: u64,
    cpu_before_ns: u64,
    pending: Vec<Stamped>,
    pub(super) fallback: Option<String>,
}

/// What a round waited for.
struct Waited {
    /// Whether the target has ended.
    has_ended: bool,
    /// All events before this time were taken. `u64::MAX`: nothing is left.
    until_ns: u64,
}

/// What the end of a recording is made of.
struct Finished {
    summary: Summary,
    end: End,
    has_end: bool,
}

impl<'a> Recording<'a> {
    /// Makes the trace, with its header. `refused` children of a process may not be recorded.
    ///
    /// # Errors
    ///
    /// The file exists, or cannot be written.
    pub(super) fn begin(
        options: &'a Options,
        (pid, stops): (u32, Stops),
        (perf, refused): (Option<Perf>, usize),
        fifo: Option<Fifo<'a>>,
    ) -> Result<Recording<'a>, RecordError> {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let command = match &options.target {
            Target::Command(words) if !options.is_private => {
                words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
            }
            _ => Vec::new(),
        };
        let header = Header {
            recorder: options.recorder.clone(),
            method: if perf.is_some() { "perf" } else { "ptrace" }.to_owned(),
            began_unix_ms: u64::try_from(since_1970.as_millis()).unwrap_or(0),
            command,
            pid,
            is_private: options.is_private,
            blind_spots: blind_spots(options, (perf.as_ref(), refused)),
        };
        let sink = Sink::create(&options.out, fifo, &header);
        let sink = sink.map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => super::exists(options),
            _ => RecordError::on("writing", &options.out, &error),
        })?;
        Ok(Recording {
            options,
            stops,
            perf,
            sink: Some(sink),
            header,
            began_ns: clock::now_ns(),
            cpu_before_ns: clock::cpu_ns(),
            pending: Vec::new(),
            fallback: None,
        })
    }

    /// The descriptors of a running process, and the times before and after they were read. What began before is not
    /// recorded.
    pub(super) fn begin_with(
        &mut self,
        pid: u32,
        table: Vec<(i32, Described)>,
        (began_ns, since_ns): (u64, u64),
    ) {
        self.began_ns = began_ns;
        self.knows(pid, table, (began_ns, since_ns));
    }

    /// The descriptors of a process, and the times before and after they were read.
    pub(super) fn knows(
        &mut self,
        pid: u32,
        table: Vec<(i32, Described)>,
        (time_ns, since_ns): (u64, u64),
    ) {
        let event = Event::Table { table, since_ns, is_foreign: process::is_foreign(pid) };
        self.pending.push(Stamped { time_ns, pid, tid: pid, event });
    }

    /// Records until the target ends, the time is over, a signal comes, or the disk is full. It then finishes the trace,
    /// and passes signals on until the target has ended.
    pub(super) fn run(mut self, mut events: Events, signal: &AtomicUsize) -> Report {
        let mut assembly = Assembly::new(Situation {
            began_ns: self.began_ns,
            began_unix_ns: self.header.began_unix_ms.saturating_mul(1_000_000),
            is_private: self.options.is_private,
            sees_pages: self.perf.as_ref().is_some_and(Perf::sees_pages),
            sees_processors: self.perf.is_some(),
            has_opens: events.queue().is_ok(),
            thread_name: process::thread_name,
        });
        let mut summary = Summary::default();
        let (mut horizon_ns, mut flushed_ns) = (0, self.began_ns);
        let reason = loop {
            let round_ns = clock::now_ns();
            let drained = self.drain();
            let Waited { has_ended, until_ns } = self.wait(&events, drained);
            self.take(&mut assembly, horizon_ns);
            self.write(&mut assembly, &mut summary);
            self.answer(&mut assembly);
            if round_ns.saturating_sub(flushed_ns) > FLUSH_NS {
                self.sink.iter_mut().for_each(Sink::flush);
                flushed_ns = round_ns;
            }
            horizon_ns = round_ns.min(until_ns).saturating_sub(SLACK_NS);
            let elapsed_ns = round_ns.saturating_sub(self.began_ns);
            if has_ended {
                break Reason::Exited;
            } else if pass_on(&events, signal) {
                self.sink.iter_mut().for_each(Sink::hurry);
                break Reason::Signal;
            } else if self
                .options
                .duration
                .is_some_and(|limit| elapsed_ns as u128 >= limit.as_nanos())
            {
                break Reason::Duration;
            } else if self.sink.as_ref().is_some_and(Sink::has_failed) {
                break Reason::WriteFailed;
            }
        };
        let finished = self.finish((&mut assembly, summary), &mut events, reason);
        if reason != Reason::Exited {
            follow(events, signal);
        }
        Report {
            summary: finished.summary,
            end: finished.end,
            header: self.header,
            status: None,
            fallback: self.fallback,
            has_end: finished.has_end,
        }
    }

    /// Takes events of perf.
    fn drain(&mut self) -> Drained {
        // Those that wait are sorted and made records of, which takes as much again.
        let events_max = self.options.memory_bytes / 2 / (2 * size_of::<Stamped>());
        let none = Drained { records: 0, until_ns: u64::MAX };
        self.perf.as_mut().map_or(none, |perf| perf.drain(&mut self.pending, events_max))
    }

    /// Takes events of the tracer, and sleeps if there is little to do.
    fn wait(&mut self, events: &Events, drained: Drained) -> Waited {
        let until_ns = drained.until_ns;
        let is_busy = drained.records > FEW_RECORDS || until_ns != u64::MAX;
        let pause = if is_busy { Duration::ZERO } else { PAUSE };
        let queue = match events.queue() {
            Ok(queue) => queue,
            Err(handle) => return Waited { has_ended: has_ended(handle, pause), until_ns },
        };
        // Does not block on the queue: each event would wake this thread, and the program waits for that.
        thread::sleep(pause);
        let mut last_ns = u64::MAX;
        for _ in 0..super::QUEUE_EVENTS {
            match queue.try_recv() {
                Ok(stamped) => {
                    last_ns = stamped.time_ns;
                    self.pending.push(stamped);
                }
                // What has not come must not keep this round from its end.
                Err(error) => {
                    let has_ended = error == TryRecvError::Disconnected;
                    return Waited { has_ended, until_ns };
                }
            }
        }
        Waited { has_ended: false, until_ns: until_ns.min(last_ns) }
    }

    /// Gives the assembly the events before this time, in their order.
    fn take(&mut self, assembly: &mut Assembly, horizon_ns: u64) {
        // Mostly it is in order already, which a stable sort finds out quickly.
        self.pending.sort_by_key(|stamped| stamped.time_ns);
        let count = self.pending.partition_point(|stamped| stamped.time_ns < horizon_ns);
        let began_ns = self.began_ns;
        let taken = self.pending.drain(..count);
        taken
            .filter(|stamped| stamped.time_ns >= began_ns)
            .for_each(|stamped| assembly.take(stamped));
        if assembly.uses_ring() {
            self.perf.iter_mut().for_each(Perf::watch_pages);
        }
    }

    fn write(&mut self, assembly: &mut Assembly, summary: &mut Summary) {
        for record in assembly.take_records() {
            summary.add(&record);
            self.sink.iter_mut().for_each(|sink| sink.add(&record));
        }
    }

    /// Looks up what the assembly does not know. The answers are events of now.
    fn answer(&mut self, assembly: &mut Assembly) {
        let questions = assembly.take_questions();
        for pid in questions.processes {
            let time_ns = clock::now_ns();
            if let Ok(table) = process::descriptors(pid) {
                self.knows(pid, table, (time_ns, clock::now_ns()));
            }
        }
        for (pid, descriptor) in questions.descriptors.into_iter().take(QUESTIONS_MAX) {
            let time_ns = clock::now_ns();
            if let Some(described) = process::describe(pid, descriptor) {
                let (described, since_ns) = (Box::new(described), clock::now_ns());
                let event = Event::Opened { descriptor, described, since_ns };
                self.pending.push(Stamped { time_ns, pid, tid: pid, event });
            }
        }
    }

    fn finish(
        &mut self,
        (assembly, mut summary): (&mut Assembly, Summary),
        events: &mut Events,
        reason: Reason,
    ) -> Finished {
        let ended_ns = clock::now_ns();
        self.perf.iter_mut().for_each(Perf::stop);
        match events {
            Events::Command(_, queue) => self.pending.extend(queue.try_iter()),
            // From here on the process runs without stops.
            Events::Attached(attached) => attached.leave(|stamped| self.pending.push(stamped)),
            Events::Process(_) => {}
        }
        loop {
            let drained = self.drain();
            if drained.until_ns == u64::MAX {
                break;
            }
            self.take(assembly, drained.until_ns.saturating_sub(SLACK_NS));
            self.write(assembly, &mut summary);
        }
        // From here on the target runs without tracepoints.
        self.perf = None;
        self.take(assembly, u64::MAX);
        let mut end = assembly.finish(ended_ns);
        self.write(assembly, &mut summary);
        end.reason = reason;
        end.elapsed_ns = ended_ns.saturating_sub(self.began_ns);
        end.recorder_cpu_ns = clock::cpu_ns().saturating_sub(self.cpu_before_ns);
        let (stops, has_filter) = (self.stops, matches!(events, Events::Command(..)));
        let wanted = super::is_wanted(stops);
        let helper = (&self.options.helper[..], self.options.memory_bytes / 2);
        let added = calibration::added(helper, (stops, has_filter), wanted);
        end.added_ns_per_syscall = added.map(|added| added.per_syscall_ns);
        end.added_ns_in_duration = added.and_then(|added| added.in_duration_ns);
        match self.sink.take().map(|sink| sink.finish(end.clone())) {
            Some(Ok(end)) => Finished { summary, end, has_end: true },
            Some(Err(failed)) => {
                end.reason = Reason::WriteFailed;
                end.detail = error::plain(&failed);
                Finished { summary, end, has_end: false }
            }
            None => Finished { summary, end, has_end: true },
        }
    }
}

/// What this recording cannot see, whatever the program does.
fn blind_spots(options: &Options, (perf, refused): (Option<&Perf>, usize)) -> Vec<String> {
    let mut found = vec![
        "Reads and writes by mmap(2) are not seen.".to_owned(),
        "Processes of another architecture are not recorded.".to_owned(),
    ];
    match perf {
        Some(perf) => found.extend(perf.blind_spots()),
        None => {
            found.push("ptrace does not see requests of io_uring.".to_owned());
            found.push("ptrace does not tell the page cache from the device.".to_owned());
        }
    }
    if refused > 0 {
        found.push(format!("Children that may not be traced: {refused}."));
    }
    if let (Target::Process(_), Some(_)) = (&options.target, perf) {
        found.push("Linux AIO of a running process is not seen.".to_owned());
        found.push(
            "A file that was open for less than some milliseconds is unknown, and so are its first operations."
                .to_owned(),
        );
    }
    found
}

/// Passes a signal on to the command. Returns whether there was one.
fn pass_on(events: &Events, signal: &AtomicUsize) -> bool {
    let number = signal.swap(0, Ordering::Relaxed);
    let named = i32::try_from(number).ok().and_then(|number| Signal::try_from(number).ok());
    let Some(named) = named else { return false };
    if let Events::Command(pid, _) = events
        && !(named == Signal::SIGINT && is_in_foreground())
    {
        // It may have ended.
        let _ = kill(Pid::from_raw(pid.cast_signed()), named);
    }
    true
}

/// Whether a terminal sends its SIGINT to this process and to the command alike.
fn is_in_foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    let foreground = terminal.and_then(|terminal| Ok(rustix::termios::tcgetpgrp(&terminal)?));
    foreground.is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Passes signals on until the command has ended.
fn follow(events: Events, signal: &AtomicUsize) {
    if let Events::Command(_, queue) = &events {
        loop {
            match queue.recv_timeout(PAUSE) {
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(stamped) => drop(stamped),
                Err(RecvTimeoutError::Timeout) => {}
            }
            pass_on(&events, signal);
        }
    }
}

fn has_ended(handle: &OwnedFd, pause: Duration) -> bool {
    let timeout = Timespec::try_from(pause).ok();
    match poll(&mut [PollFd::new(handle, PollFlags::IN)], timeout.as_ref()) {
        Ok(count) => count > 0,
        Err(Errno::INTR) => false,
        Err(_) => {
            // Without an answer the recording ends by its duration or by a signal.
            thread::sleep(pause);
            false
        }
    }
}
