//! Where a result goes: to standard output as text or as JSON, and to a file.

use std::{fs, io::Write, path::Path};

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

/// Writes the file so that it is there whole or not at all.
fn write(path: &Path, text: &str) -> Result<(), LoadError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&part)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&part, path));
    written.map_err(|error| {
        // It may not have been made; either way nothing of it is to stay.
        let _ = fs::remove_file(&part);
        LoadError::Failed(format!("--json {}: {}", path.display(), plain(&error)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let taken = directory.path().join("taken");
        fs::create_dir(&taken).unwrap();
        fs::write(taken.join("x"), "").unwrap();
        let error = write(&taken, "{}").unwrap_err().to_string();
        assert!(error.starts_with("--json ") && error.contains("taken"), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let good = directory.path().join("good.json");
        write(&good, "{}").unwrap();
        write(&good, "{}\n").unwrap();
        assert_eq!(fs::read_to_string(good).unwrap(), "{}\n");
    }
}
