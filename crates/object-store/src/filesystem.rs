//! Which file systems open files without waiting for a network or for another process.
//!
//! A thread of the runtime may open files of these, if the kernel has their names in memory. Everything else is opened
//! by a thread that may block: an open or a look at a file of NFS, CIFS or FUSE asks a server, which may not answer. The
//! library knows the local ones ([`ringwise::fs::is_local`]).

use std::{
    collections::HashMap,
    os::fd::AsFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use ringwise::fs::is_local;
use rustix::fs::{AtFlags, Dev, StatxFlags, fstat, makedev, statx};

/// What is known of the file systems that are mounted below a store, by their device.
#[derive(Debug, Default)]
pub(crate) struct Mounted(Mutex<HashMap<Dev, bool>>);

impl Mounted {
    /// Whether a file is on a file system that is known to be local. This waits for nothing.
    pub(crate) fn is_local(&self, file: impl AsFd) -> bool {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let device = statx(file, "", flags, StatxFlags::empty())
            .map(|about| makedev(about.stx_dev_major, about.stx_dev_minor));
        device.is_ok_and(|device| self.lock().get(&device) == Some(&true))
    }

    /// Learns of the file system that a file is on. This may wait for a server.
    pub(crate) fn learn(&self, file: impl AsFd) {
        let Ok(stat) = fstat(&file) else { return };
        let is_known = self.lock().contains_key(&stat.st_dev);
        if is_known {
            return;
        }
        // Asked without the lock, since others must not wait for the server.
        let is_local = is_local(file);
        self.lock().insert(stat.st_dev, is_local);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Dev, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn memory_is_local_once_it_is_known_and_a_process_is_not() {
        let memory = memfd_create("file", MemfdFlags::CLOEXEC).unwrap();
        let process = File::open("/proc/self/stat").unwrap();
        assert_eq!((is_local(&memory), is_local(&process)), (true, false));
        let mounted = Mounted::default();
        assert!(!mounted.is_local(&memory));
        mounted.learn(&memory);
        mounted.learn(&process);
        assert_eq!((mounted.is_local(&memory), mounted.is_local(&process)), (true, false));
    }
}
