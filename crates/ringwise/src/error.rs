//! Errors: what failed, on what, with the kernel's own number, and what to do about it.
//!
//! `-errno` is decoded in [`Errno`] and nowhere else. An unknown number is kept as it came
//! ([`ErrorKind::Other`]); it is never swallowed and never guessed. A short read or write
//! is not an error: [`Completion::result`](crate::Completion::result) tells the count.

mod errno;
mod kind;

use std::{
    fmt, io,
    os::fd::RawFd,
    path::{Path, PathBuf},
};

pub use errno::Errno;
pub use kind::{AcceptFailure, ErrorKind};

use crate::{net::Address, op::Opcode};

/// The largest offset of a file (`loff_t` is signed).
pub(crate) const OFFSET_MAX: u64 = i64::MAX as u64;

/// An operation that failed: its kind, the kernel's number, and what it was working on.
///
/// # Examples
///
/// ```
/// use ringwise::{ErrorKind, Local, OpenOptions, Operation};
///
/// let mut local = Local::new()?;
/// let open = Operation::open("/no/such/file", OpenOptions::new().read(true));
/// let error = local.run(open)?.into_descriptor().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::NotFound);
/// assert!(error.to_string().starts_with("open /no/such/file: "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Error(pub(crate) Box<Detail>);

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Detail {
    pub(crate) errno: Errno,
    pub(crate) opcode: Opcode,
    pub(crate) path: Option<PathBuf>,
    pub(crate) descriptor: Option<RawFd>,
    pub(crate) offset: Option<u64>,
    pub(crate) advice: Option<&'static str>,
}

impl Error {
    /// An error of `opcode` with no more context than its number.
    pub(crate) fn new(opcode: Opcode, errno: Errno) -> Error {
        Error(Box::new(Detail {
            errno,
            opcode,
            path: None,
            descriptor: None,
            offset: None,
            advice: advice(opcode, errno),
        }))
    }

    /// The same error with advice that fits better than the number's own.
    pub(crate) fn advise(mut self, advice: &'static str) -> Error {
        self.0.advice = Some(advice);
        self
    }

    /// The same, of an operation on this path.
    pub(crate) fn on_path(mut self, path: &Path) -> Error {
        self.0.path = Some(path.to_owned());
        self
    }

    /// The same, of a socket with this address.
    pub(crate) fn on_address(mut self, address: &Address) -> Error {
        self.0.path = Some(PathBuf::from(address.to_string()));
        self
    }

    /// The kernel's error number, as in `<errno.h>`.
    pub fn errno(&self) -> i32 {
        self.0.errno.0
    }

    /// What the error means to a program.
    pub fn kind(&self) -> ErrorKind {
        kind_of(self.0.opcode, self.0.errno)
    }

    /// The operation that failed.
    pub fn opcode(&self) -> Opcode {
        self.0.opcode
    }

    /// The path that it was given, for operations on names.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The number of the open file that the operation was for, which may be another file's by now;
    /// none of an entry of a loop's table.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.0.descriptor
    }

    /// The same, of an open file.
    pub(crate) fn on_descriptor(mut self, number: RawFd) -> Error {
        self.0.descriptor = Some(number);
        self
    }

    /// Of an operation at another offset than the one that was made.
    pub(crate) fn at_offset(mut self, offset: u64) -> Error {
        self.0.offset = Some(offset);
        self
    }

    /// The offset in bytes that it was given, for positioned operations.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let detail = &*self.0;
        write!(f, "{}", detail.opcode)?;
        if let Some(path) = &detail.path {
            // A name may have a line's end in it, and messages are lines.
            let text = path.to_string_lossy();
            let is_plain = !text.contains(char::is_control);
            if is_plain { write!(f, " {text}")? } else { write!(f, " {text:?}")? }
        } else if let Some(number) = detail.descriptor {
            write!(f, " of descriptor {number}")?;
        }
        if let Some(offset) = detail.offset {
            write!(f, " at offset {offset}")?;
        }
        write!(f, ": {}", detail.errno)?;
        if let Some(advice) = detail.advice {
            write!(f, "; {advice}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}: {self})", self.kind())
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    /// Keeps the kernel's number, by which programs decide:
    /// [`raw_os_error`](io::Error::raw_os_error) gives it, and the kind is the standard library's for
    /// it. The operation and the path are lost, since an [`io::Error`] holds one or the other: print the
    /// [`Error`] itself for those.
    ///
    /// Three kinds have no number of their own in the standard library, and hold the [`Error`] instead:
    /// `TimedOut`, `UnexpectedEof`, and `Other` for what was cancelled.
    fn from(error: Error) -> io::Error {
        match error.kind() {
            ErrorKind::TimedOut => io::Error::new(io::ErrorKind::TimedOut, error),
            ErrorKind::UnexpectedEof => io::Error::new(io::ErrorKind::UnexpectedEof, error),
            // Not `Interrupted`: whoever meets that tries again.
            ErrorKind::Cancelled => io::Error::other(error),
            _ => io::Error::from_raw_os_error(error.errno()),
        }
    }
}

impl Error {
    /// Sorts the error of an accept (accept(2), "Error handling" and "Errors").
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use ringwise::{AcceptFailure, net::TcpListener};
    ///
    /// # async fn handle(stream: ringwise::net::TcpStream) {}
    /// async fn serve(listener: TcpListener) -> ringwise::Error {
    ///     loop {
    ///         match listener.accept().await {
    ///             Ok((stream, _address)) => handle(stream).await,
    ///             Err(error) => match error.accept_failure() {
    ///                 AcceptFailure::Connection => {}
    ///                 AcceptFailure::Exhausted => tokio::time::sleep(Duration::from_millis(50)).await,
    ///                 _ => return error,
    ///             },
    ///         }
    ///     }
    /// }
    /// ```
    pub fn accept_failure(&self) -> AcceptFailure {
        AcceptFailure::of(self.errno())
    }
}

impl AcceptFailure {
    /// The one place where the numbers are sorted.
    ///
    /// accept(2) asks programs to try again after some network errors, `EOPNOTSUPP` among them. Here
    /// that number is the listener's: only sockets that cannot accept give it, and they give it for ever
    /// (net/core/sock.c, sock_no_accept). TCP's accept gives no error of a new connection
    /// (net/ipv4/inet_connection_sock.c, inet_csk_accept). `EPERM` comes before a connection is taken, from a filter of
    /// syscalls or a security module (net/socket.c, do_accept), and takes none away: the next accept would fail too.
    pub(crate) fn of(errno: i32) -> AcceptFailure {
        match errno {
            libc::ECONNABORTED
            | libc::EINTR
            | libc::EPROTO
            | libc::ENOPROTOOPT
            | libc::ENETDOWN
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::EHOSTUNREACH
            | libc::ENONET
            | libc::ETIMEDOUT => AcceptFailure::Connection,
            libc::EPERM
            | libc::EMFILE
            | libc::ENFILE
            | libc::ENOBUFS
            | libc::ENOMEM
            | libc::ENOSR
            | libc::EAGAIN => AcceptFailure::Exhausted,
            _ => AcceptFailure::Listener,
        }
    }
}

/// The meaning of `errno` for `opcode`: two numbers mean something else to a cancel.
fn kind_of(opcode: Opcode, errno: Errno) -> ErrorKind {
    match errno.0 {
        libc::ENOENT if opcode == Opcode::Cancel => ErrorKind::NothingToCancel,
        libc::EALREADY if opcode == Opcode::Cancel => ErrorKind::TooLateToCancel,
        libc::ENOENT | libc::ENOTDIR => ErrorKind::NotFound,
        libc::EEXIST | libc::ENOTEMPTY => ErrorKind::AlreadyExists,
        libc::EPERM | libc::EACCES | libc::EROFS => ErrorKind::PermissionDenied,
        libc::EBADF => ErrorKind::BadDescriptor,
        libc::EINVAL => ErrorKind::InvalidInput,
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => ErrorKind::NoSpace,
        libc::ENOMEM => ErrorKind::OutOfMemory,
        libc::EMFILE | libc::ENFILE => ErrorKind::TooManyDescriptors,
        libc::ECANCELED => ErrorKind::Cancelled,
        libc::ETIME | libc::ETIMEDOUT => ErrorKind::TimedOut,
        libc::EINTR => ErrorKind::Interrupted,
        libc::EOPNOTSUPP | libc::ENOSYS => ErrorKind::Unsupported,
        libc::EBUSY | libc::EAGAIN => ErrorKind::Busy,
        libc::EIO => ErrorKind::Io,
        libc::EBADMSG | libc::EUCLEAN => ErrorKind::Corrupt,
        libc::ENODATA if opcode == Opcode::Read => ErrorKind::UnexpectedEof,
        libc::ESHUTDOWN => ErrorKind::ShutDown,
        libc::ECONNREFUSED => ErrorKind::ConnectionRefused,
        libc::ECONNRESET | libc::ECONNABORTED => ErrorKind::ConnectionReset,
        libc::EPIPE => ErrorKind::BrokenPipe,
        libc::EADDRINUSE => ErrorKind::AddressInUse,
        libc::EADDRNOTAVAIL => ErrorKind::AddressNotAvailable,
        _ => ErrorKind::Other,
    }
}

/// What a user can do about `errno`, where something can be done.
fn advice(opcode: Opcode, errno: Errno) -> Option<&'static str> {
    match (opcode, errno.0) {
        (opcode, libc::EBADF) if moves_bytes(opcode) => {
            Some("the descriptor is closed or was opened for the other direction")
        }
        (_, libc::EOWNERDEAD) => {
            Some("the ring is that of the process this one was forked from: build a new one")
        }
        (_, libc::ESHUTDOWN) => Some("the ring was shut down"),
        (Opcode::Connect, libc::EADDRNOTAVAIL) => {
            Some("no local port is left for it (net.ipv4.ip_local_port_range)")
        }
        (_, libc::EADDRNOTAVAIL) => Some("no interface of this machine has that address"),
        (_, libc::EMFILE) => Some("raise the limit on open files (ulimit -n) or close some"),
        (Opcode::Register, libc::ENOMEM) => Some("raise the locked-memory limit (ulimit -l)"),
        _ => None,
    }
}

/// Whether it is a read or a write of a file.
pub(crate) fn moves_bytes(opcode: Opcode) -> bool {
    use Opcode::{Read, ReadVectored, Write, WriteVectored};
    matches!(opcode, Read | Write | ReadVectored | WriteVectored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_number_is_kept() {
        // `MAX_ERRNO` in include/linux/err.h is the last that the kernel can give.
        assert_eq!(Errno::decode(-4095), Err(Errno(4095)));
        let error = Error::new(Opcode::Read, Errno::decode(-524).unwrap_err());
        assert_eq!(error.errno(), 524);
        assert_eq!(error.kind(), ErrorKind::Other);
    }

    #[test]
    fn a_negative_result_is_an_error_and_the_extreme_does_not_panic() {
        assert_eq!(Errno::decode(7), Ok(7));
        assert_eq!(Errno::decode(-libc::EIO), Err(Errno(libc::EIO)));
        assert!(Errno::decode(i32::MIN).is_err());
    }

    #[test]
    fn enoent_of_a_cancel_is_not_a_missing_file() {
        assert_eq!(kind_of(Opcode::Cancel, Errno(libc::ENOENT)), ErrorKind::NothingToCancel);
        assert_eq!(kind_of(Opcode::Open, Errno(libc::ENOENT)), ErrorKind::NotFound);
    }

    /// Every number that accept(2) names. With EPERM or ENOBUFS among the rest a server ended.
    #[test]
    fn each_error_of_an_accept_is_sorted() {
        use AcceptFailure::{Connection, Exhausted, Listener};
        for (errno, sorted) in [
            // "Errors".
            (libc::EAGAIN, Exhausted),
            (libc::EWOULDBLOCK, Exhausted),
            (libc::EBADF, Listener),
            (libc::ECONNABORTED, Connection),
            (libc::EFAULT, Listener),
            (libc::EINTR, Connection),
            (libc::EINVAL, Listener),
            (libc::EMFILE, Exhausted),
            (libc::ENFILE, Exhausted),
            (libc::ENOBUFS, Exhausted),
            (libc::ENOMEM, Exhausted),
            (libc::ENOTSOCK, Listener),
            (libc::EOPNOTSUPP, Listener),
            (libc::EPERM, Exhausted),
            (libc::EPROTO, Connection),
            // "Other Linux kernels".
            (libc::ENOSR, Exhausted),
            (libc::ESOCKTNOSUPPORT, Listener),
            (libc::EPROTONOSUPPORT, Listener),
            (libc::ETIMEDOUT, Connection),
            // "Error handling", but for those above.
            (libc::ENETDOWN, Connection),
            (libc::ENOPROTOOPT, Connection),
            (libc::EHOSTDOWN, Connection),
            (libc::ENONET, Connection),
            (libc::EHOSTUNREACH, Connection),
            (libc::ENETUNREACH, Connection),
        ] {
            let error = Error::new(Opcode::Accept, Errno(errno));
            assert_eq!(error.accept_failure(), sorted, "{error}");
        }
    }

    #[test]
    fn a_message_is_one_line() {
        let told = |path: &str| {
            let mut error = Error::new(Opcode::Open, Errno(libc::ENOENT));
            error.0.path = Some(PathBuf::from(path));
            error.to_string()
        };
        assert!(told("/a b").starts_with("open /a b: "));
        assert!(told("/a\nb").starts_with("open \"/a\\nb\": "), "{}", told("/a\nb"));
    }

    #[test]
    fn the_standard_kind_survives_the_conversion() {
        for (opcode, errno, kind, standard) in [
            (Opcode::Open, libc::ENOENT, ErrorKind::NotFound, io::ErrorKind::NotFound),
            (Opcode::Read, libc::ENODATA, ErrorKind::UnexpectedEof, io::ErrorKind::UnexpectedEof),
            (Opcode::Read, libc::ETIME, ErrorKind::TimedOut, io::ErrorKind::TimedOut),
            (Opcode::Read, libc::ECANCELED, ErrorKind::Cancelled, io::ErrorKind::Other),
            (
                Opcode::Connect,
                libc::ECONNREFUSED,
                ErrorKind::ConnectionRefused,
                io::ErrorKind::ConnectionRefused,
            ),
            (Opcode::Send, libc::EPIPE, ErrorKind::BrokenPipe, io::ErrorKind::BrokenPipe),
        ] {
            let error = Error::new(opcode, Errno(errno));
            assert_eq!((error.kind(), io::Error::from(error).kind()), (kind, standard));
        }
    }
}
