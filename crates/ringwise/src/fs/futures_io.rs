//! The traits of streams that executors other than tokio's use, over a [`Cursor`] and [`Chunks`].

use std::{
    io::{self, IoSlice, SeekFrom},
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use futures_io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite};

use super::{chunks::Chunks, cursor::Cursor};
use crate::error::Error;

impl AsyncRead for Cursor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let ahead = ready!(self.poll_ahead(context))?;
        let count = ahead.len().min(into.len());
        into[..count].copy_from_slice(&ahead[..count]);
        self.take_ahead(count);
        Poll::Ready(Ok(count))
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

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(context)
    }
}

impl AsyncSeek for Cursor {
    fn poll_seek(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        // It is called again with the same words until the seek is over. With other words an older seek was dropped,
        // which ends before.
        ready!(self.poll_written(context))?;
        if !self.is_seeking(to) {
            ready!(self.poll_settled(context))?;
            self.begin_seek(to)?;
        }
        ready!(self.poll_settled(context))?;
        Poll::Ready(Ok(self.position()))
    }
}

impl Stream for Chunks {
    type Item = Result<Vec<u8>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_chunk(context)
    }
}
