//! What a syscall means for a trace: an operation, a change of a descriptor, or nothing.
//!
//! The table has the places of arguments, because a tracepoint has them as numbers and strace has them as text. It
//! knows neither of the two.

use libc::*;

use crate::model::Kind;

/// The crate libc does not have it for every target.
#[allow(non_upper_case_globals)]
const SYS_io_pgetevents: i64 = if cfg!(target_arch = "x86_64") { 333 } else { 292 };

/// What a syscall means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// An operation.
    Io(Io),
    /// Opens a file by name: the result is a descriptor.
    Open,
    /// The result is a socket: socket, accept.
    Socket,
    /// Makes two descriptors: pipe, socketpair.
    Pair,
    Close,
    CloseRange,
    /// The result is the same open file as the first argument: dup, dup2, dup3.
    Duplicate,
    /// fcntl, of which some commands duplicate.
    Control,
    /// lseek: the result is the position.
    Seek,
    /// Makes a process or a thread: clone, clone3, fork, vfork.
    Spawn,
    Execute,
    AioSubmit,
    AioReap,
    /// Submits to io_uring.
    RingEnter,
}

/// The places of an operation's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Io {
    pub(crate) kind: Kind,
    /// The place of the descriptor. None: all files.
    pub(crate) descriptor: Option<usize>,
    pub(crate) length: Length,
    pub(crate) offset: Offset,
    /// The descriptor that a copy writes to, and its offset.
    pub(crate) target: Option<(usize, Offset)>,
}

/// Where the length that was asked for is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// There is none, as for syncs.
    None,
    Argument(usize),
    /// The sum of the vector at this place.
    Vector(usize),
    /// The sum of the vectors in a message header at this place.
    Message(usize),
    /// Several messages. The result counts messages and not bytes.
    Messages,
}

/// Where the offset is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offset {
    /// There is none.
    None,
    /// The position of the open file, which the operation moves.
    Position,
    Argument(usize),
    /// This argument, or the position if it is -1: preadv2, pwritev2.
    ArgumentOrPosition(usize),
    /// The argument points to the offset, or is null, which means the position.
    Pointer(usize),
}

const fn io(kind: Kind, length: Length, offset: Offset) -> Call {
    Call::Io(Io { kind, descriptor: Some(0), length, offset, target: None })
}

const fn copy(from: (usize, Offset), to: (usize, Offset), length: usize) -> Call {
    Call::Io(Io {
        kind: Kind::Copy,
        descriptor: Some(from.0),
        length: Length::Argument(length),
        offset: from.1,
        target: Some(to),
    })
}

macro_rules! calls {
    ($($(#[$attribute:meta])? $name:ident, $number:expr => $call:expr;)*) => {
        /// Each syscall that matters: its name, its number, what it means.
        pub(crate) const CALLS: &[(&str, i64, Call)] = &[
            $($(#[$attribute])? (stringify!($name), $number, $call),)*
        ];
    };
}

// The most frequent ones come first, because the kernel compares a syscall's number with one after another.
calls! {
    pread64, SYS_pread64 => io(Kind::Read, Length::Argument(2), Offset::Argument(3));
    pwrite64, SYS_pwrite64 => io(Kind::Write, Length::Argument(2), Offset::Argument(3));
    read, SYS_read => io(Kind::Read, Length::Argument(2), Offset::Position);
    write, SYS_write => io(Kind::Write, Length::Argument(2), Offset::Position);
    sendto, SYS_sendto => io(Kind::Send, Length::Argument(2), Offset::None);
    recvfrom, SYS_recvfrom => io(Kind::Receive, Length::Argument(2), Offset::None);
    readv, SYS_readv => io(Kind::Read, Length::Vector(1), Offset::Position);
    writev, SYS_writev => io(Kind::Write, Length::Vector(1), Offset::Position);
    preadv, SYS_preadv => io(Kind::Read, Length::Vector(1), Offset::Argument(3));
    pwritev, SYS_pwritev => io(Kind::Write, Length::Vector(1), Offset::Argument(3));
    preadv2, SYS_preadv2 => io(Kind::Read, Length::Vector(1), Offset::ArgumentOrPosition(3));
    pwritev2, SYS_pwritev2 => io(Kind::Write, Length::Vector(1), Offset::ArgumentOrPosition(3));
    lseek, SYS_lseek => Call::Seek;
    fsync, SYS_fsync => io(Kind::Sync, Length::None, Offset::None);
    fdatasync, SYS_fdatasync => io(Kind::DataSync, Length::None, Offset::None);
    sync_file_range, SYS_sync_file_range =>
        io(Kind::DataSync, Length::Argument(2), Offset::Argument(1));
    syncfs, SYS_syncfs => io(Kind::Sync, Length::None, Offset::None);
    sync, SYS_sync => Call::Io(Io {
        kind: Kind::Sync,
        descriptor: None,
        length: Length::None,
        offset: Offset::None,
        target: None,
    });
    sendmsg, SYS_sendmsg => io(Kind::Send, Length::Message(1), Offset::None);
    recvmsg, SYS_recvmsg => io(Kind::Receive, Length::Message(1), Offset::None);
    sendmmsg, SYS_sendmmsg => io(Kind::Send, Length::Messages, Offset::None);
    recvmmsg, SYS_recvmmsg => io(Kind::Receive, Length::Messages, Offset::None);
    sendfile, SYS_sendfile => copy((1, Offset::Pointer(2)), (0, Offset::Position), 3);
    splice, SYS_splice => copy((0, Offset::Pointer(1)), (2, Offset::Pointer(3)), 4);
    copy_file_range, SYS_copy_file_range =>
        copy((0, Offset::Pointer(1)), (2, Offset::Pointer(3)), 4);
    openat, SYS_openat => Call::Open;
    close, SYS_close => Call::Close;
    #[cfg(target_arch = "x86_64")]
    open, SYS_open => Call::Open;
    #[cfg(target_arch = "x86_64")]
    creat, SYS_creat => Call::Open;
    openat2, SYS_openat2 => Call::Open;
    open_by_handle_at, SYS_open_by_handle_at => Call::Open;
    close_range, SYS_close_range => Call::CloseRange;
    dup, SYS_dup => Call::Duplicate;
    #[cfg(target_arch = "x86_64")]
    dup2, SYS_dup2 => Call::Duplicate;
    dup3, SYS_dup3 => Call::Duplicate;
    fcntl, SYS_fcntl => Call::Control;
    socket, SYS_socket => Call::Socket;
    accept, SYS_accept => Call::Socket;
    accept4, SYS_accept4 => Call::Socket;
    memfd_create, SYS_memfd_create => Call::Open;
    pidfd_getfd, SYS_pidfd_getfd => Call::Open;
    #[cfg(target_arch = "x86_64")]
    pipe, SYS_pipe => Call::Pair;
    pipe2, SYS_pipe2 => Call::Pair;
    socketpair, SYS_socketpair => Call::Pair;
    #[cfg(target_arch = "x86_64")]
    fork, SYS_fork => Call::Spawn;
    #[cfg(target_arch = "x86_64")]
    vfork, SYS_vfork => Call::Spawn;
    clone, SYS_clone => Call::Spawn;
    clone3, SYS_clone3 => Call::Spawn;
    execve, SYS_execve => Call::Execute;
    execveat, SYS_execveat => Call::Execute;
    io_submit, SYS_io_submit => Call::AioSubmit;
    io_getevents, SYS_io_getevents => Call::AioReap;
    io_uring_enter, SYS_io_uring_enter => Call::RingEnter;
    io_pgetevents, SYS_io_pgetevents => Call::AioReap;
}

/// What the syscall of this name means, if anything.
pub(crate) fn by_name(name: &str) -> Option<Call> {
    CALLS.iter().find(|(known, _, _)| *known == name).map(|(_, _, call)| *call)
}
