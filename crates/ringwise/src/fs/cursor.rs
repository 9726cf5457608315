//! A position in a file, for programs that read and write by the stream traits of tokio or futures.
//!
//! Those traits lend a buffer for one call, while a ring needs it until the operation is over. So a cursor
//! copies bytes once, through a buffer of its own. The traits are in `tokio.rs` and `futures_io.rs`.
#![cfg_attr(
    not(any(feature = "tokio", feature = "futures-io")),
    allow(dead_code, reason = "without a trait to be used by, it can only be made")
)]

use std::{
    io::{self, IoSlice, SeekFrom},
    ops::Range,
    task::{Context, Poll, ready},
};

use super::file::File;
use crate::{
    buf::{BufResult, gather},
    error::Error,
    ring::BoxFuture,
};

/// A larger buffer did not read faster from the page cache, nor from the device.
const BUFFER_BYTES: usize = 128 << 10;

/// A position in a [`File`], with the traits of tokio (feature `tokio`) or of futures (feature
/// `futures-io`): read, buffered read, write and seek.
///
/// `tokio::io::copy`, `lines`, `read_to_end` and `tokio_util`'s `ReaderStream` run over it. A cursor has one
/// position for reads and writes, as an open file of [`std::fs`] has. Several cursors of one file are
/// independent.
///
/// A read takes up to 128 KiB from the file, and later reads are served from memory
/// ([`with_capacity`](Self::with_capacity) sets another size). They do not see what others write to this part
/// of the file meanwhile. Wrapping a cursor in a `BufReader` is of no use.
///
/// A write is begun at once. A flush waits until the file has it, and so does the next operation of the
/// cursor. Its error is reported there. After a failed write, seek before the next one. A flush or shutdown
/// does not make data durable: call [`File::sync_all`] after it. If a write that overlaps was dropped and is still
/// in flight, for example of another cursor, a write waits for its end before it takes anything.
///
/// A file that was opened to append writes at its end, whatever the position is. Seek before a read that is to follow.
///
/// [`SeekFrom::End`] counts from the length in the file's metadata, which is 0 for a block device.
///
/// # Pipes, terminals and sockets
///
/// They have no positions: every seek fails with `ESPIPE`, and [`position`](Self::position) stays 0. Reads and writes
/// do not wait for each other, so the error of a write is reported by the next write or flush. What was read ahead
/// is in the cursor alone, and is lost with it.
///
/// # Cancel safety
///
/// A read that is dropped or not polled again loses nothing. A seek that is dropped still takes place, before the
/// next operation. If the cursor is dropped before a flush, a write that has begun goes on to its end, but its error
/// is not reported.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "tokio")]
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use ringwise::{OpenOptions, Ring, fs::{Cursor, File}};
/// use tokio::io::{AsyncBufReadExt, AsyncSeekExt, AsyncWriteExt};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("names");
/// let ring = Ring::new()?;
/// let options = OpenOptions::new().read(true).write(true).create(true);
/// let mut cursor = Cursor::new(File::open(&ring, &path, options).await?);
/// cursor.write_all(b"first\nsecond\n").await?;
/// cursor.rewind().await?;
/// let mut lines = cursor.lines();
/// while let Some(line) = lines.next_line().await? {
///     println!("{line}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Cursor {
    file: File,
    /// Where the next read or write of the caller begins.
    position: u64,
    /// It is a pipe, a terminal or a socket: reads and writes have nothing to do with each other.
    is_stream: bool,
    capacity: usize,
    buffer: Vec<u8>,
    /// The part of the buffer that has the file's bytes from `position` on.
    ahead: Range<usize>,
    /// Under way, with the buffer.
    reading: Option<BoxFuture<BufResult<usize, Vec<u8>>>>,
    writing: Option<BoxFuture<BufResult<(), Vec<u8>>>>,
    /// The memory for the next write.
    spare: Vec<u8>,
    /// Waits for writes that others have dropped, before a write at this position.
    settling: Option<(u64, BoxFuture<Result<(), Error>>)>,
    seeking: Option<SeekingFromEnd>,
}

/// A seek that has to know how long the file is.
struct SeekingFromEnd {
    offset: i64,
    len: BoxFuture<Result<u64, Error>>,
}

impl Cursor {
    /// Makes a cursor at the beginning of a file.
    pub fn new(file: File) -> Cursor {
        Cursor::with_capacity(file, BUFFER_BYTES)
    }

    /// Makes a cursor with a buffer of so many bytes, at least one. It is allocated when needed.
    ///
    /// A cursor that reads and writes has two buffers.
    pub fn with_capacity(file: File, bytes: usize) -> Cursor {
        Cursor {
            position: 0,
            is_stream: !file.has_positions(),
            file,
            capacity: bytes.max(1),
            buffer: Vec::new(),
            ahead: 0..0,
            reading: None,
            writing: None,
            spare: Vec::new(),
            settling: None,
            seeking: None,
        }
    }

    /// The file.
    pub fn get_ref(&self) -> &File {
        &self.file
    }

    /// The file, for use at offsets. Flush before, to know how the last write ended.
    pub fn into_inner(self) -> File {
        self.file
    }

    /// Where the next read or write begins, in bytes. A seek from the end counts when it is over.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What the file has at the position, or waits for it: nothing at the end of the file.
    pub(super) fn poll_ahead(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<&[u8], io::Error>> {
        if !self.is_stream {
            ready!(self.poll_settled(context))?;
        }
        if self.ahead.is_empty() {
            let reading = match &mut self.reading {
                Some(reading) => reading,
                None => {
                    let read = self.begin_read();
                    self.reading.insert(read)
                }
            };
            let BufResult(result, buffer) = ready!(reading.as_mut().poll(context));
            (self.reading, self.buffer) = (None, buffer);
            self.ahead = 0..result?;
        }
        Poll::Ready(Ok(&self.buffer[self.ahead.clone()]))
    }

    fn begin_read(&mut self) -> BoxFuture<BufResult<usize, Vec<u8>>> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(self.capacity, 0);
        let (file, position) = (self.file.clone(), self.position);
        Box::pin(async move { file.read_at(buffer, position).await })
    }

    /// The caller has taken so many of the bytes at the position.
    pub(super) fn take_ahead(&mut self, count: usize) {
        let count = count.min(self.ahead.len());
        self.ahead.start += count;
        self.go_on(count);
    }

    /// So many bytes were read or written at the position.
    fn go_on(&mut self, count: usize) {
        if !self.is_stream {
            self.position = self.position.saturating_add(count as u64);
        }
    }

    /// Begins to write as much as the buffer has room for.
    pub(super) fn poll_write_some(
        &mut self,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize, io::Error>> {
        ready!(self.poll_settled(context))?;
        if parts.iter().all(|part| part.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_clear(context))?;
        if !self.is_stream {
            self.forget_ahead();
        }
        let mut buffer = std::mem::take(&mut self.spare);
        gather(&mut buffer, parts, 0, self.capacity);
        let count = buffer.len();
        let (file, position) = (self.file.clone(), self.position);
        let write = async move { file.write_all_at(buffer, position).await };
        self.writing = Some(Box::pin(write));
        self.go_on(count);
        // So that it is under way, whether or not anybody polls again.
        match self.poll_written(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(count)),
        }
    }

    /// Waits for the writes that others have dropped where the next one would be. It would wait for them too, but would
    /// be lost meanwhile if the cursor were dropped.
    fn poll_clear(&mut self, context: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        let here = self.position;
        self.settling.take_if(|(position, _)| *position != here);
        if self.settling.is_none() && !self.file.has_abandoned() {
            return Poll::Ready(Ok(()));
        }
        let file = self.file.clone();
        let end = if self.is_stream { u64::MAX } else { here.saturating_add(self.capacity as u64) };
        let (_, settling) = self.settling.get_or_insert_with(|| {
            (here, Box::pin(async move { file.settle_at(here..end).await }))
        });
        let result = ready!(settling.as_mut().poll(context));
        self.settling = None;
        Poll::Ready(result.map_err(io::Error::from))
    }

    /// Waits until the file has what was written.
    pub(super) fn poll_written(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), io::Error>> {
        let Some(write) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let BufResult(result, buffer) = ready!(write.as_mut().poll(context));
        (self.writing, self.spare) = (None, buffer);
        Poll::Ready(result.map_err(io::Error::from))
    }

    /// Begins to seek; [`poll_settled`](Self::poll_settled) ends it.
    pub(super) fn begin_seek(&mut self, to: SeekFrom) -> Result<(), io::Error> {
        if self.is_stream {
            return Err(io::Error::from_raw_os_error(libc::ESPIPE));
        }
        self.seeking = None;
        match to {
            SeekFrom::Start(position) => self.move_to(Some(position)),
            SeekFrom::Current(offset) => self.move_to(self.position.checked_add_signed(offset)),
            SeekFrom::End(offset) => {
                let file = self.file.clone();
                let len = Box::pin(async move { Ok(file.metadata().await?.len()) });
                self.seeking = Some(SeekingFromEnd { offset, len });
                Ok(())
            }
        }
    }

    /// Whether this seek has begun and is not over.
    #[cfg_attr(not(feature = "futures-io"), allow(dead_code, reason = "tokio's trait begins once"))]
    pub(super) fn is_seeking(&self, to: SeekFrom) -> bool {
        self.seeking.as_ref().is_some_and(|seeking| SeekFrom::End(seeking.offset) == to)
    }

    /// Waits until the last write and the last seek are over. A seek from the end counts what was written
    /// before it.
    pub(super) fn poll_settled(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), io::Error>> {
        ready!(self.poll_written(context))?;
        let Some(SeekingFromEnd { offset, len }) = &mut self.seeking else {
            return Poll::Ready(Ok(()));
        };
        let (len, offset) = (ready!(len.as_mut().poll(context)), *offset);
        self.seeking = None;
        Poll::Ready(self.move_to(len?.checked_add_signed(offset)))
    }

    /// Goes to a position, if there is such a one, and keeps what was read of the file from there on.
    fn move_to(&mut self, position: Option<u64>) -> Result<(), io::Error> {
        let Some(position) = position else {
            let text = "a seek to before the file's first byte, or beyond all offsets";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        let skipped = position.checked_sub(self.position).and_then(|count| count.try_into().ok());
        match skipped {
            Some(0) => {}
            Some(count) if count < self.ahead.len() => self.ahead.start += count,
            _ => self.forget_ahead(),
        }
        self.position = position;
        Ok(())
    }

    /// Drops what was read ahead, and cancels a read: both are of an older position or content.
    fn forget_ahead(&mut self) {
        self.ahead = 0..0;
        self.reading = None;
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Cursor { file, position, .. } = self;
        f.debug_struct("Cursor")
            .field("file", file)
            .field("position", position)
            .finish_non_exhaustive()
    }
}
