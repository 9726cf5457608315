//! What several tests need.

use std::path::PathBuf;

/// A directory on the file system of the build, which unlike the system's temporary directory is
/// seldom a tmpfs: direct reads and extents are tested on it.
pub fn directory() -> tempfile::TempDir {
    let executable = std::env::current_exe().unwrap();
    let parent: PathBuf = executable.parent().unwrap().into();
    tempfile::Builder::new().prefix("lab-test-").tempdir_in(parent).unwrap()
}
