//! A stream with a buffer of its own for each direction, as programs for tokio or futures want it.
//!
//! Their traits lend a buffer for the time of a call. So the polling thread itself moves what the socket
//! takes or has now, between the socket and that buffer. The ring needs a buffer until its operation is
//! over, so what has to wait is copied once, through buffers that this type owns. Nothing that is polled
//! and not polled again loses anything. The traits themselves are in the files beside this.
#![cfg_attr(
    not(any(feature = "tokio", feature = "futures-io")),
    allow(dead_code, reason = "without a trait to be used by, it can only be made")
)]

#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "tokio")]
mod tokio;

use std::{
    io::IoSlice,
    ops::Range,
    task::{Context, Poll, ready},
};

use super::{Shutdown, TcpStream, UnixStream};
use crate::{
    buf::{BufResult, Buffer, OwnedBuffer, gather},
    error::{Errno, Error},
    op::Opcode,
    ring::BoxFuture,
};

/// A record of TLS and its frame fit into it (RFC 8446, 5.2).
const BUFFER_BYTES: usize = 17 << 10;
/// Calls of `futures-io` in a row before other tasks run. Tokio's traits use the budget of its tasks.
#[cfg(feature = "futures-io")]
const CALLS_MAX: u8 = 128;

/// A stream on a ring that a [`Buffered`] can be made of: [`TcpStream`] or [`UnixStream`].
///
/// # Examples
///
/// ```
/// use ringwise::{Ring, net::{Address, Buffered, Stream, UnixStream}};
///
/// /// Uses as little memory for a TCP stream as for a Unix stream.
/// fn small<S: Stream>(stream: S) -> Buffered<S> {
///     Buffered::with_capacity(stream, 1024, 1024)
/// }
///
/// let (one, _other) = std::os::unix::net::UnixStream::pair()?;
/// let stream = small(UnixStream::from_std(&Ring::new()?, one)?);
/// assert_eq!(stream.get_ref().peer_address()?, Address::UnixUnnamed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Stream: sealed::Connected + Unpin {}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

mod sealed {
    use crate::net::{TcpStream, UnixStream, connection::Connection};

    pub trait Connected {
        fn connection(&self) -> &Connection;
    }

    impl Connected for TcpStream {
        fn connection(&self) -> &Connection {
            &self.0
        }
    }

    impl Connected for UnixStream {
        fn connection(&self) -> &Connection {
            &self.0
        }
    }
}

/// Gives a stream the traits of tokio (feature `tokio`) or of futures (feature `futures-io`), so that
/// `tokio-rustls` and hyper run over it.
///
/// A write begins to be sent at once. A flush waits until the socket has taken it, and so does the next
/// write. A shutdown (`poll_close` of futures) flushes, and ends the direction.
///
/// # What goes through the ring
///
/// Everything that waits, and nothing else. The polling thread makes the other syscalls itself:
///
/// - A write is one send(2) or sendmsg(2) with `MSG_DONTWAIT` from the caller's memory, without a copy.
///   If the socket takes less, up to 17 KiB of the rest are copied and sent through the ring.
/// - A read is a receive on the ring and a copy. If that receive filled its buffer, the next read into at
///   least as much memory is one recv(2) with `MSG_DONTWAIT`, without a copy.
///
/// If an earlier receive of the stream is in flight, a read goes through the ring, in order. If another send is, for
/// example of a clone, a write waits for its end before it takes anything. On a simulated machine everything goes
/// through the ring.
///
/// On a [restricted](crate::Builder::restrict) ring a write needs [`Opcode::Send`], and a read
/// [`Opcode::Receive`]. Without [`Opcode::SendMessage`], the syscall sends the first part and the ring the others.
///
/// The kernel never sends the caller's memory without copying it into the socket (`MSG_ZEROCOPY`). That
/// needs memory that stays until the other end has it, which these traits do not lend.
///
/// # Memory
///
/// While a read waits, the ring holds its buffer: 17 KiB for each connection unless
/// [`with_capacity`](Self::with_capacity) sets another size. A connection whose socket is full holds as
/// much for the rest of a write, and nothing before.
///
/// # Cancel safety
///
/// A read that is dropped or not polled again loses nothing.
///
/// If the `Buffered` is dropped, what was written is sent all the same. If all clones of its stream are
/// dropped too, the socket has five seconds to take it. Then the rest of the last write is lost, and the
/// connection closes. Flush or shut down before to know that the socket has everything.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "tokio")]
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use ringwise::{Ring, net::{Buffered, ListenOptions, TcpListener, TcpStream}};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let ring = Ring::new()?;
/// let any = "127.0.0.1:0".parse()?;
/// let listener = TcpListener::bind(&ring, &any, &ListenOptions::default())?;
/// let client = TcpStream::connect(&ring, listener.local_address()?).await?;
/// let (server, _address) = listener.accept().await?;
///
/// let (mut client, mut server) = (Buffered::new(client), Buffered::new(server));
/// client.write_all(b"question").await?;
/// client.shutdown().await?;
/// let mut text = String::new();
/// server.read_to_string(&mut text).await?;
/// assert_eq!(text, "question");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Buffered<S = TcpStream> {
    stream: S,
    received: Vec<u8>,
    /// What of it was not read yet.
    left: Range<usize>,
    /// Under way, with the buffer.
    receiving: Option<BoxFuture<BufResult<usize, Buffer>>>,
    /// The last receive filled all of its room, so more is likely to be there.
    was_filled: bool,
    writing: Writing,
    receive_bytes: usize,
    send_bytes: usize,
    #[cfg(feature = "futures-io")]
    calls: u8,
}

/// The buffer that was sent, or that was not begun to be sent because another send was under way.
type Sending = Result<BufResult<(), Buffer>, Buffer>;

enum Writing {
    Idle(Vec<u8>),
    /// For sends that others began on the stream. Nothing was taken from the caller.
    Waiting(BoxFuture<Result<(), Error>>),
    Sending(BoxFuture<Sending>),
    Ending(BoxFuture<Result<(), Error>>),
    Ended,
}

impl<S: Stream> Buffered<S> {
    /// Makes one with buffers of 17 KiB, which hold a record of TLS.
    pub fn new(stream: S) -> Buffered<S> {
        Buffered::with_capacity(stream, BUFFER_BYTES, BUFFER_BYTES)
    }

    /// Makes one with buffers of other sizes, at least one byte each. They are allocated when needed.
    pub fn with_capacity(stream: S, receive_bytes: usize, send_bytes: usize) -> Buffered<S> {
        Buffered {
            stream,
            received: Vec::new(),
            left: 0..0,
            receiving: None,
            was_filled: false,
            writing: Writing::Idle(Vec::new()),
            receive_bytes: receive_bytes.max(1),
            send_bytes: send_bytes.max(1),
            #[cfg(feature = "futures-io")]
            calls: 0,
        }
    }

    /// The stream. Bytes that are received through it are missing here.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The stream, for use without buffers. Its next receive gives the bytes that were received and not read,
    /// and its next send comes after what was written. The future waits for a receive of a clone that is in
    /// flight.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, bytes that were received and not read are lost, also for clones of the
    /// stream. The same holds if the `Buffered` is dropped.
    pub async fn into_inner(self) -> S {
        let Buffered { stream, received, left, receiving, writing, .. } = self;
        // Operations in flight stay with the stream.
        drop((receiving, writing));
        if !left.is_empty() {
            stream.connection().give_back(&received[left]).await;
        }
        stream
    }

    /// What was received and not read yet, or waits for some: nothing at the end of the stream.
    fn poll_received(&mut self, context: &mut Context<'_>) -> Poll<Result<&[u8], Error>> {
        while self.left.is_empty() {
            let receive = self.receiving.get_or_insert_with(|| {
                let mut buffer = std::mem::take(&mut self.received);
                buffer.resize(self.receive_bytes, 0);
                let connection = self.stream.connection().clone();
                Box::pin(async move { connection.receive(buffer.into(), None).await })
            });
            let BufResult(result, buffer) = ready!(receive.as_mut().poll(context));
            self.receiving = None;
            self.received = Vec::from_buffer(buffer);
            let count = *result.as_ref().unwrap_or(&0);
            self.left = 0..count;
            self.was_filled = count == self.receive_bytes;
            if result? == 0 {
                break;
            }
        }
        Poll::Ready(Ok(&self.received[self.left.clone()]))
    }

    /// So many bytes were read.
    fn take_received(&mut self, count: usize) {
        self.left.start = self.left.end.min(self.left.start + count);
    }

    /// Lets other tasks run if this one has made many calls that may all have been served at once.
    #[cfg(feature = "futures-io")]
    fn poll_turn(&mut self, context: &Context<'_>) -> Poll<()> {
        self.calls = (self.calls + 1) % CALLS_MAX;
        if self.calls > 0 {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether a read into so much memory is to ask the socket before it waits.
    fn expects_more(&self, room: usize) -> bool {
        let is_idle = self.left.is_empty() && self.receiving.is_none();
        is_idle && self.was_filled && room >= self.receive_bytes
    }

    /// Receives what the socket has now. Nothing if that has to be waited for.
    fn receive_at_once(&mut self, into: &mut [u8]) -> Option<Result<usize, Error>> {
        let room = into.len();
        let received = self.stream.connection().receive_at_once(into);
        self.was_filled = matches!(received, Some(Ok(count)) if count == room);
        received
    }

    /// Sends what the socket takes now, and begins to send of the rest as much as there is room for.
    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        loop {
            ready!(self.poll_sent(context))?;
            let Writing::Idle(buffer) = &mut self.writing else {
                let gone = Error::new(Opcode::Send, Errno(libc::EPIPE));
                return Poll::Ready(Err(gone.advise("this direction of the stream was shut down")));
            };
            let total: usize = parts.iter().map(|part| part.len()).sum();
            if total == 0 {
                return Poll::Ready(Ok(0));
            }
            let connection = self.stream.connection().clone();
            let sent = match connection.send_at_once(parts) {
                Some(Ok(sent)) if sent < total => sent,
                Some(result) => return Poll::Ready(result),
                None => 0,
            };
            let mut buffer = std::mem::take(buffer);
            gather(&mut buffer, parts, sent, self.send_bytes);
            let count = sent + buffer.len();
            let flushing = connection.clone();
            let send = async move { connection.send_all_now(buffer.into()).await };
            let mut send: BoxFuture<Sending> = Box::pin(send);
            // So that it is under way, whether or not anybody polls again.
            match send.as_mut().poll(context) {
                Poll::Pending => self.writing = Writing::Sending(send),
                Poll::Ready(Ok(done)) => self.sent(done)?,
                Poll::Ready(Err(_)) if sent > 0 => return Poll::Ready(Ok(sent)),
                Poll::Ready(Err(_)) => {
                    self.writing =
                        Writing::Waiting(Box::pin(async move { flushing.flush().await }));
                    continue;
                }
            }
            return Poll::Ready(Ok(count));
        }
    }

    /// Waits until what was written is sent.
    fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match &mut self.writing {
            Writing::Idle(_) | Writing::Ending(_) | Writing::Ended => Poll::Ready(Ok(())),
            Writing::Waiting(others) => {
                let result = ready!(others.as_mut().poll(context));
                self.writing = Writing::Idle(Vec::new());
                Poll::Ready(result)
            }
            Writing::Sending(send) => {
                let done = ready!(send.as_mut().poll(context));
                // It was begun, so it does not give the buffer back.
                Poll::Ready(done.map_or(Ok(()), |done| self.sent(done)))
            }
        }
    }

    /// A send has ended.
    fn sent(&mut self, BufResult(result, buffer): BufResult<(), Buffer>) -> Result<(), Error> {
        self.writing = Writing::Idle(Vec::from_buffer(buffer));
        result
    }

    /// Waits until what was written is sent, and ends the direction.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        ready!(self.poll_sent(context))?;
        if let Writing::Idle(_) = self.writing {
            let connection = self.stream.connection().clone();
            let end = async move { connection.shutdown(Shutdown::Write).await };
            self.writing = Writing::Ending(Box::pin(end));
        }
        let Writing::Ending(end) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let result = ready!(end.as_mut().poll(context));
        self.writing = Writing::Ended;
        match result {
            // The other end has gone: there is nothing to end.
            Err(error) if error.errno() == libc::ENOTCONN => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}

impl<S: std::fmt::Debug> std::fmt::Debug for Buffered<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffered").field("stream", &self.stream).finish_non_exhaustive()
    }
}
