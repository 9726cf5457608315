//! The traits of streams that executors other than tokio's use, over [`Buffered`].

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite};

use super::{Buffered, Stream};

impl<S: Stream> AsyncRead for Buffered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_turn(context));
        if self.expects_more(into.len())
            && let Some(received) = self.receive_at_once(into)
        {
            return Poll::Ready(received.map_err(io::Error::from));
        }
        let received = ready!(self.poll_received(context))?;
        let count = received.len().min(into.len());
        into[..count].copy_from_slice(&received[..count]);
        self.take_received(count);
        Poll::Ready(Ok(count))
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
        ready!(self.poll_turn(context));
        self.poll_send(context, parts).map_err(io::Error::from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(context).map_err(io::Error::from)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_end(context).map_err(io::Error::from)
    }
}
