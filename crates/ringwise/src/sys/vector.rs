//! The vector that tells the kernel where several buffers are.
//!
//! # Safety
//!
//! Holds addresses of buffers that its owner holds beside it; the addresses are written when the
//! operation is in its slot and read by the kernel only while it stays there (invariant 1).
#![allow(unsafe_code)]

use std::{
    ops::Range,
    os::fd::{AsRawFd, BorrowedFd},
};

use rustix::io::{Errno, ReadWriteFlags};

use crate::buf::{Buffer, MOVED_BYTES_MAX};

/// An array of `struct iovec`, filled when the operation is lowered.
#[derive(Debug, Default)]
pub(crate) struct Vectors(Vec<libc::iovec>);

// SAFETY: the addresses are only followed by the kernel, and point into buffers that move with
// the operation and are `Send` themselves.
unsafe impl Send for Vectors {}
// SAFETY: a shared borrow gives no access to what the addresses point to.
unsafe impl Sync for Vectors {}

impl Vectors {
    /// Points at the selected parts of `buffers`.
    pub(crate) fn fill(&mut self, buffers: &mut [Buffer]) -> (*const libc::iovec, u32) {
        self.0.clear();
        // All of them together too: a whole send is made by several calls and has one result.
        let mut room = MOVED_BYTES_MAX;
        self.0.extend(buffers.iter_mut().map(|buffer| {
            // Ring 0 is no ring: vectored calls do not use registered memory.
            let raw = buffer.raw(0);
            let len = room.min(raw.len as usize);
            room -= len;
            libc::iovec { iov_base: raw.pointer.cast(), iov_len: len }
        }));
        (self.0.as_ptr(), u32::try_from(self.0.len()).unwrap_or(u32::MAX))
    }
}

/// Reads `range` of what is selected in `buffers`, as preadv2(2), and tells them what they have. The
/// range lies within the first, or is that of all.
#[inline]
pub(crate) fn read_into(
    file: BorrowedFd<'_>,
    buffers: &mut [Buffer],
    range: Range<usize>,
    offset: u64,
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    let mut one = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }];
    let mut several = Vectors::default();
    let (vectors, count) = match buffers {
        [buffer] => {
            let pointer = buffer.raw(0).pointer.wrapping_add(range.start);
            one[0] = libc::iovec { iov_base: pointer.cast(), iov_len: range.len() };
            (one.as_ptr(), 1)
        }
        _ => several.fill(buffers),
    };
    let (count, flags) = (count as libc::c_int, flags.bits() as libc::c_int);
    // SAFETY: the vectors point at the selected parts of buffers that are borrowed for the call.
    let read =
        unsafe { libc::preadv2(file.as_raw_fd(), vectors, count, offset as libc::off_t, flags) };
    let read = usize::try_from(read)
        .map_err(|_| Errno::from_raw_os_error(crate::error::Errno::last().raw()))?;
    Buffer::fill_all(buffers, range.start + read);
    Ok(read)
}
