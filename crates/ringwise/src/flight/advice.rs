//! Errors that know their operation: what it worked on, and what to do if it was not taken at all.

use crate::{
    descriptor::{Blocking, Target},
    error::{Errno, Error, OFFSET_MAX, moves_bytes},
    flight::refusal::{PushError, PushRefusal},
    op::{Closing, Kind, Opcode, Operation},
};

impl Error {
    /// An error with the path or descriptor, and the offset, that `operation` was working on.
    pub(crate) fn of(operation: &Operation, errno: Errno) -> Error {
        let mut error = Error::new(operation.opcode(), errno);
        error.0.path = operation.path();
        error.0.descriptor = operation.descriptor();
        error.0.offset = operation.offset();
        error.0.advice = advice_on(operation, errno).or(error.0.advice);
        error
    }

    /// The same, of an operation that no backend was given.
    pub(crate) fn refused(operation: &Operation, errno: Errno) -> Error {
        let error = Error::of(operation, errno);
        if errno.0 == libc::EACCES { error.advise(FORBIDDEN) } else { error }
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
}

/// The loop refuses nothing else with this number.
const FORBIDDEN: &str = "the loop was built not to make it (Builder::restrict, data_only, seal)";

const NOT_REGISTERED: &str =
    "it is not registered with this ring, or no longer, or was opened for the other direction";

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
        (libc::EINVAL, kind) if kind.is_unaddressable() => {
            Some("no socket can have this address: a path has at most 108 bytes")
        }
        (libc::EFAULT, kind) if kind.reads_into_constant() => {
            Some("a static buffer cannot be read into")
        }
        (libc::EOPNOTSUPP, _) if !operation.completes_once() => {
            Some("it has several completions, or none: push it to a Local")
        }
        (libc::EBUSY, Kind::Close(_)) => Some("a clone or an operation in flight still holds it"),
        (libc::EBADF, Kind::Close(Closing::Registered(_))) => Some(NOT_REGISTERED),
        (libc::EBADF, _) if matches!(operation.target(), Some(Target::Registered(_))) => {
            Some(NOT_REGISTERED)
        }
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
