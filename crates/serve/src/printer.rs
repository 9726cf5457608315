//! Prints lines on standard error from a thread of its own, so that no thread that serves ever waits.
//!
//! A write to standard error waits if it is a pipe that is full and nobody reads it. Lines for which the
//! queue has no room are lost: the caller is told and counts them. It words nothing and limits nothing.

use std::{
    io::{self, Write},
    sync::mpsc::{self, SyncSender},
    thread,
    time::Duration,
};

/// Lines that wait for the thread.
const QUEUE_LINES: usize = 256;
/// How long the end of a server waits until the last lines are printed.
const FLUSH: Duration = Duration::from_secs(1);

/// A handle to the thread, which ends with the last handle.
#[derive(Clone, Debug)]
pub struct Printer {
    /// Nothing if the system has no thread to give.
    jobs: Option<SyncSender<Job>>,
}

#[derive(Debug)]
enum Job {
    Print(String),
    /// An answer when everything before it was printed.
    Flush(SyncSender<()>),
}

impl Printer {
    /// Starts the thread. If the system has no thread to give, callers print by themselves and may wait.
    #[must_use]
    pub fn start() -> Printer {
        let (sender, jobs) = mpsc::sync_channel(QUEUE_LINES);
        let print = move || {
            for job in jobs {
                // If nobody reads it, there is nothing to do.
                match job {
                    Job::Print(line) => drop(writeln!(io::stderr(), "{line}")),
                    Job::Flush(answer) => drop(answer.try_send(())),
                }
            }
        };
        let started = thread::Builder::new().name("remarks".into()).spawn(print);
        Printer { jobs: started.ok().map(|_| sender) }
    }

    /// Prints a line soon. Returns whether there was room for it.
    pub fn print(&self, line: String) -> bool {
        match &self.jobs {
            Some(jobs) => jobs.try_send(Job::Print(line)).is_ok(),
            None => writeln!(io::stderr(), "{line}").is_ok(),
        }
    }

    /// Waits until all lines before it are printed, for a second at most.
    pub fn flush(&self) {
        let (answer, printed) = mpsc::sync_channel(1);
        if let Some(jobs) = &self.jobs
            && jobs.try_send(Job::Flush(answer)).is_ok()
        {
            let _ = printed.recv_timeout(FLUSH);
        }
    }
}
