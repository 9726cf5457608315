//! Two requests to a perf event that the crate perf-event2 does not have: its filter, and its ring.
//!
//! # Safety
//!
//! The requests of this file pass one argument to ioctl(2): a string that ends with a zero byte and lives during the
//! call, or a descriptor by number. The kernel copies the string (`perf_event_set_filter` in kernel/events/core.c) and
//! keeps no address of this process. The type [`Counter`] says that the descriptor is one of a perf event, so no other
//! driver can understand the numbers in another way.

#![allow(unsafe_code)]

use std::{ffi::CStr, io, os::fd::AsRawFd};

use perf_event::Counter;

/// `_IOW('$', 6, char *)` of include/uapi/linux/perf_event.h.
const SET_FILTER: u64 = 0x4008_2406;

/// `_IO('$', 5)` of the same file.
const SET_OUTPUT: u64 = 0x2405;

/// Lets the kernel record only the events of a tracepoint whose fields satisfy this expression.
///
/// # Errors
///
/// EINVAL: the expression names a field that the tracepoint does not have.
pub(super) fn set_filter(counter: &Counter, expression: &CStr) -> io::Result<()> {
    // SAFETY: the descriptor is a perf event, the kernel reads the string up to its zero byte during the call.
    let result = unsafe { libc::ioctl(counter.as_raw_fd(), SET_FILTER as _, expression.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets an event write into the ring of another one, on the same processor.
///
/// # Errors
///
/// EINVAL: the events are on different processors, or have different clocks.
pub(super) fn set_output(counter: &Counter, into: &Counter) -> io::Result<()> {
    // SAFETY: both descriptors are perf events, the argument is a number.
    let result = unsafe { libc::ioctl(counter.as_raw_fd(), SET_OUTPUT as _, into.as_raw_fd()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
