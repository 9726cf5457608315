//! Files that cannot be opened, since that needs a ring.

use std::{
    ffi::OsString,
    fs::Permissions,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    buf::{BufResult, Buffer, OwnedBuffer, OwnedBufferMut},
    error::Error,
    op::{FileType, Metadata},
    ring::Ring,
};
use crate::{
    descriptor::Descriptor,
    op::{AllocateMode, OpenOptions},
};

// Nothing is reached behind a call of a file that has no value.
#[allow(unused_variables)]
#[path = "../fs/chunks.rs"]
mod chunks;
#[allow(unused_variables)]
#[path = "../fs/cursor.rs"]
mod cursor;
#[cfg(feature = "futures-io")]
#[path = "../fs/futures_io.rs"]
mod futures_io;
#[cfg(feature = "tokio")]
#[path = "../fs/tokio.rs"]
mod tokio;

mod file {
    //! Where the modules above find the file.
    use std::ops::Range;

    use super::super::error::Error;
    pub(super) use super::File;

    // By their signatures, for a cursor.
    #[allow(unused_variables)]
    impl File {
        pub(super) fn has_positions(&self) -> bool {
            match self.0 {}
        }

        pub(super) fn has_abandoned(&self) -> bool {
            match self.0 {}
        }

        pub(super) async fn settle_at(&self, range: Range<u64>) -> Result<(), Error> {
            match self.0 {}
        }
    }
}

pub use chunks::Chunks;
pub use cursor::Cursor;

absent! {
    File [Clone] {
        self [fn with_deadline(&self, after: Duration) -> File]
        self [fn into_std(self) -> Result<std::fs::File, File>]
        self [fn descriptor(&self) -> &Descriptor]
        self [fn ring(&self) -> &Ring]
        self [async fn read_at<B: OwnedBufferMut>(&self, buffer: B, offset: u64) -> BufResult<usize, B>]
        self [async fn read_exact_at<B: OwnedBufferMut>(&self, buffer: B, offset: u64) -> BufResult<(), B>]
        self [async fn read_to_end(&self) -> Result<Vec<u8>, Error>]
        self [async fn read_vectored_at<B: OwnedBufferMut>(&self, buffers: Vec<B>, offset: u64) -> BufResult<usize, Vec<B>>]
        self [async fn write_at<B: OwnedBuffer>(&self, buffer: B, offset: u64) -> BufResult<usize, B>]
        self [async fn write_all_at<B: OwnedBuffer>(&self, buffer: B, offset: u64) -> BufResult<(), B>]
        self [async fn write_vectored_at<B: OwnedBuffer>(&self, buffers: Vec<B>, offset: u64) -> BufResult<usize, Vec<B>>]
        self [async fn write_durable_at<B: OwnedBuffer>(&self, buffer: B, offset: u64) -> BufResult<(), B>]
        self [async fn sync_data(&self) -> Result<(), Error>]
        self [async fn sync_all(&self) -> Result<(), Error>]
        self [async fn metadata(&self) -> Result<Metadata, Error>]
        self [async fn set_permissions(&self, permissions: Permissions) -> Result<(), Error>]
        self [async fn allocate(&self, mode: AllocateMode, offset: u64, len: u64) -> Result<(), Error>]
        self [async fn set_len(&self, len: u64) -> Result<(), Error>]
        self [async fn settled(&self) -> Result<(), Error>]
        self [async fn close(self) -> Result<(), Error>]
        self [fn chain(&self) -> Chain]
    }
    ReadDir {
        self [async fn next_entry(&mut self) -> Result<Option<DirEntry>, Error>]
    }
    DirEntry [Clone] {
        self [fn path(&self) -> PathBuf]
        self [fn file_name(&self) -> OsString]
        self [fn ino(&self) -> u64]
        self [async fn metadata(&self) -> Result<Metadata, Error>]
        self [async fn file_type(&self) -> Result<FileType, Error>]
    }
    Chain {
        self [fn write_at<B: OwnedBuffer>(self, buffer: B, offset: u64) -> Chain]
        self [fn read_at<B: OwnedBufferMut>(self, buffer: B, offset: u64) -> Chain]
        self [fn sync_data(self) -> Chain]
        self [fn sync_all(self) -> Chain]
        self [fn deadline(self, after: Duration) -> Chain]
        self [async fn run(self) -> Vec<StepOutcome>]
    }
}

/// What became of a step of a chain.
#[derive(Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct StepOutcome {
    pub result: Result<usize, Error>,
    pub buffer: Option<Buffer>,
}

/// Whether a file is on a file system that is known to be local: none is on this target.
#[allow(unused_variables)]
pub fn is_local<File>(file: File) -> bool {
    false
}

/// What is done by a ring: functions on one, by their signatures.
macro_rules! by_ring {
    ($($ring:ident [$($signature:tt)*])*) => { $(
        #[doc = "Needs a ring, which this target has not."]
        ///
        /// # Errors
        ///
        /// None.
        #[allow(unused_variables)]
        pub $($signature)* { match $ring.0 {} }
    )* };
}

by_ring! {
    ring [async fn read(ring: &Ring, path: impl AsRef<Path>) -> Result<Vec<u8>, Error>]
    ring [async fn write<B: OwnedBuffer>(ring: &Ring, path: impl AsRef<Path>, buffer: B) -> BufResult<(), B>]
    ring [async fn metadata(ring: &Ring, path: impl AsRef<Path>) -> Result<Metadata, Error>]
    ring [async fn create_dir(ring: &Ring, path: impl AsRef<Path>) -> Result<(), Error>]
    ring [async fn remove_file(ring: &Ring, path: impl AsRef<Path>) -> Result<(), Error>]
    ring [async fn remove_dir(ring: &Ring, path: impl AsRef<Path>) -> Result<(), Error>]
    ring [async fn rename(ring: &Ring, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), Error>]
    ring [async fn read_to_string(ring: &Ring, path: impl AsRef<Path>) -> Result<String, Error>]
    ring [async fn symlink_metadata(ring: &Ring, path: impl AsRef<Path>) -> Result<Metadata, Error>]
    ring [async fn try_exists(ring: &Ring, path: impl AsRef<Path>) -> Result<bool, Error>]
    ring [async fn set_permissions(ring: &Ring, path: impl AsRef<Path>, permissions: Permissions) -> Result<(), Error>]
    ring [async fn symlink(ring: &Ring, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<(), Error>]
    ring [async fn copy(ring: &Ring, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64, Error>]
    ring [async fn read_dir(ring: &Ring, path: impl AsRef<Path>) -> Result<ReadDir, Error>]
    ring [async fn create_dir_all(ring: &Ring, path: impl AsRef<Path>) -> Result<(), Error>]
    ring [async fn remove_dir_all(ring: &Ring, path: impl AsRef<Path>) -> Result<(), Error>]
    ring [async fn read_link(ring: &Ring, path: impl AsRef<Path>) -> Result<PathBuf, Error>]
    ring [async fn canonicalize(ring: &Ring, path: impl AsRef<Path>) -> Result<PathBuf, Error>]
    ring [async fn hard_link(ring: &Ring, existing: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<(), Error>]
}

#[allow(unused_variables)]
impl File {
    by_ring! {
        ring [async fn open(ring: &Ring, path: impl AsRef<Path>, options: OpenOptions) -> Result<File, Error>]
        ring [fn from_std(ring: &Ring, file: std::fs::File) -> File]
    }
}
