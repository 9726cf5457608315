//! What stops a server, in one line: what failed, on what, and what to do.

use std::{fmt, io};

/// Why a server did not start, or ended.
#[derive(Debug)]
pub struct ServeError(String);

impl ServeError {
    /// An error that says this.
    pub fn new(message: impl fmt::Display) -> ServeError {
        ServeError(message.to_string())
    }

    pub(crate) fn at(what: &str, error: &io::Error) -> ServeError {
        ServeError(format!("{what}: {error}"))
    }

    /// That a thread could not be started: `whose` is what it was for.
    pub fn of_thread(whose: &str, error: &io::Error) -> ServeError {
        // A limit of processes, and nothing else that passes (clone(2)).
        let remedy = match error.kind() {
            io::ErrorKind::WouldBlock => {
                "; raise the limit of processes (ulimit -u, a cgroup's pids.max, TasksMax=)"
            }
            _ => "",
        };
        ServeError(format!("starting the thread {whose}: {error}{remedy}"))
    }

    /// The status that the command exits with.
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
    fn who_may_have_no_thread_is_told_of_the_limit() {
        let said = |errno: rustix::io::Errno| {
            ServeError::of_thread("that waits", &io::Error::from(errno)).to_string()
        };
        let limited = said(rustix::io::Errno::AGAIN);
        assert!(limited.starts_with("starting the thread that waits: Resource"), "{limited}");
        assert!(limited.contains("pids.max"), "{limited}");
        assert!(!said(rustix::io::Errno::NOMEM).contains("pids.max"));
    }
}
