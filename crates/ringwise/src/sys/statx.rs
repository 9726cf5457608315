//! The structure that statx(2) fills.
//!
//! # Safety
//!
//! `struct statx` is plain integers, so any bytes the kernel writes are a valid value.
#![allow(unsafe_code)]

use std::fmt;

/// A `struct statx` for the kernel to fill.
#[derive(Clone)]
pub(crate) struct RawStatx(pub(crate) libc::statx);

impl RawStatx {
    pub(crate) fn zeroed() -> RawStatx {
        // SAFETY: all fields are integers, for which zero bytes are a value.
        RawStatx(unsafe { std::mem::zeroed() })
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
