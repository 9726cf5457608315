//! What a file is, as far as that decides the way to it; found out when it is opened and while it
//! is used, by what the kernel answers.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{fcntl_getfl, fstatfs};

use crate::{backend::Blocking, descriptor::Descriptor, op::Hint};

/// Of `statfs` (include/uapi/linux/magic.h).
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const EXT4: u64 = 0xef53;
/// Of the same call's flags, `ST_SYNCHRONOUS` (include/linux/statfs.h): mounted with `-o sync`.
const MOUNTED_SYNCHRONOUS: u64 = 0x10;

/// Cached writes from here on are a thread's on ext4 (`cargo bench -p ringwise-lab --bench
/// transfers -- write`).
const WRITE_BY_THREAD_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Nature {
    /// Reads may be served by the page cache.
    is_cached: bool,
    /// It lives in memory: no read waits for a device. A ring would hand each to a worker thread,
    /// since such files cannot be asked not to block.
    is_in_memory: bool,
    /// It writes through the page cache, and a ring hands each such write to a kernel's worker,
    /// which takes longer for a large one than a thread of the loop.
    is_slow_by_worker: bool,
    /// The file system does not know reads that must not wait.
    reads_wait: AtomicBool,
    /// It does not know writes that must not wait, or each is made durable before it ends: by the
    /// file's flags, or by its mount's.
    writes_wait: AtomicBool,
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
        Nature {
            is_cached,
            is_in_memory: is_cached && matches!(magic, TMPFS | RAMFS),
            is_slow_by_worker: is_cached && magic == EXT4,
            reads_wait: AtomicBool::new(false),
            writes_wait: AtomicBool::new(is_synchronous),
            alignment,
        }
    }

    pub(super) fn read_way(&self) -> Way {
        self.way(&self.reads_wait)
    }

    pub(super) fn write_way(&self) -> Way {
        self.way(&self.writes_wait)
    }

    fn way(&self, waits: &AtomicBool) -> Way {
        match self {
            _ if !self.is_cached => Way::Ring,
            _ if waits.load(Ordering::Relaxed) => Way::Ring,
            _ if self.is_in_memory => Way::Memory,
            _ => Way::Cache,
        }
    }

    /// What is known of a write of so many bytes.
    pub(super) fn write_hint(&self, len: usize) -> Hint {
        let by_thread = self.is_slow_by_worker && len >= WRITE_BY_THREAD_BYTES;
        if by_thread { Hint::ByThread } else { Hint::Nothing }
    }

    /// A read that must not wait was refused as such.
    pub(super) fn learn_that_reads_wait(&self) {
        self.reads_wait.store(true, Ordering::Relaxed);
    }

    /// A write that must not wait was refused as such.
    pub(super) fn learn_that_writes_wait(&self) {
        self.writes_wait.store(true, Ordering::Relaxed);
    }
}
