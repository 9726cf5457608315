//! What stops a server, in one line: what failed, on what, and what to do.

use std::fmt;

/// Why a server did not start, or ended.
#[derive(Debug)]
pub struct ServeError(String);

impl ServeError {
    /// An error that says this.
    pub fn new(message: impl fmt::Display) -> ServeError {
        ServeError(message.to_string())
    }

    pub(crate) fn at(what: &str, error: &std::io::Error) -> ServeError {
        ServeError(format!("{what}: {error}"))
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
