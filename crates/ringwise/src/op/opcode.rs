//! The names of the operations.

use std::fmt;

/// Which operation. The name it displays is the system call's.
///
/// # Examples
///
/// ```
/// use ringwise::{Local, Opcode, Operation};
///
/// assert_eq!(Operation::nop().opcode(), Opcode::Nop);
/// // These syncs are made by threads of the loop, not by the ring.
/// let local = Local::builder().avoid(&[Opcode::Sync]).build()?;
/// if !local.supports(Opcode::SendZeroCopy) {
///     println!("the kernel cannot {}", Opcode::SendZeroCopy);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    /// Make a symbolic link.
    Symlink,
    /// Read where a symbolic link leads.
    ReadLink,
    /// Set permission bits.
    SetMode,
    /// Read names of a directory.
    ReadDirectory,
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
    /// Receive into several buffers, or a datagram with its sender's address.
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

/// The operations that can be pushed, in the order of [`Opcode`]: the name of the syscall that does
/// the same.
const TABLE: [(Opcode, &str); 30] = [
    (Opcode::Nop, "nop"),
    (Opcode::Read, "read"),
    (Opcode::Write, "write"),
    (Opcode::ReadVectored, "readv"),
    (Opcode::WriteVectored, "writev"),
    (Opcode::Sync, "fsync"),
    (Opcode::Open, "open"),
    (Opcode::Statx, "statx"),
    (Opcode::Allocate, "fallocate"),
    (Opcode::SetLen, "ftruncate"),
    (Opcode::Close, "close"),
    (Opcode::Unlink, "unlink"),
    (Opcode::CreateDirectory, "mkdir"),
    (Opcode::Rename, "rename"),
    (Opcode::Link, "link"),
    (Opcode::Symlink, "symlink"),
    (Opcode::ReadLink, "readlink"),
    (Opcode::SetMode, "chmod"),
    (Opcode::ReadDirectory, "getdents64"),
    (Opcode::Timeout, "timeout"),
    (Opcode::Cancel, "cancel"),
    (Opcode::Accept, "accept"),
    (Opcode::AcceptMulti, "accept"),
    (Opcode::Connect, "connect"),
    (Opcode::Receive, "recv"),
    (Opcode::ReceiveMulti, "recv"),
    (Opcode::ReceiveMessage, "recvmsg"),
    (Opcode::Send, "send"),
    (Opcode::SendZeroCopy, "send"),
    (Opcode::SendMessage, "sendmsg"),
];

impl Opcode {
    /// Whether no ring has this operation (Linux 6.18), so that threads of the loop always make it.
    pub fn is_for_threads(self) -> bool {
        matches!(self, Opcode::ReadLink | Opcode::SetMode | Opcode::ReadDirectory)
    }

    /// Every operation that can be pushed.
    pub const ALL: [Opcode; TABLE.len()] = {
        let mut all = [Opcode::Nop; TABLE.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = TABLE[at].0;
            assert!(all[at] as usize == at, "the table has the order of the operations");
            at += 1;
        }
        all
    };

    /// Returns the name of the system call that does the same.
    pub fn name(self) -> &'static str {
        match self {
            Opcode::Register => "io_uring_register",
            Opcode::Submit => "io_uring_enter",
            Opcode::Socket => "socket",
            pushed => TABLE[pushed as usize].1,
        }
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
