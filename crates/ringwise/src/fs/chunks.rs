//! A part of a file as a stream of buffers, several of which are read at a time.
//!
//! It is for programs that take a file in order and want the device busy meanwhile, for instance to send it
//! as the body of a response.

use std::{
    collections::VecDeque,
    future::poll_fn,
    ops::Range,
    task::{Context, Poll, ready},
};

use super::file::File;
use crate::{buf::BufResult, error::Error, ring::BoxFuture};

const CHUNK_BYTES_MAX: usize = 1 << 30;

/// The content of a [`File`] in order, in buffers of one size, with reads ahead of the caller.
/// [`File::chunks`] makes it. With the feature `futures-io` it is a `Stream`.
///
/// Each chunk follows the one before without a gap. All chunks but the last have the full length, with two
/// exceptions. A chunk is shorter if its read was: of a file that is cut meanwhile, of a pipe, or of a file without
/// a length (in /proc). If the file grows while it is read, the stream goes on to the new end, and the chunk at the old
/// end may be shorter. After an error the stream ends.
///
/// # Cancel safety
///
/// A [`next`](Self::next) that is dropped loses nothing. If the stream is dropped, its reads are cancelled.
///
/// # Examples
///
/// ```
/// use ringwise::{OpenOptions, Ring, fs::File};
///
/// # futures::executor::block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// # std::fs::write(&path, vec![7; 1_000_000])?;
/// let ring = Ring::new()?;
/// let file = File::open(&ring, &path, OpenOptions::new().read(true)).await?;
/// // Four reads of 128 KiB each are under way at a time.
/// let mut chunks = file.chunks(0..u64::MAX, 128 << 10, 4);
/// let mut total = 0;
/// while let Some(chunk) = chunks.next().await {
///     total += chunk?.len();
/// }
/// assert_eq!(total, 1_000_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct Chunks {
    file: File,
    chunk_bytes: usize,
    in_flight: usize,
    /// What no read was begun for yet.
    rest: Range<u64>,
    len: Len,
    /// In the order of their offsets.
    reads: VecDeque<Read>,
}

/// How long the file is, which bounds the reads ahead.
enum Len {
    Asked(BoxFuture<Result<u64, Error>>),
    Known(u64),
}

/// One read, and what became of it.
struct Read {
    range: Range<u64>,
    state: State,
}

enum State {
    Begun(BoxFuture<BufResult<usize, Vec<u8>>>),
    Done(BufResult<usize, Vec<u8>>),
}

impl Read {
    fn poll(&mut self, context: &mut Context<'_>) {
        if let State::Begun(task) = &mut self.state
            && let Poll::Ready(done) = task.as_mut().poll(context)
        {
            self.state = State::Done(done);
        }
    }
}

impl File {
    /// Reads a range of the file in order, in buffers of `chunk_bytes` (1 to 1 GiB), with up to `in_flight`
    /// reads at a time (at least 1). The range may go beyond the end of the file.
    ///
    /// The chunks of a direct file are copied once, because their memory is not aligned.
    pub fn chunks(&self, range: Range<u64>, chunk_bytes: usize, in_flight: usize) -> Chunks {
        let file = self.clone();
        let len = Box::pin(async move { Ok(file.metadata().await?.len()) });
        Chunks {
            file: self.clone(),
            chunk_bytes: chunk_bytes.clamp(1, CHUNK_BYTES_MAX),
            in_flight: in_flight.max(1),
            rest: range,
            len: Len::Asked(len),
            reads: VecDeque::new(),
        }
    }
}

impl Chunks {
    /// The next part of the file, or nothing at its end or that of the range.
    ///
    /// # Errors
    ///
    /// What a read failed with, after all chunks before it.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, Error>> {
        poll_fn(|context| self.poll_chunk(context)).await
    }

    pub(super) fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Vec<u8>, Error>>> {
        let len = match ready!(self.poll_len(context)) {
            Ok(len) => len,
            Err(error) => return self.end(Some(error)),
        };
        // All of them, because each may have several parts.
        self.reads.iter_mut().for_each(|read| read.poll(context));
        self.begin_reads(len, context);
        let Some(first) = self.reads.pop_front() else { return Poll::Ready(None) };
        let State::Done(BufResult(result, mut bytes)) = first.state else {
            self.reads.push_front(first);
            return Poll::Pending;
        };
        let count = match result {
            Ok(0) => return self.end(None),
            Ok(count) => count,
            Err(error) => return self.end(Some(error)),
        };
        let wanted = (first.range.end - first.range.start) as usize;
        bytes.truncate(count.min(wanted));
        if count < wanted {
            // Either the file is shorter now, or the read was. The reads behind it have left a gap.
            self.reads.clear();
            self.rest.start = first.range.start + count as u64;
        }
        self.begin_reads(len, context);
        Poll::Ready(Some(Ok(bytes)))
    }

    fn poll_len(&mut self, context: &mut Context<'_>) -> Poll<Result<u64, Error>> {
        match &mut self.len {
            Len::Known(len) => Poll::Ready(Ok(*len)),
            Len::Asked(task) => {
                let len = ready!(task.as_mut().poll(context))?;
                self.len = Len::Known(len);
                Poll::Ready(Ok(len))
            }
        }
    }

    /// Begins the reads there is room for. Beyond the known length there is one at a time: it tells whether
    /// the file has grown, or has a length at all.
    fn begin_reads(&mut self, len: u64, context: &mut Context<'_>) {
        while self.reads.len() < self.in_flight && !self.rest.is_empty() {
            let is_known = self.rest.start < len;
            if !is_known && !self.reads.is_empty() {
                return;
            }
            let limit = if is_known { self.rest.end.min(len) } else { self.rest.end };
            let start = self.rest.start;
            let end = limit.min(start.saturating_add(self.chunk_bytes as u64));
            self.rest.start = end;
            let (file, buffer) = (self.file.clone(), Vec::with_capacity((end - start) as usize));
            let task = Box::pin(async move { file.read_at(buffer, start).await });
            let mut read = Read { range: start..end, state: State::Begun(task) };
            read.poll(context);
            self.reads.push_back(read);
        }
    }

    /// Ends the stream.
    fn end(&mut self, error: Option<Error>) -> Poll<Option<Result<Vec<u8>, Error>>> {
        self.reads.clear();
        self.rest = 0..0;
        self.len = Len::Known(0);
        Poll::Ready(error.map(Err))
    }
}

impl std::fmt::Debug for Chunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Chunks { file, rest, .. } = self;
        f.debug_struct("Chunks").field("file", file).field("rest", rest).finish_non_exhaustive()
    }
}
