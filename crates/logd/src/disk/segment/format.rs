//! What a segment consists of: its names, the entries of its index, and the records beside a batch.

pub(crate) mod entry;
pub(crate) mod name;
pub(crate) mod record;
