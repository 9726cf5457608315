//! Follows the addresses in a call for the simulation. Arguments are copied in when the call is
//! handed over, and results are copied out when the loop takes them. Everything in between is
//! owned.
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
    os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd},
};

use crate::{
    backend::Cqe,
    buf::{BufferGroup, MOVED_BYTES_MAX, RawBuffer},
    descriptor::Blocking,
    flight::call::{Call, File, RawName},
    net::Address,
    op::Manner,
    sim::{
        action::{Action, Base, Deed, Exchange, FileId, Outcome, Payload, Place},
        disk::content::SECTOR,
        files::{Files, Identity, identity},
    },
    sys::{address::RawAddress, perform::timeout_of},
};

/// The most buffers of one vectored call (`UIO_MAXIOV`).
const VECTORS_MAX: u32 = 1024;

/// A call that the loop has handed to its backend.
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) user_data: u64,
    pub(crate) call: Call,
    pub(crate) blocking: Blocking,
}

/// The backend that a call is for.
pub(crate) enum Whose {
    /// The simulation.
    Simulated(Action),
    /// The classic backend: the simulation did not open the file.
    Foreign,
    /// A cancel of the loop's operation with this number. It goes to the backend of that operation.
    Cancel(u64),
}

/// A name that may lead into the simulation.
enum Where {
    Simulated(Place),
    Foreign,
}

impl Lent {
    /// Copies everything that the call needs. `files` are the simulation's files.
    pub(crate) fn take_in(&self, files: &Files) -> Whose {
        let find = |identity| files.find(identity);
        let opcode = self.call.opcode();
        let deed = match self.call {
            Call::Nop => Some(Deed::Nop),
            Call::Timeout { after } => Some(self.timeout(after)),
            Call::Cancel { user_data, .. } => return Whose::Cancel(user_data),
            Call::Open { .. }
            | Call::Statx { .. }
            | Call::Unlink { .. }
            | Call::CreateDirectory { .. }
            | Call::Symlink { .. }
            | Call::ReadLink { .. }
            | Call::SetMode { .. } => self.on_name(&find),
            Call::Rename { .. } | Call::Link { .. } => self.on_names(&find),
            _ => self.on_socket(files).or_else(|| self.on_file(&find)),
        };
        deed.map_or(Whose::Foreign, |deed| Whose::Simulated(Action { opcode, deed }))
    }

    fn timeout(&self, after: *const libc::timespec) -> Deed {
        // SAFETY: invariant 1, see the header.
        let after = unsafe { timeout_of(after) };
        Deed::Timeout { after_ns: u64::try_from(after.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Returns the call on a simulated socket, or the refusal of a socket call on another simulated
    /// file. Returns nothing for all other calls.
    fn on_socket(&self, files: &Files) -> Option<Deed> {
        let is_on_socket = self.call.is_on_socket();
        let (file, exchange) = self.exchange()?;
        let File::Fd(fd) = file else { return None };
        let file = simulated(fd, &|identity| files.find(identity))?;
        match files.endpoint(file) {
            Some(endpoint) => Some(Deed::Exchange { endpoint, exchange: exchange? }),
            None => is_on_socket.then_some(Deed::Refused(libc::ENOTSOCK)),
        }
    }

    /// Returns the call's file, and what the call does if that file is a socket.
    fn exchange(&self) -> Option<(File, Option<Exchange>)> {
        let receive = |len| Some(Exchange::Receive { len });
        let send = |bytes, manner, to| Some(Exchange::Send { bytes, moved: 0, manner, to });
        Some(match self.call {
            Call::Accept { file, multi } => (file, Some(Exchange::Accept { multi })),
            Call::Connect { file, address, len } => {
                let to = read_address(address, len);
                (file, Some(Exchange::Connect { to }))
            }
            Call::Receive { file, buffer } | Call::Read { file, buffer, .. } => {
                (file, receive(buffer.len as usize))
            }
            Call::ReceiveMulti { file, group, .. } => {
                // SAFETY: the operation has the group, see the header.
                let group = unsafe { BufferGroup::named(group) };
                (file, Some(Exchange::ReceiveMulti { group }))
            }
            Call::ReceiveMessage { file, header } => {
                let vectors = vectors_of(header);
                (file, receive(measure(vectors).0 as usize))
            }
            Call::ReadVectored { file, vectors, count, .. } => {
                let len = slices(vectors, count).map_or(0, |vectors| measure(vectors).0);
                (file, receive(len as usize))
            }
            Call::Send { file, buffer, manner } => (file, send(copy_of(buffer), manner, None)),
            Call::Write { file, buffer, .. } => (file, send(copy_of(buffer), Manner::Some, None)),
            Call::SendMessage { file, header, manner } => {
                // SAFETY: invariant 1, see the header.
                let (name, len) = unsafe { ((*header).msg_name, (*header).msg_namelen) };
                let to = (!name.is_null()).then(|| read_address(name.cast(), len)).flatten();
                (file, send(gather(vectors_of(header)), manner, to))
            }
            Call::WriteVectored { file, vectors, count, .. } => {
                let bytes = gather(slices(vectors, count).unwrap_or_default());
                (file, send(bytes, Manner::Some, None))
            }
            _ => return None,
        })
    }

    fn on_file(&self, find: &impl Fn(Identity) -> Option<FileId>) -> Option<Deed> {
        let file = |file: File| match file {
            File::Fd(fd) => simulated(fd, find),
            // The loop itself resolves registered files for a backend without a ring.
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
            Call::ReadDirectory { file: on, buffer } => {
                Deed::ReadDirectory { file: file(on)?, len: buffer.len as usize }
            }
            Call::Close { file: on } => {
                let (file, File::Fd(fd)) = (file(on)?, on) else { return None };
                // SAFETY: the number was released to this call, which is handed over once.
                Deed::Close { file, placeholder: unsafe { OwnedFd::from_raw_fd(fd) } }
            }
            // A socket that is not the simulation's.
            _ => return None,
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
            Call::Symlink { target, name } => {
                // SAFETY: invariant 1, see the header.
                let target = unsafe { CStr::from_ptr(target) }.to_bytes().to_vec();
                Deed::Symlink { target, place: place(name)? }
            }
            Call::ReadLink { name, buffer } => {
                Deed::ReadLink { place: place(name)?, len: buffer.len as usize }
            }
            Call::SetMode { name, mode } => Deed::SetMode { place: place(name)?, mode },
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
            // One name is simulated and the other is real: these are two file systems.
            _ => Some(Deed::Refused(libc::EXDEV)),
        }
    }

    /// Copies the call's results back into the operation, and returns its completion.
    pub(crate) fn bring_back(&self, outcome: Outcome) -> Cqe {
        if let Payload::NeverRan = outcome.payload {
            return Cqe::cancelled(self.user_data);
        }
        let has_more = outcome.has_more;
        let chosen = match &outcome.payload {
            Payload::Leased { index, .. } => Some(*index),
            _ => None,
        };
        let mut cqe = Cqe::by_thread(self.user_data, self.result_of(outcome));
        if let Some(index) = chosen {
            cqe = cqe.with_buffer(index);
        }
        if has_more { cqe.with_more() } else { cqe }
    }

    fn result_of(&self, outcome: Outcome) -> i32 {
        match (outcome.payload, self.call) {
            (
                Payload::Bytes(bytes),
                Call::Read { buffer, .. }
                | Call::ReadLink { buffer, .. }
                | Call::ReadDirectory { buffer, .. },
            ) => {
                copy_into(buffer.pointer, buffer.len as usize, &bytes);
                outcome.result
            }
            (
                Payload::Bytes(bytes) | Payload::Received { bytes, .. },
                Call::ReadVectored { vectors, count, .. },
            ) => {
                scatter(slices(vectors, count).unwrap_or_default(), &bytes);
                outcome.result
            }
            (
                Payload::Received { bytes, .. },
                Call::Receive { buffer, .. } | Call::Read { buffer, .. },
            ) => {
                let len = bytes.len().min(buffer.len as usize);
                copy_into(buffer.pointer, buffer.len as usize, &bytes[..len]);
                outcome.result
            }
            (Payload::Received { bytes, from }, Call::ReceiveMessage { header, .. }) => {
                let is_truncated = !scatter(vectors_of(header), &bytes);
                fill_header(header, from.as_ref(), is_truncated);
                outcome.result
            }
            (Payload::Leased { group, index, bytes }, Call::ReceiveMulti { .. }) => {
                let (pointer, room) = group.memory(index);
                copy_into(pointer, room, &bytes);
                outcome.result
            }
            (Payload::Metadata(told), Call::Statx { out, .. }) => {
                // SAFETY: invariant 1, see the header: the structure is the operation's own.
                unsafe { out.write(*told) };
                outcome.result
            }
            // From here on the completion owns the descriptor.
            (Payload::Opened(placeholder), _) => placeholder.into_raw_fd(),
            _ => outcome.result,
        }
    }
}

/// The simulated file that a descriptor stands for.
fn simulated(fd: RawFd, find: &impl Fn(Identity) -> Option<FileId>) -> Option<FileId> {
    // SAFETY: the operation holds the descriptor open (invariant 14).
    identity(unsafe { BorrowedFd::borrow_raw(fd) }).and_then(find)
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

fn read_address(address: *const libc::sockaddr, len: u32) -> Option<Address> {
    // SAFETY: invariant 1, see the header: the address lies in the operation and is as long.
    let raw = unsafe { RawAddress::read(address.cast(), len) };
    Address::from_raw(&raw)
}

/// The parts of a message.
fn vectors_of<'a>(header: *mut libc::msghdr) -> &'a [libc::iovec] {
    // SAFETY: invariant 1, see the header.
    let (vectors, count) = unsafe { ((*header).msg_iov, (*header).msg_iovlen) };
    slices(vectors, u32::try_from(count).unwrap_or(u32::MAX)).unwrap_or_default()
}

/// Fills in the sender of a message, and whether a part of it was cut off.
fn fill_header(header: *mut libc::msghdr, from: Option<&Address>, is_truncated: bool) {
    let raw = from.and_then(Address::to_raw);
    // SAFETY: invariant 1, see the header: the name has room for any address.
    unsafe {
        let header = &mut *header;
        header.msg_namelen = 0;
        if let Some(raw) = raw {
            let name = raw.as_ptr().cast::<u8>();
            name.copy_to_nonoverlapping(header.msg_name.cast(), raw.addr_len() as usize);
            header.msg_namelen = raw.addr_len();
        }
        header.msg_flags = if is_truncated { libc::MSG_TRUNC } else { 0 };
    }
}

/// Copies into the parts in turn. Returns whether everything fitted.
fn scatter(vectors: &[libc::iovec], bytes: &[u8]) -> bool {
    let mut rest = bytes;
    for vector in vectors {
        let (part, after) = rest.split_at(rest.len().min(vector.iov_len));
        copy_into(vector.iov_base.cast(), vector.iov_len, part);
        rest = after;
    }
    rest.is_empty()
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

/// Returns the parts of a vectored call, or nothing if there are more than the kernel takes.
fn slices<'a>(vectors: *const libc::iovec, count: u32) -> Option<&'a [libc::iovec]> {
    match count {
        0 => Some(&[]),
        // SAFETY: invariant 1, see the header: the vector lies in the operation, and what is
        // given here is not kept.
        1..=VECTORS_MAX => Some(unsafe { std::slice::from_raw_parts(vectors, count as usize) }),
        _ => None,
    }
}

/// Returns the length of all parts, and whether each is aligned for direct I/O.
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
