//! One client for each directory, and directories that are synced, as far as the system can do that.

use std::{fs::File, io, path::Path};

/// A lock that was taken. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Lock(
    // Elsewhere the open file is the lock, or there is none.
    #[cfg_attr(not(unix), allow(dead_code))] pub(super) File,
);

#[cfg(unix)]
impl Drop for Lock {
    /// Closing the file is not enough: a child that another thread just forked has it open until it calls execve(2).
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, rustix::fs::FlockOperation::Unlock);
    }
}

/// Takes the lock; nothing if another program has it.
#[cfg(unix)]
pub(super) fn take(path: &Path) -> io::Result<Option<Lock>> {
    use rustix::{fs::FlockOperation, io::Errno};

    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock(file))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Takes the lock; nothing if another program has it.
#[cfg(windows)]
pub(super) fn take(path: &Path) -> io::Result<Option<Lock>> {
    use std::os::windows::fs::OpenOptionsExt;

    /// ERROR_SHARING_VIOLATION.
    const SHARED: i32 = 32;
    let mut options = File::options();
    match options.create(true).truncate(false).write(true).share_mode(0).open(path) {
        Err(error) if error.raw_os_error() == Some(SHARED) => Ok(None),
        result => result.map(|file| Some(Lock(file))),
    }
}

/// Other systems have no lock that the standard library can take.
#[cfg(not(any(unix, windows)))]
pub(super) fn take(path: &Path) -> io::Result<Option<Lock>> {
    File::options().create(true).truncate(false).write(true).open(path).map(|file| Some(Lock(file)))
}

/// Makes the names in a directory durable. Only unix opens a directory as a file.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}
