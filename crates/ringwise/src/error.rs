//! Errors: what failed, on what, with the kernel's own number, and what to do about it.
//!
//! `-errno` is decoded here and nowhere else. A number that this file does not know is kept as
//! it came ([`ErrorKind::Other`]); it is never swallowed and never guessed. A short read or write
//! is not an error: [`Completion::result`](crate::Completion::result) tells the count.

use std::{
    fmt, io,
    os::fd::RawFd,
    path::{Path, PathBuf},
};

use crate::{
    backend::Blocking,
    descriptor::Target,
    net::Address,
    op::{Kind, Opcode, Operation},
};

/// The largest offset of a file (`loff_t` is signed).
pub(crate) const OFFSET_MAX: u64 = i64::MAX as u64;

/// A kernel error number, positive, as in `errno(3)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub(crate) i32);

impl Errno {
    /// The error of this number, as in `<errno.h>`; positive, and kept as it is.
    pub fn from_raw(errno: i32) -> Errno {
        Errno(errno)
    }

    /// Decodes what a completion or a raw call returns: a count, or a negated error number.
    pub(crate) fn decode(result: i32) -> Result<usize, Errno> {
        if result >= 0 { Ok(result as usize) } else { Err(Errno(result.wrapping_neg())) }
    }

    /// The error number of the call that this thread made last. Only for use straight after it.
    pub(crate) fn last() -> Errno {
        Errno(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// The number itself, as in `<errno.h>`.
    pub fn raw(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The standard library appends " (os error N)"; the number is worth keeping.
        write!(f, "{}", io::Error::from_raw_os_error(self.0))
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {self})", self.0)
    }
}

/// What an error means to a program that has to decide what to do next.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The path or a directory on the way to it does not exist (`ENOENT`, `ENOTDIR`).
    NotFound,
    /// The name exists already (`EEXIST`, `ENOTEMPTY`).
    AlreadyExists,
    /// Not permitted (`EPERM`, `EACCES`, `EROFS`).
    PermissionDenied,
    /// The descriptor is closed, was opened for the other direction, or names an empty
    /// registered slot (`EBADF`).
    BadDescriptor,
    /// An argument the kernel does not take; on a direct file most often an unaligned offset,
    /// length or buffer (`EINVAL`).
    InvalidInput,
    /// No room: the file system, a quota or a file size limit (`ENOSPC`, `EDQUOT`, `EFBIG`).
    NoSpace,
    /// No memory, or a locked-memory limit (`ENOMEM`).
    OutOfMemory,
    /// Too many open descriptors (`EMFILE`, `ENFILE`).
    TooManyDescriptors,
    /// Cancelled before it took effect (`ECANCELED`).
    Cancelled,
    /// A cancel found nothing to cancel: the operation had completed (`ENOENT` of a cancel).
    NothingToCancel,
    /// A cancel came too late: the operation is running and cannot be stopped (`EALREADY`).
    TooLateToCancel,
    /// Time ran out (`ETIME`, `ETIMEDOUT`).
    TimedOut,
    /// A signal ended the call before it did anything (`EINTR`).
    Interrupted,
    /// The kernel, file system or device cannot do this (`EOPNOTSUPP`, `ENOSYS`).
    Unsupported,
    /// The resource is busy or the descriptor is still shared (`EBUSY`, `EAGAIN`).
    Busy,
    /// The device or a lower layer failed (`EIO`).
    Io,
    /// The file ended before the buffer was full (`ENODATA` of a read).
    UnexpectedEof,
    /// The ring was shut down (`ESHUTDOWN`).
    ShutDown,
    /// Nobody listens there (`ECONNREFUSED`).
    ConnectionRefused,
    /// The peer ended the connection with bytes under way (`ECONNRESET`, `ECONNABORTED`).
    ConnectionReset,
    /// Nobody reads what is written (`EPIPE`).
    BrokenPipe,
    /// Another socket has the address (`EADDRINUSE`).
    AddressInUse,
    /// The address is none of this machine's, or no port is left for it (`EADDRNOTAVAIL`).
    AddressNotAvailable,
    /// Anything else: look at [`Error::errno`].
    Other,
}

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
pub struct Error(Box<Detail>);

#[derive(Clone, PartialEq, Eq)]
struct Detail {
    errno: Errno,
    opcode: Opcode,
    path: Option<PathBuf>,
    descriptor: Option<RawFd>,
    offset: Option<u64>,
    advice: Option<&'static str>,
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

    /// An error with the path or descriptor, and the offset, that `operation` was working on.
    pub(crate) fn of(operation: &Operation, errno: Errno) -> Error {
        let mut error = Error::new(operation.opcode(), errno);
        error.0.path = operation.path();
        error.0.descriptor = operation.descriptor();
        error.0.offset = operation.offset();
        error.0.advice = advice_on(operation, errno).or(error.0.advice);
        error
    }

    /// The same error with advice that fits better than the number's own.
    pub(crate) fn advise(mut self, advice: &'static str) -> Error {
        self.0.advice = Some(advice);
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

/// What a failed accept says of the listener.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptFailure {
    /// One connection failed before it was accepted. Accept the next one.
    Connection,
    /// The process or the kernel is short of descriptors or memory. The listener works again when some
    /// are free: wait a moment, and accept again.
    Exhausted,
    /// The listener itself does not work.
    Listener,
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
    pub(crate) fn of(errno: i32) -> AcceptFailure {
        match errno {
            libc::ECONNABORTED
            | libc::EPROTO
            | libc::ENOPROTOOPT
            | libc::ENETDOWN
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::EHOSTUNREACH
            | libc::ENONET
            | libc::EPERM => AcceptFailure::Connection,
            libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM => AcceptFailure::Exhausted,
            _ => AcceptFailure::Listener,
        }
    }
}

/// Why an operation was not taken; the operation comes back unharmed.
#[derive(Debug)]
#[non_exhaustive]
pub struct PushError {
    /// The operation with everything it owns.
    pub operation: Operation,
    /// What stood in the way.
    pub reason: PushRefusal,
}

/// What stood in the way of a push.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum PushRefusal {
    /// As many operations are in flight as the completion queue can hold: take completions first.
    Full,
    /// The operation cannot be handed over as it is (a registered file of another loop, a
    /// descriptor that is still shared, an opcode that needs what the file does not have).
    Rejected(Error),
    /// The queue was full and the kernel did not take its entries: submit again later.
    Submit(Error),
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            PushRefusal::Full => write!(
                f,
                "{}: as many operations are in flight as the loop holds; take completions first",
                self.operation.opcode()
            ),
            PushRefusal::Rejected(error) | PushRefusal::Submit(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for PushError {}

/// Why a chain was not taken; its operations come back unharmed.
#[derive(Debug)]
#[non_exhaustive]
pub struct LinkError {
    /// The operations with everything they own, and their tags.
    pub operations: Vec<(Operation, u64)>,
    /// Which of them cannot be handed over, where it is one that was rejected.
    pub place: usize,
    /// What stood in the way.
    pub reason: PushRefusal,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            PushRefusal::Full => write!(
                f,
                "too many operations are in flight for a chain of {}; take completions first",
                self.operations.len()
            ),
            PushRefusal::Rejected(error) | PushRefusal::Submit(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for LinkError {}

impl LinkError {
    /// Whether taking completions makes room for this chain.
    pub fn is_full(&self) -> bool {
        matches!(self.reason, PushRefusal::Full)
    }
}

impl PushRefusal {
    /// What stood in the way of an operation that has its slot.
    pub(crate) fn into_error(self) -> Error {
        match self {
            PushRefusal::Rejected(error) | PushRefusal::Submit(error) => error,
            PushRefusal::Full => Error::new(Opcode::Submit, Errno(libc::EBUSY)),
        }
    }
}

impl PushError {
    /// The reason as an error of the operation, which is dropped.
    pub(crate) fn into_error(self) -> Error {
        match self.reason {
            PushRefusal::Rejected(error) | PushRefusal::Submit(error) => error,
            PushRefusal::Full => Error::of(&self.operation, Errno(libc::EBUSY))
                .advise("as many operations are in flight as the loop holds: take completions"),
        }
    }

    /// Whether taking completions makes room for this operation.
    pub fn is_full(&self) -> bool {
        matches!(self.reason, PushRefusal::Full)
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

/// What only the operation itself tells, and its number does not: what a loop refuses is told alike
/// where the refusal comes as a completion.
fn advice_on(operation: &Operation, errno: Errno) -> Option<&'static str> {
    match (errno.0, operation.0.as_deref()?) {
        (libc::EINVAL, Kind::Unrepresentable(_)) => Some("the path has a NUL byte"),
        (libc::EINVAL | libc::EFBIG, _)
            if operation.end_offset().is_some_and(|end| end > OFFSET_MAX) =>
        {
            Some("offsets of files are below 2^63")
        }
        (libc::EINVAL, _) if moves_bytes(operation.opcode()) => advice_on_file(operation.target()),
        (libc::EFAULT, Kind::Read { buffer, .. }) if !buffer.is_writable() => {
            Some("a static buffer cannot be read into")
        }
        (libc::EOPNOTSUPP, _) if !operation.completes_once() => {
            Some("it has several completions, or none: push it to a Local")
        }
        (libc::EBUSY, Kind::Close(_)) => Some("a clone or an operation in flight still holds it"),
        (libc::EBADF, _) if matches!(operation.target(), Some(Target::Registered(_))) => Some(
            "it is not registered with this ring, or no longer, or was opened for the other \
             direction",
        ),
        _ => None,
    }
}

/// Of an argument that a read or a write does not take.
fn advice_on_file(file: Option<&Target>) -> Option<&'static str> {
    match file {
        Some(Target::Descriptor(file)) if file.blocking() == Blocking::Cached => None,
        // A simulated machine's, or a descriptor that is no file.
        Some(Target::Descriptor(file)) if file.blocking() != Blocking::Device => Some(
            "a simulated machine's file is for its own rings; on a direct file the offset, the \
             length and the buffer must be aligned (see Metadata::direct_alignment)",
        ),
        _ => Some(
            "on a direct file the offset, the length and the buffer must be aligned \
             (see Metadata::direct_alignment)",
        ),
    }
}

fn moves_bytes(opcode: Opcode) -> bool {
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
