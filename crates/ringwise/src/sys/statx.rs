//! The structure that statx(2) fills.
//!
//! # Safety
//!
//! `struct statx` is plain integers, so any bytes the kernel writes are a valid value. It writes only during the call,
//! to a structure of the caller's stack.
#![allow(unsafe_code)]

use std::{
    fmt,
    os::fd::{AsRawFd, BorrowedFd},
};

/// What is asked for.
pub(crate) const MASK: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME | libc::STATX_DIOALIGN;

/// A `struct statx` for the kernel to fill.
#[derive(Clone)]
pub(crate) struct RawStatx(pub(crate) libc::statx);

impl RawStatx {
    pub(crate) fn zeroed() -> RawStatx {
        // SAFETY: all fields are integers, for which zero bytes are a value.
        RawStatx(unsafe { std::mem::zeroed() })
    }

    /// Reads the metadata of an open file on this thread, or nothing if that fails.
    pub(crate) fn of(file: BorrowedFd<'_>) -> Option<RawStatx> {
        let (mut about, file) = (RawStatx::zeroed(), file.as_raw_fd());
        let (empty, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
        // SAFETY: the descriptor is open, the name ends with a zero byte, and the structure is borrowed until the end
        // of the call. No operation is in flight, so no invariant of docs/explanation/ownership.md is concerned.
        let result = unsafe { libc::statx(file, empty, flags, MASK, about.as_mut_ptr()) };
        (result == 0).then_some(about)
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::statx {
        &raw mut self.0
    }
}

impl fmt::Debug for RawStatx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawStatx(size {})", self.0.stx_size)
    }
}
