//! Lines: framing, validation, and records of rejected lines.
//!
//! Functions of bytes: nothing here does I/O.

pub(crate) mod framing;
pub mod json;
pub(crate) mod letter;
