//! Lines: where they end, what they may be, and what becomes of those that are rejected.
//!
//! Functions of bytes: nothing here does I/O.

pub(crate) mod framing;
pub mod json;
pub(crate) mod letter;
