//! Errors, as `object_store` names them.

use std::{error::Error as StdError, fmt, io};

use object_store::{Error, path::Path};

/// The store's name in errors.
pub(crate) const STORE: &str = "RingFileSystem";

/// An error that `object_store` has no name for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The operating system refused.
    Os { location: String, source: io::Error },
    /// A range that the object does not have.
    Range { location: String, start: u64, end: u64, size: u64 },
    /// A buffer for a read does not fit into memory.
    Memory { location: String, bytes: u64 },
    /// An upload was completed before all of its parts were written.
    Incomplete { location: String },
    /// An upload was used after its end.
    Over { location: String },
    /// Others rename directories of the store all the time.
    Unsettled { location: String, source: io::Error },
    /// An object would have to be a directory.
    BelowObject { location: String, source: io::Error },
    /// Direct reads on a file system that has none.
    NotDirect { location: String },
    /// The runtime was shut down.
    RuntimeEnded,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Os { location, source } => write!(f, "{location}: {source}"),
            Failure::Range { location, start, end, size } => {
                write!(f, "{location}: range {start}..{end} of an object of {size} bytes")
            }
            Failure::Memory { location, bytes } => {
                write!(f, "{location}: no memory for {bytes} bytes; read smaller ranges")
            }
            Failure::Incomplete { location } => {
                write!(f, "{location}: a part was not written; the upload was removed")
            }
            Failure::Over { location } => {
                write!(f, "{location}: the upload has ended before")
            }
            Failure::Unsettled { location, .. } => {
                write!(f, "{location}: directories above it are renamed all the time; try again")
            }
            Failure::BelowObject { location, .. } => {
                write!(f, "{location}: a part of the path is an object and no directory")
            }
            Failure::NotDirect { location } => {
                write!(
                    f,
                    "{location}: its file system has no direct reads of blocks of 4096 bytes; use with_direct_reads(false)"
                )
            }
            Failure::RuntimeEnded => f.write_str("the tokio runtime was shut down"),
        }
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Failure::Os { source, .. }
            | Failure::Unsettled { source, .. }
            | Failure::BelowObject { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::Generic { store: STORE, source: Box::new(failure) }
    }
}

/// The error for a syscall that failed on an object.
pub(crate) fn failed(location: &Path, error: impl Into<io::Error>) -> Error {
    let error = error.into();
    let path = location.to_string();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Error::NotFound { path, source: error.into() }
        }
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: error.into() },
        io::ErrorKind::PermissionDenied => Error::PermissionDenied { path, source: error.into() },
        // Of openat2(2) with RESOLVE_BENEATH. Renames and links across file systems do not come here: `change.rs`
        // makes a copy then.
        io::ErrorKind::CrossesDevices => Error::PermissionDenied {
            path,
            source: "a symbolic link leads out of the store, or is absolute".into(),
        },
        // Of openat2(2) too (`root.rs`).
        io::ErrorKind::WouldBlock => Failure::Unsettled { location: path, source: error }.into(),
        _ => Failure::Os { location: path, source: error }.into(),
    }
}

/// The error for a file or a name that could not be made. There is no object that could be missing.
pub(crate) fn not_made(location: &Path, error: impl Into<io::Error>) -> Error {
    let source = error.into();
    let path = location.to_string();
    match source.kind() {
        io::ErrorKind::NotADirectory => Failure::BelowObject { location: path, source }.into(),
        io::ErrorKind::NotFound => Failure::Os { location: path, source }.into(),
        _ => failed(location, source),
    }
}

/// The error for a location where there is something else than an object.
pub(crate) fn not_an_object(location: &Path) -> Error {
    Error::NotFound { path: location.to_string(), source: "not a regular file".into() }
}

/// The error for an object that changed while it was read.
pub(crate) fn changed(location: &Path) -> Error {
    Error::Precondition {
        path: location.to_string(),
        source: "the object was changed while it was read".into(),
    }
}
