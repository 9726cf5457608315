//! A connection of which is known whether it is idle, so that its buffers can be given up meanwhile.
//!
//! hyper keeps 16 KiB of buffers for each connection (hyper 1, proto/h1/io.rs). Ten thousand clients that send a request
//! now and then would take 160 MiB. An idle connection is taken out of hyper, and goes back when it has bytes.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::intake::listener::Readable;

/// What a connection does.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Requests that are not answered.
    active: AtomicUsize,
    /// The last read found nothing.
    is_waiting: AtomicBool,
    /// Bytes came after the last answer: the beginning of a request.
    has_input: AtomicBool,
    /// The socket had no room for all of an answer.
    has_unwritten: AtomicBool,
    /// Bytes of answers that it took.
    written: AtomicUsize,
}

impl Watch {
    /// Whether nothing of a request or of an answer is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.active.load(Ordering::Relaxed) == 0
            && self.is_waiting.load(Ordering::Relaxed)
            && !self.has_input.load(Ordering::Relaxed)
            && !self.has_unwritten.load(Ordering::Relaxed)
    }

    /// Whether a request is not answered yet.
    pub(super) fn is_asked(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0 || self.has_unwritten.load(Ordering::Relaxed)
    }

    /// How many bytes of answers were written, if the rest of one waits for its client to read.
    fn unread_after(&self) -> Option<usize> {
        let written = self.written.load(Ordering::Relaxed);
        self.has_unwritten.load(Ordering::Relaxed).then_some(written)
    }

    /// A request began. It ends when the answer is dropped.
    pub(super) fn begin(self: &Arc<Watch>) -> Active {
        self.active.fetch_add(1, Ordering::Relaxed);
        Active(self.clone())
    }
}

/// For how long a client has read nothing of an answer that waits for it.
#[derive(Debug, Default)]
pub(super) struct Unread(Option<(usize, Instant)>);

impl Unread {
    /// So long, as far as was looked. It is to be asked again and again.
    pub(super) fn lasts(&mut self, watch: &Watch) -> Duration {
        let after = watch.unread_after();
        if self.0.map(|(after, _)| after) != after {
            self.0 = after.map(|after| (after, Instant::now()));
        }
        self.0.map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }
}

/// A request that is not answered.
pub(super) struct Active(Arc<Watch>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream with its watch.
#[derive(Debug)]
pub(super) struct Watched<S> {
    pub(super) stream: S,
    /// Bytes that were read and not used, before those of the stream.
    pub(super) before: Bytes,
    pub(super) watch: Arc<Watch>,
}

impl<S: Readable> Watched<S> {
    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = written {
            self.watch.written.fetch_add(count, Ordering::Relaxed);
        }
        self.watch.is_waiting.store(false, Ordering::Relaxed);
        self.watch.has_input.store(false, Ordering::Relaxed);
        self.watch.has_unwritten.store(written.is_pending(), Ordering::Relaxed);
        written
    }
}

impl<S: Readable> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let own = self.get_mut();
        let before = buffer.filled().len();
        let read = if own.before.is_empty() {
            Pin::new(&mut own.stream).poll_read(context, buffer)
        } else {
            let count = own.before.len().min(buffer.remaining());
            buffer.put_slice(&own.before.split_to(count));
            Poll::Ready(Ok(()))
        };
        own.watch.is_waiting.store(read.is_pending(), Ordering::Relaxed);
        if buffer.filled().len() > before {
            own.watch.has_input.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl<S: Readable> AsyncWrite for Watched<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let own = self.get_mut();
        let written = Pin::new(&mut own.stream).poll_write(context, bytes);
        own.wrote(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let own = self.get_mut();
        let written = Pin::new(&mut own.stream).poll_write_vectored(context, pieces);
        own.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let own = self.get_mut();
        let flushed = Pin::new(&mut own.stream).poll_flush(context);
        // It is asked to flush only when it has taken all that there is.
        own.watch.has_unwritten.store(flushed.is_pending(), Ordering::Relaxed);
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
