//! [`FileSource`]: Vortex's trait for reads at offsets, in terms of an open file of a ring.

use std::{io, ops::Range, panic::resume_unwind, path::Path, sync::Arc};

use bytes::Bytes;
use futures_util::{
    FutureExt,
    future::{BoxFuture, poll_fn, try_join_all},
};
use ringwise::{
    ErrorKind, OpenOptions, Ring,
    fs::File,
    parts::{PART_BYTES, join, split},
};
use rustix::{
    fs::{FileType, fstat},
    io::Errno,
};
use vortex_array::buffer::BufferHandle;
use vortex_buffer::{Alignment, ByteBuffer};
use vortex_error::VortexResult;
use vortex_io::{
    CoalesceConfig, VortexReadAt,
    runtime::{Handle, JoinOutcome},
};

/// As many as Vortex's own reader has. Those of 4 MiB are four reads in flight each.
const CONCURRENCY: usize = 32;

/// A read of this length or more is a task of its own. Otherwise one thread would copy all that Vortex asks for at a
/// time and that the page cache has. Measured: scans of cached tables took 1.5 to 2.0 times as long without tasks, and
/// as long with 64 KiB as with 256 KiB.
const TASK_BYTES: usize = 256 << 10;

/// An open file that Vortex reads. Clones share it.
///
/// # Reads
///
/// A read that is longer than 1 MiB is made in parts of 1 MiB, which are in flight together. If the page cache has
/// the data, the thread that polls copies it from there.
///
/// A read of at least 256 KiB is a task of the tokio runtime that polls it, if the feature `tokio` of `vortex-io` is
/// on, as for a session `with_tokio`. Several threads then copy what the page cache has. In other runtimes, the thread
/// that polls reads. So do not block the only thread of a tokio runtime until a read is done.
///
/// Memory is aligned as Vortex asks, and at least as Vortex aligns its own. It comes from the global allocator, and
/// not from the allocator of the Vortex session, which Vortex's own reader asks for memory.
///
/// # What Vortex is told
///
/// Vortex joins near requests, and limits how many it makes at a time, by what its source says. A `FileSource`
/// says what Vortex's own reader of files says, unless [`with_coalescing`](Self::with_coalescing) or
/// [`with_concurrency`](Self::with_concurrency) sets something else: gaps of up to 1 MiB are read too, requests are
/// at most 4 MiB long, and 32 are made at a time. With these limits up to 128 MiB and 128 reads are in flight.
///
/// # Errors
///
/// The functions of the trait fail with [`VortexError::Io`](vortex_error::VortexError::Io). If the file does not
/// have all of a range, the kind is [`UnexpectedEof`](io::ErrorKind::UnexpectedEof), as with Vortex's own reader.
/// A range of more than 1 MiB that the file does not have is refused before memory for it is allocated. If the tokio
/// runtime ends, its reads fail.
///
/// # Cancel safety
///
/// Every future may be dropped. Its reads are then cancelled.
///
/// # Examples
///
/// ```
/// use ringwise::Ring;
/// use ringwise_vortex::FileSource;
/// use vortex_buffer::Alignment;
/// use vortex_io::VortexReadAt;
///
/// # let runtime = tokio::runtime::Runtime::new().unwrap();
/// # runtime.block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("table.vortex");
/// # std::fs::write(&path, "VTXF and more")?;
/// let source = FileSource::open(&Ring::new()?, &path).await?;
/// let bytes = source.read_at(9, 4, Alignment::new(64)).await?.unwrap_host();
/// assert_eq!(bytes.as_slice(), b"more");
/// assert_eq!(source.size().await?, 13);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct FileSource {
    file: File,
    uri: Arc<str>,
    coalescing: CoalesceConfig,
    concurrency: usize,
}

impl FileSource {
    /// Opens a file for reads. Its path is its URI in Vortex's logs.
    ///
    /// # Errors
    ///
    /// [`VortexError::Io`](vortex_error::VortexError::Io) with the reason why the file cannot be opened. The kind is
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if it is not a regular file.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the file is closed.
    pub async fn open(ring: &Ring, path: impl AsRef<Path>) -> VortexResult<FileSource> {
        let path = path.as_ref();
        let options = OpenOptions::new().read(true);
        let opened = File::open_regular(ring, path, options).await;
        let file = opened.map_err(|error| match error.kind() {
            // What is no regular file: the text says so, and the number alone does not.
            ErrorKind::InvalidInput => io::Error::new(io::ErrorKind::InvalidInput, error),
            _ => error.into(),
        })?;
        Ok(FileSource::new(file, path.to_string_lossy()))
    }

    /// Reads a regular file that is open already. The URI is for Vortex's logs.
    pub fn new(file: File, uri: impl AsRef<str>) -> FileSource {
        FileSource {
            file,
            uri: uri.as_ref().into(),
            coalescing: CoalesceConfig::file(),
            concurrency: CONCURRENCY,
        }
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Sets how Vortex joins near requests, in bytes. [`CoalesceConfig::file`] unless set.
    ///
    /// Set a shorter distance if many small parts of a file are read, and the bytes between them are wasted.
    #[must_use = "it changes the source that it returns"]
    pub fn with_coalescing(self, coalescing: CoalesceConfig) -> FileSource {
        FileSource { coalescing, ..self }
    }

    /// Sets how many requests Vortex makes at a time, at least one. 32 unless set.
    #[must_use = "it changes the source that it returns"]
    pub fn with_concurrency(self, requests: usize) -> FileSource {
        FileSource { concurrency: requests.max(1), ..self }
    }

    /// Reads a range that is not empty.
    async fn read(&self, offset: u64, length: usize, alignment: Alignment) -> io::Result<Bytes> {
        if length > PART_BYTES {
            self.check_range(offset, length)?;
        }
        let parts = split(length, alignment.max(Alignment::DEFAULT_ALIGNMENT).into());
        let offsets = (0..).map(|number| offset.saturating_add(number * PART_BYTES as u64));
        let reads = parts.into_iter().zip(offsets).map(|(part, offset)| async move {
            self.file.read_exact_at(part, offset).await.into_buffer()
        });
        match try_join_all(reads).await.map_err(io::Error::from) {
            Ok(parts) => Ok(join(parts)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.out_of_file(offset..offset.saturating_add(length as u64)))
            }
            Err(error) => Err(error),
        }
    }

    /// Refuses a range that the file does not have, before memory is allocated for it. A length from a damaged
    /// footer may be larger than all memory.
    fn check_range(&self, offset: u64, length: usize) -> io::Result<()> {
        if offset > i64::MAX as u64 {
            // The kernel's answer to such a read.
            return Err(Errno::INVAL.into());
        }
        let about = fstat(&self.file)?;
        let end = offset.saturating_add(length as u64);
        if FileType::from_raw_mode(about.st_mode).is_file() && end > about.st_size as u64 {
            return Err(self.out_of_file(offset..end));
        }
        Ok(())
    }

    fn out_of_file(&self, range: Range<u64>) -> io::Error {
        let Range { start, end } = range;
        let text = format!("{}: bytes {start}..{end}: the file ends before them", self.uri);
        io::Error::new(io::ErrorKind::UnexpectedEof, text)
    }
}

/// Runs a read in a task of the runtime that polls it, or here if that is none that Vortex finds.
async fn in_task(
    read: impl Future<Output = io::Result<Bytes>> + Send + 'static,
) -> io::Result<Bytes> {
    let Some(handle) = Handle::find() else { return read.await };
    let mut task = handle.spawn_io(read);
    match poll_fn(|context| task.poll_join(context)).await {
        JoinOutcome::Completed(result) => result,
        JoinOutcome::Panicked(payload) => resume_unwind(payload),
        JoinOutcome::Aborted => Err(io::Error::other("the runtime ended before the read")),
    }
}

impl VortexReadAt for FileSource {
    fn uri(&self) -> Option<&Arc<str>> {
        Some(&self.uri)
    }

    fn coalesce_config(&self) -> Option<CoalesceConfig> {
        Some(self.coalescing)
    }

    fn concurrency(&self) -> usize {
        self.concurrency
    }

    fn size(&self) -> BoxFuture<'static, VortexResult<u64>> {
        let file = self.file.clone();
        async move { Ok(file.metadata().await.map_err(io::Error::from)?.len()) }.boxed()
    }

    fn read_at(
        &self,
        offset: u64,
        length: usize,
        alignment: Alignment,
    ) -> BoxFuture<'static, VortexResult<BufferHandle>> {
        let source = self.clone();
        async move {
            let buffer = match length {
                0 => ByteBuffer::empty_aligned(alignment),
                _ => {
                    let read = async move { source.read(offset, length, alignment).await };
                    let bytes =
                        if length < TASK_BYTES { read.await? } else { in_task(read).await? };
                    ByteBuffer::from_bytes_aligned(bytes, alignment)
                }
            };
            Ok(BufferHandle::new_host(buffer))
        }
        .boxed()
    }
}
