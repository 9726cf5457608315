//! Memory of which each part has an owner of its own: a lease, a list of free parts, or the kernel.
//!
//! # Safety
//!
//! The memory is reached by its address only, and whoever asks for a part of it owns that part alone. The
//! allocation is kept to be freed, and is never borrowed again: a borrow would claim every part at once.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::buf::AlignedBuf;

/// See the header.
pub(crate) struct Region {
    base: NonNull<u8>,
    _memory: AlignedBuf,
}

// SAFETY: each part of what the base points to is reached by one owner at a time.
unsafe impl Send for Region {}
// SAFETY: as above; the fields themselves never change.
unsafe impl Sync for Region {}

impl Region {
    pub(crate) fn new(mut memory: AlignedBuf) -> Region {
        Region { base: NonNull::from(&mut *memory).cast(), _memory: memory }
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }
}
