//! Lets a traced thread stay stopped as its process is, by SIGSTOP or a terminal, until SIGCONT: the one request of
//! ptrace(2) that the recorder needs and the crate nix does not have.
//!
//! # Safety
//!
//! PTRACE_LISTEN takes the number of a thread. The kernel ignores the address and the data (`ptrace_request` in
//! kernel/ptrace.c), so it reads and writes nothing of this process.

#![allow(unsafe_code)]

use std::ptr;

use nix::{Result, errno::Errno, unistd::Pid};

/// Lets a thread that reported a group-stop wait for SIGCONT, which is its next stop.
///
/// # Errors
///
/// ESRCH: the thread is gone. EIO: it is in no group-stop.
pub(super) fn listen(thread: Pid) -> Result<()> {
    // SAFETY: the kernel uses only the number of the thread.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_LISTEN,
            thread.as_raw(),
            ptr::null_mut::<libc::c_void>(),
            ptr::null_mut::<libc::c_void>(),
        )
    };
    Errno::result(result).map(drop)
}
