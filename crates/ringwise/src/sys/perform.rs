//! A call performed by an ordinary system call on the calling thread.
//!
//! The classic backend's whole kernel side. Results have the ring's form: a count, or a negated
//! error number. A call that a signal interrupts before it did anything is made again, as the
//! ring's own are.
//!
//! # Safety
//!
//! `perform` follows the addresses of a [`Call`], so its caller vouches that the operation they
//! came from is in its slot and stays there until the call has returned (invariant 1).
#![allow(unsafe_code)]

use std::os::fd::RawFd;

use libc::{c_int, off_t};

use crate::{
    buf::MOVED_BYTES_MAX,
    descriptor::Blocking,
    error::Errno,
    flight::call::{Call, File, RawName},
    sys::socket::perform_socket,
};

/// Makes the system call that `call` describes and waits for it.
///
/// # Safety
///
/// Every address in `call` is valid for what the call does with it, until this returns; nobody
/// else touches memory that it writes.
#[allow(clippy::too_many_lines, reason = "a table")]
pub(crate) unsafe fn perform(call: &Call) -> i32 {
    let result = match *call {
        // What is not a call of the kernel's, or is the loop's own to keep.
        Call::Invalid | Call::Timeout { .. } | Call::Cancel { .. } => return -libc::EINVAL,
        Call::Nop => 0,
        Call::Read { file, buffer, offset } => {
            let len = (buffer.len as usize).min(MOVED_BYTES_MAX);
            let Some(at) = position(offset) else { return -libc::EINVAL };
            // Nothing is read of a directory as by a ring, where pread(2) fails (EISDIR).
            // SAFETY: no addresses.
            let nothing = || unsafe { libc::preadv(fd(file), std::ptr::null(), 0, at) };
            if len == 0 {
                return decode(retry(nothing));
            }
            // SAFETY: the caller vouches for the buffer.
            retry(|| unsafe { libc::pread(fd(file), buffer.pointer.cast(), len, at) })
        }
        Call::Write { file, buffer, offset } => {
            let len = (buffer.len as usize).min(MOVED_BYTES_MAX);
            let Some(at) = position(offset) else { return -libc::EINVAL };
            // SAFETY: the caller vouches for the buffer.
            retry(|| unsafe { libc::pwrite(fd(file), buffer.pointer.cast(), len, at) })
        }
        Call::ReadVectored { file, vectors, count, offset } => {
            let Some(at) = position(offset) else { return -libc::EINVAL };
            // SAFETY: the caller vouches for the vector and what it points to.
            retry(|| unsafe { libc::preadv(fd(file), vectors, vector_count(count), at) })
        }
        Call::WriteVectored { file, vectors, count, offset } => {
            let Some(at) = position(offset) else { return -libc::EINVAL };
            // SAFETY: the caller vouches for the vector and what it points to.
            retry(|| unsafe { libc::pwritev(fd(file), vectors, vector_count(count), at) })
        }
        // SAFETY: no addresses.
        Call::Sync { file, data_only: true } => retry(|| unsafe { libc::fdatasync(fd(file)) as _ }),
        // SAFETY: no addresses.
        Call::Sync { file, data_only: false } => retry(|| unsafe { libc::fsync(fd(file)) as _ }),
        Call::Allocate { file, mode, offset, len } => {
            let (Some(at), Some(len)) = (position(offset), position(len)) else {
                return -libc::EINVAL;
            };
            // SAFETY: no addresses.
            retry(|| unsafe { libc::fallocate(fd(file), mode, at, len) as _ })
        }
        Call::SetLen { file, len } => {
            let Some(len) = position(len) else { return -libc::EINVAL };
            // SAFETY: no addresses.
            retry(|| unsafe { libc::ftruncate(fd(file), len) as _ })
        }
        // Not made again on EINTR: Linux has freed the number by then (close(2)).
        // SAFETY: the descriptor was released to this call by its owner.
        Call::Close { file } => unsafe { libc::close(fd(file)) as isize },
        Call::Accept { .. }
        | Call::Connect { .. }
        | Call::Receive { .. }
        | Call::ReceiveMulti { .. }
        | Call::ReceiveMessage { .. }
        | Call::Send { .. }
        // SAFETY: the caller vouches for the call.
        | Call::SendMessage { .. } => return unsafe { perform_socket(call) },
        Call::Open { name, flags, mode, entry } => {
            let RawName { directory, path } = name;
            // For a ring's table the flag would be an error; the descriptor beside it wants it.
            let flags = if entry.is_some() { flags | libc::O_CLOEXEC } else { flags };
            // SAFETY: the caller vouches for the name.
            retry(|| unsafe { libc::openat(directory, path, flags, mode) as _ })
        }
        Call::Statx { name, flags, mask, out } => {
            let RawName { directory, path } = name;
            // SAFETY: the caller vouches for the name and the structure.
            retry(|| unsafe { libc::statx(directory, path, flags, mask, out) as _ })
        }
        Call::Unlink { name, flags } => {
            // SAFETY: the caller vouches for the name.
            retry(|| unsafe { libc::unlinkat(name.directory, name.path, flags) as _ })
        }
        Call::CreateDirectory { name, mode } => {
            // SAFETY: the caller vouches for the name.
            retry(|| unsafe { libc::mkdirat(name.directory, name.path, mode) as _ })
        }
        Call::Rename { from, to, flags } => retry(|| {
            // SAFETY: the caller vouches for the names.
            unsafe { libc::renameat2(from.directory, from.path, to.directory, to.path, flags) as _ }
        }),
        Call::Link { from, to, flags } => {
            // SAFETY: the caller vouches for the names.
            retry(|| unsafe {
                libc::linkat(from.directory, from.path, to.directory, to.path, flags) as _
            })
        }
        Call::Symlink { target, name } => {
            // SAFETY: the caller vouches for both names.
            retry(|| unsafe { libc::symlinkat(target, name.directory, name.path) as _ })
        }
        Call::ReadLink { name, buffer } => {
            let (to, len) = (buffer.pointer.cast(), buffer.len as usize);
            // SAFETY: the caller vouches for the name and the buffer.
            retry(|| unsafe { libc::readlinkat(name.directory, name.path, to, len) })
        }
        Call::SetMode { name, mode } => {
            // SAFETY: the caller vouches for the name, which ends in a NUL.
            let is_open_file = name.directory != libc::AT_FDCWD && unsafe { *name.path } == 0;
            // SAFETY: the caller vouches for the name.
            retry(|| unsafe {
                if is_open_file {
                    libc::fchmod(name.directory, mode) as _
                } else {
                    libc::fchmodat(name.directory, name.path, mode, 0) as _
                }
            })
        }
        Call::ReadDirectory { file, buffer } => {
            let (to, len) = (buffer.pointer, buffer.len);
            // SAFETY: the caller vouches for the buffer.
            retry(|| unsafe { libc::syscall(libc::SYS_getdents64, fd(file), to, len) as _ })
        }
    };
    decode(result)
}

/// Reads or writes a file that may keep its caller waiting (a pipe, a terminal, a device). With
/// `RWF_NOWAIT` it does not: `-EAGAIN` means that it is not ready, `-EOPNOTSUPP` that the file
/// cannot be asked so. The offset counts where the file has positions, as it does on a ring.
///
/// # Safety
///
/// As for [`perform`].
pub(crate) unsafe fn perform_stream(call: &Call, flags: c_int) -> i32 {
    let (file, vectors, count, offset, reads) = match *call {
        Call::Read { file, buffer, offset } => {
            (file, one(buffer.pointer, buffer.len), 1, offset, true)
        }
        Call::Write { file, buffer, offset } => {
            (file, one(buffer.pointer, buffer.len), 1, offset, false)
        }
        Call::ReadVectored { file, vectors, count, offset } => {
            (file, Vector::Borrowed(vectors), vector_count(count), offset, true)
        }
        Call::WriteVectored { file, vectors, count, offset } => {
            (file, Vector::Borrowed(vectors), vector_count(count), offset, false)
        }
        // SAFETY: the caller vouches for the call.
        _ => return unsafe { perform(call) },
    };
    let transfer = |at: off_t| {
        let pointer = vectors.as_ptr();
        // SAFETY: the caller vouches for the buffers behind the vector.
        decode(retry(|| unsafe {
            if reads {
                libc::preadv2(fd(file), pointer, count, at, flags)
            } else {
                libc::pwritev2(fd(file), pointer, count, at, flags)
            }
        }))
    };
    let Some(at) = position(offset) else { return -libc::EINVAL };
    match transfer(at) {
        // Offset -1 is the file's own position (preadv2(2)); a stream has no other.
        code if code == -libc::ESPIPE => transfer(-1),
        code => code,
    }
}

/// Makes a read of a file without waiting for a device, on the calling thread: the page cache has
/// all of it or this gives nothing, and neither does any other kind of call.
///
/// A read that the cache has only in part is made again as a whole: the count alone cannot tell it
/// from the end of the file.
///
/// # Safety
///
/// As for [`perform`].
pub(crate) unsafe fn perform_cached(call: &Call, blocking: Blocking) -> Option<i32> {
    let Call::Read { file, buffer, offset } = *call else { return None };
    if blocking != Blocking::Cached {
        return None;
    }
    let at = position(offset)?;
    let len = (buffer.len as usize).min(MOVED_BYTES_MAX);
    let vector = libc::iovec { iov_base: buffer.pointer.cast(), iov_len: len };
    // SAFETY: the caller vouches for the buffer.
    let result = unsafe { libc::preadv2(fd(file), &raw const vector, 1, at, libc::RWF_NOWAIT) };
    (usize::try_from(result) == Ok(len)).then(|| decode(result))
}

/// The time that a timeout call waits.
///
/// # Safety
///
/// The structure is valid, as for [`perform`].
pub(crate) unsafe fn timeout_of(after: *const libc::timespec) -> std::time::Duration {
    // SAFETY: the caller vouches for the structure.
    let after = unsafe { *after };
    std::time::Duration::new(after.tv_sec as u64, after.tv_nsec as u32)
}

/// A vector of one, or one that the operation owns.
enum Vector {
    One(libc::iovec),
    Borrowed(*const libc::iovec),
}

impl Vector {
    fn as_ptr(&self) -> *const libc::iovec {
        match self {
            Vector::One(vector) => vector,
            Vector::Borrowed(pointer) => *pointer,
        }
    }
}

fn one(pointer: *mut u8, len: u32) -> Vector {
    Vector::One(libc::iovec { iov_base: pointer.cast(), iov_len: len as usize })
}

/// The descriptor; the classic backend resolves registered files before a call gets here.
pub(super) fn fd(file: File) -> RawFd {
    match file {
        File::Fd(fd) => fd,
        File::Fixed(_) => -1,
    }
}

/// The kernel's offsets are signed; the ring refuses larger ones with `EINVAL` too.
fn position(offset: u64) -> Option<off_t> {
    off_t::try_from(offset).ok()
}

fn vector_count(count: u32) -> c_int {
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

/// Makes the call again as long as a signal interrupts it.
pub(super) fn retry(mut call: impl FnMut() -> isize) -> isize {
    loop {
        let result = call();
        if result != -1 || Errno::last().raw() != libc::EINTR {
            return result;
        }
    }
}

/// What a completion would hold: the count, or the negated error number.
pub(super) fn decode(result: isize) -> i32 {
    if result == -1 { -Errno::last().raw() } else { i32::try_from(result).unwrap_or(i32::MAX) }
}
