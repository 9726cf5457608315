//! Tokio's traits of streams, over [`Buffered`].

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use super::{Buffered, Stream};

impl<S: Stream> AsyncRead for Buffered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let received = ready!(self.poll_received(context))?;
        let count = received.len().min(into.remaining());
        into.put_slice(&received[..count]);
        self.take_received(count);
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
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, &[IoSlice::new(bytes)]).map_err(io::Error::from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, parts).map_err(io::Error::from)
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
