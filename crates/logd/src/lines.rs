//! Lines: framing, validation, records of rejected lines, and wrapping.
//!
//! Functions of bytes: nothing here does I/O.

pub(crate) mod framing;
pub mod json;
pub(crate) mod letter;
pub(crate) mod text;
pub(crate) mod wrap;
