//! What an error means to a program. It knows no number: `error.rs` sorts those.

/// What an error means to a program that has to decide what to do next.
///
/// # Examples
///
/// ```
/// use ringwise::{ErrorKind, Ring, fs};
///
/// # futures::executor::block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("settings");
/// let ring = Ring::new()?;
/// let settings = match fs::read(&ring, &path).await {
///     Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
///     read => read?,
/// };
/// assert!(settings.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The path or a directory on the way to it does not exist (`ENOENT`, `ENOTDIR`).
    NotFound,
    /// The name exists already (`EEXIST`), or a directory is not empty (`ENOTEMPTY`).
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
    /// What is stored is not what was written (`EBADMSG`, `EUCLEAN`).
    Corrupt,
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
    /// Anything else: look at [`Error::errno`](crate::Error::errno).
    Other,
}

/// What a failed accept says of the listener.
///
/// # Examples
///
/// ```
/// use ringwise::{AcceptFailure, Local, Operation, net};
///
/// let socket = net::unix_socket()?; // it does not listen
/// let accepted = Local::new()?.run(Operation::accept(&socket))?;
/// let error = accepted.into_descriptor().unwrap_err();
/// assert_eq!(error.accept_failure(), AcceptFailure::Listener);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptFailure {
    /// One connection failed before it was accepted, or a signal interrupted the accept. Accept the
    /// next one.
    Connection,
    /// The process or the kernel is short of descriptors or memory, a rule of the machine forbids the accept
    /// (`EPERM`), or no connection waits at a listener with `O_NONBLOCK`. The listener may work again after a
    /// while: wait a moment, and accept again.
    Exhausted,
    /// The listener itself does not work.
    Listener,
}
