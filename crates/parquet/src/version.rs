//! The version of a file's content, as far as the file system tells it.

use std::{io, os::fd::AsFd};

use rustix::fs::{FileType, fstat};

/// A file of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

/// A version of a file. Two are the same only if the length, the time of modification and the time of change are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) id: FileId,
    /// In bytes.
    pub(crate) len: u64,
    /// Seconds and nanoseconds.
    modified: (i64, u32),
    /// The same. No program can set it. It also changes with the names and the permissions of the file.
    changed: (i64, u32),
}

impl Version {
    /// Looks at an open file, on this thread: the kernel has the answer in memory.
    pub(crate) fn of(file: impl AsFd) -> io::Result<Version> {
        let stat = fstat(file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        Ok(Version {
            id: FileId { device: stat.st_dev, inode: stat.st_ino },
            len: stat.st_size as u64,
            modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
            changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
        })
    }

    /// Whether two versions have the same content, as far as the length and the time of modification tell. A file that
    /// was only renamed has.
    pub(crate) fn has_content_of(&self, other: &Version) -> bool {
        Version { changed: other.changed, ..*self } == *other
    }
}
