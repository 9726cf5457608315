//! Attaches a tracer to a running process, to its threads and to its children, and lets them go again.
//!
//! The tracer is a thread of its own, because the kernel lets everything go that a thread traces when that thread ends.
//! It waits for stops and can wait for nothing else, so a child of the tracer is its bell: it ends when its standard
//! input is closed, and that end wakes the tracer. A traced program stops at each of its syscalls until then.

use std::{
    collections::HashSet,
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    process::{Child, Stdio},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use nix::{errno::Errno, sys::ptrace, unistd::Pid};

use super::{
    calibration,
    error::{self, RecordError},
    event::Stamped,
    process, requests,
    stop::{self, Stop},
    tracee::{Stops, WAIT},
    tracer::{Entry, OPTIONS, STOPPED, Tracer},
};

/// How long the recorder waits for threads that do not stop, such as one that waits for a device.
const PATIENCE: Duration = Duration::from_secs(2);

/// A process that a tracer is attached to.
#[derive(Debug)]
pub(super) struct Attached {
    /// What the tracer tells. It ends when all threads have ended or were let go.
    pub(super) events: Receiver<Stamped>,
    bell: Child,
    /// How many children may not be traced.
    pub(super) refused: usize,
}

impl Attached {
    /// Attaches to a process, its threads and its children. From then on each of their syscalls is told.
    ///
    /// # Errors
    ///
    /// The process is gone, may not be traced, or is traced by another one.
    pub(super) fn to(
        pid: u32,
        helper: &[OsString],
        (sender, events): (SyncSender<Stamped>, Receiver<Stamped>),
    ) -> Result<Attached, RecordError> {
        let (told, is_attached) = sync_channel(1);
        let mut bell = calibration::helper_command(helper)
            .ok_or_else(|| RecordError::Failed("no program to wait with".to_owned()))?;
        // An interrupt from the terminal is for the recorder only.
        bell.arg(WAIT).stdin(Stdio::piped()).process_group(0);
        let tracer = move || {
            let started =
                bell.spawn().map_err(|error| RecordError::on("starting", "/proc/self/exe", &error));
            let begun = started.and_then(|mut bell| {
                let number = Pid::from_raw(bell.id().cast_signed());
                let tracing = Tracing::begin(pid, number, sender).inspect_err(|_| {
                    let _ = bell.kill();
                    let _ = bell.wait();
                });
                tracing.map(|tracing| (bell, tracing))
            });
            match begun {
                Ok((bell, tracing)) => {
                    let _ = told.send(Ok((bell, tracing.refused)));
                    tracing.run();
                }
                Err(error) => drop(told.send(Err(error))),
            }
        };
        thread::Builder::new()
            .name("tracer".to_owned())
            .spawn(tracer)
            .map_err(|error| RecordError::on("starting", "a thread", &error))?;
        let ended = || RecordError::Failed("the thread that traces ended".to_owned());
        let (bell, refused) = is_attached.recv().map_err(|_| ended())??;
        Ok(Attached { events, bell, refused })
    }

    /// Lets all threads go, and takes the events that came before.
    pub(super) fn leave(&mut self, mut take: impl FnMut(Stamped)) {
        drop(self.bell.stdin.take());
        let begin = Instant::now();
        // After this time the kernel releases the remaining threads: when they stop, or when this program ends.
        while let Ok(stamped) = self.events.recv_timeout(PATIENCE.saturating_sub(begin.elapsed())) {
            take(stamped);
        }
        // Mostly the tracer has done so.
        let _ = self.bell.wait();
    }
}

/// The tracer's side.
struct Tracing {
    target: Pid,
    bell: Pid,
    tracer: Tracer,
    refused: usize,
    /// Threads that have been let go. None: the recording goes on.
    released: Option<HashSet<Pid>>,
}

impl Tracing {
    fn begin(pid: u32, bell: Pid, events: SyncSender<Stamped>) -> Result<Tracing, RecordError> {
        let target = Pid::from_raw(pid.cast_signed());
        let tracer = Tracer::new((Stops::All, Entry::Every), events);
        let mut own = Tracing { target, bell, tracer, refused: 0, released: None };
        let mut seized = HashSet::new();
        own.seize(pid, &mut seized).map_err(|error| refusal(pid, error))?;
        if own.tracer.threads.is_empty() {
            return Err(refusal(pid, Errno::ESRCH));
        }
        // A recorder below the process, such as one that a shell has started, does not wait for itself.
        let recorder = std::process::id();
        let below_recorder = process::descendants(recorder);
        for child in process::descendants(pid) {
            if child == recorder || below_recorder.contains(&child) {
                continue;
            }
            // One that has ended is missed by nobody.
            if let Err(Errno::EPERM) = own.seize(child, &mut seized) {
                own.refused += 1;
            }
        }
        // Only a thread that is stopped can be told to stop at syscalls.
        for thread in seized {
            // It may have ended.
            let _ = ptrace::interrupt(thread);
        }
        Ok(own)
    }

    /// Attaches to all threads of a process. What they make after that is attached by the kernel.
    fn seize(&mut self, pid: u32, seized: &mut HashSet<Pid>) -> nix::Result<()> {
        loop {
            let listed = process::threads(pid).map_err(|error| errno(&error))?;
            let listed = listed.into_iter().map(|tid| Pid::from_raw(tid.cast_signed()));
            let new: Vec<Pid> = listed.filter(|tid| !seized.contains(tid)).collect();
            if new.is_empty() {
                return Ok(());
            }
            for thread in new {
                match ptrace::seize(thread, OPTIONS) {
                    Ok(()) => drop(self.tracer.threads.entry(thread).or_default()),
                    Err(Errno::ESRCH) => {}
                    Err(_) if is_over_or_ours(thread) => {}
                    Err(error) => return Err(error),
                }
                seized.insert(thread);
            }
        }
    }

    /// Tells what happens, until the process ends or the bell rings. Then lets all threads go.
    fn run(mut self) {
        let mut stops = Vec::new();
        // An error says that nothing is left to wait for.
        while !self.tracer.threads.is_empty() && stop::next(&mut stops).is_ok() {
            for (thread, stop) in stops.drain(..) {
                match &self.released {
                    _ if thread == self.bell => self.leave(),
                    None => {
                        self.tracer.stopped(thread, stop);
                        if thread == self.target && stop.is_end() {
                            self.leave();
                        }
                    }
                    Some(_) => self.release(thread, stop),
                }
            }
        }
    }

    /// Stops all threads, because only one that is stopped can be let go. The end of this thread would let them go too,
    /// but a signal that waits at a stop would be lost.
    fn leave(&mut self) {
        self.released.get_or_insert_default();
        // One that is gone has nothing to wait for.
        self.tracer.threads.retain(|thread, _| ptrace::interrupt(*thread).is_ok());
    }

    /// Lets a thread go that has stopped.
    fn release(&mut self, thread: Pid, stop: Stop) {
        let released = self.released.get_or_insert_default();
        let signal = match stop {
            Stop::Signal(signal) => signal,
            Stop::Event(kind, _) if kind != STOPPED => {
                // What it has just made is traced too, and stops as its first act.
                let made = ptrace::getevent(thread).ok().and_then(|made| i32::try_from(made).ok());
                let made = made.filter(|_| kind != libc::PTRACE_EVENT_EXEC).map(Pid::from_raw);
                if let Some(made) = made.filter(|made| !released.contains(made)) {
                    self.tracer.threads.entry(made).or_default();
                }
                0
            }
            _ => 0,
        };
        // It may have ended.
        let _ = requests::detach(thread, signal);
        released.insert(thread);
        self.tracer.threads.remove(&thread);
    }
}

/// Whether a thread that cannot be attached has ended, or was attached by the kernel for the one that made it.
fn is_over_or_ours(thread: Pid) -> bool {
    let tid = thread.as_raw().cast_unsigned();
    process::is_zombie(tid)
        || process::tracer(tid)
            .is_some_and(|own| process::process_of(own) == Some(std::process::id()))
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Why a process cannot be traced, and the remedy.
fn refusal(pid: u32, error: Errno) -> RecordError {
    match process::tracer(pid) {
        Some(tracer) => RecordError::Failed(format!(
            "process {pid}: process {tracer} traces it already; end that tracer"
        )),
        None if error == Errno::ENOENT || error == Errno::ESRCH => {
            error::process(pid, &error.into())
        }
        None => error::attach(pid, error),
    }
}
