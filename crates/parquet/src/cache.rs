//! Metadata that was parsed before, by the version of its file and the indexes that it has.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use parquet::{errors::Result, file::metadata::ParquetMetaData};
use tokio::sync::OnceCell;

use crate::{
    indexes::Indexes,
    version::{FileId, Version},
};

/// The metadata of files that were read before. Clones are the same cache.
///
/// Files are told apart by device and inode, so a file that another has replaced is read anew. So is a file
/// whose length or time of modification is another than before. Metadata is kept for each page index policy
/// of `ArrowReaderOptions`. The cache does not serve options that change the metadata in another way: index
/// masks, statistics policies, a given Parquet schema, and keys for decryption (feature `encryption`).
///
/// If several tasks want the same metadata, one reads it and the others wait for it.
///
/// # Examples
///
/// ```
/// use parquet::arrow::async_reader::AsyncFileReader;
/// use ringwise::Ring;
/// use ringwise_parquet::{MetadataCache, ParquetFileOptions};
///
/// # use std::sync::Arc;
/// # use arrow_array::{ArrayRef, Int64Array, RecordBatch};
/// # let runtime = tokio::runtime::Runtime::new().unwrap();
/// # runtime.block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("table.parquet");
/// # let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
/// # let table = RecordBatch::try_from_iter([("number", numbers)])?;
/// # let new = std::fs::File::create(&path)?;
/// # let mut writer = parquet::arrow::ArrowWriter::try_new(new, table.schema(), None)?;
/// # writer.write(&table)?;
/// # writer.close()?;
/// let (ring, cache) = (Ring::new()?, MetadataCache::new(100));
/// let options = ParquetFileOptions::new().cache(&cache);
/// for _ in 0..3 {
///     let mut file = options.open(&ring, &path).await?;
///     assert_eq!(file.get_metadata(None).await?.num_row_groups(), 1);
/// }
/// assert_eq!((cache.loads(), cache.hits()), (1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct MetadataCache {
    shared: Arc<Shared>,
}

struct Shared {
    files: Mutex<Files>,
    files_max: usize,
    hits: AtomicU64,
    loads: AtomicU64,
}

#[derive(Default)]
struct Files {
    entries: HashMap<FileId, Entry>,
    /// Counts requests, to tell which entry was used last.
    requests: u64,
}

/// The metadata of one file.
struct Entry {
    version: Version,
    last_request: u64,
    slots: Vec<(Indexes, Slot)>,
}

/// Empty until the metadata was read.
type Slot = Arc<OnceCell<Arc<ParquetMetaData>>>;

impl MetadataCache {
    /// Makes a cache for the metadata of at most so many files, and at least one. If it is full, a new file
    /// takes the place of the one that was used longest ago.
    pub fn new(files_max: usize) -> MetadataCache {
        let shared = Shared {
            files: Mutex::default(),
            files_max: files_max.max(1),
            hits: AtomicU64::new(0),
            loads: AtomicU64::new(0),
        };
        MetadataCache { shared: Arc::new(shared) }
    }

    /// The number of requests for metadata that needed no read, because another had read it.
    pub fn hits(&self) -> u64 {
        self.shared.hits.load(Ordering::Relaxed)
    }

    /// The number of times that metadata was read from a file, or a read of it began and failed.
    pub fn loads(&self) -> u64 {
        self.shared.loads.load(Ordering::Relaxed)
    }

    /// Gives the metadata of a file, which `load` reads if the cache does not have it. Without `indexes`, the
    /// metadata is not kept.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped while it reads, another that waits begins to read.
    pub(crate) async fn get(
        &self,
        version: Version,
        indexes: Option<Indexes>,
        load: impl Future<Output = Result<Arc<ParquetMetaData>>>,
    ) -> Result<Arc<ParquetMetaData>> {
        let Some(indexes) = indexes else {
            self.shared.loads.fetch_add(1, Ordering::Relaxed);
            return load.await;
        };
        let slot = self.lock().slot(version, indexes, self.shared.files_max);
        let mut is_hit = true;
        let begin = || {
            is_hit = false;
            self.shared.loads.fetch_add(1, Ordering::Relaxed);
            load
        };
        let metadata = slot.get_or_try_init(begin).await?.clone();
        if is_hit {
            self.shared.hits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(metadata)
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        // Nothing panics while it holds the lock, except for want of memory.
        self.shared.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MetadataCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetadataCache")
            .field("files", &self.lock().entries.len())
            .field("files_max", &self.shared.files_max)
            .field("hits", &self.hits())
            .field("loads", &self.loads())
            .finish()
    }
}

impl Files {
    fn slot(&mut self, version: Version, indexes: Indexes, files_max: usize) -> Slot {
        self.requests += 1;
        if !self.entries.contains_key(&version.id) && self.entries.len() >= files_max {
            self.remove_oldest();
        }
        let new = || Entry { version, last_request: 0, slots: Vec::new() };
        let entry = self.entries.entry(version.id).or_insert_with(new);
        if entry.version != version {
            *entry = new();
        }
        entry.last_request = self.requests;
        if let Some((_, slot)) = entry.slots.iter().find(|(own, _)| *own == indexes) {
            return slot.clone();
        }
        let slot = Slot::default();
        entry.slots.push((indexes, slot.clone()));
        slot
    }

    fn remove_oldest(&mut self) {
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_request);
        if let Some(id) = oldest.map(|(id, _)| *id) {
            self.entries.remove(&id);
        }
    }
}
