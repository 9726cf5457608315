//! Where the simulation follows a call's addresses: what goes in when the call is handed over, and
//! what comes out when its result is taken. Everything in between is owned.
//!
//! # Safety
//!
//! A [`Lent`] is made of a call whose operation is in its slot, and is dropped before that slot's
//! result is given to the loop (invariant 1): so its addresses and descriptors are valid as long as
//! it is. Only the loop's own thread has it. A close's descriptor was released to the call by its
//! owner, so it is taken here exactly once, when the call is handed over.
#![allow(unsafe_code)]

use std::{
    ffi::CStr,
    os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd},
};

use crate::{
    backend::{Blocking, Cqe},
    buf::{MOVED_BYTES_MAX, RawBuffer},
    call::{Call, File, RawName},
    sim::{
        action::{Action, Base, Deed, FileId, Outcome, Payload, Place},
        disk::content::SECTOR,
        files::{Identity, identity},
    },
    sys::{perform::timeout_of, ring::borrow},
};

/// The most buffers of one vectored call (`UIO_MAXIOV`).
const VECTORS_MAX: u32 = 1024;

/// A call that the loop has handed to its backend.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) user_data: u64,
    pub(super) call: Call,
    pub(super) blocking: Blocking,
}

/// Whose a call is.
pub(super) enum Whose {
    /// The simulation's.
    Simulated(Action),
    /// On a file that the simulation did not open.
    Foreign,
    /// A cancel of the operation with this number of the loop's.
    Cancel(u64),
}

/// A name, where it leads into the simulation.
enum Where {
    Simulated(Place),
    Foreign,
}

impl Lent {
    /// Takes everything in that the call needs. `find` knows the simulation's files.
    pub(super) fn take_in(&self, find: impl Fn(Identity) -> Option<FileId>) -> Whose {
        let opcode = self.call.opcode();
        let deed = match self.call {
            Call::Nop => Some(Deed::Nop),
            Call::Timeout { after } => Some(self.timeout(after)),
            Call::Cancel { user_data } => return Whose::Cancel(user_data),
            Call::Open { .. }
            | Call::Statx { .. }
            | Call::Unlink { .. }
            | Call::CreateDirectory { .. } => self.on_name(&find),
            Call::Rename { .. } | Call::Link { .. } => self.on_names(&find),
            _ if self.call.is_on_socket() => None,
            _ => self.on_file(&find),
        };
        deed.map_or(Whose::Foreign, |deed| Whose::Simulated(Action { opcode, deed }))
    }

    fn timeout(&self, after: *const libc::timespec) -> Deed {
        // SAFETY: invariant 1, see the header.
        let after = unsafe { timeout_of(after) };
        Deed::Timeout { after_ns: u64::try_from(after.as_nanos()).unwrap_or(u64::MAX) }
    }

    fn on_file(&self, find: &impl Fn(Identity) -> Option<FileId>) -> Option<Deed> {
        let file = |file: File| match file {
            File::Fd(fd) => simulated(fd, find),
            // The loop resolves its table itself for a backend that makes no calls by the ring.
            File::Fixed(_) => None,
        };
        Some(match self.call {
            Call::Read { file: on, buffer, offset } => Deed::Read {
                file: file(on)?,
                offset,
                len: u64::from(buffer.len),
                aligned: is_aligned(buffer.pointer, buffer.len as usize),
            },
            Call::Write { file: on, buffer, offset } => Deed::Write {
                file: file(on)?,
                offset,
                bytes: copy_of(buffer),
                aligned: is_aligned(buffer.pointer, buffer.len as usize),
            },
            Call::ReadVectored { file: on, vectors, count, offset } => {
                let file = file(on)?;
                let Some(vectors) = slices(vectors, count) else {
                    return Some(Deed::Refused(libc::EINVAL));
                };
                let (len, aligned) = measure(vectors);
                Deed::Read { file, offset, len, aligned }
            }
            Call::WriteVectored { file: on, vectors, count, offset } => {
                let file = file(on)?;
                let Some(vectors) = slices(vectors, count) else {
                    return Some(Deed::Refused(libc::EINVAL));
                };
                let (_, aligned) = measure(vectors);
                Deed::Write { file, offset, bytes: gather(vectors), aligned }
            }
            Call::Sync { file: on, .. } => Deed::Sync { file: file(on)? },
            Call::Allocate { file: on, mode, offset, len } => {
                Deed::Allocate { file: file(on)?, mode, offset, len }
            }
            Call::SetLen { file: on, len } => Deed::SetLen { file: file(on)?, len },
            Call::Close { file: on } => {
                let (file, File::Fd(fd)) = (file(on)?, on) else { return None };
                // SAFETY: the number was released to this call, which is handed over once.
                Deed::Close { file, placeholder: unsafe { OwnedFd::from_raw_fd(fd) } }
            }
            _ => unreachable!("the rest works on names"),
        })
    }

    fn on_name(&self, find: &impl Fn(Identity) -> Option<FileId>) -> Option<Deed> {
        let place = |name: RawName| match locate(name, find) {
            Where::Simulated(place) => Some(place),
            Where::Foreign => None,
        };
        Some(match self.call {
            Call::Open { name, flags, mode, .. } => Deed::Open { place: place(name)?, flags, mode },
            Call::Statx { name, flags, .. } => Deed::Statx { place: place(name)?, flags },
            Call::Unlink { name, flags } => Deed::Unlink { place: place(name)?, flags },
            Call::CreateDirectory { name, mode } => {
                Deed::CreateDirectory { place: place(name)?, mode }
            }
            _ => unreachable!("matched by the caller"),
        })
    }

    fn on_names(&self, find: &impl Fn(Identity) -> Option<FileId>) -> Option<Deed> {
        let (Call::Rename { from, to, .. } | Call::Link { from, to, .. }) = self.call else {
            unreachable!("matched by the caller");
        };
        match (locate(from, find), locate(to, find)) {
            (Where::Simulated(from), Where::Simulated(to)) => Some(match self.call {
                Call::Rename { flags, .. } => Deed::Rename { from, to, flags },
                Call::Link { flags, .. } => Deed::Link { from, to, flags },
                _ => unreachable!("matched above"),
            }),
            (Where::Foreign, Where::Foreign) => None,
            // Between two file systems.
            _ => Some(Deed::Refused(libc::EXDEV)),
        }
    }

    /// Puts back into the operation what the call gave, and gives the result.
    pub(super) fn bring_back(self, outcome: Outcome) -> Cqe {
        if let Payload::NeverRan = outcome.payload {
            return Cqe::cancelled(self.user_data);
        }
        Cqe::by_thread(self.user_data, self.result_of(outcome))
    }

    fn result_of(&self, outcome: Outcome) -> i32 {
        match (outcome.payload, self.call) {
            (Payload::Bytes(bytes), Call::Read { buffer, .. }) => {
                copy_into(buffer.pointer, buffer.len as usize, &bytes);
                outcome.result
            }
            (Payload::Bytes(bytes), Call::ReadVectored { vectors, count, .. }) => {
                let mut rest = &bytes[..];
                for vector in slices(vectors, count).unwrap_or_default() {
                    let (part, after) = rest.split_at(rest.len().min(vector.iov_len));
                    copy_into(vector.iov_base.cast(), vector.iov_len, part);
                    rest = after;
                }
                outcome.result
            }
            (Payload::Metadata(told), Call::Statx { out, .. }) => {
                // SAFETY: invariant 1, see the header: the structure is the operation's own.
                unsafe { out.write(*told) };
                outcome.result
            }
            // From here on the completion owns it.
            (Payload::Opened(placeholder), _) => placeholder.into_raw_fd(),
            _ => outcome.result,
        }
    }
}

/// The simulated file that a descriptor stands for.
fn simulated(fd: RawFd, find: &impl Fn(Identity) -> Option<FileId>) -> Option<FileId> {
    // SAFETY: the operation holds the descriptor open (invariant 14).
    identity(unsafe { borrow(fd) }).and_then(find)
}

fn locate(name: RawName, find: &impl Fn(Identity) -> Option<FileId>) -> Where {
    // SAFETY: invariant 1, see the header.
    let path = unsafe { CStr::from_ptr(name.path) }.to_bytes().to_vec();
    let base = match name.directory {
        libc::AT_FDCWD => Some(Base::Root),
        _ if path.starts_with(b"/") => Some(Base::Root),
        fd => simulated(fd, find).map(Base::File),
    };
    base.map_or(Where::Foreign, |base| Where::Simulated(Place { base, path }))
}

fn is_aligned(pointer: *const u8, len: usize) -> bool {
    pointer.addr().is_multiple_of(SECTOR as usize) && len.is_multiple_of(SECTOR as usize)
}

fn copy_of(buffer: RawBuffer) -> Vec<u8> {
    if buffer.len == 0 {
        return Vec::new();
    }
    let len = (buffer.len as usize).min(MOVED_BYTES_MAX);
    // SAFETY: invariant 1, see the header.
    unsafe { std::slice::from_raw_parts(buffer.pointer, len) }.to_vec()
}

/// The parts of a vectored call, or nothing where there are more than the kernel takes.
fn slices<'a>(vectors: *const libc::iovec, count: u32) -> Option<&'a [libc::iovec]> {
    match count {
        0 => Some(&[]),
        // SAFETY: invariant 1, see the header: the vector lies in the operation, and what is
        // given here is not kept.
        1..=VECTORS_MAX => Some(unsafe { std::slice::from_raw_parts(vectors, count as usize) }),
        _ => None,
    }
}

/// The length of all parts, and whether each is fit for direct I/O.
fn measure(vectors: &[libc::iovec]) -> (u64, bool) {
    let len = vectors.iter().map(|vector| vector.iov_len as u64).sum();
    (len, vectors.iter().all(|vector| is_aligned(vector.iov_base.cast(), vector.iov_len)))
}

fn gather(vectors: &[libc::iovec]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for vector in vectors.iter().filter(|vector| vector.iov_len > 0) {
        let room = MOVED_BYTES_MAX - bytes.len();
        let len = vector.iov_len.min(room);
        // SAFETY: invariant 1, see the header.
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(vector.iov_base.cast::<u8>(), len)
        });
    }
    bytes
}

/// Copies into memory of `room` bytes.
fn copy_into(to: *mut u8, room: usize, bytes: &[u8]) {
    assert!(bytes.len() <= room, "a read gives no more than was asked for");
    if !bytes.is_empty() {
        // SAFETY: invariant 1, see the header; the bytes are the simulation's own.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}
