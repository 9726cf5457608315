//! What the daemon's number of stored lines says about the client's own lines.
//!
//! Each directory of a daemon counts the lines of a name by itself, and for good.

/// What the daemon's numbers of a name mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbering {
    /// By how much they are greater than the client's own.
    pub(crate) offset: i128,
    /// The daemon's directory that counts so; empty if the daemon did not tell.
    pub(crate) directory: String,
}

impl Numbering {
    /// Whether another directory counts otherwise.
    pub(crate) fn is_of_another(&self, directory: &str) -> bool {
        !self.directory.is_empty() && !directory.is_empty() && self.directory != directory
    }
}
