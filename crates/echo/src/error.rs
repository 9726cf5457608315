//! What stops the server, in one line: what failed, on what, and what to do.

use std::fmt;

/// Why the server did not start, or ended.
#[derive(Debug)]
pub struct EchoError(String);

impl EchoError {
    pub(crate) fn new(message: impl Into<String>) -> EchoError {
        EchoError(message.into())
    }

    /// The status that the command exits with.
    pub fn exit_status(&self) -> u8 {
        1
    }
}

impl fmt::Display for EchoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EchoError {}
