//! How a tool tells what is wrong with a directory.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::Path,
};

use crate::{disk::segment::format::name::Stream, error::LogdError};

/// Fails with the first of the problems, after everything else was printed.
pub(super) fn told<'a>(mut problems: impl Iterator<Item = &'a String>) -> Result<(), LogdError> {
    match problems.next() {
        Some(problem) => Err(LogdError::Failed(format!("{problem}; the rest was printed"))),
        None => Ok(()),
    }
}

/// Returns the message about a directory without segments. It may be mistyped.
pub(super) fn no_segments(directory: &Path) -> String {
    let directory = directory.display();
    format!("{directory}: no segments; name the directory that the daemon's --dir names")
}

/// Prints a warning if a directory has no segments. It is no error of a tool that prints lines: a daemon that received
/// no line yet has none.
pub(super) fn tell_if_empty(directory: &Path, streams: &BTreeMap<Stream, Vec<u64>>) {
    if streams.is_empty() {
        let _ = writeln!(io::stderr(), "ringwise: logd: {}", no_segments(directory));
    }
}
