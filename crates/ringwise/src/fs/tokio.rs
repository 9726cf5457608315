//! Tokio's traits of streams, over a [`Cursor`].

use std::{
    io::{self, IoSlice, SeekFrom},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

use super::cursor::Cursor;

impl AsyncRead for Cursor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let ahead = ready!(self.poll_ahead(context))?;
        let count = ahead.len().min(into.remaining());
        into.put_slice(&ahead[..count]);
        self.take_ahead(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncBufRead for Cursor {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.get_mut().poll_ahead(context)
    }

    fn consume(mut self: Pin<&mut Self>, count: usize) {
        self.take_ahead(count);
    }
}

impl AsyncWrite for Cursor {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_some(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_some(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(context)
    }
}

impl AsyncSeek for Cursor {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        self.begin_seek(to)
    }

    fn poll_complete(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        ready!(self.poll_settled(context))?;
        Poll::Ready(Ok(self.position()))
    }
}
