//! A call on a socket performed by an ordinary system call, waiting or not.
//!
//! # Safety
//!
//! As in `sys/perform.rs`: whoever performs a call vouches that its operation is in its slot and
//! stays there until the call has returned (invariant 1).
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, RawFd};

use libc::{c_int, c_void};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    net::{ipproto, sockopt},
};

use super::perform::{decode, fd, retry};
use crate::{
    buf::{Group, RawBuffer},
    flight::call::{Call, File},
    op::Manner,
};

/// Makes the call and waits for it, as a thread of the pool does. A call that may have several
/// results has its first.
///
/// # Safety
///
/// Every address in `call` is valid for what the call does with it, until this returns.
pub(crate) unsafe fn perform_socket(call: &Call) -> i32 {
    // SAFETY: the caller vouches.
    unsafe {
        match *call {
            Call::Connect { file, address, len } => {
                // Made again it would be told that it is under way.
                decode(libc::connect(fd(file), address, len) as isize)
            }
            Call::Send { file, buffer, manner: Manner::Quiet } => {
                send(file, buffer, 0, libc::MSG_DONTWAIT)
            }
            Call::Send { file, buffer, manner } => {
                let whole = manner != Manner::Some;
                whole_of(buffer.len as usize, whole, |moved| send(file, buffer, moved, 0))
            }
            Call::SendMessage { file, header, manner } => {
                let whole = manner != Manner::Some;
                whole_of(remaining(header), whole, |_| send_message(file, header, 0))
            }
            _ => transfer(call, 0),
        }
    }
}

/// Sends until all is sent, where all is wanted. What was sent before an error counts.
fn whole_of(len: usize, whole: bool, mut send: impl FnMut(usize) -> i32) -> i32 {
    let mut moved = 0;
    loop {
        match send(moved) {
            result if result <= 0 => {
                return if moved > 0 { moved as i32 } else { result };
            }
            result => moved += result as usize,
        }
        if !whole || moved >= len {
            return moved as i32;
        }
    }
}

/// Makes a receive or an accept once, and nothing else (`EINVAL`); `flags` are those of recv(2).
///
/// # Safety
///
/// As for [`perform_socket`].
pub(crate) unsafe fn transfer(call: &Call, flags: c_int) -> i32 {
    decode(match *call {
        Call::Accept { file, .. } => {
            let null = std::ptr::null_mut();
            // SAFETY: no address is asked for.
            retry(|| unsafe { libc::accept4(fd(file), null, null.cast(), libc::SOCK_CLOEXEC) as _ })
        }
        Call::Receive { file, buffer } => {
            // SAFETY: the caller vouches for the buffer.
            retry(|| unsafe { receive(fd(file), buffer.pointer, buffer.len as usize, flags) })
        }
        Call::ReceiveMessage { file, header } => {
            // SAFETY: the caller vouches for the header and what it points to.
            retry(|| unsafe { libc::recvmsg(fd(file), header, flags) })
        }
        _ => return -libc::EINVAL,
    })
}

/// What came of a receive into a buffer that was chosen for it.
pub(crate) struct Chosen {
    pub(crate) result: i32,
    /// Where something was received.
    pub(crate) buffer: Option<u16>,
    /// It was less than there was room for.
    pub(crate) is_short: bool,
}

/// Receives once into a buffer of the call's group, which is taken now.
///
/// # Safety
///
/// As for [`perform_socket`].
pub(crate) unsafe fn receive_chosen(socket: RawFd, group: *const Group, flags: c_int) -> Chosen {
    let nothing = |result| Chosen { result, buffer: None, is_short: false };
    // SAFETY: the operation has a reference to the group.
    let group = unsafe { &*group };
    let Some(index) = group.take() else { return nothing(-libc::ENOBUFS) };
    let (pointer, len) = group.memory(index);
    // SAFETY: the buffer was taken just now, so nobody else has it.
    let result = decode(retry(|| unsafe { receive(socket, pointer, len, flags) }));
    if result > 0 {
        return Chosen { result, buffer: Some(index), is_short: (result as usize) < len };
    }
    group.put_back(index);
    nothing(result)
}

/// Sends what is left after `moved` bytes.
///
/// # Safety
///
/// As for [`perform_socket`].
pub(crate) unsafe fn send(file: File, buffer: RawBuffer, moved: usize, flags: c_int) -> i32 {
    let flags = flags | libc::MSG_NOSIGNAL;
    // SAFETY: `moved` is within the buffer, for which the caller vouches.
    decode(retry(|| unsafe {
        let (pointer, len) = (buffer.pointer.add(moved), buffer.len as usize - moved);
        libc::syscall(libc::SYS_sendto, fd(file), pointer, len, flags, NOWHERE, 0) as isize
    }))
}

/// No address is told or asked for.
const NOWHERE: *const c_void = std::ptr::null();

/// As recv(3), which is a point where threads may be cancelled: the C library pays for that at each
/// call, and no thread is ever cancelled here. The same goes for sends.
///
/// # Safety
///
/// The buffer may be written to.
unsafe fn receive(socket: RawFd, pointer: *mut u8, len: usize, flags: c_int) -> isize {
    // SAFETY: the caller vouches for the buffer.
    unsafe { libc::syscall(libc::SYS_recvfrom, socket, pointer, len, flags, NOWHERE, NOWHERE) as _ }
}

/// Sends what is left of a message, and takes off it what was sent.
///
/// # Safety
///
/// As for [`perform_socket`]; nobody else uses the header.
pub(crate) unsafe fn send_message(file: File, header: *mut libc::msghdr, flags: c_int) -> i32 {
    // SAFETY: the caller vouches for the header and what it points to.
    let result =
        decode(retry(|| unsafe { libc::sendmsg(fd(file), header, flags | libc::MSG_NOSIGNAL) }));
    if result > 0 {
        // SAFETY: as above.
        unsafe { advance(header, result as usize) };
    }
    result
}

/// What is left to be sent of a message, in bytes.
///
/// # Safety
///
/// As for [`perform_socket`].
pub(crate) unsafe fn remaining(header: *const libc::msghdr) -> usize {
    // SAFETY: the caller vouches for the header and its vector.
    unsafe {
        let header = &*header;
        if header.msg_iovlen == 0 {
            return 0;
        }
        let vectors = std::slice::from_raw_parts(header.msg_iov, header.msg_iovlen);
        vectors.iter().map(|vector| vector.iov_len).sum()
    }
}

/// # Safety
///
/// The header and its vector are valid, and nobody else uses them.
unsafe fn advance(header: *mut libc::msghdr, mut sent: usize) {
    // SAFETY: the caller vouches; what is sent is no longer than what the vector points to.
    unsafe {
        let header = &mut *header;
        while sent > 0 && header.msg_iovlen > 0 {
            let vector = &mut *header.msg_iov;
            let step = sent.min(vector.iov_len);
            vector.iov_base = vector.iov_base.byte_add(step);
            vector.iov_len -= step;
            sent -= step;
            if vector.iov_len > 0 {
                return;
            }
            header.msg_iov = header.msg_iov.add(1);
            header.msg_iovlen -= 1;
        }
    }
}

/// Begins a connect without waiting: `-EINPROGRESS` where it goes on.
///
/// # Safety
///
/// As for [`perform_socket`].
pub(crate) unsafe fn begin_connect(
    file: File,
    address: *const libc::sockaddr,
    len: libc::socklen_t,
) -> i32 {
    // SAFETY: the operation holds the descriptor.
    let socket = unsafe { BorrowedFd::borrow_raw(fd(file)) };
    // Only the flag keeps connect(2) from waiting; it is the caller's, so it is put back.
    let flags = fcntl_getfl(socket).unwrap_or(OFlags::empty());
    if !flags.contains(OFlags::NONBLOCK) {
        let _ = fcntl_setfl(socket, flags | OFlags::NONBLOCK);
    }
    // SAFETY: the caller vouches for the address.
    let result = decode(unsafe { libc::connect(fd(file), address, len) } as isize);
    if !flags.contains(OFlags::NONBLOCK) {
        let _ = fcntl_setfl(socket, flags);
    }
    result
}

/// What became of a connect that was under way; `-EINPROGRESS` where it still is.
///
/// # Safety
///
/// As for [`perform_socket`].
pub(crate) unsafe fn end_connect(socket: RawFd) -> i32 {
    // SAFETY: the operation holds the descriptor.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    match sockopt::socket_error(socket) {
        Ok(Ok(())) => match rustix::net::getpeername(socket) {
            Err(rustix::io::Errno::NOTCONN) => -libc::EINPROGRESS,
            _ => 0,
        },
        Ok(Err(errno)) | Err(errno) => -errno.raw_os_error(),
    }
}

/// Sees to it that accept4(2) on this listener does not wait.
///
/// # Safety
///
/// The descriptor is open.
pub(crate) unsafe fn make_nonblocking(listener: RawFd) {
    // SAFETY: the caller vouches.
    let listener = unsafe { BorrowedFd::borrow_raw(listener) };
    if let Ok(flags) = fcntl_getfl(listener)
        && !flags.contains(OFlags::NONBLOCK)
    {
        let _ = fcntl_setfl(listener, flags | OFlags::NONBLOCK);
    }
}

/// Whether a receive that gets less than it has room for has emptied the socket: bytes that were
/// sent apart are received together, unless one is marked as urgent. Unix sockets end a receive too
/// where descriptors were sent with what comes next (net/unix/af_unix.c, unix_stream_read_generic).
///
/// # Safety
///
/// The descriptor is open.
pub(crate) unsafe fn is_tcp(socket: RawFd) -> bool {
    // SAFETY: the caller vouches.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    sockopt::socket_protocol(socket).is_ok_and(|protocol| protocol == Some(ipproto::TCP))
}
