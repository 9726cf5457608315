//! What can end a generator's run, each in one line, with its exit status.

use std::{fmt, io};

pub(crate) use ringwise_measure::plain;

/// Why a run failed, or ended with only a part of its result.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// What was typed cannot be meant: the message names the value and what is accepted.
    Usage(String),
    /// Something failed: the message names what, on what, and what to do.
    Failed(String),
    /// A signal ended it before anything was measured.
    Interrupted,
    /// Whoever read the output went away; nothing is left to say to them.
    BrokenPipe,
}

impl LoadError {
    /// Classifies an error of writing to standard output.
    pub(crate) fn output(error: &io::Error) -> LoadError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => LoadError::BrokenPipe,
            _ => LoadError::Failed(format!("standard output: {}", plain(error))),
        }
    }

    /// The exit status: 2 for wrong usage, 1 for a failure or for nothing measured, 0 for a reader
    /// that went away.
    pub fn exit_status(&self) -> u8 {
        match self {
            LoadError::Usage(_) => 2,
            LoadError::Failed(_) | LoadError::Interrupted => 1,
            LoadError::BrokenPipe => 0,
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Usage(message) | LoadError::Failed(message) => f.write_str(message),
            LoadError::Interrupted => f.write_str("interrupted before anything was measured"),
            LoadError::BrokenPipe => f.write_str("the reader of the output went away"),
        }
    }
}

impl std::error::Error for LoadError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_pipe_is_not_a_failure() {
        let broken = LoadError::output(&io::ErrorKind::BrokenPipe.into());
        let full = LoadError::output(&io::Error::from_raw_os_error(28));
        assert_eq!((broken.exit_status(), full.exit_status()), (0, 1));
        assert_eq!(full.to_string(), "standard output: No space left on device");
        assert_eq!(LoadError::Usage(String::new()).exit_status(), 2);
    }
}
