//! A recorder beside a replay: the replay's I/O takes as much longer by it as the program's did, and is timed as that was.
//!
//! It runs in a process of its own, as it did beside the program. What a recorder adds to a syscall is only partly in the
//! durations that it writes, so its trace has to be compared with the program's, and not with the replay's own clock.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use ringwise_trace::{FileKind, Interface};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    error::{LabError, plain},
    program::traced::Traced,
};

/// How long it may take to begin. It measures its own cost first.
const BEGIN_MAX: Duration = Duration::from_secs(30);
/// Between two looks whether it has begun.
const LOOK: Duration = Duration::from_millis(10);

/// The operations of a thread on files, or on what is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Observed {
    all: Sum,
    /// What a ring tried first: those before the first one on a known file, if the first of all is the ring's.
    before: Sum,
}

/// Operations, and the sum of their durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    operations: u64,
    io_ns: u64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.operations += other.operations;
        self.io_ns += other.io_ns;
    }
}

/// How long the operations of a run took, if the recorder saw each of so many.
pub(super) fn io_ns<'a>(
    threads: impl Iterator<Item = &'a Observed>,
    operations: u64,
) -> Option<u64> {
    let mut own = Observed::default();
    for thread in threads {
        own.all.add(thread.all);
        own.before.add(thread.before);
    }
    match operations {
        _ if operations == own.all.operations => Some(own.all.io_ns),
        _ if operations + own.before.operations == own.all.operations => {
            Some(own.all.io_ns - own.before.io_ns)
        }
        _ => None,
    }
}

/// A recorder of this process.
pub(super) struct Observer {
    recorder: Child,
    trace: PathBuf,
}

impl Observer {
    /// Starts a recorder of this process, and waits until it observes. Its trace goes into `directory`.
    ///
    /// # Errors
    ///
    /// It cannot observe this process: what it said.
    pub(super) fn start(directory: &Path) -> Result<Observer, LabError> {
        let trace = directory.join("replay.trace");
        let mut command = Command::new("/proc/self/exe");
        command.args(["lab", "record", "--method", "perf", "--pid"]);
        command.arg(std::process::id().to_string()).arg("--out").arg(&trace);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let recorder = command.spawn().map_err(|error| failed(&plain(&error)))?;
        let mut observer = Observer { recorder, trace };
        let begin = Instant::now();
        while !observer.has_begun() {
            observer.check()?;
            if begin.elapsed() > BEGIN_MAX {
                return Err(failed("it did not begin within 30 s"));
            }
            thread::sleep(LOOK);
        }
        Ok(observer)
    }

    /// Ends it: what it observed of each thread, by the thread's id.
    ///
    /// # Errors
    ///
    /// It had ended before, so that a part of the replay was not recorded: what it said. Its trace cannot be read.
    pub(super) fn finish(mut self) -> Result<HashMap<u32, Observed>, LabError> {
        self.check()?;
        self.end();
        Ok(by_thread(&Traced::read(&self.trace)?))
    }

    /// Ends its process, if that has not ended.
    fn end(&mut self) {
        // Nobody waited for it before, so its number is its own.
        if let Ok(None) = self.recorder.try_wait()
            && let Some(pid) = Pid::from_raw(self.recorder.id().cast_signed())
        {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.recorder.wait();
    }

    /// Fails if it has ended.
    fn check(&mut self) -> Result<(), LabError> {
        if !matches!(self.recorder.try_wait(), Ok(Some(_))) {
            return Ok(());
        }
        let text = self.recorder.stderr.take().map(io::read_to_string);
        let text = text.and_then(Result::ok).unwrap_or_default();
        let text = text.trim().trim_start_matches("ringwise: lab: ");
        Err(failed(if text.is_empty() { "it ended too early" } else { text }))
    }

    /// Whether the head of the trace is written, which happens when all is observed.
    fn has_begun(&self) -> bool {
        fs::metadata(&self.trace).is_ok_and(|about| about.len() > 0)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_file(&self.trace);
    }
}

fn by_thread(traced: &Traced) -> HashMap<u32, Observed> {
    let mut found: HashMap<u32, Observed> = HashMap::new();
    for operation in &traced.operations {
        let Some(thread) = traced.thread(operation.thread) else { continue };
        // The recorder may not know yet which file a descriptor is that was opened just before.
        let kind = traced.file_kind(operation);
        if matches!(kind, FileKind::Regular | FileKind::Unknown) {
            let own = found.entry(thread.tid).or_default();
            let one = Sum { operations: 1, io_ns: operation.duration_ns };
            let is_next = own.all == own.before
                && (own.all.operations > 0 || operation.interface == Interface::IoUring);
            if kind == FileKind::Unknown && is_next {
                own.before.add(one);
            }
            own.all.add(one);
        }
    }
    found
}

fn failed(what: &str) -> LabError {
    LabError::Failed(format!("replay: the recorder beside it: {what}"))
}

#[cfg(test)]
mod tests {
    use ringwise_trace::{Kind, Operation};

    use super::*;
    use crate::program::traced::tests::{operation, traced};

    fn observer(script: &str) -> Observer {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stderr(Stdio::piped());
        Observer { recorder: command.spawn().unwrap(), trace: PathBuf::from("/nonexistent") }
    }

    #[test]
    fn a_recorder_that_ended_before_the_replay_is_an_error() {
        observer("exec sleep 60").check().unwrap();
        let mut ended = observer("echo 'ringwise: lab: record: no space' >&2");
        while let Ok(None) = ended.recorder.try_wait() {}
        let text = ended.finish().unwrap_err().to_string();
        assert_eq!(text, "replay: the recorder beside it: record: no space");
    }

    #[test]
    fn what_was_observed_is_the_files_of_each_thread() {
        let operations = vec![
            operation(1, Kind::Read, (0, 1000)),
            operation(2, Kind::Write, (500, 100)),
            operation(1, Kind::Sync, (2000, 300)),
            Operation { file: None, ..operation(2, Kind::Read, (9000, 50)) },
        ];
        let found = by_thread(&traced(operations));
        let of =
            |operations, io_ns| Observed { all: Sum { operations, io_ns }, before: Sum::default() };
        assert_eq!(found, HashMap::from([(101, of(2, 1300)), (102, of(2, 150))]));
        let io_ns = |operations| io_ns(found.values(), operations);
        assert_eq!([3, 4, 5].map(io_ns), [None, Some(1450), None]);
    }

    /// The library's ring reads and writes a descriptor of its own first.
    #[test]
    fn what_a_ring_tries_first_is_no_operation_of_the_replay() {
        let unknown =
            |thread, begin| Operation { file: None, ..operation(thread, Kind::Read, (begin, 7)) };
        let operations = vec![
            Operation { interface: Interface::IoUring, ..unknown(1, 0) },
            unknown(1, 10),
            operation(1, Kind::Read, (100, 1000)),
            unknown(1, 2000),
            // A thread of syscalls has a file that was opened just before.
            unknown(2, 2500),
            operation(2, Kind::Read, (3000, 50)),
        ];
        let found = by_thread(&traced(operations));
        let io_ns = |operations| io_ns(found.values(), operations);
        assert_eq!([3, 4, 5, 6].map(io_ns), [None, Some(1064), None, Some(1078)]);
    }
}
