//! The vector that tells the kernel where several buffers are.
//!
//! # Safety
//!
//! Holds addresses of buffers that its owner holds beside it; the addresses are written when the
//! operation is in its slot and read by the kernel only while it stays there (invariant 1).
#![allow(unsafe_code)]

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
