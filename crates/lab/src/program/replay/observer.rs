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

use ringwise_trace::FileKind;
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
    pub(super) operations: u64,
    /// The sum of their durations.
    pub(super) io_ns: u64,
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
        if matches!(traced.file_kind(operation), FileKind::Regular | FileKind::Unknown) {
            let own = found.entry(thread.tid).or_default();
            own.operations += 1;
            own.io_ns += operation.duration_ns;
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
        let of = |operations, io_ns| Observed { operations, io_ns };
        assert_eq!(found, HashMap::from([(101, of(2, 1300)), (102, of(2, 150))]));
    }
}
