//! The error of a loop that ended before the kernel had given everything back.

use std::fmt;

/// Operations that the kernel did not give back in time. Their memory is leaked.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ringwise::Local;
///
/// let local = Local::new()?;
/// if let Err(leaked) = local.shutdown(Duration::from_secs(5)) {
///     eprintln!("a device does not answer {} operations", leaked.operations);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leaked {
    /// How many operations.
    pub operations: usize,
}

impl fmt::Display for Leaked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations were still with the kernel at the deadline; their buffers and \
             descriptors are leaked, since it may yet write to them",
            self.operations
        )
    }
}

impl std::error::Error for Leaked {}
