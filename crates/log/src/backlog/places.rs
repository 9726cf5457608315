//! How far the lines are, and why one is not taken: the same in memory and on disk.

#[cfg(feature = "spool")]
use std::io;

/// Why a line was not taken.
#[derive(Debug)]
pub(crate) enum PushError {
    Full,
    #[cfg(feature = "spool")]
    Spool(io::Error),
}

/// How far each place is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// The last line that was taken.
    pub(crate) last: u64,
    /// The last line that was given out on this connection.
    pub(crate) sent: u64,
    pub(crate) acknowledged: u64,
}

impl Places {
    /// Lines that wait for their acknowledgement.
    pub(crate) fn waiting(&self) -> u64 {
        self.last - self.acknowledged
    }
}
