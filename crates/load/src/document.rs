//! Where a result goes: to standard output as text or as JSON, and to a file.

use std::{io::Write, path::Path};

use ringwise_measure::destination;
use serde::Serialize;

use crate::error::{LoadError, plain};

/// A document as JSON.
pub(crate) fn json(document: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(document).expect("keys are strings");
    text.push('\n');
    text
}

/// Prints the result, as text or (`--json` without a file) as JSON, and writes the file where one
/// was named.
pub(crate) fn give(
    text: &str,
    json: Option<&Path>,
    document: impl FnOnce() -> String,
    out: &mut dyn Write,
) -> Result<(), LoadError> {
    let shown = match json {
        None => text.to_owned(),
        Some(path) if path == Path::new("-") => document(),
        Some(path) => {
            write(path, &document())?;
            text.to_owned()
        }
    };
    out.write_all(shown.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| LoadError::output(&error))
}

fn write(path: &Path, text: &str) -> Result<(), LoadError> {
    destination::write(path, text).map_err(|error| failed(path, &plain(&error)))
}

/// Refuses a file that a result cannot be written to, before there is one.
pub(crate) fn check(json: Option<&Path>) -> Result<(), LoadError> {
    match json {
        None => Ok(()),
        Some(path) if path == Path::new("-") => Ok(()),
        Some(path) => destination::check_file(path).map_err(|why| failed(path, &why)),
    }
}

fn failed(path: &Path, why: &str) -> LoadError {
    LoadError::Failed(format!("--json {}: {why}", path.display()))
}
