//! Descriptors: who may close one, and when.
//!
//! A [`Descriptor`] is shared by reference count between its users and the operations in flight
//! on it, so the number is closed once, after the last of them (invariant 14). A
//! [`RegisteredFile`] names an entry of one loop's registered table; it is a name, not an owner,
//! and carries a generation so that an entry used again is not mistaken for the old one.

pub(crate) mod closing;

use std::{
    fs::File,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use crate::{backend::Blocking, descriptor::closing::Notice};

/// An open file, shared between its users and the operations in flight on it.
///
/// The descriptor is closed when the last clone and the last operation are gone. Closing in this
/// way cannot report an error; where a late error matters (NFS, CIFS, FUSE), sync first or use
/// [`Operation::close`](crate::Operation::close).
///
/// # Examples
///
/// ```
/// use ringwise::Descriptor;
///
/// let file = Descriptor::from(std::fs::File::open("/proc/self/stat")?);
/// let again = file.clone();
/// assert!(file.into_file().is_err(), "the clone still holds it");
/// assert!(again.into_file().is_ok());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Descriptor(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    fd: OwnedFd,
    /// How a call on it may block, or `UNKNOWN`.
    nature: AtomicU8,
    /// No other descriptor of this process has it, whatever number is used again.
    serial: u64,
    /// Dropped after the descriptor.
    _notice: Notice,
}

const UNKNOWN: u8 = 0;
const CACHED: u8 = 1;
const DEVICE: u8 = 2;
const UNBOUNDED: u8 = 3;
const SOCKET: u8 = 4;

impl Descriptor {
    /// Gives the file back for use with the standard library, if nobody else holds it and no
    /// operation is in flight on it.
    ///
    /// # Errors
    ///
    /// The descriptor itself, when it is still shared.
    pub fn into_file(self) -> Result<File, Descriptor> {
        self.into_owned().map(File::from)
    }

    /// As [`into_file`](Self::into_file), for any kind of descriptor.
    ///
    /// # Errors
    ///
    /// The descriptor itself, when it is still shared.
    pub fn into_owned(self) -> Result<OwnedFd, Descriptor> {
        Arc::try_unwrap(self.0).map(|shared| shared.fd).map_err(Descriptor)
    }

    /// How a call on this file may block. Looked up once: a file does not change its kind, and
    /// direct I/O is chosen when it is opened.
    pub(crate) fn blocking(&self) -> Blocking {
        let mut nature = self.0.nature.load(Ordering::Relaxed);
        if nature == UNKNOWN {
            nature = self.look_up_nature();
            self.0.nature.store(nature, Ordering::Relaxed);
        }
        match nature {
            CACHED => Blocking::Cached,
            DEVICE => Blocking::Device,
            UNBOUNDED => Blocking::Unbounded,
            _ => Blocking::Socket { serial: self.0.serial },
        }
    }

    fn look_up_nature(&self) -> u8 {
        use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
        let Ok(stat) = fstat(&self.0.fd) else { return DEVICE };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => match fcntl_getfl(&self.0.fd) {
                Ok(flags) if !flags.contains(OFlags::DIRECT) => CACHED,
                _ => DEVICE,
            },
            FileType::Directory | FileType::BlockDevice => DEVICE,
            FileType::Socket => SOCKET,
            _ => UNBOUNDED,
        }
    }

    /// Of a descriptor that is known to be a socket.
    pub(crate) fn of_socket(fd: OwnedFd) -> Descriptor {
        Descriptor::with_nature(fd, SOCKET)
    }

    fn with_nature(fd: OwnedFd, nature: u8) -> Descriptor {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let nature = AtomicU8::new(nature);
        Descriptor(Arc::new(Shared { fd, nature, serial, _notice: Notice }))
    }
}

impl From<OwnedFd> for Descriptor {
    fn from(fd: OwnedFd) -> Descriptor {
        Descriptor::with_nature(fd, UNKNOWN)
    }
}

impl From<File> for Descriptor {
    fn from(file: File) -> Descriptor {
        Descriptor::from(OwnedFd::from(file))
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd.as_raw_fd()
    }
}

/// A file in one loop's registered table: cheaper for each operation than a [`Descriptor`], since
/// the kernel need not look it up and count a reference.
///
/// A plain name that may be copied; it ends with
/// [`Local::unregister_file`](crate::Local::unregister_file) or with the loop. Used after that, or
/// with another loop, it is refused with `EBADF` and reaches no other file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegisteredFile {
    pub(crate) table: u32,
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The file that an operation works on.
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
