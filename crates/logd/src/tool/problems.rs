//! How a tool tells what is wrong with a directory.

use std::{
    io::{self, Write},
    path::Path,
};

use crate::error::LogdError;

/// Fails with the first of the problems, after everything else was printed.
pub(super) fn told<'a>(mut problems: impl Iterator<Item = &'a String>) -> Result<(), LogdError> {
    match problems.next() {
        Some(problem) => Err(LogdError::Failed(format!("{problem}; the rest was printed"))),
        None => Ok(()),
    }
}

/// Says that a directory has no segments. A mistyped one should not pass for a good one.
pub(super) fn tell_of_no_segments(directory: &Path) {
    let _ = writeln!(io::stderr(), "ringwise: logd: {}: no segments", directory.display());
}
