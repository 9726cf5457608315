//! What a file is, as far as that decides the way to it; found out when it is opened. What its file
//! system can do is known from the use of others on it, or learned (`nature/filesystem.rs`).

mod filesystem;
pub(super) mod locality;

use std::sync::Arc;

use rustix::{
    fs::{fcntl_getfl, fstat, fstatfs, tell},
    io::Errno as RawErrno,
};

use self::{filesystem::Filesystem, locality::is_local_magic};
use crate::{
    descriptor::{Blocking, Descriptor},
    op::Hint,
};

/// Of `statfs` (include/uapi/linux/magic.h).
pub(super) const TMPFS: u64 = 0x0102_1994;
pub(super) const RAMFS: u64 = 0x8584_58f6;
pub(super) const EXT4: u64 = 0xef53;
/// Of the same call's flags, `ST_SYNCHRONOUS` (include/linux/statfs.h): mounted with `-o sync`.
const MOUNTED_SYNCHRONOUS: u64 = 0x10;

/// Cached writes from here on are a thread's where a ring hands them to a worker (on ext4, by `cargo
/// bench -p ringwise-lab --bench transfers -- write`).
const WRITE_BY_THREAD_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Nature {
    /// Reads may be served by the page cache.
    is_cached: bool,
    /// It lives in memory: no read waits for a device. A ring would hand each to a worker thread,
    /// since such files cannot be asked not to block.
    is_in_memory: bool,
    /// Each write is made durable before it ends, by the file's flags or by its mount's.
    is_synchronous: bool,
    /// A ring hands each buffered write to a worker of the kernel, and that is known beforehand.
    is_ext4: bool,
    /// Its file system asks nobody outside the kernel about an open file.
    is_local: bool,
    filesystem: Arc<Filesystem>,
    /// What offsets, lengths and addresses have to be multiples of; 1 where nothing is asked.
    pub(super) alignment: usize,
}

/// How a read or a write is best begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By the caller's thread, if the page cache has it all, or takes it all, without waiting.
    Cache,
    /// By the caller's thread, whatever it takes: a copy of memory.
    Memory,
    /// Through the ring.
    Ring,
}

impl Nature {
    /// Of a file that is not open for direct I/O, or whose alignment is known.
    pub(super) fn of(file: &Descriptor, alignment: usize) -> Nature {
        let (magic, mounted) = fstatfs(file)
            .map_or((0, 0), |filesystem| (filesystem.f_type as u64, filesystem.f_flags as u64));
        let is_cached = file.blocking() == Blocking::Cached;
        // By libc's number, which O_SYNC includes: rustix 1.1 has O_SYNC's for both.
        let flags = || fcntl_getfl(file).map_or(0, |flags| flags.bits());
        let is_synchronous = is_cached
            && (mounted & MOUNTED_SYNCHRONOUS != 0 || flags() & libc::O_DSYNC as u32 != 0);
        let device = fstat(file).map_or(0, |about| about.st_dev);
        Nature {
            is_cached,
            is_in_memory: is_cached && matches!(magic, TMPFS | RAMFS),
            is_synchronous,
            is_ext4: magic == EXT4,
            is_local: is_local_magic(magic),
            filesystem: Filesystem::of(device, magic),
            alignment,
        }
    }

    pub(super) fn read_way(&self) -> Way {
        self.way(self.filesystem.reads_wait())
    }

    pub(super) fn write_way(&self) -> Way {
        self.way(self.is_synchronous || self.filesystem.writes_wait())
    }

    fn way(&self, waits: bool) -> Way {
        match self {
            _ if !self.is_cached || waits => Way::Ring,
            _ if self.is_in_memory => Way::Memory,
            _ => Way::Cache,
        }
    }

    /// What is known of a write of so many bytes.
    pub(super) fn write_hint(&self, len: usize) -> Hint {
        let by_worker = self.is_cached && (self.is_ext4 || self.filesystem.writes_wait());
        match by_worker {
            true if len >= WRITE_BY_THREAD_BYTES => Hint::ByThread,
            true => Hint::ByWorker,
            false => Hint::Nothing,
        }
    }

    /// What is known of a read that the page cache did not serve.
    pub(super) fn read_hint(&self) -> Hint {
        let by_worker = self.is_cached && self.filesystem.reads_wait();
        if by_worker { Hint::ByWorker } else { Hint::Missed }
    }

    /// Whether metadata is in memory, so that nobody waits for it.
    pub(super) fn has_metadata_at_hand(&self) -> bool {
        self.is_local
    }

    pub(super) fn filesystem(&self) -> &Filesystem {
        &self.filesystem
    }
}

/// Whether reads and writes have positions in it, as those of a pipe, a terminal or a socket have not.
pub(super) fn has_positions(file: &Descriptor) -> bool {
    match file.blocking() {
        Blocking::Cached | Blocking::Missed | Blocking::Device => true,
        Blocking::Unbounded | Blocking::Socket { .. } => tell(file) != Err(RawErrno::SPIPE),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn a_file_knows_what_another_of_its_file_system_was_refused() {
        let nature = || Nature::of(&memfd_create("file", MemfdFlags::CLOEXEC).unwrap().into(), 1);
        let (first, second) = (nature(), nature());
        assert_eq!((second.read_way(), second.write_way()), (Way::Memory, Way::Memory));
        assert_eq!(second.write_hint(WRITE_BY_THREAD_BYTES), Hint::Nothing);
        first.filesystem().learn_that_writes_wait();
        assert_eq!((second.read_way(), second.write_way()), (Way::Memory, Way::Ring));
        assert_eq!(second.write_hint(WRITE_BY_THREAD_BYTES), Hint::ByThread);
        assert_eq!(second.write_hint(WRITE_BY_THREAD_BYTES - 1), Hint::ByWorker);
        assert_eq!(second.read_hint(), Hint::Missed);
        first.filesystem().learn_that_reads_wait();
        assert_eq!(second.read_hint(), Hint::ByWorker);
        assert_eq!((second.read_way(), nature().read_way()), (Way::Ring, Way::Ring));
    }
}
