//! Requests of ptrace(2) that let a stopped thread go on. The crate nix has them for most signals, not for real-time
//! ones, and has not PTRACE_LISTEN.
//!
//! # Safety
//!
//! All of them take the number of a thread and the number of a signal. The kernel ignores the address (`ptrace_request`
//! in kernel/ptrace.c), so it reads and writes nothing of this process.

#![allow(unsafe_code)]

use std::ptr;

use nix::{Result, errno::Errno, unistd::Pid};

/// Lets a thread go on to its next stop. The signal is delivered, 0: none.
///
/// # Errors
///
/// ESRCH: the thread is gone, or has not stopped. The same holds for the others.
pub(super) fn go_on(thread: Pid, signal: i32) -> Result<()> {
    request(libc::PTRACE_CONT, thread, signal)
}

/// The same, and it stops at the next begin or end of a syscall too.
pub(super) fn go_on_to_syscall(thread: Pid, signal: i32) -> Result<()> {
    request(libc::PTRACE_SYSCALL, thread, signal)
}

/// Traces a thread no more. The signal is delivered, 0: none.
pub(super) fn detach(thread: Pid, signal: i32) -> Result<()> {
    request(libc::PTRACE_DETACH, thread, signal)
}

/// Lets a thread stay stopped as its process is, by SIGSTOP or a terminal, until SIGCONT, which is its next stop.
pub(super) fn listen(thread: Pid) -> Result<()> {
    request(libc::PTRACE_LISTEN, thread, 0)
}

fn request(request: libc::c_uint, thread: Pid, signal: i32) -> Result<()> {
    // SAFETY: the kernel uses only the numbers of the thread and of the signal.
    let result = unsafe {
        libc::ptrace(
            request,
            thread.as_raw(),
            ptr::null_mut::<libc::c_void>(),
            ptr::without_provenance_mut::<libc::c_void>(signal as usize),
        )
    };
    Errno::result(result).map(drop)
}
