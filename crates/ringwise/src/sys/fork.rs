//! Whether this process is the one that something was made in.
//!
//! A child of fork(2) has a copy of the memory and none of the threads: locks may be held for ever,
//! and a ring's driver is not there. To ask for the process's number is a system call; a page that
//! the kernel empties in a child is a load.
//!
//! # Safety
//!
//! One page, mapped here, never unmapped while a mark is alive, and read as an atomic number.
#![allow(unsafe_code)]

use std::{
    io,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

const PAGE_BYTES: usize = 4096;
const MADE_HERE: u32 = 1;

/// Remembers the process that made it.
#[derive(Debug)]
pub(crate) struct ProcessMark(NonNull<AtomicU32>);

// SAFETY: the page is read as an atomic, and written before the mark is shared.
unsafe impl Send for ProcessMark {}
// SAFETY: as above.
unsafe impl Sync for ProcessMark {}

impl ProcessMark {
    /// A mark of this process.
    pub(crate) fn new() -> io::Result<ProcessMark> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let page =
            unsafe { mmap_anonymous(ptr::null_mut(), PAGE_BYTES, access, MapFlags::PRIVATE) }?;
        let mark = ProcessMark(NonNull::new(page.cast()).expect("mmap does not give page 0"));
        // SAFETY: the page that was mapped just now. MADV_WIPEONFORK is Linux 4.14.
        unsafe { madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) }?;
        mark.page().store(MADE_HERE, Ordering::Relaxed);
        Ok(mark)
    }

    /// Whether this is another process: a child of the one that made the mark.
    #[inline]
    pub(crate) fn is_foreign(&self) -> bool {
        self.page().load(Ordering::Relaxed) != MADE_HERE
    }

    fn page(&self) -> &AtomicU32 {
        // SAFETY: the page is mapped as long as the mark lives, aligned, and zeroed at first.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for ProcessMark {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` and by nobody else; no reference outlives the mark.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), PAGE_BYTES) };
    }
}
