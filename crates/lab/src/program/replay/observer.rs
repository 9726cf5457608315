//! A recorder beside a replay, so that the replay's I/O takes as much longer by it as the program's did.
//!
//! It runs in a process of its own, as it did beside the program, and what it writes is thrown away.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{LabError, plain};

/// How long it may take to begin. It measures its own cost first.
const BEGIN_MAX: Duration = Duration::from_secs(30);
/// Between two looks whether it has begun.
const LOOK: Duration = Duration::from_millis(10);

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

    /// Ends it.
    ///
    /// # Errors
    ///
    /// It had ended before, so that a part of the replay was not recorded: what it said.
    pub(super) fn finish(mut self) -> Result<(), LabError> {
        self.check()
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
        // It may have ended by itself. Then its number is still its own, since nobody waited for it.
        if let Some(pid) = Pid::from_raw(self.recorder.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.recorder.wait();
        let _ = fs::remove_file(&self.trace);
    }
}

fn failed(what: &str) -> LabError {
    LabError::Failed(format!("replay: the recorder beside it: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observer(script: &str) -> Observer {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stderr(Stdio::piped());
        Observer { recorder: command.spawn().unwrap(), trace: PathBuf::from("/nonexistent") }
    }

    #[test]
    fn a_recorder_that_ended_before_the_replay_is_an_error() {
        observer("exec sleep 60").finish().unwrap();
        let mut ended = observer("echo 'ringwise: lab: record: no space' >&2");
        while let Ok(None) = ended.recorder.try_wait() {}
        let text = ended.finish().unwrap_err().to_string();
        assert_eq!(text, "replay: the recorder beside it: record: no space");
    }
}
