//! The directory of a store, and everything that is opened in it.
//!
//! Names are resolved from the open directory by openat2(2) with `RESOLVE_BENEATH`. So the kernel refuses
//! a symbolic link that leads out, even if another process puts it there between two calls.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use ringwise::Descriptor;
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, fsync, mkdirat, openat, openat2},
    io::Errno,
};

/// A directory that is searched for names, and is not read.
pub(crate) const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

#[derive(Debug)]
pub(crate) struct Root {
    directory: Descriptor,
    path: PathBuf,
    resolve: ResolveFlags,
}

impl Root {
    /// Opens an existing directory.
    pub(crate) fn open(path: &Path) -> io::Result<Root> {
        let path = path.canonicalize()?;
        let directory = openat(CWD, &path, DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // Nothing is outside of `/`, and many absolute links are in it.
        let is_all = path == Path::new("/");
        let resolve = if is_all { ResolveFlags::empty() } else { ResolveFlags::BENEATH };
        Ok(Root { directory: directory.into(), path, resolve })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens what has a name, relative to the store; an empty name is the store's directory.
    pub(crate) fn find(&self, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        self.resolve(name, flags, self.resolve)
    }

    /// As [`find`](Self::find), if the kernel has all parts of the name in memory.
    pub(crate) fn find_cached(
        &self,
        name: &str,
        flags: OFlags,
    ) -> Option<rustix::io::Result<OwnedFd>> {
        match self.resolve(name, flags, self.resolve | ResolveFlags::CACHED) {
            // Not in memory, or a kernel before 5.12.
            Err(Errno::AGAIN | Errno::INVAL) => None,
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
        loop {
            match openat2(&self.directory, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                // A rename elsewhere was in between (openat2(2), EAGAIN).
                Err(Errno::AGAIN) if !resolve.contains(ResolveFlags::CACHED) => {}
                Err(Errno::INTR) => {}
                found => return found,
            }
        }
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

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(directory: impl std::os::fd::AsFd) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fsync(openat(directory, ".", flags, Mode::empty())?)
}
