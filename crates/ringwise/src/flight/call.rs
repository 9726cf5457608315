//! An operation as the kernel sees it: numbers and addresses, nothing owned.
//!
//! Every backend takes this one form, so that the ring's kernel side and the classic backend's
//! threads do the same thing with the same memory. A `Call` is only made from an [`Operation`]
//! that is already in its slot and is valid until that slot's last completion (invariant 1);
//! whoever performs it relies on that. It knows nothing of how it is performed.

use std::os::fd::{AsRawFd, RawFd};

use crate::{
    buf::{Group, RawBuffer},
    op::{Closing, Kind, Manner, Name, Opcode, Operation},
};

/// The file of a call: an ordinary descriptor, or an index into the ring's registered table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    Fd(RawFd),
    Fixed(u32),
}

/// A name relative to an open directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawName {
    pub(crate) directory: RawFd,
    pub(crate) path: *const libc::c_char,
}

/// One system call's worth of arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Nop,
    /// Of what is no operation to be made: the part that a completion brings, or one that the loop
    /// refuses before. It fails with `EINVAL`.
    Invalid,
    Read {
        file: File,
        buffer: RawBuffer,
        offset: u64,
    },
    Write {
        file: File,
        buffer: RawBuffer,
        offset: u64,
    },
    ReadVectored {
        file: File,
        vectors: *const libc::iovec,
        count: u32,
        offset: u64,
    },
    WriteVectored {
        file: File,
        vectors: *const libc::iovec,
        count: u32,
        offset: u64,
    },
    Sync {
        file: File,
        data_only: bool,
    },
    /// `entry` is the registered table's that the file goes into, if any.
    Open {
        name: RawName,
        flags: i32,
        mode: u32,
        entry: Option<u32>,
    },
    Statx {
        name: RawName,
        flags: i32,
        mask: u32,
        out: *mut libc::statx,
    },
    Allocate {
        file: File,
        mode: i32,
        offset: u64,
        len: u64,
    },
    SetLen {
        file: File,
        len: u64,
    },
    Close {
        file: File,
    },
    Unlink {
        name: RawName,
        flags: i32,
    },
    CreateDirectory {
        name: RawName,
        mode: u32,
    },
    Rename {
        from: RawName,
        to: RawName,
        flags: u32,
    },
    Link {
        from: RawName,
        to: RawName,
        flags: i32,
    },
    Symlink {
        target: *const libc::c_char,
        name: RawName,
    },
    ReadLink {
        name: RawName,
        buffer: RawBuffer,
    },
    /// With an empty path the name's directory is the file.
    SetMode {
        name: RawName,
        mode: u32,
    },
    ReadDirectory {
        file: File,
        buffer: RawBuffer,
    },
    Timeout {
        after: *const libc::timespec,
    },
    /// `fd`: the file of what is to be cancelled, where that is known.
    Cancel {
        user_data: u64,
        fd: Option<RawFd>,
    },
    /// `multi`: one result for each connection.
    Accept {
        file: File,
        multi: bool,
    },
    Connect {
        file: File,
        address: *const libc::sockaddr,
        len: u32,
    },
    Receive {
        file: File,
        buffer: RawBuffer,
    },
    /// `ring`: the number under which the kernel has the group's buffers, if it has.
    ReceiveMulti {
        file: File,
        group: *const Group,
        ring: Option<u16>,
    },
    ReceiveMessage {
        file: File,
        header: *mut libc::msghdr,
    },
    Send {
        file: File,
        buffer: RawBuffer,
        manner: Manner,
    },
    SendMessage {
        file: File,
        header: *mut libc::msghdr,
        manner: Manner,
    },
}

/// How a lowering finds what only the loop knows.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    /// The ring's number, to tell its own registered memory from another's.
    pub(crate) ring: u32,
    /// The call's file, where it has one that is open already.
    pub(crate) file: Option<File>,
    /// The registered table's entry that a file is opened into, or that is closed.
    pub(crate) entry: Option<u32>,
    /// The file of what is to be cancelled.
    pub(crate) cancels: Option<RawFd>,
}

impl Call {
    /// The operation that this call came from.
    #[inline]
    pub(crate) fn opcode(&self) -> Opcode {
        match self {
            Call::Nop | Call::Invalid => Opcode::Nop,
            Call::Read { .. } => Opcode::Read,
            Call::Write { .. } => Opcode::Write,
            Call::ReadVectored { .. } => Opcode::ReadVectored,
            Call::WriteVectored { .. } => Opcode::WriteVectored,
            Call::Sync { .. } => Opcode::Sync,
            Call::Open { .. } => Opcode::Open,
            Call::Statx { .. } => Opcode::Statx,
            Call::Allocate { .. } => Opcode::Allocate,
            Call::SetLen { .. } => Opcode::SetLen,
            Call::Close { .. } => Opcode::Close,
            Call::Unlink { .. } => Opcode::Unlink,
            Call::CreateDirectory { .. } => Opcode::CreateDirectory,
            Call::Rename { .. } => Opcode::Rename,
            Call::Link { .. } => Opcode::Link,
            Call::Symlink { .. } => Opcode::Symlink,
            Call::ReadLink { .. } => Opcode::ReadLink,
            Call::SetMode { .. } => Opcode::SetMode,
            Call::ReadDirectory { .. } => Opcode::ReadDirectory,
            Call::Timeout { .. } => Opcode::Timeout,
            Call::Cancel { .. } => Opcode::Cancel,
            Call::Accept { multi: false, .. } => Opcode::Accept,
            Call::Accept { multi: true, .. } => Opcode::AcceptMulti,
            Call::Connect { .. } => Opcode::Connect,
            Call::Receive { .. } => Opcode::Receive,
            Call::ReceiveMulti { .. } => Opcode::ReceiveMulti,
            Call::ReceiveMessage { .. } => Opcode::ReceiveMessage,
            Call::Send { manner: Manner::ZeroCopy { .. }, .. } => Opcode::SendZeroCopy,
            Call::Send { .. } => Opcode::Send,
            Call::SendMessage { .. } => Opcode::SendMessage,
        }
    }

    /// Whether only a socket can be asked this.
    pub(crate) fn is_on_socket(&self) -> bool {
        matches!(
            self,
            Call::Accept { .. }
                | Call::Connect { .. }
                | Call::Receive { .. }
                | Call::ReceiveMulti { .. }
                | Call::ReceiveMessage { .. }
                | Call::Send { .. }
                | Call::SendMessage { .. }
        )
    }

    /// Lowers an operation that is in its slot. The addresses are valid while it stays there.
    #[inline]
    pub(crate) fn lower(operation: &mut Operation, context: Context) -> Call {
        operation.0.as_deref_mut().map_or(Call::Nop, |kind| lower_kind(kind, context))
    }
}

impl Context {
    fn open(&self) -> File {
        self.file.expect("the loop resolves the file of every operation that has one")
    }
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn lower_kind(kind: &mut Kind, context: Context) -> Call {
    match kind {
        Kind::Read { buffer, offset, .. } => {
            Call::Read { file: context.open(), buffer: buffer.raw(context.ring), offset: *offset }
        }
        Kind::Write { buffer, offset, .. } => {
            Call::Write { file: context.open(), buffer: buffer.raw(context.ring), offset: *offset }
        }
        Kind::Send { buffer, manner, .. } => {
            Call::Send { file: context.open(), buffer: buffer.raw(context.ring), manner: *manner }
        }
        Kind::WriteMapped { part, offset, .. } => {
            Call::Write { file: context.open(), buffer: part.raw(), offset: *offset }
        }
        Kind::ReadVectored { vectored, offset, .. } => {
            let (vectors, count) = vectored.vectors.fill(&mut vectored.buffers);
            Call::ReadVectored { file: context.open(), vectors, count, offset: *offset }
        }
        Kind::WriteVectored { vectored, offset, .. } => {
            let (vectors, count) = vectored.vectors.fill(&mut vectored.buffers);
            Call::WriteVectored { file: context.open(), vectors, count, offset: *offset }
        }
        Kind::Sync { data_only, .. } => Call::Sync { file: context.open(), data_only: *data_only },
        Kind::Open(open) => Call::Open {
            name: raw(&open.name),
            flags: open.flags,
            mode: open.mode,
            entry: context.entry,
        },
        Kind::Statx(statx) => Call::Statx {
            name: raw(&statx.name),
            flags: statx.flags,
            mask: statx.mask,
            out: statx.out.as_mut_ptr(),
        },
        Kind::Allocate { mode, offset, len, .. } => {
            Call::Allocate { file: context.open(), mode: *mode, offset: *offset, len: *len }
        }
        Kind::SetLen { len, .. } => Call::SetLen { file: context.open(), len: *len },
        Kind::Close(Closing::Released(fd)) => Call::Close { file: File::Fd(*fd) },
        Kind::Close(Closing::Registered(file)) => Call::Close { file: File::Fixed(file.index) },
        Kind::Close(Closing::Forgotten) => Call::Nop,
        Kind::Unlink { name, flags } => Call::Unlink { name: raw(name), flags: *flags },
        Kind::CreateDirectory { name, mode } => {
            Call::CreateDirectory { name: raw(name), mode: *mode }
        }
        Kind::Rename { names, flags } => {
            Call::Rename { from: raw(&names.0), to: raw(&names.1), flags: *flags }
        }
        Kind::Link { names, flags } => {
            Call::Link { from: raw(&names.0), to: raw(&names.1), flags: *flags }
        }
        Kind::Symlink(names) => Call::Symlink { target: names.0.as_ptr(), name: raw(&names.1) },
        Kind::ReadLink { name, buffer } => {
            Call::ReadLink { name: raw(name), buffer: buffer.raw(context.ring) }
        }
        Kind::SetMode { name, mode } => Call::SetMode { name: raw(name), mode: *mode },
        Kind::ReadDirectory { buffer, .. } => {
            Call::ReadDirectory { file: context.open(), buffer: buffer.raw(context.ring) }
        }
        Kind::Timeout(after) => Call::Timeout { after: after.as_ptr() },
        Kind::Cancel(ticket) => {
            Call::Cancel { user_data: ticket.user_data_in(context.ring), fd: context.cancels }
        }
        Kind::LinkedNop => Call::Nop,
        Kind::Accept { .. } => Call::Accept { file: context.open(), multi: false },
        Kind::AcceptMulti { .. } => Call::Accept { file: context.open(), multi: true },
        Kind::Connect { address: Ok(address), .. } => Call::Connect {
            file: context.open(),
            address: address.as_ptr().cast(),
            len: address.addr_len(),
        },
        Kind::Receive { buffer, .. } => {
            Call::Receive { file: context.open(), buffer: buffer.raw(0) }
        }
        Kind::ReceiveMulti { group, .. } => {
            let group = group.lower();
            Call::ReceiveMulti { file: context.open(), group: group.0, ring: group.1 }
        }
        Kind::ReceiveMessage { message, .. } => {
            Call::ReceiveMessage { file: context.open(), header: message.lower_to_receive() }
        }
        Kind::SendMessage { message, manner, .. } => {
            let header = message.lower_to_send();
            Call::SendMessage { file: context.open(), header, manner: *manner }
        }
        // Refused before they get a slot, or never pushed.
        Kind::Accepted(_)
        | Kind::Received(_)
        | Kind::ReceivedCopy(_)
        | Kind::Connect { .. }
        | Kind::Close(Closing::Descriptor(_))
        | Kind::Unrepresentable(_) => Call::Invalid,
    }
}

fn raw(name: &Name) -> RawName {
    let directory = name.directory.as_ref().map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd);
    RawName { directory, path: name.path.as_ptr() }
}
