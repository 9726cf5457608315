//! The file that an operation works on: a descriptor, or an entry of a loop's table.
//!
//! Neither makes a syscall, so this file is compiled on every target.

use super::Descriptor;

/// A file in one loop's registered table: cheaper for each operation than a [`Descriptor`], since
/// the kernel need not look it up and count a reference.
///
/// It is a plain name that may be copied. The name ends with
/// [`Local::unregister_file`](crate::Local::unregister_file) or with the loop. If it is used after that, or
/// with another loop, the push fails with `EBADF`; the name never reaches another file.
///
/// # Examples
///
/// ```
/// use ringwise::{Descriptor, Local, Operation};
///
/// let mut local = Local::new()?;
/// let file = Descriptor::from(std::fs::File::open("/proc/self/comm")?);
/// let registered = local.register_file(&file)?;
/// let read = local.run(Operation::read_at(registered, vec![0; 64], 0))?;
/// assert!(read.result()? > 0);
/// local.unregister_file(registered)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegisteredFile {
    pub(crate) table: u32,
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The file that an operation works on.
///
/// # Examples
///
/// ```
/// use ringwise::{Descriptor, Local, Operation, Target};
///
/// let mut local = Local::new()?;
/// let file = Descriptor::from(std::fs::File::open("/proc/self/comm")?);
/// let target = match local.register_file(&file) {
///     Ok(registered) => Target::from(registered),
///     Err(_) => Target::from(file), // the table has no free entry
/// };
/// let read = local.run(Operation::read_at(target, vec![0; 64], 0))?;
/// assert!(read.result()? > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Target {
    /// An ordinary descriptor.
    Descriptor(Descriptor),
    /// An entry of the loop's registered table.
    Registered(RegisteredFile),
}

impl From<Descriptor> for Target {
    fn from(descriptor: Descriptor) -> Target {
        Target::Descriptor(descriptor)
    }
}

impl From<&Descriptor> for Target {
    fn from(descriptor: &Descriptor) -> Target {
        Target::Descriptor(descriptor.clone())
    }
}

impl From<RegisteredFile> for Target {
    fn from(file: RegisteredFile) -> Target {
        Target::Registered(file)
    }
}

impl From<&RegisteredFile> for Target {
    fn from(file: &RegisteredFile) -> Target {
        Target::Registered(*file)
    }
}
