//! The test files: where they lie, whose they are, and when they go.
//!
//! All files are in one directory that the lab makes and marks as its own. Nothing without that
//! mark, and no file that does not begin with one of the lab's blocks, is ever overwritten or
//! removed. The directory's guard removes the files when it is dropped, so that an error, an
//! interrupt or a panic leaves nothing behind; `--keep` keeps them for the next run.

pub mod block;
mod layout;

pub use layout::{Layout, Size};

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use block::{BLOCK_BYTES, Stamp};

use crate::error::LabError;

/// The name of the lab's directory within `--dir`.
pub const DIRECTORY_NAME: &str = "ringwise-lab-data";

const MARKER_NAME: &str = ".ringwise-lab";
const MARKER_TEXT: &str = "This directory belongs to `ringwise lab`, which may remove it.\n";
const SUFFIX: &str = ".data";

/// A file of the data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its number, which its blocks carry.
    pub number: u64,
    /// Its length. For a file of a [`Layout`] it is a multiple of [`BLOCK_BYTES`].
    pub bytes: u64,
}

/// The lab's own directory, locked against other runs; emptied when dropped unless kept.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    keep: bool,
    /// Held for its lock.
    _marker: File,
}

impl Directory {
    /// Makes the lab's directory in `parent`, or takes it over from an earlier run.
    ///
    /// # Errors
    ///
    /// `parent` is missing or not writable; there is a directory of that name without the lab's
    /// mark; another run uses it.
    pub fn open(parent: &Path, keep: bool) -> Result<Directory, LabError> {
        if !parent.is_dir() {
            let what = if parent.exists() { "is not a directory" } else { "does not exist" };
            let text = format!("--dir {}: {what}; name an existing directory", parent.display());
            return Err(LabError::Failed(text));
        }
        let path = parent.join(DIRECTORY_NAME);
        match fs::create_dir(&path) {
            Ok(()) => fs::write(path.join(MARKER_NAME), MARKER_TEXT)
                .map_err(|error| LabError::on("writing into", &path, &error))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(LabError::on("--dir: creating", &path, &error)),
        }
        let marker = open_marker(&path)?;
        Ok(Directory { path, keep, _marker: marker })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file_path(&self, set: &str, number: u64) -> PathBuf {
        self.path.join(format!("{set}-{number:03}{SUFFIX}"))
    }

    /// Removes what is the lab's, and the directory if nothing else is in it.
    fn remove(&self) -> io::Result<()> {
        let mut foreign = false;
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name() == MARKER_NAME {
                continue;
            }
            if is_own(&entry.path()) { fs::remove_file(entry.path())? } else { foreign = true }
        }
        if !foreign {
            fs::remove_file(self.path.join(MARKER_NAME))?;
            fs::remove_dir(&self.path)?;
        }
        Ok(())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(error) = self.remove() {
            crate::error::tell_left(&self.path, &error);
        }
    }
}

fn open_marker(directory: &Path) -> Result<File, LabError> {
    let refuse = |what: &str| {
        let text = format!("{} {what}: move it away or choose another --dir", directory.display());
        LabError::Failed(text)
    };
    let is_directory = fs::symlink_metadata(directory).is_ok_and(|found| found.is_dir());
    let marker = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(directory.join(MARKER_NAME));
    let Some(mut marker) = marker.ok().filter(|_| is_directory) else {
        return Err(refuse("exists and is not the lab's"));
    };
    let mut text = String::new();
    if marker.read_to_string(&mut text).is_err() || text != MARKER_TEXT {
        return Err(refuse("exists and is not the lab's"));
    }
    rustix::fs::flock(&marker, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| refuse("is in use by another run of the lab"))?;
    Ok(marker)
}

/// Whether a path is a regular file that begins with an intact block of the lab.
fn is_own(path: &Path) -> bool {
    path.to_string_lossy().ends_with(SUFFIX)
        && open_own(path).is_ok_and(|file| first_stamp(&file).is_some())
}

/// Opens a regular file for reading; a link is not followed, a pipe not waited for.
fn open_own(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}

fn first_stamp(file: &File) -> Option<Stamp> {
    stamp_at(file, 0)
}

fn stamp_at(file: &File, block: u64) -> Option<Stamp> {
    let mut bytes = vec![0; BLOCK_BYTES];
    file.read_exact_at(&mut bytes, block * BLOCK_BYTES as u64).ok()?;
    Stamp::of(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lay(directory: &Directory, files: u64, bytes: u64) -> Vec<DataFile> {
        Layout { set: "test", files, size: Size::exactly(bytes), seed: 5 }
            .lay(directory, &mut |_| true)
            .unwrap()
    }

    #[test]
    fn files_go_with_the_guard_unless_kept() {
        let parent = tempfile::tempdir().unwrap();
        let directory = Directory::open(parent.path(), true).unwrap();
        let files = lay(&directory, 2, 1 << 20);
        drop(directory);
        assert!(files.iter().all(|file| file.path.exists()));
        drop(Directory::open(parent.path(), false).unwrap());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_of_the_user_is_refused_and_left() {
        let parent = tempfile::tempdir().unwrap();
        let own = parent.path().join(DIRECTORY_NAME);
        fs::create_dir(&own).unwrap();
        fs::write(own.join("thesis.txt"), "precious").unwrap();
        let error = Directory::open(parent.path(), false).unwrap_err().to_string();
        assert!(error.contains("is not the lab's") && !error.contains('\n'), "{error}");
        assert_eq!(fs::read(own.join("thesis.txt")).unwrap(), b"precious");
    }

    #[test]
    fn a_file_of_the_user_among_the_labs_is_left() {
        let parent = tempfile::tempdir().unwrap();
        let directory = Directory::open(parent.path(), false).unwrap();
        let files = lay(&directory, 1, 1 << 20);
        let foreign = directory.path().join("mine.data");
        fs::write(&foreign, vec![1; 8192]).unwrap();
        drop(directory);
        assert!(!files[0].path.exists());
        assert_eq!(fs::read(&foreign).unwrap(), vec![1; 8192]);
    }

    #[test]
    fn a_link_in_place_of_the_directory_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join(MARKER_NAME), MARKER_TEXT).unwrap();
        let link = parent.path().join(DIRECTORY_NAME);
        std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
        assert!(Directory::open(parent.path(), false).is_err());
        assert!(elsewhere.path().join(MARKER_NAME).exists());
    }

    #[test]
    fn two_runs_do_not_share_a_directory() {
        let parent = tempfile::tempdir().unwrap();
        let first = Directory::open(parent.path(), false).unwrap();
        let error = Directory::open(parent.path(), false).unwrap_err().to_string();
        assert!(error.contains("another run"), "{error}");
        drop(first);
        assert!(Directory::open(parent.path(), false).is_ok());
    }

    #[test]
    fn a_missing_parent_is_named() {
        let error = Directory::open(Path::new("/nonexistent/x"), false).unwrap_err().to_string();
        assert_eq!(error, "--dir /nonexistent/x: does not exist; name an existing directory");
    }
}
