//! The number of an error.

use std::{fmt, io};

/// A kernel error number, positive, as in `errno(3)`.
///
/// # Examples
///
/// ```
/// use ringwise::{Errno, FallbackReason};
///
/// let errno = Errno::from_raw(1);
/// assert_eq!(errno.to_string(), "Operation not permitted (os error 1)");
/// let reason = FallbackReason::Refused(errno);
/// assert!(reason.to_string().contains("seccomp"));
/// ```
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
