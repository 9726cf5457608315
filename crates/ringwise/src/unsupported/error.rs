//! Errors of a target where nothing is supported.

use std::{fmt, io, path::Path};

#[path = "../error/errno.rs"]
#[allow(dead_code)]
mod errno;
#[path = "../error/kind.rs"]
mod kind;

pub use errno::Errno;
pub use kind::{AcceptFailure, ErrorKind};

use crate::op::Opcode;

/// What no value has.
#[derive(Clone, Copy, Debug)]
pub enum Never {}

/// An operation that failed, because this target supports none.
#[derive(Clone)]
pub struct Error(Opcode);

impl Error {
    pub(crate) fn new(opcode: Opcode) -> Error {
        Error(opcode)
    }

    /// The error number: `ENOSYS`.
    pub fn errno(&self) -> i32 {
        libc::ENOSYS
    }

    /// Always [`ErrorKind::Unsupported`].
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Unsupported
    }

    /// The operation that failed.
    pub fn opcode(&self) -> Opcode {
        self.0
    }

    /// Nothing.
    pub fn path(&self) -> Option<&Path> {
        None
    }

    /// Nothing.
    pub fn descriptor(&self) -> Option<i32> {
        None
    }

    /// Nothing.
    pub fn offset(&self) -> Option<u64> {
        None
    }

    /// Always [`AcceptFailure::Listener`].
    pub fn accept_failure(&self) -> AcceptFailure {
        AcceptFailure::Listener
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ringwise needs a 64-bit Linux", self.0)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}: {self})", self.kind())
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(io::ErrorKind::Unsupported, error)
    }
}
