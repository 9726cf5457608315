//! Descriptors: who may close one, and when.
//!
//! A [`Descriptor`] is shared by reference count between its users and the operations in flight
//! on it, so the number is closed once, after the last of them (invariant 14). A
//! [`RegisteredFile`] names an entry of one loop's registered table; it is a name, not an owner,
//! and carries a generation so that an entry used again is not mistaken for the old one.

pub(crate) mod closing;
pub(crate) mod registry;
mod target;

use std::{
    fs::File,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

pub use target::{RegisteredFile, Target};

use closing::Notice;

/// An open file, shared between its users and the operations in flight on it.
///
/// The descriptor is closed when the last clone and the last operation are gone. Such a close cannot
/// report an error. If a late error matters (NFS, CIFS, FUSE), sync the file first or use
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

/// How a file behaves, where a backend has to know before it makes a call that may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// Ends by itself, and a read of cached data does not wait: a file read through the cache.
    Cached,
    /// The same, where the cache was asked in vain or is not to be asked: a thread is to make the call.
    Missed,
    /// Ends by itself after a device was asked.
    Device,
    /// May wait without end: a pipe, a terminal.
    Unbounded,
    /// May wait without end, and can be asked not to call by call. `serial` is its descriptor's
    /// own: the number is another socket's after it closed.
    Socket { serial: u64 },
}

impl Blocking {
    /// Of a call that is given to a ring: whether it is to be made beside it. Of what the ring makes it
    /// is not looked up how its file behaves.
    #[inline]
    pub(crate) fn is_beside(self) -> bool {
        self != Blocking::Device
    }
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
