//! Prints lines on standard error from a thread of its own, so that the serving threads never wait.
//!
//! A write to standard error waits if it is a full pipe that nobody reads. If the queue has no room for a line, the
//! line is lost, and the caller is told so that it can count it. This module neither words nor limits the lines.

use std::{
    io::{self, Write},
    sync::mpsc::{self, SyncSender},
    thread,
    time::Duration,
};

use ringwise_measure::plain_text;

/// Lines that may wait for the thread.
const QUEUE_LINES: usize = 256;
/// How long the end of a server waits for the last lines.
const FLUSH: Duration = Duration::from_secs(1);

/// A handle to the thread. The thread ends with its last handle.
#[derive(Clone, Debug)]
pub struct Printer {
    /// None if the system could not start the thread.
    jobs: Option<SyncSender<Job>>,
}

#[derive(Debug)]
enum Job {
    Print(String),
    /// Answer when all earlier lines are printed.
    Flush(SyncSender<()>),
}

impl Printer {
    /// Starts the thread. If the system cannot start it, callers print directly and may wait.
    #[must_use]
    pub fn start() -> Printer {
        let (sender, jobs) = mpsc::sync_channel(QUEUE_LINES);
        let print = move || {
            for job in jobs {
                // Errors are ignored: nobody may read standard error.
                match job {
                    Job::Print(line) => drop(writeln!(io::stderr(), "{line}")),
                    Job::Flush(answer) => drop(answer.try_send(())),
                }
            }
        };
        let started = thread::Builder::new().name("remarks".into()).spawn(print);
        Printer { jobs: started.ok().map(|_| sender) }
    }

    /// Prints a line soon, without numbers of errors. Returns whether there was room for it.
    pub fn print(&self, line: &str) -> bool {
        let line = plain_text(line);
        match &self.jobs {
            Some(jobs) => jobs.try_send(Job::Print(line)).is_ok(),
            None => writeln!(io::stderr(), "{line}").is_ok(),
        }
    }

    /// Waits until all earlier lines are printed, for a second at most.
    pub fn flush(&self) {
        let (answer, printed) = mpsc::sync_channel(1);
        if let Some(jobs) = &self.jobs
            && jobs.try_send(Job::Flush(answer)).is_ok()
        {
            let _ = printed.recv_timeout(FLUSH);
        }
    }
}
