//! One client for each directory, and directories that are synced, as far as the system can do that.

use std::{fs::File, io, path::Path};

/// Takes the lock until the file is closed; nothing if another program has it.
#[cfg(unix)]
pub(super) fn take(path: &Path) -> io::Result<Option<File>> {
    use rustix::{fs::FlockOperation, io::Errno};

    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Takes the lock until the file is closed; nothing if another program has it.
#[cfg(windows)]
pub(super) fn take(path: &Path) -> io::Result<Option<File>> {
    use std::os::windows::fs::OpenOptionsExt;

    /// ERROR_SHARING_VIOLATION.
    const SHARED: i32 = 32;
    let mut options = File::options();
    match options.create(true).truncate(false).write(true).share_mode(0).open(path) {
        Err(error) if error.raw_os_error() == Some(SHARED) => Ok(None),
        result => result.map(Some),
    }
}

/// Other systems have no lock that the standard library can take.
#[cfg(not(any(unix, windows)))]
pub(super) fn take(path: &Path) -> io::Result<Option<File>> {
    File::options().create(true).truncate(false).write(true).open(path).map(Some)
}

/// Makes the names in a directory durable. Only unix opens a directory as a file.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}
