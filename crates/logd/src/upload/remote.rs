//! Requests to a store: each within a time, and objects in parts of a bounded size.
//!
//! A store retries a request by itself for a while. After that it is for the caller to try again later.

use std::{
    fmt::Display,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use object_store::{
    Error, ObjectStore, ObjectStoreExt as _, PutMode, buffered::BufWriter, path::Path,
};
use tokio::io::AsyncWriteExt as _;

use super::place::told;
use crate::{
    disk::segment::{frame::Checker, scan::Scan},
    ship::destination::Trouble,
};

/// Parts of an upload in flight at a time.
const IN_FLIGHT: usize = 2;
/// Parts of an object. Stores allow 10,000 or more.
const PARTS_MAX: u64 = 5000;
/// No index is larger.
const INDEX_BYTES_MAX: u64 = 256 << 20;

/// Bounds of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// An object with more bytes is sent in parts of this size, and objects are read in such parts. S3 takes no smaller
    /// parts than 5 MiB.
    pub(crate) part_bytes: u64,
    /// How long an answer may take, with the store's own retries.
    pub(crate) answer_time: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { part_bytes: 8 << 20, answer_time: Duration::from_secs(300) }
    }
}

impl Bounds {
    /// Waits for an answer, but not for ever.
    pub(super) async fn within<T, E: Display>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Trouble> {
        match tokio::time::timeout(self.answer_time, request).await {
            Ok(answer) => answer.map_err(told),
            Err(_) => Err(Trouble(format!("no answer within {:?}", self.answer_time))),
        }
    }
}

/// A store that may be far away.
pub(super) struct Remote {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) bounds: Bounds,
    /// Whether what is under way has to end.
    pub(super) end: Arc<AtomicBool>,
}

impl Remote {
    fn go_on(&self) -> Result<(), Trouble> {
        match self.end.load(Ordering::Relaxed) {
            true => Err(Trouble("logd ends".to_owned())),
            false => Ok(()),
        }
    }

    /// Returns the size of an object, or nothing if there is none.
    async fn size(&self, key: &Path) -> Result<Option<u64>, Trouble> {
        let found = async {
            match self.store.head(key).await {
                Err(Error::NotFound { .. }) => Ok(None),
                found => found.map(|meta| Some(meta.size)),
            }
        };
        self.bounds.within(found).await
    }

    /// Reads an object of this size, in order.
    pub(super) async fn read(
        &self,
        key: &Path,
        size: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        let mut at = 0;
        while at < size {
            self.go_on()?;
            let end = size.min(at + self.bounds.part_bytes);
            let bytes = self.bounds.within(self.store.get_range(key, at..end)).await?;
            if bytes.len() as u64 != end - at {
                let (count, wanted) = (bytes.len(), end - at);
                return Err(Trouble(format!(
                    "{key}: the store returned {count} of {wanted} bytes"
                )));
            }
            take(&bytes)?;
            at = end;
        }
        Ok(())
    }

    /// Reads an object that fits into memory, or returns nothing if there is none.
    pub(super) async fn small(&self, key: &Path) -> Result<Option<Vec<u8>>, Trouble> {
        let Some(size) = self.size(key).await? else { return Ok(None) };
        if size > INDEX_BYTES_MAX {
            return Err(Trouble(format!("{key}: the object is too large: {size} bytes")));
        }
        let mut object = Vec::new();
        self.read(key, size, |bytes| {
            object.extend_from_slice(bytes);
            Ok(())
        })
        .await?;
        Ok(Some(object))
    }

    /// Reads a frame. Returns its size if it is whole and its lines match the index. `take` gets all bytes.
    pub(super) async fn check(
        &self,
        key: &Path,
        scan: &Scan,
        mut take: impl FnMut(&[u8]) -> Result<(), Trouble>,
    ) -> Result<Option<u64>, Trouble> {
        let Some(size) = self.size(key).await? else { return Ok(None) };
        let mut checker = Checker::new(scan).map_err(told)?;
        self.read(key, size, |bytes| {
            checker.take(bytes);
            take(bytes)
        })
        .await?;
        Ok(checker.is_right().then_some(size))
    }

    /// Writes an object that fits into memory.
    pub(super) async fn put(&self, key: &Path, bytes: Vec<u8>) -> Result<(), Trouble> {
        self.bounds.within(self.store.put(key, bytes.into())).await.map(drop)
    }

    /// Writes an object that fits into memory, unless there is one.
    ///
    /// A store that says that it has no such request is asked before the write: another may write in between.
    pub(super) async fn create(&self, key: &Path, bytes: Vec<u8>) -> Result<(), Trouble> {
        let created = async {
            let bytes = bytes.clone().into();
            match self.store.put_opts(key, bytes, PutMode::Create.into()).await {
                Ok(_) | Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(true),
                Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => Ok(false),
                Err(error) if has_no_links(&error) => Ok(false),
                Err(error) => Err(error),
            }
        };
        if !self.bounds.within(created).await? && self.small(key).await?.is_none() {
            self.put(key, bytes).await?;
        }
        Ok(())
    }

    /// Writes an object of about this size, in parts if it is larger than one. `next` returns its bytes, or nothing at
    /// the end. Returns the number of bytes. After an error there is no object, or the one from before.
    pub(super) async fn send(
        &self,
        key: &Path,
        size: u64,
        mut next: impl FnMut() -> Result<Option<Vec<u8>>, Trouble>,
    ) -> Result<u64, Trouble> {
        let part_bytes = usize::try_from(self.bounds.part_bytes.max(size / PARTS_MAX));
        let mut writer =
            BufWriter::with_capacity(self.store.clone(), key.clone(), part_bytes.map_err(told)?)
                .with_max_concurrency(IN_FLIGHT);
        let mut sent = 0;
        let filled = async {
            while let Some(bytes) = next()? {
                self.go_on()?;
                sent += bytes.len() as u64;
                self.bounds.within(writer.put(bytes.into())).await?;
            }
            Ok(())
        };
        if let Err(trouble) = filled.await {
            // The store keeps the parts if this fails. A rule of the bucket removes them.
            let _ = self.bounds.within(writer.abort()).await;
            return Err(trouble);
        }
        self.bounds.within(writer.shutdown()).await?;
        Ok(sent)
    }
}

/// Whether a directory cannot have an object created in it because its file system has no hard links (link(2)).
fn has_no_links(error: &Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        let errno = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        let of_links =
            [rustix::io::Errno::PERM, rustix::io::Errno::OPNOTSUPP, rustix::io::Errno::NOSYS];
        if errno.is_some_and(|errno| of_links.iter().any(|one| one.raw_os_error() == errno)) {
            return true;
        }
        cause = error.source();
    }
    false
}
