//! The errors of reads, with the file and the range that they are about.

use std::{
    fmt, io,
    ops::Range,
    path::{Path, PathBuf},
};

use parquet::errors::ParquetError;

/// A read of a file failed.
///
/// The `parquet` crate passes it on as [`ParquetError::External`].
///
/// # Examples
///
/// ```
/// use parquet::{arrow::async_reader::AsyncFileReader, errors::ParquetError};
/// use ringwise_parquet::{Error, ParquetFile};
///
/// # let runtime = tokio::runtime::Runtime::new().unwrap();
/// # runtime.block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("table.parquet");
/// # std::fs::write(&path, "four")?;
/// let mut file = ParquetFile::open(&ringwise::Ring::new()?, &path).await?;
/// let Err(ParquetError::External(error)) = file.get_bytes(2..9).await else { unreachable!() };
/// assert!(matches!(error.downcast_ref(), Some(Error::OutOfFile { len: 4, .. })));
/// assert!(error.to_string().ends_with("table.parquet: bytes 2..9 of a file of 4 bytes"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to open the file, to look at it or to read from it.
    #[non_exhaustive]
    Os {
        /// The path that the file was opened by.
        path: PathBuf,
        /// The bytes that were read, unless it was no read of bytes.
        range: Option<Range<u64>>,
        /// The reason.
        source: io::Error,
    },
    /// The file does not have all of a range, or the range ends before it starts.
    #[non_exhaustive]
    OutOfFile {
        /// The path that the file was opened by.
        path: PathBuf,
        /// The bytes that were asked for.
        range: Range<u64>,
        /// The length of the file in bytes.
        len: u64,
    },
    /// A buffer for a range does not fit into memory. A damaged file may ask for ranges that are as long as the file.
    #[non_exhaustive]
    Memory {
        /// The path that the file was opened by.
        path: PathBuf,
        /// The bytes of the read.
        range: Range<u64>,
    },
    /// The file is not the one any more that was opened, or whose metadata was read.
    #[non_exhaustive]
    Changed {
        /// The path that the file was opened by.
        path: PathBuf,
        /// The bytes that were asked for: the first to the last of all ranges.
        range: Range<u64>,
    },
}

impl Error {
    pub(crate) fn os(
        path: &Path,
        range: Option<Range<u64>>,
        source: impl Into<io::Error>,
    ) -> Error {
        Error::Os { path: path.to_owned(), range, source: source.into() }
    }

    /// The path that the file was opened by.
    pub fn path(&self) -> &Path {
        match self {
            Error::Os { path, .. }
            | Error::OutOfFile { path, .. }
            | Error::Memory { path, .. }
            | Error::Changed { path, .. } => path,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path().display())?;
        match self {
            Error::Os { range: Some(Range { start, end }), source, .. } => {
                write!(f, "bytes {start}..{end}: {source}")
            }
            Error::Os { range: None, source, .. } => write!(f, "{source}"),
            Error::OutOfFile { range: Range { start, end }, len, .. } => {
                write!(f, "bytes {start}..{end} of a file of {len} bytes")
            }
            Error::Memory { range: Range { start, end }, .. } => {
                write!(f, "bytes {start}..{end}: no memory for {} bytes", end - start)
            }
            Error::Changed { range: Range { start, end }, .. } => {
                write!(f, "bytes {start}..{end}: the file was changed while it was read")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Os { source, .. } => Some(source),
            Error::OutOfFile { .. } | Error::Memory { .. } | Error::Changed { .. } => None,
        }
    }
}

impl From<Error> for ParquetError {
    fn from(error: Error) -> ParquetError {
        ParquetError::External(Box::new(error))
    }
}

/// Adds the path to an error of the parser of metadata, which does not know it.
pub(crate) fn with_path(path: &Path, error: ParquetError) -> ParquetError {
    let text = |text: String| format!("{}: {text}", path.display());
    match error {
        ParquetError::General(message) => ParquetError::General(text(message)),
        ParquetError::EOF(message) => ParquetError::EOF(text(message)),
        ParquetError::NYI(message) => ParquetError::NYI(text(message)),
        error => error,
    }
}
