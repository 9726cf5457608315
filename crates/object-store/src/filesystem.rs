//! Which file systems open files without waiting for a network or for another process.
//!
//! A thread of the runtime may open files of these, if the kernel has their names in memory. Everything else is opened
//! by a thread that may block: an open or a look at a file of NFS, CIFS or FUSE asks a server, which may not answer.

use std::{
    collections::HashMap,
    os::fd::AsFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::fs::{AtFlags, Dev, StatxFlags, fstat, fstatfs, makedev, statx};

/// Their numbers (statfs(2), include/uapi/linux/magic.h). An unknown one is taken for one that waits. The layers of an
/// overlay are local, except in rare setups.
const LOCAL: [u64; 11] = [
    0xef53,      // ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0xf2f5_2010, // F2FS
    0x794c_7630, // overlayfs
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
    0xe0f5_e1e2, // EROFS
    0x7371_7368, // SquashFS
];

/// Asks which file system a file is on. This may wait for a server.
pub(crate) fn is_local(file: impl AsFd) -> bool {
    fstatfs(file).is_ok_and(|filesystem| LOCAL.contains(&(filesystem.f_type as u64)))
}

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
