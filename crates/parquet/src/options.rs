//! How a file is opened and read.

use std::{io, path::Path};

use ringwise::{ErrorKind, OpenOptions, Ring, fs::File};

use crate::{
    cache::MetadataCache,
    error::Error,
    file::{ParquetFile, Setting},
    source::Source,
    version::Version,
};

/// Bounds the memory that a handle needs beside what its program decodes.
const AHEAD_BYTES_MAX: u64 = 32 << 20;

/// How Parquet files are opened and read.
///
/// # Examples
///
/// ```
/// use ringwise::Ring;
/// use ringwise_parquet::ParquetFileOptions;
///
/// # let runtime = tokio::runtime::Runtime::new().unwrap();
/// # runtime.block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("table.parquet");
/// # std::fs::write(&path, "")?;
/// let file = ParquetFileOptions::new().gap(64 << 10).open(&Ring::new()?, &path).await?;
/// assert_eq!(file.path(), path);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a file is opened"]
pub struct ParquetFileOptions {
    direct: bool,
    gap_bytes: u64,
    ahead_bytes_max: u64,
    cache: Option<MetadataCache>,
}

impl Default for ParquetFileOptions {
    fn default() -> ParquetFileOptions {
        ParquetFileOptions {
            direct: false,
            gap_bytes: 0,
            ahead_bytes_max: AHEAD_BYTES_MAX,
            cache: None,
        }
    }
}

impl ParquetFileOptions {
    /// Buffered reads, no gap between ranges of one read, and a metadata cache for each file that is opened.
    pub fn new() -> ParquetFileOptions {
        ParquetFileOptions::default()
    }

    /// Reads past the page cache (`O_DIRECT`). Each read takes the whole blocks that its range touches. Off
    /// unless set.
    ///
    /// Nothing keeps what was read, so a second read goes to the device again. Measure before you turn it on.
    pub fn direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    /// Sets how far apart two ranges of a request may be to become one read, in bytes. The bytes between them are
    /// read too. 0 unless set: then ranges become one read if they touch.
    ///
    /// Measure before you set it: pages with 16 KiB between them took 1.3 to 2.9 times as long with a gap of 32 KiB, since
    /// nothing else was in flight meanwhile.
    ///
    /// The ranges of one read share its memory, which is freed with the last of them.
    pub fn gap(mut self, bytes: u64) -> Self {
        self.gap_bytes = bytes;
        self
    }

    /// Sets how much a handle reads ahead at most, in bytes. Nothing is read ahead with 0. 32 MiB unless set.
    ///
    /// While the program decodes whole columns of a row group, the same columns of the next one are read. This begins
    /// after a request for the first row group, or after requests for two in a row, if the page cache did not have
    /// all of the data.
    pub fn read_ahead(mut self, bytes_max: u64) -> Self {
        self.ahead_bytes_max = bytes_max;
        self
    }

    /// Sets the cache that keeps the metadata of the files. Each file has its own unless set.
    pub fn cache(mut self, cache: &MetadataCache) -> Self {
        self.cache = Some(cache.clone());
        self
    }

    /// Opens a file.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] with the reason why the file cannot be opened. Its kind is `InvalidInput` if it is no regular
    /// file, or if its file system has no direct reads and they were asked for.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the file is closed.
    pub async fn open(&self, ring: &Ring, path: impl AsRef<Path>) -> Result<ParquetFile, Error> {
        let path = path.as_ref();
        let options = OpenOptions::new().read(true).direct(self.direct);
        let opened = File::open_regular(ring, path, options).await;
        let file = opened.map_err(|error| match error.kind() {
            // The text says why, and the number alone does not.
            ErrorKind::InvalidInput => {
                Error::os(path, None, io::Error::new(io::ErrorKind::InvalidInput, error))
            }
            _ => Error::os(path, None, error),
        })?;
        let version = Version::of(&file).map_err(|error| Error::os(path, None, error))?;
        let source = match self.direct {
            false => Source::buffered(file),
            true => Source::direct(file).await.map_err(|error| Error::os(path, None, error))?,
        };
        let cache = self.cache.clone().unwrap_or_else(|| MetadataCache::new(1));
        let setting = Setting {
            path: path.to_owned(),
            gap_bytes: self.gap_bytes,
            ahead_bytes_max: self.ahead_bytes_max,
            cache,
        };
        Ok(ParquetFile::new(source, version, setting))
    }
}
