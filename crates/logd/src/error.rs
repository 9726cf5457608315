//! What ends the daemon or one of its tools, in one line: what failed, on what, and what to do.

use std::{fmt, io, net::SocketAddr, path::Path};

use ringwise_measure::plain;
use ringwise_serve::{ServeError, listen_remedy};

/// Why a command failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum LogdError {
    /// What was typed or configured cannot be meant.
    Usage(String),
    /// Something failed.
    Failed(String),
    /// Whoever read the output went away; nothing is left to say to them.
    BrokenPipe,
}

impl LogdError {
    pub(crate) fn failed(error: impl fmt::Display) -> LogdError {
        LogdError::Failed(error.to_string())
    }

    /// An error of a call on a file.
    pub(crate) fn on(path: &Path, error: &io::Error) -> LogdError {
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => "; name an existing path",
            io::ErrorKind::PermissionDenied => {
                "; give access to the user that runs this, or name another path"
            }
            io::ErrorKind::IsADirectory => "; name a file",
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => "; name a directory",
            _ => "",
        };
        LogdError::Failed(format!("{}: {}{remedy}", path.display(), plain(error)))
    }

    /// A directory cannot be made.
    pub(crate) fn making(directory: &Path, error: &io::Error) -> LogdError {
        let remedy = match error.kind() {
            io::ErrorKind::NotADirectory
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::PermissionDenied => return LogdError::on(directory, error),
            _ => "name a directory on a writable file system",
        };
        let directory = directory.display();
        LogdError::Failed(format!("{directory}: cannot be made: {}; {remedy}", plain(error)))
    }

    /// The same, of what an option named.
    pub(crate) fn of(self, option: &str) -> LogdError {
        match self {
            LogdError::Usage(message) => LogdError::Usage(format!("{option} {message}")),
            LogdError::Failed(message) => LogdError::Failed(format!("{option} {message}")),
            LogdError::BrokenPipe => LogdError::BrokenPipe,
        }
    }

    /// The address of an option cannot be listened on.
    pub(crate) fn listening(option: &str, address: SocketAddr, error: &io::Error) -> LogdError {
        let remedy = match error.kind() {
            io::ErrorKind::AddrNotAvailable => Some("this machine does not have this address"),
            _ => error.raw_os_error().and_then(listen_remedy),
        };
        let remedy = remedy.map(|remedy| format!(": {remedy}")).unwrap_or_default();
        LogdError::Failed(format!("{option} {address}: {}{remedy}", plain(error)))
    }

    /// Classifies an error of writing to standard output.
    pub(crate) fn output(error: &io::Error) -> LogdError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => LogdError::BrokenPipe,
            _ => LogdError::Failed(format!("standard output: {}", plain(error))),
        }
    }

    /// The status that the command exits with: 2 for wrong usage, 1 for a failure, 0 for a reader
    /// that went away.
    pub fn exit_status(&self) -> u8 {
        match self {
            LogdError::Usage(_) => 2,
            LogdError::Failed(_) => 1,
            LogdError::BrokenPipe => 0,
        }
    }
}

impl fmt::Display for LogdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogdError::Usage(message) | LogdError::Failed(message) => f.write_str(message),
            LogdError::BrokenPipe => f.write_str("the reader of the output went away"),
        }
    }
}

impl std::error::Error for LogdError {}

impl From<ServeError> for LogdError {
    fn from(error: ServeError) -> LogdError {
        LogdError::failed(error)
    }
}
