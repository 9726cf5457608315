//! [`RingFileSystem`]: its options, and the trait's operations in terms of the other modules.

use std::{fmt, ops::Range, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream::BoxStream};
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    RenameTargetMode, Result, path::Path,
};
use ringwise::Ring;

use crate::{
    change,
    failure::{Failure, STORE},
    list,
    location::name,
    read::{self, Object},
    root::Root,
    staged::{self, Publication, Staged, upload::Upload},
    threads::blocking,
};

/// Objects that are deleted together.
const DELETES: usize = 10;

/// An object store on a directory of local files.
///
/// Clones share the ring and the directory.
///
/// # The directory
///
/// The store opens its directory once and keeps it open. If the directory is renamed, the store goes with it. If another
/// directory takes over the old path, the store does not see that one: make a new store. After the directory was removed
/// nothing is found in it, and puts fail. [`path_to_filesystem`](Self::path_to_filesystem) always tells the path that the
/// directory had when the store was made.
///
/// If the kernel has the name of an object in memory, the polling thread opens the object. On a network file system, on
/// FUSE and on any other file system that the store does not know to be local, a thread of tokio's pool does that.
///
/// # Names
///
/// The segments of a location are the names on disk. A name that ends in `#` and digits is no object: such
/// names have the files that are being written. Locations with control characters or the segment `..` do
/// not exist, since [`Path`] refuses them.
///
/// Symbolic links are followed within the store. A link that leads out of it is refused with
/// [`PermissionDenied`](Error::PermissionDenied), and so is any absolute link, unless the store is `/`.
/// Listings leave such links out. This needs Linux 5.6.
///
/// An object is a regular file, or a link within the store to one. [`delete`](ObjectStore::delete_stream) removes nothing
/// else: a FIFO, a device, a broken link and a link to a directory are [`NotFound`](Error::NotFound), as they are for a
/// get. Of a link it removes the link.
///
/// # Entity tags
///
/// The entity tag of an object ([`ObjectMeta::e_tag`]) is made of the file's inode number, its time of modification in
/// microseconds and its size, as that of `LocalFileSystem`. It does not depend on the content. Two versions of an object
/// can have the same tag in these cases:
///
/// - A program changes the file in place, keeps the size, and sets the time of modification back.
/// - Two changes in place with the same size are so near each other that the file system gives them the same time. A
///   kernel without multigrain timestamps (before Linux 6.13) takes the time of its last timer tick, which is up to
///   10 ms old.
/// - The object is replaced twice, or removed and put again, within such a time, and the file system uses the inode
///   number of the first version again for one of the same size.
///
/// A put always makes a new file while the old one still exists, so one put never keeps the tag. Objects on several file
/// systems below the store can have the same tag, and so can an object and its copy, which may be one file.
///
/// # Examples
///
#[cfg_attr(not(feature = "object_store_0_13"), doc = "```")]
#[cfg_attr(feature = "object_store_0_13", doc = "```ignore")]
/// use object_store::{ObjectStore, ObjectStoreExt, path::Path};
/// use ringwise_object_store::RingFileSystem;
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let runtime = tokio::runtime::Runtime::new().unwrap();
/// # runtime.block_on(async {
/// let store = RingFileSystem::new_with_prefix(&directory)?;
/// let location = Path::from("tables/events.bin");
/// store.put(&location, "hello, ring".into()).await?;
/// assert_eq!(store.get(&location).await?.bytes().await?, "hello, ring");
/// # Ok::<(), object_store::Error>(())
/// # }).unwrap();
/// ```
///
/// # Cancel safety
///
/// Every future and stream may be dropped. Reads are cancelled then. A put, a delete, a copy, a rename or
/// the end of an upload goes on to its end once it has begun. The file of an upload that is dropped is
/// removed. Without a tokio runtime, everything but reads blocks the thread that polls.
///
/// # Differences from `LocalFileSystem`
///
/// - It refuses symbolic links that lead out of the store.
/// - A directory is [`NotFound`](Error::NotFound) to every operation on objects. `LocalFileSystem` renames
///   directories.
/// - An upload completes only if all of its parts were written. An abort after a failed completion succeeds.
/// - If a read has the condition `if_match` or `if_unmodified_since`, it fails with
///   [`Precondition`](Error::Precondition) when the object is changed in place before the read ends.
/// - A copy across file systems copies the bytes.
/// - [`get_opts`](ObjectStore::get_opts) gives a stream and never a file.
#[derive(Clone, Debug)]
pub struct RingFileSystem {
    ring: Ring,
    root: Arc<Root>,
    cleans: bool,
    durable: bool,
    attributes: bool,
    gap_bytes: u64,
    direct: bool,
}

impl RingFileSystem {
    /// Makes a store on the directory `/`, with a ring of its own.
    ///
    /// # Errors
    ///
    /// As for [`new_with_prefix`](Self::new_with_prefix).
    pub fn new() -> Result<RingFileSystem> {
        RingFileSystem::new_with_prefix("/")
    }

    /// Makes a store on a directory, with a ring of its own. A multi-threaded tokio runtime drives the ring
    /// if this function is called in it ([`Ring::new`]); the store is then for tasks of this runtime. If tasks
    /// of other runtimes read, call [`with_ring`](Self::with_ring) with a ring that has a thread of its own
    /// ([`Builder::driver_thread`](ringwise::Builder::driver_thread)).
    ///
    /// # Errors
    ///
    /// Why the directory cannot be opened or no ring can be made.
    pub fn new_with_prefix(prefix: impl AsRef<std::path::Path>) -> Result<RingFileSystem> {
        let ring =
            Ring::new().map_err(|error| Error::Generic { store: STORE, source: error.into() })?;
        RingFileSystem::with_ring(ring, prefix)
    }

    /// Makes a store on a directory, with a ring that it shares with others.
    ///
    /// # Errors
    ///
    /// Why the directory cannot be opened.
    pub fn with_ring(ring: Ring, prefix: impl AsRef<std::path::Path>) -> Result<RingFileSystem> {
        let prefix = prefix.as_ref();
        let root = Root::open(prefix).map_err(|source| {
            let location = prefix.display().to_string();
            Error::from(Failure::Os { location, source })
        })?;
        Ok(RingFileSystem {
            ring,
            root: Arc::new(root),
            cleans: false,
            durable: false,
            attributes: false,
            gap_bytes: 0,
            direct: false,
        })
    }

    /// Makes writes durable: a put, an upload, a copy or a rename syncs the file and its directory before it
    /// succeeds. Off unless set.
    #[must_use]
    pub fn with_fsync(mut self, fsync: bool) -> Self {
        self.durable = fsync;
        self
    }

    /// Removes directories that become empty when an object is deleted. Off unless set.
    #[must_use]
    pub fn with_automatic_cleanup(mut self, automatic_cleanup: bool) -> Self {
        self.cleans = automatic_cleanup;
        self
    }

    /// Stores the attributes of objects, as extended attributes of their files. Off unless set: a write with
    /// attributes is then refused with [`NotImplemented`](Error::NotImplemented), and a read gives none. With
    /// it, each read of an object asks the file for its attributes.
    #[must_use]
    pub fn with_attributes(mut self, attributes: bool) -> Self {
        self.attributes = attributes;
        self
    }

    /// Sets how far apart two ranges of [`get_ranges`](ObjectStore::get_ranges) may be to become one read, in
    /// bytes. The bytes between them are read too. 0 unless set: then ranges become one read if they touch.
    ///
    /// Ranges that do not overlap become one read only if it is not longer than 1 MiB. The parts of one read
    /// share its memory, which is freed with the last of them.
    ///
    /// # Examples
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// let store = ringwise_object_store::RingFileSystem::new_with_prefix(&directory)?.with_gap(4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_gap(mut self, bytes: u64) -> Self {
        self.gap_bytes = bytes;
        self
    }

    /// Makes reads direct (`O_DIRECT`): they go to the device, past the page cache. Off unless set.
    ///
    /// Turn it on if the objects together are much larger than memory and are read at random. Measured, 64 ranges of
    /// 64 KiB out of 2 GiB then took less than half of the CPU time. But nothing keeps what was read: a second read goes to
    /// the device again, and the store does not use data that the page cache has.
    ///
    /// A read takes all blocks of 4096 bytes that its range touches, and the bytes that it gives keep the memory of these
    /// blocks. If the file system refuses direct reads, every read fails; some file systems accept them and use the page
    /// cache all the same (ext4 with `data=journal`, tmpfs). Writes are not direct.
    ///
    /// # Examples
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// let store = ringwise_object_store::RingFileSystem::new_with_prefix(&directory)?.with_direct_reads(true);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_direct_reads(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    /// The file of an object, below the path that the directory had when the store was made.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](Error::InvalidPath) if no object can have this location.
    pub fn path_to_filesystem(&self, location: &Path) -> Result<PathBuf> {
        name(location)?;
        Ok(self.root.path().join(location.as_ref()))
    }

    fn publication(&self, replaces: bool) -> Publication {
        Publication { replaces, durable: self.durable }
    }

    fn refuse<T>(&self, operation: &str) -> Result<T> {
        let (operation, implementer) = (operation.to_owned(), self.to_string());
        Err(Error::NotImplemented { operation, implementer })
    }

    async fn open(&self, location: &Path) -> Result<Object> {
        Object::open(&self.ring, &self.root, location, self.direct).await
    }

    /// Runs a change of names on a thread that may block.
    async fn change(
        &self,
        change: impl FnOnce(&Root) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let root = self.root.clone();
        blocking(move || change(&root)).await
    }
}

impl fmt::Display for RingFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{STORE}({})", self.root.path().display())
    }
}

#[async_trait]
impl ObjectStore for RingFileSystem {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let replaces = match opts.mode {
            PutMode::Overwrite => true,
            PutMode::Create => false,
            PutMode::Update(_) => {
                return self.refuse("`put_opts` with mode `PutMode::Update`");
            }
        };
        if !self.attributes && !opts.attributes.is_empty() {
            return self.refuse("`put_opts` with attributes");
        }
        let (how, content) = (self.publication(replaces), (payload, opts.attributes));
        staged::put(&self.root, location, content, how).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if !self.attributes && !opts.attributes.is_empty() {
            return self.refuse("`put_multipart_opts` with attributes");
        }
        let staged = Staged::create(&self.root, location, opts.attributes, self.durable).await?;
        Ok(Box::new(Upload::new(location.clone(), staged, self.durable)))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head {
            return read::head(&self.root, location, &options, self.attributes).await;
        }
        let object = self.open(location).await?;
        object.get(&options, self.attributes).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let object = self.open(location).await?;
        object.ranges(ranges, self.gap_bytes).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let (root, cleans) = (self.root.clone(), self.cleans);
        locations
            .map(move |location| {
                let root = root.clone();
                blocking(move || {
                    let location = location?;
                    change::delete(&root, &location, cleans)?;
                    Ok(location)
                })
            })
            .buffered(DELETES)
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        list::list(self.root.clone(), prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        list::list(self.root.clone(), prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (root, prefix) = (self.root.clone(), prefix.cloned().unwrap_or_default());
        blocking(move || list::list_level(&root, &prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let replaces = match options.mode {
            CopyMode::Overwrite => true,
            CopyMode::Create => false,
        };
        let (from, to, how) = (from.clone(), to.clone(), self.publication(replaces));
        self.change(move |root| change::copy(root, &from, &to, how)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let replaces = match options.target_mode {
            RenameTargetMode::Overwrite => true,
            RenameTargetMode::Create => false,
        };
        let (from, to, how) = (from.clone(), to.clone(), self.publication(replaces));
        self.change(move |root| change::rename(root, &from, &to, how)).await
    }
}
