//! The error that stops a server, in one line: the failed action, its object, and the remedy.

use std::{fmt, io};

use ringwise_measure::plain_text;

/// The reason why a server did not start, or ended early.
#[derive(Debug)]
pub struct ServeError(String);

impl ServeError {
    /// Makes an error with this text, without numbers of errors.
    pub fn new(message: impl fmt::Display) -> ServeError {
        ServeError(plain_text(&message.to_string()))
    }

    pub(crate) fn at(what: &str, error: &io::Error) -> ServeError {
        ServeError::new(format!("{what}: {error}"))
    }

    /// Makes the error for a thread that could not be started. `whose` describes the thread.
    pub fn of_thread(whose: &str, error: &io::Error) -> ServeError {
        // clone(2) fails with EAGAIN only at a limit of processes.
        let remedy = match error.kind() {
            io::ErrorKind::WouldBlock => {
                "; raise the limit of processes (ulimit -u, a cgroup's pids.max, TasksMax=)"
            }
            _ => "",
        };
        ServeError::new(format!("starting the thread {whose}: {error}{remedy}"))
    }

    /// Returns the exit status of the command.
    pub fn exit_status(&self) -> u8 {
        1
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_refused_thread_names_the_limit() {
        let said = |errno: rustix::io::Errno| {
            ServeError::of_thread("that waits", &io::Error::from(errno)).to_string()
        };
        let limited = said(rustix::io::Errno::AGAIN);
        assert!(limited.starts_with("starting the thread that waits: Resource"), "{limited}");
        assert!(limited.contains("pids.max") && !limited.contains("os error"), "{limited}");
        assert!(!said(rustix::io::Errno::NOMEM).contains("pids.max"));
    }
}
