//! Operations as data: what to do, on what, with the memory that it needs.
//!
//! An [`Operation`] owns everything that the kernel will read or write on its behalf: buffers,
//! descriptors, paths, the structures that a call fills. It is inert until it is pushed, and
//! comes back in the [`Completion`](crate::Completion). This file holds the type and what is
//! common; the families are in the files beside it. It makes no system calls and knows no backend.

mod control;
mod file;
mod flags;
mod manner;
pub(crate) mod metadata;
mod net;
mod opcode;
mod options;
mod path;
mod space;
mod witness;
mod worker;

use std::path::PathBuf;
use std::{
    ffi::CString,
    os::fd::{AsRawFd, RawFd},
    sync::Arc,
};

use crate::net::Address;
use crate::{
    buf::{Buffer, BufferGroup, MappedPart, Received},
    descriptor::{Descriptor, RegisteredFile, Target},
    flight::slot::Ticket,
    sys::{
        address::RawAddress, message::Message, statx::RawStatx, time::Timespec, vector::Vectors,
    },
};

pub(crate) use manner::Manner;

pub use opcode::Opcode;
pub use options::OpenOptions;
pub use space::AllocateMode;
pub(crate) use witness::Witness;

/// One operation for the kernel, with everything it owns.
///
/// The functions of this type make operations. [`Local::push`](crate::Local::push) takes all of them,
/// [`Ring::submit`](crate::Ring::submit) those with exactly one completion.
///
/// # Examples
///
/// ```
/// use ringwise::{Local, Opcode, Operation};
///
/// let statx = Operation::statx("/proc/self");
/// assert_eq!(statx.opcode(), Opcode::Statx);
/// let done = Local::new()?.run(statx)?;
/// println!("{} bytes", done.metadata()?.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "an operation does nothing until it is pushed"]
pub struct Operation(pub(crate) Option<Box<Kind>>);

/// What the library knows of a read or a write before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    Nothing,
    /// The page cache was asked for it and did not have it all, or need not be asked.
    Missed,
    /// The same, and where a ring makes it a worker of the kernel does.
    ByWorker,
    /// A thread of the loop makes it at less cost than the ring.
    ByThread,
    /// It is the driver's own, and none that the program asked for.
    Own,
}

/// The operation's content; a no-op has none. Boxed, because it moves from the caller into a slot,
/// out of it into the completion and to the caller again: measured on no-ops, each move of eighty
/// bytes cost more than the allocation, and the table of slots no longer fitted the first cache.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A no-op in a chain: its completion has to be looked at, as no other's is.
    LinkedNop,
    Read {
        target: Target,
        buffer: Buffer,
        offset: u64,
        hint: Hint,
    },
    Write {
        target: Target,
        buffer: Buffer,
        offset: u64,
        hint: Hint,
    },
    WriteMapped {
        target: Target,
        part: MappedPart,
        offset: u64,
    },
    ReadVectored {
        target: Target,
        vectored: Box<Vectored>,
        offset: u64,
    },
    WriteVectored {
        target: Target,
        vectored: Box<Vectored>,
        offset: u64,
    },
    Sync {
        target: Target,
        data_only: bool,
        /// Who is to know how it ends, whether or not somebody waits for it.
        witness: Option<Arc<Witness>>,
        /// It succeeded, and another of the file failed beside it.
        failed_with_another: bool,
    },
    Open(Box<Open>),
    Statx(Box<Statx>),
    Allocate {
        target: Target,
        mode: i32,
        offset: u64,
        len: u64,
    },
    SetLen {
        target: Target,
        len: u64,
    },
    Close(Closing),
    Unlink {
        name: Box<Name>,
        flags: i32,
    },
    CreateDirectory {
        name: Box<Name>,
        mode: u32,
    },
    Rename {
        names: Box<(Name, Name)>,
        flags: u32,
    },
    Link {
        names: Box<(Name, Name)>,
        flags: i32,
    },
    /// What the link holds, and its own name.
    Symlink(Box<(CString, Name)>),
    ReadLink {
        name: Box<Name>,
        buffer: Buffer,
    },
    /// With an empty path it is for the open file.
    SetMode {
        name: Box<Name>,
        mode: u32,
    },
    ReadDirectory {
        target: Target,
        buffer: Buffer,
    },
    Timeout(Box<Timespec>),
    Cancel(Ticket),
    Accept {
        target: Target,
        outcome: Option<Descriptor>,
    },
    /// `armed_at`: how many descriptors had closed when it was last handed over.
    AcceptMulti {
        target: Target,
        armed_at: u64,
    },
    /// One connection of an `AcceptMulti`, which is still in its slot.
    Accepted(Option<Descriptor>),
    /// An address that no system call can express is refused when pushed.
    Connect {
        target: Target,
        address: Result<Box<RawAddress>, Address>,
    },
    Receive {
        target: Target,
        buffer: Buffer,
    },
    /// `armed_at`: how many buffers had come back to the group when it was last handed over.
    /// `has_received`: whether it got one of them since then.
    ReceiveMulti {
        target: Target,
        group: BufferGroup,
        armed_at: u64,
        has_received: bool,
    },
    /// What one result of a `ReceiveMulti` brought.
    Received(Received),
    /// The same, copied out of its lease.
    ReceivedCopy(Vec<u8>),
    ReceiveMessage {
        target: Target,
        message: Box<Message>,
    },
    Send {
        target: Target,
        buffer: Buffer,
        manner: Manner,
    },
    SendMessage {
        target: Target,
        message: Box<Message>,
        manner: Manner,
    },
    /// A path with a NUL byte in it, which no system call can express: refused when pushed.
    Unrepresentable(Box<(Opcode, PathBuf)>),
}

/// Several buffers and the vector that tells the kernel where they are.
#[derive(Debug)]
pub(crate) struct Vectored {
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) vectors: Vectors,
}

/// A name relative to a directory, or to the current one.
#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) directory: Option<Descriptor>,
    pub(crate) path: CString,
}

/// An open call; what it opened is in `outcome` once it completed.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) name: Name,
    pub(crate) flags: i32,
    pub(crate) mode: u32,
    /// Whether the file goes into the registered table, and where, while it is in flight.
    pub(crate) into_table: bool,
    pub(crate) entry: Option<u32>,
    pub(crate) outcome: Option<Opened>,
}

/// What an open call gave.
#[derive(Debug)]
pub(crate) enum Opened {
    Descriptor(Descriptor),
    Registered(RegisteredFile),
}

/// A statx call and the structure that it fills.
#[derive(Debug)]
pub(crate) struct Statx {
    pub(crate) name: Name,
    pub(crate) flags: i32,
    pub(crate) mask: u32,
    pub(crate) out: RawStatx,
}

/// What a close call closes.
#[derive(Debug)]
pub(crate) enum Closing {
    Descriptor(Descriptor),
    Registered(RegisteredFile),
    /// Handed to the kernel; the number is no longer ours unless the call never ran.
    Released(i32),
    /// A registered file that others still hold open: it left the table, and that is all.
    Forgotten,
}

impl Kind {
    /// Whether it is to read into bytes that are constant or shared.
    pub(crate) fn reads_into_constant(&self) -> bool {
        let buffers = match self {
            Kind::Read { buffer, .. }
            | Kind::Receive { buffer, .. }
            | Kind::ReadDirectory { buffer, .. } => std::slice::from_ref(buffer),
            Kind::ReadVectored { vectored, .. } => &vectored.buffers,
            Kind::ReceiveMessage { message, .. } => message.buffers(),
            _ => return false,
        };
        !buffers.iter().all(Buffer::is_writable)
    }

    /// Whether it goes to an address that no system call can express.
    pub(crate) fn is_unaddressable(&self) -> bool {
        match self {
            Kind::Connect { address, .. } => address.is_err(),
            Kind::SendMessage { message, .. } => message.is_unaddressable(),
            _ => false,
        }
    }
}

/// That there is nothing to drop in a no-op is seen in place: to call the drop of a box only to
/// see it there takes half a nanosecond of a no-op's forty.
impl Drop for Operation {
    #[inline]
    fn drop(&mut self) {
        #[inline(never)]
        fn drop_content(kind: Box<Kind>) {
            drop(kind);
        }
        if let Some(kind) = self.0.take() {
            drop_content(kind);
        }
    }
}

impl Operation {
    pub(crate) fn of(kind: Kind) -> Operation {
        Operation(Some(Box::new(kind)))
    }

    #[inline]
    pub(crate) fn is_nop(&self) -> bool {
        self.0.is_none()
    }

    /// Which operation this is.
    pub fn opcode(&self) -> Opcode {
        let Some(kind) = &self.0 else { return Opcode::Nop };
        match &**kind {
            Kind::LinkedNop => Opcode::Nop,
            Kind::Read { .. } => Opcode::Read,
            Kind::Write { .. } | Kind::WriteMapped { .. } => Opcode::Write,
            Kind::ReadVectored { .. } => Opcode::ReadVectored,
            Kind::WriteVectored { .. } => Opcode::WriteVectored,
            Kind::Sync { .. } => Opcode::Sync,
            Kind::Open(_) => Opcode::Open,
            Kind::Statx(_) => Opcode::Statx,
            Kind::Allocate { .. } => Opcode::Allocate,
            Kind::SetLen { .. } => Opcode::SetLen,
            Kind::Close(_) => Opcode::Close,
            Kind::Unlink { .. } => Opcode::Unlink,
            Kind::CreateDirectory { .. } => Opcode::CreateDirectory,
            Kind::Rename { .. } => Opcode::Rename,
            Kind::Link { .. } => Opcode::Link,
            Kind::Symlink(_) => Opcode::Symlink,
            Kind::ReadLink { .. } => Opcode::ReadLink,
            Kind::SetMode { .. } => Opcode::SetMode,
            Kind::ReadDirectory { .. } => Opcode::ReadDirectory,
            Kind::Timeout(_) => Opcode::Timeout,
            Kind::Cancel(_) => Opcode::Cancel,
            Kind::Accept { .. } => Opcode::Accept,
            Kind::AcceptMulti { .. } | Kind::Accepted(_) => Opcode::AcceptMulti,
            Kind::Connect { .. } => Opcode::Connect,
            Kind::Receive { .. } => Opcode::Receive,
            Kind::ReceiveMulti { .. } | Kind::Received(_) | Kind::ReceivedCopy(_) => {
                Opcode::ReceiveMulti
            }
            Kind::ReceiveMessage { .. } => Opcode::ReceiveMessage,
            Kind::Send { manner: Manner::ZeroCopy { .. }, .. } => Opcode::SendZeroCopy,
            Kind::Send { .. } => Opcode::Send,
            Kind::SendMessage { .. } => Opcode::SendMessage,
            Kind::Unrepresentable(named) => named.0,
        }
    }

    /// The offset in bytes that it works at, for positioned operations.
    pub fn offset(&self) -> Option<u64> {
        match **self.0.as_ref()? {
            Kind::Read { offset, .. }
            | Kind::Write { offset, .. }
            | Kind::WriteMapped { offset, .. }
            | Kind::ReadVectored { offset, .. }
            | Kind::WriteVectored { offset, .. }
            | Kind::Allocate { offset, .. } => Some(offset),
            _ => None,
        }
    }

    /// How many bytes it is to move, of those that move any.
    pub(crate) fn byte_count(&self) -> Option<u64> {
        let all = |buffers: &[Buffer]| buffers.iter().map(|buffer| buffer.len() as u64).sum();
        Some(match &**self.0.as_ref()? {
            Kind::Read { buffer, .. }
            | Kind::Write { buffer, .. }
            | Kind::Receive { buffer, .. }
            | Kind::Send { buffer, .. } => buffer.len() as u64,
            Kind::WriteMapped { part, .. } => part.len() as u64,
            Kind::ReadVectored { vectored, .. } | Kind::WriteVectored { vectored, .. } => {
                all(&vectored.buffers)
            }
            Kind::ReceiveMessage { message, .. } | Kind::SendMessage { message, .. } => {
                all(message.buffers())
            }
            _ => return None,
        })
    }

    /// How many bytes it moves if it is done in full: of a read or write, and of a send that is to end
    /// when all is sent. Whatever has a count of bytes and is not told here may move a part of them.
    pub(crate) fn whole_bytes(&self) -> Option<u64> {
        let is_partial = match &**self.0.as_ref()? {
            Kind::Receive { .. } | Kind::ReceiveMessage { .. } => true,
            Kind::Send { manner, .. } | Kind::SendMessage { manner, .. } => !manner.is_whole(),
            _ => false,
        };
        if is_partial { None } else { self.byte_count() }
    }

    /// Where what it moves ends, for positioned operations.
    pub(crate) fn end_offset(&self) -> Option<u64> {
        Some(self.offset()?.saturating_add(self.byte_count().unwrap_or(0)))
    }

    /// The number of the open file that it works on; none of an entry of a loop's table.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        match &**self.0.as_ref()? {
            Kind::Statx(statx) if statx.name.path.is_empty() => {
                statx.name.directory.as_ref().map(AsRawFd::as_raw_fd)
            }
            Kind::SetMode { name, .. } if name.path.is_empty() => {
                name.directory.as_ref().map(AsRawFd::as_raw_fd)
            }
            Kind::Close(Closing::Descriptor(descriptor)) => Some(descriptor.as_raw_fd()),
            Kind::Close(Closing::Released(number)) => Some(*number),
            _ => match self.target()? {
                Target::Descriptor(descriptor) => Some(descriptor.as_raw_fd()),
                Target::Registered(_) => None,
            },
        }
    }

    /// The path that it works on (the first of two), for operations on names.
    pub fn path(&self) -> Option<PathBuf> {
        match &**self.0.as_ref()? {
            Kind::Open(open) => Some(open.name.to_path()),
            Kind::Statx(statx) if !statx.name.path.is_empty() => Some(statx.name.to_path()),
            Kind::Unlink { name, .. }
            | Kind::CreateDirectory { name, .. }
            | Kind::ReadLink { name, .. } => Some(name.to_path()),
            Kind::SetMode { name, .. } if !name.path.is_empty() => Some(name.to_path()),
            Kind::Symlink(names) => Some(names.1.to_path()),
            Kind::Rename { names, .. } | Kind::Link { names, .. } => Some(names.0.to_path()),
            Kind::Unrepresentable(named) => Some(named.1.clone()),
            _ => None,
        }
    }

    /// Takes back the buffer of a read, write, receive or send that was not pushed.
    pub fn into_buffer(self) -> Option<Buffer> {
        self.take_buffer().map(Buffer::given_back)
    }

    /// The buffer as the operation had it.
    pub(crate) fn take_buffer(mut self) -> Option<Buffer> {
        match *self.0.take()? {
            Kind::Read { buffer, .. }
            | Kind::Write { buffer, .. }
            | Kind::Receive { buffer, .. }
            | Kind::ReadLink { buffer, .. }
            | Kind::ReadDirectory { buffer, .. }
            | Kind::Send { buffer, .. } => Some(buffer),
            Kind::Received(received) => Some(received.into()),
            Kind::ReceivedCopy(bytes) => Some(bytes.into()),
            Kind::ReceiveMessage { message, .. } | Kind::SendMessage { message, .. } => {
                message.into_buffers().into_iter().next()
            }
            _ => None,
        }
    }

    /// Takes back all buffers of an operation that was not pushed; empty if it had none.
    pub fn into_buffers(self) -> Vec<Buffer> {
        self.take_buffers().into_iter().map(Buffer::given_back).collect()
    }

    /// The buffers as the operation had them.
    pub(crate) fn take_buffers(mut self) -> Vec<Buffer> {
        match self.0.take().map(|kind| *kind) {
            Some(Kind::ReadVectored { vectored, .. } | Kind::WriteVectored { vectored, .. }) => {
                vectored.buffers
            }
            Some(Kind::SendMessage { message, .. } | Kind::ReceiveMessage { message, .. }) => {
                message.into_buffers()
            }
            Some(
                Kind::Read { buffer, .. }
                | Kind::Write { buffer, .. }
                | Kind::Receive { buffer, .. }
                | Kind::ReadLink { buffer, .. }
                | Kind::ReadDirectory { buffer, .. }
                | Kind::Send { buffer, .. },
            ) => vec![buffer],
            Some(Kind::Received(received)) => vec![received.into()],
            Some(Kind::ReceivedCopy(bytes)) => vec![bytes.into()],
            _ => Vec::new(),
        }
    }

    /// The buffers of a send; none of other operations.
    pub(crate) fn buffers_mut(&mut self) -> &mut [Buffer] {
        match self.0.as_deref_mut() {
            Some(Kind::Send { buffer, .. }) => std::slice::from_mut(buffer),
            Some(Kind::SendMessage { message, .. }) => message.buffers_mut(),
            _ => &mut [],
        }
    }

    /// The file that it works on, where that is one that is already open.
    pub(crate) fn target(&self) -> Option<&Target> {
        match &**self.0.as_ref()? {
            Kind::Read { target, .. }
            | Kind::Write { target, .. }
            | Kind::WriteMapped { target, .. }
            | Kind::ReadVectored { target, .. }
            | Kind::WriteVectored { target, .. }
            | Kind::Sync { target, .. }
            | Kind::Allocate { target, .. }
            | Kind::SetLen { target, .. }
            | Kind::ReadDirectory { target, .. }
            | Kind::Accept { target, .. }
            | Kind::AcceptMulti { target, .. }
            | Kind::Connect { target, .. }
            | Kind::Receive { target, .. }
            | Kind::ReceiveMulti { target, .. }
            | Kind::ReceiveMessage { target, .. }
            | Kind::Send { target, .. }
            | Kind::SendMessage { target, .. } => Some(target),
            _ => None,
        }
    }
}

impl Name {
    fn to_path(&self) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        std::ffi::OsStr::from_bytes(self.path.as_bytes()).into()
    }
}
