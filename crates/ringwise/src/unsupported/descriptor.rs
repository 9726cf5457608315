//! Descriptors, which hold a file open and give it back.

use std::{fs::File, sync::Arc};

#[path = "../descriptor/target.rs"]
mod target;

pub use target::{RegisteredFile, Target};

/// An open file.
#[derive(Clone, Debug)]
pub struct Descriptor(Arc<File>);

impl Descriptor {
    /// The file, if nothing else holds it.
    ///
    /// # Errors
    ///
    /// The descriptor itself, when a clone holds it too.
    pub fn into_file(self) -> Result<File, Descriptor> {
        Arc::try_unwrap(self.0).map_err(Descriptor)
    }
}

impl From<File> for Descriptor {
    fn from(file: File) -> Descriptor {
        Descriptor(Arc::new(file))
    }
}

#[cfg(unix)]
impl From<std::os::fd::OwnedFd> for Descriptor {
    fn from(descriptor: std::os::fd::OwnedFd) -> Descriptor {
        Descriptor::from(File::from(descriptor))
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for Descriptor {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}
