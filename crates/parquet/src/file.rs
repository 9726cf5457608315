//! [`ParquetFile`]: the `parquet` crate's reader in terms of the other modules.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::{
    FutureExt,
    future::{BoxFuture, try_join_all},
};
use parquet::{
    arrow::{arrow_reader::ArrowReaderOptions, async_reader::AsyncFileReader},
    errors::{ParquetError, Result as ParquetResult},
    file::metadata::{ParquetMetaData, ParquetMetaDataReader},
};
use ringwise::Ring;

use crate::{
    ahead::{ReadAhead, Taken, tell_wait},
    cache::MetadataCache,
    error::{Error, with_path},
    indexes::Indexes,
    options::ParquetFileOptions,
    ranges::{join, part},
    source::Source,
    version::Version,
};

/// How much of the end of a file is read at first, in the hope that all of the metadata is there.
const FOOTER_BYTES: usize = 64 << 10;

/// A Parquet file that is open. It is an [`AsyncFileReader`], for
/// [`ParquetRecordBatchStreamBuilder`](parquet::arrow::ParquetRecordBatchStreamBuilder) and for programs that
/// read ranges on their own.
///
/// Clones share the open file and its metadata. Make one for each task that reads.
///
/// # Reads
///
/// All ranges of [`get_byte_ranges`](AsyncFileReader::get_byte_ranges) are in flight at the same time. Ranges that
/// overlap or are near each other become one read (see [`ParquetFileOptions::gap`]). A long direct read is made in parts
/// of 1 MiB that are in flight together. If the page cache has the data, the thread that polls copies it from there.
///
/// While the program decodes a row group, the columns of the next one are read (see
/// [`ParquetFileOptions::read_ahead`]).
///
/// # A file that changes
///
/// A handle reads one version of its file: the one that was opened, or that it last gave the metadata of. A
/// read fails with [`Error::Changed`] if the file's length or time of modification is another after it. Then
/// [`get_metadata`](AsyncFileReader::get_metadata) gives the metadata of the new version, and the same handle
/// reads that. If another file takes over the name, the handle still reads the old one. Open the name again
/// for the new one.
///
/// # Errors
///
/// All functions of the trait fail with an [`Error`] in [`ParquetError::External`], except that the `parquet`
/// crate's own error tells what is wrong with the metadata.
///
/// # Cancel safety
///
/// Every future may be dropped. Its reads are then cancelled, and what was read ahead is dropped.
///
/// # Examples
///
/// ```
/// use parquet::arrow::async_reader::AsyncFileReader;
/// use ringwise::Ring;
/// use ringwise_parquet::ParquetFile;
///
/// # let runtime = tokio::runtime::Runtime::new().unwrap();
/// # runtime.block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("table.parquet");
/// # std::fs::write(&path, "PAR1 and more")?;
/// let mut file = ParquetFile::open(&Ring::new()?, &path).await?;
/// let ranges = file.get_byte_ranges(vec![0..4, 9..13]).await?;
/// assert_eq!(ranges, ["PAR1", "more"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct ParquetFile {
    shared: Arc<Shared>,
    /// The version that this handle reads.
    version: Version,
    ahead: ReadAhead,
}

#[derive(Debug)]
struct Shared {
    source: Source,
    setting: Setting,
}

/// What a file was opened with.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) path: PathBuf,
    pub(crate) gap_bytes: u64,
    /// The most that a handle reads ahead.
    pub(crate) ahead_bytes_max: u64,
    pub(crate) cache: MetadataCache,
}

impl ParquetFile {
    /// Opens a file with the usual options: buffered reads, and a metadata cache of its own.
    ///
    /// # Errors
    ///
    /// As for [`ParquetFileOptions::open`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the file is closed.
    pub async fn open(ring: &Ring, path: impl AsRef<Path>) -> Result<ParquetFile, Error> {
        ParquetFileOptions::new().open(ring, path).await
    }

    pub(crate) fn new(source: Source, version: Version, setting: Setting) -> ParquetFile {
        ParquetFile::of(Arc::new(Shared { source, setting }), version)
    }

    fn of(shared: Arc<Shared>, version: Version) -> ParquetFile {
        ParquetFile { shared, version, ahead: ReadAhead::default() }
    }

    /// The path that the file was opened by.
    pub fn path(&self) -> &Path {
        &self.shared.setting.path
    }

    /// The length of the version of the file that this handle reads, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty file is no Parquet file")]
    pub fn len(&self) -> u64 {
        self.version.len
    }

    /// The cache that keeps the metadata of this file.
    pub fn cache(&self) -> &MetadataCache {
        &self.shared.setting.cache
    }

    /// Reads ranges that the program asks for, and begins to read those that it will probably ask for next.
    async fn read_request(&mut self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, Error> {
        let Taken { mut first, waited } = self.ahead.take(ranges).await?;
        let (rest, waited_now) = tell_wait(self.read_ranges(&ranges[first.len()..])).await;
        first.append(&mut rest?);
        let next = self.ahead.next(ranges, self.shared.setting.ahead_bytes_max);
        if (waited || waited_now) && !next.is_empty() {
            let (file, ranges) = (self.clone(), next.clone());
            self.ahead.begin(next, async move { file.read_ranges(&ranges).await }.boxed());
        }
        Ok(first)
    }

    async fn read_ranges(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, Error> {
        for range in ranges {
            self.check_range(range)?;
        }
        let joined = join(ranges, self.shared.setting.gap_bytes);
        let read = try_join_all(joined.iter().map(|range| self.read(range))).await?;
        if let (Some(first), Some(last)) = (joined.first(), joined.last()) {
            self.check_version(first.start..last.end)?;
        }
        Ok(ranges.iter().map(|range| part(&joined, &read, range)).collect())
    }

    /// Refuses a range that the file does not have all of.
    fn check_range(&self, range: &Range<u64>) -> Result<(), Error> {
        let len = self.version.len;
        if range.start == range.end || (range.start < range.end && range.end <= len) {
            return Ok(());
        }
        Err(Error::OutOfFile { path: self.path().to_owned(), range: range.clone(), len })
    }

    /// Refuses what was read from another version of the file than this handle reads.
    fn check_version(&self, range: Range<u64>) -> Result<(), Error> {
        if self.current_version()?.has_content_of(&self.version) {
            return Ok(());
        }
        Err(self.changed(range))
    }

    fn current_version(&self) -> Result<Version, Error> {
        Version::of(self.shared.source.file()).map_err(|error| Error::os(self.path(), None, error))
    }

    fn changed(&self, range: Range<u64>) -> Error {
        Error::Changed { path: self.path().to_owned(), range }
    }

    async fn read(&self, range: &Range<u64>) -> Result<Bytes, Error> {
        self.shared.source.read(range.clone()).await.map_err(|error| match error.kind() {
            // The file was longer when the range was checked.
            io::ErrorKind::UnexpectedEof => self.changed(range.clone()),
            io::ErrorKind::OutOfMemory => {
                Error::Memory { path: self.path().to_owned(), range: range.clone() }
            }
            _ => Error::os(self.path(), Some(range.clone()), error),
        })
    }

    async fn load(
        mut self,
        options: Option<ArrowReaderOptions>,
    ) -> ParquetResult<Arc<ParquetMetaData>> {
        let len = self.version.len;
        let reader = ParquetMetaDataReader::new().with_arrow_reader_options(options.as_ref());
        let loaded =
            reader.with_prefetch_hint(Some(FOOTER_BYTES)).load_and_finish(&mut self, len).await;
        loaded.map(Arc::new).map_err(|error| with_path(self.path(), error))
    }
}

/// A clone has not read ahead.
impl Clone for ParquetFile {
    fn clone(&self) -> ParquetFile {
        ParquetFile::of(self.shared.clone(), self.version)
    }
}

impl AsyncFileReader for ParquetFile {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        async move {
            let mut read = self.read_ranges(&[range]).await?;
            Ok(read.pop().unwrap_or_default())
        }
        .boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        async move { self.read_request(&ranges).await.map_err(ParquetError::from) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        async move {
            let version = self.current_version()?;
            let file = ParquetFile::of(self.shared.clone(), version);
            let load = || file.clone().load(options.cloned()).boxed();
            let ring = self.shared.source.ring();
            let metadata = self.cache().get((version, ring), Indexes::of(options), load).await?;
            // Only now, so that ranges of the metadata from before are never read from the new file.
            self.version = version;
            self.ahead.learn(&metadata);
            Ok(metadata)
        }
        .boxed()
    }
}
