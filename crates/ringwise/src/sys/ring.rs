//! What the ring needs beyond the `io-uring` crate: one enter call that uses the registered ring
//! descriptor, and its registration.
//!
//! The crate keeps the registered number in a borrowed helper, which a loop cannot hold, and its
//! enter call takes flags from the kernel's state only; a loop that defers task work has to say
//! when it wants it run. The call itself is rustix's: the instruction in its place, where libc's
//! `syscall` is a call more and errno by way of the thread's memory.
//!
//! # Safety
//!
//! Thin wrappers: each states what its caller vouches for.
#![allow(unsafe_code)]

use std::{
    os::fd::{BorrowedFd, RawFd},
    time::Duration,
};

use rustix::io_uring::{
    IoringEnterFlags, io_uring_enter, io_uring_enter_arg, io_uring_getevents_arg, io_uring_ptr,
};

use crate::error::Errno;

const REGISTER_RING_FDS: libc::c_uint = 20;
const UNREGISTER_RING_FDS: libc::c_uint = 21;
/// In an update of the ring descriptors: any free entry will do.
const ANY_ENTRY: u32 = u32::MAX;

/// `struct io_uring_rsrc_update`.
#[repr(C)]
struct Update {
    offset: u32,
    reserved: u32,
    data: u64,
}

const _: () = assert!(size_of::<Update>() == 16);

/// A ring's descriptor as enter calls name it.
#[derive(Debug)]
pub(crate) struct EnterHandle {
    fd: RawFd,
    /// Its entry in this thread's table of registered rings (Linux 5.18): saves a look-up.
    entry: Option<u32>,
    /// What a wait is marked with.
    wait: IoringEnterFlags,
}

/// `IORING_ENTER_NO_IOWAIT` (Linux 6.15): a processor whose only thread waits here is idle, and does not
/// count as one that waits for a disk.
const NO_IOWAIT: IoringEnterFlags = IoringEnterFlags::from_bits_retain(1 << 7);

impl EnterHandle {
    /// A handle on `fd`, registered with the calling thread if `register` and if that works.
    /// Every use has to be on this thread. `idles`: the kernel knows waits that are no waits for I/O.
    pub(crate) fn new(fd: RawFd, register: bool, idles: bool) -> EnterHandle {
        let entry = register.then(|| register_ring(fd)).flatten();
        let wait = if idles { NO_IOWAIT } else { IoringEnterFlags::empty() };
        EnterHandle { fd, entry, wait }
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.entry.is_some()
    }

    /// Enters the kernel: hands over `to_submit` entries and waits for `want` completions, at
    /// most for `timeout`. Returns how many entries were taken.
    #[inline]
    pub(crate) fn enter(
        &self,
        to_submit: u32,
        want: u32,
        flags: IoringEnterFlags,
        timeout: Option<Duration>,
    ) -> Result<u32, Errno> {
        let flags = if want > 0 { flags | self.wait } else { flags };
        let (fd, flags) = match self.entry {
            Some(entry) => (entry as RawFd, flags | IoringEnterFlags::REGISTERED_RING),
            None => (self.fd, flags),
        };
        // SAFETY: either the ring's descriptor, which is open as long as the ring that has this
        // handle, or its entry in the thread's table, never -1, which the kernel takes for one.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let entered = match timeout {
            // SAFETY: no argument structure; the entries in the queue are valid by the contract of
            // the queue's push (invariant 1).
            None => unsafe { io_uring_enter(fd, to_submit, want, flags) },
            Some(timeout) => enter_with_timeout(fd, to_submit, want, flags, timeout),
        };
        entered.map_err(|errno| Errno(errno.raw_os_error()))
    }
}

fn enter_with_timeout(
    fd: BorrowedFd<'_>,
    to_submit: u32,
    want: u32,
    flags: IoringEnterFlags,
    timeout: Duration,
) -> rustix::io::Result<u32> {
    let time = super::time::Timespec::from(timeout);
    let ts = io_uring_ptr::new(time.as_ptr().cast_mut().cast());
    let argument = io_uring_getevents_arg { ts, ..Default::default() };
    let flags = flags | IoringEnterFlags::EXT_ARG;
    // SAFETY: the structures outlive the call, which reads them; the queue's entries are valid by
    // the contract of its push (invariant 1).
    unsafe { io_uring_enter_arg(fd, to_submit, want, flags, Some(&argument)) }
}

impl Drop for EnterHandle {
    /// A registered entry holds the ring open: it has to go for the close to take effect.
    fn drop(&mut self) {
        let Some(entry) = self.entry else { return };
        let mut update = Update { offset: entry, reserved: 0, data: 0 };
        register(self.fd, UNREGISTER_RING_FDS, &mut update);
    }
}

fn register_ring(fd: RawFd) -> Option<u32> {
    let mut update = Update { offset: ANY_ENTRY, reserved: 0, data: fd as u64 };
    (register(fd, REGISTER_RING_FDS, &mut update) == 1).then_some(update.offset)
}

fn register(fd: RawFd, opcode: libc::c_uint, update: &mut Update) -> libc::c_long {
    // SAFETY: one structure of the kernel's layout, which outlives the call.
    unsafe { libc::syscall(libc::SYS_io_uring_register, fd, opcode, &raw mut *update, 1_u32) }
}
