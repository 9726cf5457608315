//! Metadata that was parsed before, by the version of its file and the indexes that it has.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared as SharedFuture, WeakShared},
};
use parquet::{
    errors::{ParquetError, Result},
    file::metadata::ParquetMetaData,
};

use crate::{
    indexes::Indexes,
    version::{FileId, Version},
};

/// The metadata of files that were read before. Clones are the same cache.
///
/// Files are told apart by device and inode, so a file that another has replaced is read anew. So is a file whose
/// length, time of modification or time of change is another than before; a rename or a change of permissions is a change
/// too. Metadata is kept for each page index policy of `ArrowReaderOptions`. The cache does not serve options that change
/// the metadata in another way: index masks, statistics policies, a given Parquet schema, and keys for decryption
/// (feature `encryption`).
///
/// If several tasks want the same metadata at the same time through the same ring, it is read once, and each of the tasks
/// drives the read on. So no task depends on another that is stopped or dropped. A task with another ring reads for
/// itself.
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
    slots: Vec<Slot>,
}

/// The metadata of one file with certain indexes.
struct Slot {
    indexes: Indexes,
    metadata: Option<Metadata>,
    /// The read that began last, which ends with the last request that waits for it.
    load: Option<(RingId, WeakShared<BoxFuture<'static, Loaded>>)>,
}

type Metadata = Arc<ParquetMetaData>;

/// A read that each request which waits for it drives on.
type Load = SharedFuture<BoxFuture<'static, Loaded>>;

/// What came of it. The error is for the request that began it.
type Loaded = Result<Metadata, Arc<Mutex<Option<ParquetError>>>>;

/// A ring of the machine that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingId(pub(crate) usize);

/// What the cache has for a request.
enum Found {
    Metadata(Metadata),
    /// Another began to read.
    Load(Load),
    /// This request began to read.
    Own(Load),
}

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

    /// Gives the metadata of a file, which `load` reads through a ring if the cache does not have it. Without `indexes`,
    /// the metadata is not kept.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped while it reads, others that wait go on with the read.
    pub(crate) async fn get(
        &self,
        (version, ring): (Version, RingId),
        indexes: Option<Indexes>,
        load: impl Fn() -> BoxFuture<'static, Result<Metadata>>,
    ) -> Result<Metadata> {
        let Some(indexes) = indexes else {
            return self.counted(load()).await;
        };
        let begin = || share(self.counted(load()));
        let found = self.lock().slot(version, indexes, self.shared.files_max).find(ring, begin);
        let (load_of_all, is_own) = match found {
            Found::Metadata(metadata) => return Ok(self.hit(metadata)),
            Found::Load(load) => (load, false),
            Found::Own(load) => (load, true),
        };
        let metadata = match load_of_all.await {
            Ok(metadata) if is_own => metadata,
            Ok(metadata) => self.hit(metadata),
            Err(error) => {
                let own = if is_own { lock(&error).take() } else { None };
                match own {
                    Some(error) => return Err(error),
                    // Another has failed, perhaps because its ring was shut down.
                    None => self.counted(load()).await?,
                }
            }
        };
        self.lock().slot(version, indexes, self.shared.files_max).keep(&metadata);
        Ok(metadata)
    }

    /// Counts a read that begins.
    fn counted<T>(&self, load: T) -> T {
        self.shared.loads.fetch_add(1, Ordering::Relaxed);
        load
    }

    fn hit(&self, metadata: Metadata) -> Metadata {
        self.shared.hits.fetch_add(1, Ordering::Relaxed);
        metadata
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        lock(&self.shared.files)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds a lock, except for want of memory.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn share(load: BoxFuture<'static, Result<Metadata>>) -> Load {
    load.map(|loaded| loaded.map_err(|error| Arc::new(Mutex::new(Some(error))))).boxed().shared()
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
    fn slot(&mut self, version: Version, indexes: Indexes, files_max: usize) -> &mut Slot {
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
        let found = entry.slots.iter().position(|slot| slot.indexes == indexes);
        let at = found.unwrap_or_else(|| {
            entry.slots.push(Slot { indexes, metadata: None, load: None });
            entry.slots.len() - 1
        });
        &mut entry.slots[at]
    }

    fn remove_oldest(&mut self) {
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_request);
        if let Some(id) = oldest.map(|(id, _)| *id) {
            self.entries.remove(&id);
        }
    }
}

impl Slot {
    /// Finds the metadata or a read of it through this ring, or begins one.
    fn find(&mut self, ring: RingId, begin: impl FnOnce() -> Load) -> Found {
        if let Some(metadata) = &self.metadata {
            return Found::Metadata(metadata.clone());
        }
        if let Some((own, load)) = &self.load
            && *own == ring
            && let Some(load) = load.upgrade()
        {
            return Found::Load(load);
        }
        let load = begin();
        self.load = load.downgrade().map(|load| (ring, load));
        Found::Own(load)
    }

    fn keep(&mut self, metadata: &Metadata) {
        self.metadata.get_or_insert_with(|| metadata.clone());
        self.load = None;
    }
}
