//! A small file beside the segments is replaced as a whole: what reads it finds the old content or the new one.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use crate::error::LogdError;

/// What the name of a file ends in until it is whole. A crash can leave it.
pub(crate) const ENDING: &str = ".part";

/// Writes a file durably, as a whole or not at all.
pub(crate) fn write(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), LogdError> {
    let part = directory.join(format!("{name}{ENDING}"));
    let path = directory.join(name);
    let mut new = OpenOptions::new();
    let new = new.write(true).create(true).truncate(true).mode(0o640);
    let written = new.open(&part).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|error| LogdError::on(&part, &error))?;
    fs::rename(&part, &path).map_err(|error| LogdError::on(&path, &error))?;
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| LogdError::on(directory, &error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_for_those_who_may_read_segments() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "name", b"text").unwrap();
        let mode = fs::metadata(directory.path().join("name")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7, 0, "{mode:o}");
    }
}
