//! Directories of block devices in sysfs.

use std::path::{Path, PathBuf};

/// Returns the disk's directory, which contains that of a partition.
pub(super) fn disk_of(directory: PathBuf) -> PathBuf {
    match directory.parent() {
        Some(disk) if directory.join("partition").exists() => disk.to_path_buf(),
        _ => directory,
    }
}

/// Lists the names in a directory, in order. One that cannot be read has none.
pub(super) fn names_in(directory: &Path) -> Vec<String> {
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}
