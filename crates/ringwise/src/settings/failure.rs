//! Why a loop does not run on a ring, or was not built at all, and what a user can do about it.

use std::{fmt, io};

use crate::error::Errno;

/// Why a loop does not run on a ring.
///
/// # Examples
///
/// ```
/// use ringwise::{FallbackReason, Local};
///
/// let local = Local::new()?;
/// match local.setup().fallback() {
///     Some(FallbackReason::Refused(errno)) => println!("no ring: error {}", errno.raw()),
///     Some(reason) => println!("no ring: {reason}"),
///     None => println!("on a ring"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FallbackReason {
    /// The caller chose classic calls.
    Chosen,
    /// The kernel refused to set a ring up.
    Refused(Errno),
    /// The ring lacks what the library relies on (Linux 5.11 has it all).
    Lacks(&'static str),
    /// The ring opened, and a real operation through it went wrong.
    SelfTest(String),
    /// The kernel did not restrict the ring as the builder asked, so the ring is not used.
    Unrestricted(Errno),
}

impl fmt::Display for FallbackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FallbackReason::Chosen => f.write_str("classic calls were chosen"),
            FallbackReason::Refused(errno) => {
                write!(f, "io_uring_setup: {errno}")?;
                match setup_advice(*errno) {
                    Some(advice) => write!(f, "; {advice}"),
                    None => Ok(()),
                }
            }
            FallbackReason::Lacks(feature) => {
                write!(f, "the kernel's io_uring lacks {feature}; Linux 5.11 or later has it")
            }
            FallbackReason::SelfTest(what) => {
                write!(f, "a ring opened but does not work: {what}")
            }
            FallbackReason::Unrestricted(errno) => write!(
                f,
                "the kernel did not restrict the ring: io_uring_register: {errno}; allow \
                 IORING_REGISTER_RESTRICTIONS and IORING_REGISTER_ENABLE_RINGS in the seccomp filter"
            ),
        }
    }
}

/// What a user can do about a refused setup.
fn setup_advice(errno: Errno) -> Option<&'static str> {
    Some(match errno.raw() {
        libc::EPERM | libc::EACCES => {
            "forbidden by a seccomp filter (containers do by default), by a security module, or by \
             kernel.io_uring_disabled: allow io_uring_setup, io_uring_enter and io_uring_register"
        }
        libc::ENOSYS => {
            "the kernel has no io_uring, or a seccomp filter or emulated kernel hides it"
        }
        libc::ENOMEM => "raise the locked-memory limit (ulimit -l) or ask for fewer entries",
        libc::EMFILE | libc::ENFILE => "raise the limit on open files (ulimit -n)",
        _ => return None,
    })
}

/// A loop that could not be built.
///
/// # Examples
///
/// ```
/// use ringwise::{Local, SetupError};
///
/// let refused = Local::builder().entries(0).build();
/// assert!(matches!(refused, Err(SetupError::Entries(0))));
/// ```
#[non_exhaustive]
#[derive(Debug)]
pub enum SetupError {
    /// A ring was demanded and is not to be had.
    NoRing(FallbackReason),
    /// The number of entries is not between 1 and 32768.
    Entries(u32),
    /// The classic backend could not make its wake-up descriptor.
    Classic(io::Error),
    /// The driver of a [`Ring`](crate::Ring) could not be started.
    Driver(io::Error),
    /// The target is not a 64-bit Linux.
    Unsupported,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::NoRing(reason) => write!(f, "no io_uring: {reason}"),
            SetupError::Entries(entries) => {
                write!(f, "{entries} submission entries: a ring has 1 to 32768")
            }
            SetupError::Classic(error) => write!(f, "classic backend: eventfd: {error}"),
            SetupError::Driver(error) => write!(f, "the driver of a ring: {error}"),
            SetupError::Unsupported => f.write_str("ringwise needs a 64-bit Linux"),
        }?;
        let (SetupError::Classic(error) | SetupError::Driver(error)) = self else { return Ok(()) };
        f.write_str(match error.raw_os_error() {
            Some(libc::EMFILE) => "; raise the limit on open files (ulimit -n) or close some",
            Some(libc::EAGAIN) => "; raise the limit of processes (ulimit -u, TasksMax=)",
            _ => "",
        })
    }
}

impl std::error::Error for SetupError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        let text = FallbackReason::Refused(Errno(libc::EPERM)).to_string();
        assert!(text.contains("seccomp") && text.contains("kernel.io_uring_disabled"), "{text}");
        let of = |errno| SetupError::Driver(io::Error::from_raw_os_error(errno)).to_string();
        assert!(
            of(libc::EAGAIN).ends_with("; raise the limit of processes (ulimit -u, TasksMax=)")
        );
        assert!(of(libc::EMFILE).contains("ulimit -n") && !of(libc::ENOMEM).contains(';'));
    }
}
