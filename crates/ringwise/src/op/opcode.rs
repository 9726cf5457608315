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
    /// Register files or buffers with the ring: not an operation to push, but errors name it.
    Register,
    /// Hand operations to the kernel: not an operation to push, but errors name it.
    Submit,
}

impl Opcode {
    /// Every operation that can be pushed.
    pub const ALL: [Opcode; 17] = [
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
            Opcode::Register => "io_uring_register",
            Opcode::Submit => "io_uring_enter",
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
            Opcode::Register | Opcode::Submit => return None,
        })
    }

    /// Whether it may wait without end and is dropped without harm, so that a loop that shuts
    /// down cancels it; everything else changes something and goes on to its end (invariant 6).
    pub(crate) fn cancels_on_shutdown(self) -> bool {
        matches!(self, Opcode::Read | Opcode::ReadVectored | Opcode::Timeout)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
