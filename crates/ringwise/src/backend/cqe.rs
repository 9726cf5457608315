//! The result of one call, in the form that the kernel gives it.
//!
//! It is a number, a count and flags. The loop decides what they mean for an operation.

use crate::flight::slot::{BY_THREAD, NEVER_RAN};

/// The result of one call, laid out as the kernel's `struct io_uring_cqe`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cqe {
    pub(crate) user_data: u64,
    /// A count, or a negated error number.
    pub(crate) result: i32,
    pub(super) flags: u32,
}

/// `IORING_CQE_F_*` (include/uapi/linux/io_uring.h).
const F_BUFFER: u32 = 1 << 0;
const F_MORE: u32 = 1 << 1;
const F_NOTIF: u32 = 1 << 3;
/// The number of the chosen buffer is in the bits from here on.
const BUFFER_SHIFT: u32 = 16;

impl Cqe {
    /// Returns the same result with a buffer that was chosen for it.
    pub(crate) fn with_buffer(mut self, index: u16) -> Cqe {
        self.flags |= F_BUFFER | u32::from(index) << BUFFER_SHIFT;
        self
    }

    /// Returns the same result, with the mark that more results of this operation will come.
    pub(crate) fn with_more(mut self) -> Cqe {
        self.flags |= F_MORE;
        self
    }

    /// Returns whether more results of this operation will come. Only this flag decides, not the
    /// result.
    pub(crate) fn has_more(&self) -> bool {
        self.flags & F_MORE != 0
    }

    /// Returns the buffer of a group that was chosen for it.
    pub(crate) fn buffer(&self) -> Option<u16> {
        (self.flags & F_BUFFER != 0).then_some((self.flags >> BUFFER_SHIFT) as u16)
    }

    /// Returns whether it only says that a send's memory is no longer in use, and nothing about the
    /// send's result.
    pub(crate) fn is_notification(&self) -> bool {
        self.flags & F_NOTIF != 0
    }

    /// Makes a result of a thread of the loop, not of the ring. A file that the thread opened is an
    /// ordinary descriptor.
    pub(crate) fn by_thread(user_data: u64, result: i32) -> Cqe {
        Cqe { user_data: user_data | BY_THREAD, result, flags: 0 }
    }

    /// Makes the result of a call that was cancelled before it ran. `ECANCELED` by itself does not
    /// say that: a file system may return it.
    pub(crate) fn cancelled(user_data: u64) -> Cqe {
        Cqe::by_thread(user_data | NEVER_RAN, -libc::ECANCELED)
    }

    pub(crate) fn never_ran(&self) -> bool {
        self.user_data & NEVER_RAN != 0
    }

    pub(crate) fn is_by_thread(&self) -> bool {
        self.user_data & BY_THREAD != 0
    }
}
