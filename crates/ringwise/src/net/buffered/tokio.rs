//! Tokio's traits of streams, over [`Buffered`].
//!
//! Reads and writes that need no waiting use up the task's budget, as those of tokio's sockets do, so that a
//! task with a fast peer lets others run.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf},
    task::coop,
};

use super::{Buffered, Stream};

/// The most that one recv(2) is asked for: memory that the caller has not initialised is zeroed before.
const AT_ONCE_BYTES_MAX: usize = 64 << 10;

impl<S: Stream> AsyncRead for Buffered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let budget = ready!(coop::poll_proceed(context));
        if self.expects_more(into.remaining()) {
            let room = into.remaining().min(AT_ONCE_BYTES_MAX);
            if let Some(received) = self.receive_at_once(into.initialize_unfilled_to(room)) {
                budget.made_progress();
                into.advance(received?);
                return Poll::Ready(Ok(()));
            }
        }
        let received = ready!(self.poll_received(context))?;
        let count = received.len().min(into.remaining());
        into.put_slice(&received[..count]);
        self.take_received(count);
        budget.made_progress();
        Poll::Ready(Ok(()))
    }
}

impl<S: Stream> AsyncBufRead for Buffered<S> {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.get_mut().poll_received(context).map_err(io::Error::from)
    }

    fn consume(mut self: Pin<&mut Self>, count: usize) {
        self.take_received(count);
    }
}

impl<S: Stream> AsyncWrite for Buffered<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let budget = ready!(coop::poll_proceed(context));
        let written = ready!(self.poll_send(context, parts));
        budget.made_progress();
        Poll::Ready(written.map_err(io::Error::from))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(context).map_err(io::Error::from)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_end(context).map_err(io::Error::from)
    }
}
