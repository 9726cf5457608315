//! The record beside a segment that object storage has it: `lines-000-0000000000.uploaded`.
//!
//! It is written when the objects were read back and found right, and nowhere else. Retention removes a segment without
//! one only for size. A crash before it is durable means that the segment is uploaded again, under the same names.

use std::{fs, path::Path};

use crate::{
    disk::{
        replacement,
        segment::format::name::{Part, Stream, parse},
    },
    error::LogdError,
    monitoring::log,
};

/// The first line.
const TITLE: &str = "ringwise logd upload 1";

/// Whether a segment has a record.
pub(super) fn exists(directory: &Path, (stream, serial): (Stream, u64)) -> bool {
    directory.join(stream.file(serial, Part::Uploaded)).exists()
}

/// Writes the record of a segment durably.
///
/// # Errors
///
/// It could not be written. There is no record then, or a whole one.
pub(super) fn keep(
    directory: &Path,
    (stream, serial): (Stream, u64),
    place: &str,
) -> Result<(), LogdError> {
    let name = stream.file(serial, Part::Uploaded);
    replacement::write(directory, &name.to_string_lossy(), text(place).as_bytes())
}

fn text(place: &str) -> String {
    format!("{TITLE}\n{place}\n")
}

/// Removes the records of other places, so that these segments are uploaded to this one, and what a crash left of
/// records that were being written.
///
/// # Errors
///
/// The directory cannot be read, or a record cannot be removed.
pub(super) fn remove_stale(directory: &Path, place: &str) -> Result<(), LogdError> {
    let failed = |error| LogdError::on(directory, &error);
    let mut count = 0;
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some(name) = name.to_str() else { continue };
        let whole = name.strip_suffix(replacement::ENDING);
        let Some((_, _, Part::Uploaded)) = parse(whole.unwrap_or(name)) else { continue };
        let path = directory.join(name);
        let failed = |error| LogdError::on(&path, &error);
        if whole.is_some() {
            // An error is ignored, because what is left only takes space.
            let _ = fs::remove_file(&path);
        } else if fs::read(&path).map_err(failed)? != text(place).as_bytes() {
            fs::remove_file(&path).map_err(failed)?;
            count += 1;
        }
    }
    if count > 0 {
        log::remark(
            "upload",
            format_args!(
                "{count} segments were uploaded elsewhere: they are uploaded to {place} too"
            ),
        );
    }
    Ok(())
}
