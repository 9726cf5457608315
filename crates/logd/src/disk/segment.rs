//! Segments: the files that store lines, and the decision which of their lines are whole.
//!
//! A segment is two files (docs/reference/logd-files.md has the format): the lines as received, and an index with an
//! entry for each batch. The entry has the batch's position, its number of lines and its checksum. Lines that no valid
//! entry covers were never acknowledged as durable. A stream is the segments of one thread; its lines are numbered.
//!
//! Reading order: `format` (names, entries and records), `scan` (which batches are whole), `call` (blocking syscalls),
//! `writing`, `recovery` (at a start), `frame` and `pack`, `retention`, then `reading`.

pub(crate) mod call;
pub(crate) mod format;
pub(crate) mod frame;
pub(crate) mod pack;
pub(crate) mod reading;
pub(crate) mod recovery;
pub(crate) mod retention;
pub(crate) mod scan;
pub(crate) mod writing;

/// Returns the time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
