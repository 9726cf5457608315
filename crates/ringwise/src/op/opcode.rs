//! The names of the operations, and the kernel's numbers for them.

use std::fmt;

/// Which operation. The name it displays is the system call's.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// Nothing: it completes at once.
    Nop,
    /// Read at an offset.
    Read,
    /// Write at an offset.
    Write,
    /// Read at an offset into several buffers.
    ReadVectored,
    /// Write at an offset from several buffers.
    WriteVectored,
    /// Sync a file's data, or data and metadata.
    Sync,
    /// Open a file.
    Open,
    /// Read a file's metadata.
    Statx,
    /// Allocate or punch space.
    Allocate,
    /// Set a file's length.
    SetLen,
    /// Close a descriptor.
    Close,
    /// Remove a name.
    Unlink,
    /// Make a directory.
    CreateDirectory,
    /// Rename.
    Rename,
    /// Make a hard link.
    Link,
    /// Complete after a time.
    Timeout,
    /// Cancel another operation.
    Cancel,
    /// Accept one connection.
    Accept,
    /// Accept connections as they come.
    AcceptMulti,
    /// Connect a socket.
    Connect,
    /// Receive from a socket.
    Receive,
    /// Receive from a socket as data comes, into buffers of a group.
    ReceiveMulti,
    /// Receive a datagram and its sender's address.
    ReceiveMessage,
    /// Send to a socket.
    Send,
    /// Send to a socket without a copy.
    SendZeroCopy,
    /// Send several buffers, or a datagram to an address.
    SendMessage,
    /// Register files or buffers with the ring: not an operation to push, but errors name it.
    Register,
    /// Hand operations to the kernel: not an operation to push, but errors name it.
    Submit,
    /// Make or configure a socket: not an operation to push, but errors name it.
    Socket,
}

impl Opcode {
    /// Every operation that can be pushed.
    pub const ALL: [Opcode; 26] = [
        Opcode::Nop,
        Opcode::Read,
        Opcode::Write,
        Opcode::ReadVectored,
        Opcode::WriteVectored,
        Opcode::Sync,
        Opcode::Open,
        Opcode::Statx,
        Opcode::Allocate,
        Opcode::SetLen,
        Opcode::Close,
        Opcode::Unlink,
        Opcode::CreateDirectory,
        Opcode::Rename,
        Opcode::Link,
        Opcode::Timeout,
        Opcode::Cancel,
        Opcode::Accept,
        Opcode::AcceptMulti,
        Opcode::Connect,
        Opcode::Receive,
        Opcode::ReceiveMulti,
        Opcode::ReceiveMessage,
        Opcode::Send,
        Opcode::SendZeroCopy,
        Opcode::SendMessage,
    ];

    /// The name of the system call that does the same.
    pub fn name(self) -> &'static str {
        match self {
            Opcode::Nop => "nop",
            Opcode::Read => "read",
            Opcode::Write => "write",
            Opcode::ReadVectored => "readv",
            Opcode::WriteVectored => "writev",
            Opcode::Sync => "fsync",
            Opcode::Open => "open",
            Opcode::Statx => "statx",
            Opcode::Allocate => "fallocate",
            Opcode::SetLen => "ftruncate",
            Opcode::Close => "close",
            Opcode::Unlink => "unlink",
            Opcode::CreateDirectory => "mkdir",
            Opcode::Rename => "rename",
            Opcode::Link => "link",
            Opcode::Timeout => "timeout",
            Opcode::Cancel => "cancel",
            Opcode::Accept | Opcode::AcceptMulti => "accept",
            Opcode::Connect => "connect",
            Opcode::Receive | Opcode::ReceiveMulti => "recv",
            Opcode::ReceiveMessage => "recvmsg",
            Opcode::Send | Opcode::SendZeroCopy => "send",
            Opcode::SendMessage => "sendmsg",
            Opcode::Register => "io_uring_register",
            Opcode::Submit => "io_uring_enter",
            Opcode::Socket => "socket",
        }
    }

    /// The kernel's `IORING_OP_*` number, for the operations that have one.
    pub(crate) fn kernel_code(self) -> Option<u8> {
        use io_uring::opcode as code;
        Some(match self {
            Opcode::Nop => code::Nop::CODE,
            Opcode::Read => code::Read::CODE,
            Opcode::Write => code::Write::CODE,
            Opcode::ReadVectored => code::Readv::CODE,
            Opcode::WriteVectored => code::Writev::CODE,
            Opcode::Sync => code::Fsync::CODE,
            Opcode::Open => code::OpenAt::CODE,
            Opcode::Statx => code::Statx::CODE,
            Opcode::Allocate => code::Fallocate::CODE,
            Opcode::SetLen => code::Ftruncate::CODE,
            Opcode::Close => code::Close::CODE,
            Opcode::Unlink => code::UnlinkAt::CODE,
            Opcode::CreateDirectory => code::MkDirAt::CODE,
            Opcode::Rename => code::RenameAt::CODE,
            Opcode::Link => code::LinkAt::CODE,
            Opcode::Timeout => code::Timeout::CODE,
            Opcode::Cancel => code::AsyncCancel::CODE,
            Opcode::Accept | Opcode::AcceptMulti => code::Accept::CODE,
            Opcode::Connect => code::Connect::CODE,
            Opcode::Receive | Opcode::ReceiveMulti => code::Recv::CODE,
            Opcode::ReceiveMessage => code::RecvMsg::CODE,
            Opcode::Send => code::Send::CODE,
            Opcode::SendZeroCopy => code::SendZc::CODE,
            Opcode::SendMessage => code::SendMsg::CODE,
            Opcode::Register | Opcode::Submit | Opcode::Socket => return None,
        })
    }

    /// Whether it may wait without end and is dropped without harm, so that a loop that shuts
    /// down cancels it; everything else changes something and goes on to its end (invariant 6).
    pub(crate) fn cancels_on_shutdown(self) -> bool {
        use Opcode::{Accept, AcceptMulti, Connect, Receive, ReceiveMessage, ReceiveMulti};
        matches!(self, Opcode::Read | Opcode::ReadVectored | Opcode::Timeout)
            || matches!(self, Accept | AcceptMulti | Connect)
            || matches!(self, Receive | ReceiveMulti | ReceiveMessage)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
