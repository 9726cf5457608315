//! What a file is, as far as that decides the way to it; found out when it is opened and while it
//! is used, by what the kernel answers.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::fstatfs;

use crate::{backend::Blocking, descriptor::Descriptor};

/// Of `statfs` (include/uapi/linux/magic.h).
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const EXT4: u64 = 0xef53;

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
    always_waits: AtomicBool,
    /// What offsets, lengths and addresses have to be multiples of; 1 where nothing is asked.
    pub(super) alignment: usize,
}

/// How a read is best begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By the caller's thread, if the page cache has it all.
    Cache,
    /// By the caller's thread, whatever it takes: a copy of memory.
    Memory,
    /// Through the ring.
    Ring,
}

impl Nature {
    /// Of a file that is not open for direct I/O, or whose alignment is known.
    pub(super) fn of(file: &Descriptor, alignment: usize) -> Nature {
        let magic = fstatfs(file).map_or(0, |filesystem| filesystem.f_type as u64);
        let is_cached = file.blocking() == Blocking::Cached;
        Nature {
            is_cached,
            is_in_memory: is_cached && matches!(magic, TMPFS | RAMFS),
            is_slow_by_worker: is_cached && magic == EXT4,
            always_waits: AtomicBool::new(false),
            alignment,
        }
    }

    pub(super) fn way(&self) -> Way {
        match self {
            _ if !self.is_cached => Way::Ring,
            _ if self.is_in_memory => Way::Memory,
            _ if self.always_waits.load(Ordering::Relaxed) => Way::Ring,
            _ => Way::Cache,
        }
    }

    /// Whether a write of so many bytes is better made by a thread of the loop than by its ring.
    pub(super) fn writes_by_thread(&self, len: usize) -> bool {
        self.is_slow_by_worker && len >= WRITE_BY_THREAD_BYTES
    }

    /// A read that must not wait was refused as such.
    pub(super) fn learn_that_it_waits(&self) {
        self.always_waits.store(true, Ordering::Relaxed);
    }
}
