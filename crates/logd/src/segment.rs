//! Segments: where lines are kept, and how it is known which of them are whole.
//!
//! A segment is two files (docs/logd.md has the format): the lines as they came, which any tool can
//! read, and beside them an index with an entry for each batch, which has the batch's place, its
//! lines and its checksum. What no good entry covers was never acknowledged as durable.
//!
//! Reading order: `entry`, `name`, `scan` (what of a segment is whole), `call` (calls that a thread
//! waits for), `staging` (memory for direct writes), `appender` (writing on a loop), `unsealed`
//! (the end of a segment), `recovery` (what a start does with the end of the last run), `pack` and
//! `retention` (what becomes of sealed ones), `view` and `reader` (for people: cat, tail, verify; `unpack`). A
//! stream is the segments of one thread, and its lines are numbered throughout.

pub(crate) mod appender;
pub(crate) mod call;
pub(crate) mod entry;
pub(crate) mod name;
pub(crate) mod pack;
pub(crate) mod reader;
pub(crate) mod recovery;
pub(crate) mod retention;
pub(crate) mod scan;
pub(crate) mod staging;
mod unpack;
pub(crate) mod unsealed;
mod view;

#[cfg(test)]
mod crashes;
#[cfg(test)]
mod gathered;
