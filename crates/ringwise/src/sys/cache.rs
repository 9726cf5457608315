//! What of a file the page cache holds, and asking it to let go.
//!
//! A choice between ways to move data (and an honest benchmark) depends on whether it comes from
//! memory or from the device. `mincore` answers for mappings and, since Linux 5.2, only to a
//! file's owner; `cachestat(2)` (Linux 6.5) answers for a descriptor, so that is what is used.
//!
//! # Safety
//!
//! One system call with two structures of this file, laid out as in include/uapi/linux/mman.h.
#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use rustix::fs::Advice;

use crate::descriptor::Descriptor;

/// The number is the same on every architecture that has it (Linux 6.5, commit cf264e1329fb).
const SYS_CACHESTAT: libc::c_long = 451;

/// How many pages of a range the page cache holds, and in what state. One page is 4 KiB on
/// x86-64; a range that is wholly cached has as many as it touches.
///
/// # Examples
///
/// ```
/// use ringwise::{Descriptor, page_cache};
///
/// let file = Descriptor::from(std::fs::File::open("/proc/self/exe")?);
/// match page_cache(&file, 0, 0) {
///     Ok(state) if state.dirty_pages > 0 => println!("a sync has work to do"),
///     Ok(state) => println!("{} pages cached, all of them clean", state.cached_pages),
///     Err(error) => println!("unknown: {error}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheState {
    /// Pages in the cache.
    pub cached_pages: u64,
    /// Of these, pages not yet written back.
    pub dirty_pages: u64,
    /// Of these, pages being written back now.
    pub writeback_pages: u64,
    /// Pages that were evicted.
    pub evicted_pages: u64,
}

#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct RawState {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Counts the cached pages of `len` bytes at `offset`; `len` 0 means to the end of the file.
///
/// # Errors
///
/// `ENOSYS` before Linux 6.5, `EOPNOTSUPP` for hugetlbfs files, `EBADF`, and `EPERM` on files
/// that the caller may neither write nor owns (since Linux 6.14).
///
/// # Examples
///
/// ```
/// use ringwise::Descriptor;
///
/// let file = Descriptor::from(std::fs::File::open(std::env::current_exe()?)?);
/// match ringwise::page_cache(&file, 0, 0) {
///     Ok(state) => println!("{} pages cached", state.cached_pages),
///     Err(error) => println!("cannot tell: {error}"),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn page_cache(file: &Descriptor, offset: u64, len: u64) -> io::Result<CacheState> {
    let range = Range { offset, len };
    let mut state = RawState::default();
    // SAFETY: both structures have the kernel's layout and outlive the call.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut state, 0_u32)
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(CacheState {
        cached_pages: state.cached,
        dirty_pages: state.dirty,
        writeback_pages: state.writeback,
        evicted_pages: state.evicted,
    })
}

/// Asks the kernel to forget `len` bytes at `offset`; `len` 0 means to the end of the file. Dirty
/// pages are written first, since they cannot be dropped.
///
/// It is advice: pages that are mapped or in use stay. See with [`page_cache`] what became of it.
///
/// # Errors
///
/// What fdatasync(2) and posix_fadvise(2) report.
pub fn drop_page_cache(file: &Descriptor, offset: u64, len: u64) -> io::Result<()> {
    rustix::fs::fdatasync(file.as_fd())?;
    let len = std::num::NonZeroU64::new(len);
    rustix::fs::fadvise(file.as_fd(), offset, len, Advice::DontNeed)?;
    Ok(())
}
