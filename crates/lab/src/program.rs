//! The reader's own program: its I/O is recorded, explained and made again.

pub(crate) mod explain;
pub(crate) mod recording;
pub(crate) mod replay;
pub(crate) mod traced;
