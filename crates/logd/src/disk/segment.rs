//! Segments: the files that store lines, and the decision which of their lines are whole.
//!
//! A segment is two files (docs/reference/logd-files.md has the format): the lines as received, and an index with an
//! entry for each batch. The entry has the batch's position, its number of lines and its checksum. Lines that no valid
//! entry covers were never acknowledged as durable. A stream is the segments of one thread; its lines are numbered.
//!
//! Reading order: `entry`, `record` (names and origins), `name`, `scan` (which batches are whole), `call` (blocking
//! syscalls), `staging` (memory for direct writes), `writing` (the rules of commits), `appender` (runs these rules on a
//! loop), `unsealed` (the end of a segment), `recovery` (at a start), `pack`, `retention`, then `unpack`, `view`, `source`
//! and `reader` (for `cat`, `tail` and `verify`).

pub(crate) mod appender;
pub(crate) mod call;
pub(crate) mod entry;
pub(crate) mod name;
pub(crate) mod pack;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod recovery;
pub(crate) mod retention;
pub(crate) mod scan;
pub(crate) mod source;
pub(crate) mod staging;
mod unpack;
pub(crate) mod unsealed;
mod view;
pub(crate) mod writing;

/// Returns the time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
