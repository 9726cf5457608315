//! What can end a run of the lab, each in one line, with its exit status.

use std::{
    fmt,
    io::{self, Write},
    path::Path,
};

pub use ringwise_measure::plain;

/// Says what of the lab's own stays behind, where a drop can give no error to anybody.
pub(crate) fn tell_left(path: &Path, error: &io::Error) {
    let _ = writeln!(io::stderr(), "ringwise: lab: removing {}: {}", path.display(), plain(error));
}

/// Why the lab ended without, or with only a part of, its results.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabError {
    /// What was typed cannot be meant: the message names the value and what is accepted.
    Usage(String),
    /// Something failed: the message names what, on what, and what to do.
    Failed(String),
    /// A signal ended it. What was measured so far has been reported and marked as partial.
    Interrupted,
    /// A command that was run ended with this exit status, and has said why.
    Exited(u8),
    /// Whoever read the output went away; nothing is left to say to them.
    BrokenPipe,
}

impl LabError {
    /// A failed system call on a path.
    pub fn on(what: &str, path: &Path, error: &io::Error) -> LabError {
        let remedy = match error.kind() {
            io::ErrorKind::NotFound if what == "reading" => "; name an existing file",
            io::ErrorKind::NotFound if what == "writing" => {
                "; name a file in an existing directory"
            }
            io::ErrorKind::IsADirectory => "; name a file",
            io::ErrorKind::NotADirectory => "; name a path whose parents are directories",
            io::ErrorKind::ReadOnlyFilesystem => "; name a path on another file system",
            io::ErrorKind::PermissionDenied => "; run as a user with access, or name another path",
            io::ErrorKind::StorageFull => "; free some space, or name another directory",
            _ => "",
        };
        LabError::Failed(format!("{what} {}: {}{remedy}", path.display(), plain(error)))
    }

    /// Classifies an error of writing to standard output.
    pub fn output(error: &io::Error) -> LabError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => LabError::BrokenPipe,
            _ => LabError::Failed(format!("standard output: {}", plain(error))),
        }
    }

    /// The exit status: 2 for wrong usage, 1 for a failure or an interrupt, 0 for a reader that
    /// went away.
    pub fn exit_status(&self) -> u8 {
        match self {
            LabError::Usage(_) => 2,
            LabError::Failed(_) | LabError::Interrupted => 1,
            LabError::Exited(status) => *status,
            LabError::BrokenPipe => 0,
        }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Usage(message) | LabError::Failed(message) => f.write_str(message),
            LabError::Interrupted => f.write_str("interrupted: the results are partial"),
            LabError::Exited(status) => write!(f, "the command ended with exit status {status}"),
            LabError::BrokenPipe => f.write_str("the reader of the output went away"),
        }
    }
}

impl std::error::Error for LabError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_without_the_number() {
        let error = io::Error::from_raw_os_error(28);
        let text = LabError::on("writing", Path::new("/d/f"), &error).to_string();
        assert_eq!(
            text,
            "writing /d/f: No space left on device; free some space, or name another directory"
        );
    }

    #[test]
    fn a_broken_pipe_is_not_a_failure() {
        let broken = LabError::output(&io::ErrorKind::BrokenPipe.into());
        let full = LabError::output(&io::Error::from_raw_os_error(28));
        assert_eq!((broken.exit_status(), full.exit_status()), (0, 1));
        assert_eq!(LabError::Usage(String::new()).exit_status(), 2);
    }
}
