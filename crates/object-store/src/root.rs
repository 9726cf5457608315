//! The directory of a store, and everything that is opened in it.
//!
//! Names are resolved from the open directory by openat2(2) with `RESOLVE_BENEATH`. So the kernel refuses
//! a symbolic link that leads out, even if another process puts it there between two calls.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use ringwise::{Descriptor, fs::is_local};
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, fstat, fsync, mkdirat, openat, openat2},
    io::Errno,
};

use crate::{filesystem::Mounted, object};

/// A directory that is searched for names, and is not read.
pub(crate) const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// How often the kernel is asked for a name while others rename directories.
const ATTEMPTS: usize = 128;

#[derive(Debug)]
pub(crate) struct Root {
    directory: Descriptor,
    path: PathBuf,
    resolve: ResolveFlags,
    /// Whether its own file system waits for nobody, as it was found when the store was made.
    is_local: bool,
    /// The file systems below.
    mounted: Mounted,
}

impl Root {
    /// Opens an existing directory.
    pub(crate) fn open(path: &Path) -> io::Result<Root> {
        let path = path.canonicalize()?;
        let directory = openat(CWD, &path, DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // Nothing is outside of `/`, and many absolute links are in it.
        let is_all = path == Path::new("/");
        let resolve = if is_all { ResolveFlags::empty() } else { ResolveFlags::BENEATH };
        let (is_local, mounted) = (is_local(&directory), Mounted::default());
        Ok(Root { directory: directory.into(), path, resolve, is_local, mounted })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens what has a name, relative to the store; an empty name is the store's directory.
    pub(crate) fn find(&self, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        match self.resolve(name, flags, self.resolve) {
            Err(Errno::AGAIN) if flags.contains(OFlags::NONBLOCK) => {
                self.find_leased(name, flags.difference(OFlags::NONBLOCK))
            }
            found => found,
        }
    }

    /// Opens a file of which another process has a lease, and waits until that process gives it up (fcntl(2),
    /// `F_SETLEASE`). Anything but a file is opened as a path only.
    fn find_leased(&self, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let found = self.resolve(name, OFlags::PATH, self.resolve)?;
        if !object::is_object(&fstat(&found)?) {
            return Ok(found);
        }
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())
    }

    /// As [`find`](Self::find), by a thread that may block. The next [`find_cached`](Self::find_cached) knows the file
    /// system.
    pub(crate) fn find_blocking(&self, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let found = self.find(name, flags)?;
        self.mounted.learn(&found);
        Ok(found)
    }

    /// As [`find`](Self::find), if that waits for nothing: the kernel has all parts of the name in memory, and its
    /// file system is local.
    pub(crate) fn find_cached(
        &self,
        name: &str,
        flags: OFlags,
    ) -> Option<rustix::io::Result<OwnedFd>> {
        if !self.is_local {
            return None;
        }
        let cached = self.resolve | ResolveFlags::CACHED;
        match self.resolve(name, flags, cached | ResolveFlags::NO_XDEV) {
            // Not in memory, or a kernel before 5.12.
            Err(Errno::AGAIN | Errno::INVAL) => None,
            // A link leads out of the store, or the file is on another mount.
            Err(Errno::XDEV) => {
                let path = self.resolve(name, OFlags::PATH, cached).ok()?;
                self.mounted.is_local(path).then(|| self.resolve(name, flags, cached))
            }
            found => Some(found),
        }
    }

    fn resolve(
        &self,
        name: &str,
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> rustix::io::Result<OwnedFd> {
        let name = if name.is_empty() { "." } else { name };
        let attempts = if resolve.contains(ResolveFlags::CACHED) { 1 } else { ATTEMPTS };
        let flags = flags | OFlags::CLOEXEC;
        retry(attempts, || openat2(&self.directory, name, flags, Mode::empty(), resolve))
    }

    /// Opens a directory, and makes it and those above it if they are missing. With `durable`, their
    /// names are durable then.
    pub(crate) fn find_or_make(&self, name: &str, durable: bool) -> rustix::io::Result<OwnedFd> {
        match self.find(name, DIRECTORY) {
            Err(Errno::NOENT) => {}
            found => return found,
        }
        let mut directory = self.find("", DIRECTORY)?;
        let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        let mut start = 0;
        for end in ends {
            directory = match self.find(&name[..end], DIRECTORY) {
                Err(Errno::NOENT) => {
                    match mkdirat(&directory, &name[start..end], Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error),
                    }
                    if durable {
                        sync_directory(&directory)?;
                    }
                    self.find(&name[..end], DIRECTORY)?
                }
                found => found?,
            };
            start = end + 1;
        }
        Ok(directory)
    }
}

/// Repeats an openat2(2) that a rename elsewhere disturbed (`EAGAIN`), or a signal. Every rename of a directory of the
/// machine may disturb it, so the number of attempts is limited.
fn retry<T>(
    attempts: usize,
    mut open: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let mut left = attempts;
    loop {
        match open() {
            Err(Errno::AGAIN) if left > 1 => left -= 1,
            Err(Errno::INTR) => {}
            opened => return opened,
        }
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(directory: impl std::os::fd::AsFd) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fsync(openat(directory, ".", flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was tried without end.
    #[test]
    fn names_that_are_renamed_all_the_time_are_given_up() {
        let mut tried = 0;
        let mut disturbed = || {
            tried += 1;
            assert!(tried <= 2 * ATTEMPTS, "it goes on for ever");
            Err::<(), _>(if tried % 2 == 0 { Errno::AGAIN } else { Errno::INTR })
        };
        assert_eq!(retry(ATTEMPTS, &mut disturbed), Err(Errno::AGAIN));
        assert_eq!(tried, 2 * ATTEMPTS);
        let mut answers = [Err(Errno::AGAIN), Err(Errno::INTR), Ok(7)].into_iter();
        assert_eq!(retry(2, || answers.next().unwrap()), Ok(7));
    }
}
