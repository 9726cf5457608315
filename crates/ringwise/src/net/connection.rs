//! A connected stream socket on a ring: what TCP and Unix streams have in common.
//!
//! Each direction is a lane with one operation at a time. If a future is dropped, the bytes that its
//! operation moved are kept. It knows no addresses.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{
    Shutdown,
    flowing::Receiving,
    lane::{Lane, Turn, is_of_the_ring},
};
use crate::{
    buf::{BufResult, Buffer, BufferGroup},
    descriptor::Descriptor,
    error::{Errno, Error},
    flight::completion::Completion,
    op::{Opcode, Operation},
    ring::{Ring, Timer, oversee},
};

/// How long the send of a dropped future has after its stream was dropped too.
const LAST_SEND_TIME: Duration = Duration::from_secs(5);

/// A connected stream socket. Clones share it.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) ring: Ring,
    pub(super) socket: Descriptor,
    pub(super) lanes: Arc<Lanes>,
}

#[derive(Debug, Default)]
pub(super) struct Lanes {
    pub(super) receiving: Lane<Taken>,
    pub(super) sending: Lane<()>,
}

impl Drop for Lanes {
    /// Otherwise a peer that reads nothing would keep the descriptor open for as long as it likes.
    fn drop(&mut self) {
        if let Some(send) = self.sending.take_last() {
            oversee(send, Some(LAST_SEND_TIME), ());
        }
    }
}

/// Bytes that receives took out of the socket after their futures were dropped.
#[derive(Debug, Default)]
pub(super) struct Taken {
    bytes: VecDeque<u8>,
    /// The kernel reports it once.
    error: Option<Error>,
}

impl Taken {
    fn keep(&mut self, done: Completion) {
        match done.result() {
            Ok(mut count) => {
                for buffer in done.into_buffers() {
                    let part = count.min(buffer.selected().len());
                    self.bytes.extend(&buffer.selected()[..part]);
                    count -= part;
                }
            }
            // It was asked to end, or never began.
            Err(error) if is_of_the_ring(&error) => {}
            Err(error) => self.error = Some(error),
        }
    }

    /// Whether bytes or an error are kept.
    pub(super) fn has_some(&self) -> bool {
        !self.bytes.is_empty() || self.error.is_some()
    }

    /// All that is there, or the error that came after it.
    pub(super) fn take_all(&mut self) -> Option<Result<Vec<u8>, Error>> {
        if self.bytes.is_empty() {
            return self.error.take().map(Err);
        }
        Some(Ok(std::mem::take(&mut self.bytes).into()))
    }

    /// Gives out what is kept, or nothing if the socket has to be asked.
    fn serve<'a>(
        &mut self,
        buffers: impl Iterator<Item = &'a mut Buffer>,
    ) -> Option<Result<usize, Error>> {
        if self.bytes.is_empty() {
            return self.error.take().map(Err);
        }
        let mut count = 0;
        for buffer in buffers {
            let part = buffer.len().min(self.bytes.len());
            // What is kept may lie in two pieces.
            let (first, second) = self.bytes.as_slices();
            let split = part.min(first.len());
            buffer.put(0, &first[..split]);
            buffer.put(split, &second[..part - split]);
            self.bytes.drain(..part);
            count += part;
        }
        Some(Ok(count))
    }
}

impl Connection {
    pub(super) fn new(ring: &Ring, socket: Descriptor) -> Connection {
        Connection { ring: ring.clone(), socket, lanes: Arc::default() }
    }

    pub(super) async fn receive(
        &self,
        mut buffer: Buffer,
        after: Option<Duration>,
    ) -> BufResult<usize, Buffer> {
        // The loop refuses a buffer that cannot be written.
        if !buffer.is_writable() {
            return single(self.ring.submit(Operation::recv(&self.socket, buffer)).await);
        }
        let mut timer = Timer::new(&self.ring, after);
        let turn = match self.turn_to_receive(&mut timer).await {
            Ok(turn) => turn,
            Err(error) => return BufResult(Err(error), buffer),
        };
        if let Some(result) = turn.rest().serve(std::iter::once(&mut buffer)) {
            return BufResult(result, buffer);
        }
        let operation = self.ring.submit(Operation::recv(&self.socket, buffer));
        single(turn.make_in(&mut timer, operation).await)
    }

    pub(super) async fn receive_vectored(
        &self,
        mut buffers: Vec<Buffer>,
    ) -> BufResult<usize, Vec<Buffer>> {
        if !buffers.iter().all(Buffer::is_writable) {
            let operation = Operation::recv_vectored(&self.socket, buffers);
            let refused = self.ring.submit(operation).await;
            return BufResult(refused.result(), refused.take_buffers());
        }
        let turn = match self.turn_to_receive(&mut Timer::Endless).await {
            Ok(turn) => turn,
            Err(error) => return BufResult(Err(error), buffers),
        };
        if let Some(result) = turn.rest().serve(buffers.iter_mut()) {
            return BufResult(result, buffers);
        }
        let operation = self.ring.submit(Operation::recv_vectored(&self.socket, buffers));
        let done = turn.make(operation).await;
        BufResult(done.result(), done.take_buffers())
    }

    /// On the lane, with nothing under way and what was taken kept.
    async fn turn_to_receive(&self, timer: &mut Timer) -> Result<Turn<'_, Taken>, Error> {
        let entered = timer.limit(Opcode::Receive, self.lanes.receiving.enter()).await;
        let turn = entered?;
        self.settle_receive(&turn).await;
        Ok(turn)
    }

    async fn settle_receive(&self, turn: &Turn<'_, Taken>) {
        if let Some(receive) = turn.take_set_aside() {
            let done = turn.make(receive).await;
            turn.rest().keep(done);
        }
        turn.settle_flow(Taken::keep).await;
    }

    pub(super) fn receive_many(&self, group: &BufferGroup, credit: usize) -> Receiving<'_> {
        Receiving::new(self, group, credit)
    }

    /// On the lane, for one who receives for a long time.
    pub(super) async fn turn_for_many(&self) -> Turn<'_, Taken> {
        let turn = self.lanes.receiving.enter().await;
        self.settle_receive(&turn).await;
        turn
    }

    /// Sends what the socket takes.
    pub(super) async fn send(&self, buffer: Buffer) -> BufResult<usize, Buffer> {
        match self.turn_to_send(&mut Timer::Endless).await {
            Ok(turn) => {
                let operation = self.ring.submit(Operation::send(&self.socket, buffer));
                single(turn.make(operation).await)
            }
            Err(error) => BufResult(Err(error), buffer),
        }
    }

    /// Sends all.
    pub(super) async fn send_all(
        &self,
        buffer: Buffer,
        after: Option<Duration>,
    ) -> BufResult<(), Buffer> {
        let mut timer = Timer::new(&self.ring, after);
        match self.turn_to_send(&mut timer).await {
            Ok(turn) => self.send_all_on(&turn, &mut timer, buffer).await,
            Err(error) => BufResult(Err(error), buffer),
        }
    }

    /// The same, if no other send is under way at the first poll. If one is, the buffer comes back.
    pub(super) async fn send_all_now(
        &self,
        buffer: Buffer,
    ) -> Result<BufResult<(), Buffer>, Buffer> {
        match self.lanes.sending.try_enter() {
            Some(turn) => Ok(self.send_all_on(&turn, &mut Timer::Endless, buffer).await),
            None => Err(buffer),
        }
    }

    async fn send_all_on(
        &self,
        turn: &Turn<'_, ()>,
        timer: &mut Timer,
        mut buffer: Buffer,
    ) -> BufResult<(), Buffer> {
        let whole = buffer.range();
        let mut sent = 0;
        let result = loop {
            if sent == whole.len() {
                break Ok(());
            }
            let rest = buffer.selecting(whole.start + sent..whole.end);
            let operation = self.ring.submit(Operation::send_all(&self.socket, rest));
            let result;
            BufResult(result, buffer) = single(turn.make_in(timer, operation).await);
            match result {
                Ok(0) => break Err(Error::new(Opcode::Send, Errno(libc::EIO))),
                Ok(count) => sent += count,
                Err(error) => break Err(error),
            }
            // The send may be short because the time is over, or for another reason.
            if sent < whole.len() && timer.is_over() {
                break Err(Error::new(Opcode::Send, Errno(libc::ETIME)));
            }
        };
        BufResult(result, buffer.selecting(whole))
    }

    /// Sends several buffers in turn, all of them where `whole` is wanted.
    pub(super) async fn send_vectored(
        &self,
        mut buffers: Vec<Buffer>,
        whole: bool,
    ) -> BufResult<usize, Vec<Buffer>> {
        let turn = match self.turn_to_send(&mut Timer::Endless).await {
            Ok(turn) => turn,
            Err(error) => return BufResult(Err(error), buffers),
        };
        if !whole {
            let operation = self.ring.submit(Operation::send_vectored(&self.socket, buffers));
            let done = turn.make(operation).await;
            return BufResult(done.result(), done.take_buffers());
        }
        let ranges: Vec<_> = buffers.iter().map(Buffer::range).collect();
        let total = ranges.iter().map(ExactSizeIterator::len).sum();
        let mut sent = 0;
        let result = loop {
            if sent == total {
                break Ok(total);
            }
            let operation = self.ring.submit(Operation::send_all_vectored(&self.socket, buffers));
            let done = turn.make(operation).await;
            let result = done.result();
            buffers = done.into_buffers();
            match result {
                Ok(0) => break Err(Error::new(Opcode::SendMessage, Errno(libc::EIO))),
                Ok(count) => {
                    sent += count;
                    buffers = advance(buffers, count);
                }
                Err(error) => break Err(error),
            }
        };
        let buffers = buffers.into_iter().zip(ranges);
        BufResult(result, buffers.map(|(buffer, range)| buffer.selecting(range)).collect())
    }

    /// On the lane, when all that was begun before is sent.
    async fn turn_to_send(&self, timer: &mut Timer) -> Result<Turn<'_, ()>, Error> {
        let entered = async {
            let turn = self.lanes.sending.enter().await;
            self.settle_send(&turn).await.map(|()| turn)
        };
        timer.limit(Opcode::Send, entered).await?
    }

    /// Waits for the sends of dropped futures, and sends what is missing.
    async fn settle_send(&self, turn: &Turn<'_, ()>) -> Result<(), Error> {
        let mut begun = turn.take_set_aside();
        while let Some(send) = begun {
            let done = turn.make(send).await;
            let (opcode, count) = (done.opcode(), done.result()?);
            let rest = advance(done.into_buffers(), count);
            let is_done = rest.iter().all(|buffer| buffer.selected().is_empty());
            if count == 0 && !is_done {
                return Err(Error::new(Opcode::Send, Errno(libc::EIO)));
            }
            begun = (!is_done).then(|| self.ring.submit(self.send_of_rest(opcode, rest)));
        }
        Ok(())
    }

    /// A send of the same kind, since a restricted ring may not make another.
    fn send_of_rest(&self, opcode: Opcode, mut rest: Vec<Buffer>) -> Operation {
        match rest.pop() {
            Some(last) if opcode == Opcode::Send && rest.is_empty() => {
                Operation::send_all(&self.socket, last)
            }
            last => {
                rest.extend(last);
                Operation::send_all_vectored(&self.socket, rest)
            }
        }
    }

    /// Waits until all that was begun is sent.
    pub(super) async fn flush(&self) -> Result<(), Error> {
        self.turn_to_send(&mut Timer::Endless).await.map(drop)
    }

    pub(super) async fn shutdown(&self, which: Shutdown) -> Result<(), Error> {
        if which == Shutdown::Read {
            return super::shutdown(&self.socket, which);
        }
        let turn = self.turn_to_send(&mut Timer::Endless).await?;
        let result = super::shutdown(&self.socket, which);
        drop(turn);
        result
    }

    pub(super) async fn close(self) -> Result<(), Error> {
        let sent = self.flush().await;
        // A clone keeps the socket open, and may wait for data for ever.
        if Arc::strong_count(&self.lanes) == 1 {
            let turn = self.lanes.receiving.enter().await;
            self.settle_receive(&turn).await;
        }
        let Connection { ring, socket, lanes } = self;
        drop(lanes);
        let closed = ring.submit(Operation::close(socket)).await.result();
        sent.and(closed.map(drop))
    }

    /// The socket itself, if nobody else holds it and no received bytes are kept here.
    pub(super) fn into_socket(self) -> Result<Descriptor, Connection> {
        let Connection { ring, socket, lanes } = self;
        let mut lanes = match Arc::try_unwrap(lanes) {
            Ok(lanes) => lanes,
            Err(lanes) => return Err(Connection { ring, socket, lanes }),
        };
        let taken = lanes.receiving.rest_mut();
        if taken.has_some() || lanes.receiving.is_under_way() || lanes.sending.is_under_way() {
            return Err(Connection { ring, socket, lanes: Arc::new(lanes) });
        }
        Ok(socket)
    }

    /// Puts received bytes back, before those that come next.
    pub(super) async fn give_back(&self, bytes: &[u8]) {
        let turn = self.lanes.receiving.enter().await;
        let mut rest = turn.rest();
        bytes.iter().rev().for_each(|byte| rest.bytes.push_front(*byte));
    }
}

/// The same buffers, each with what is left of it after `count` bytes of them were moved.
fn advance(buffers: Vec<Buffer>, mut count: usize) -> Vec<Buffer> {
    let rest = |buffer: Buffer| {
        let range = buffer.range();
        let part = count.min(range.len());
        count -= part;
        buffer.selecting(range.start + part..range.end)
    };
    buffers.into_iter().map(rest).collect()
}

pub(super) fn single(done: Completion) -> BufResult<usize, Buffer> {
    let result = done.result();
    BufResult(result, done.take_buffer().expect("receives and sends give their buffer back"))
}

/// The functions of both kinds of stream. A stream is a `Connection` with addresses.
macro_rules! stream {
    ($stream:ident, $standard:ty) => {
        impl $stream {
            /// Takes over a socket that is connected already, and sets it to blocking, as a ring needs it.
            ///
            /// # Errors
            ///
            /// What fcntl(2) reports.
            pub fn from_std(ring: &Ring, stream: $standard) -> Result<$stream, Error> {
                stream.set_nonblocking(false).map_err(|error| not_configured(&error))?;
                let socket = Descriptor::of_socket(OwnedFd::from(stream));
                Ok($stream(Connection::new(ring, socket)))
            }

            /// Gives the socket back for use with the standard library.
            ///
            /// # Errors
            ///
            /// The stream itself, if a clone or an operation in flight still holds it, or if it keeps bytes of a
            /// receive whose future was dropped.
            pub fn into_std(self) -> Result<$standard, $stream> {
                let ring = self.0.ring.clone();
                let socket = self.0.into_socket().map_err($stream)?;
                let owned = socket.into_owned();
                owned.map(Into::into).map_err(|socket| $stream(Connection::new(&ring, socket)))
            }

            /// Receives as data comes, each time into a buffer of `group`. The kernel chooses the buffer when there
            /// is data, so a silent connection holds none.
            ///
            /// If `credit` pieces wait to be taken, the socket fills up, which slows the sender down. Until the
            /// kernel stops, later pieces are copied into memory of their own, so that no connection takes more than
            /// its credit from the group.
            ///
            /// If all buffers of the group are out, the receive waits until one comes back. So a group needs more
            /// buffers than all its connections together keep: pieces that wait to be taken, and pieces that the
            /// program has not dropped yet.
            ///
            /// It is this stream's receive until it is dropped. Other receives wait for their turn, and the first of
            /// them gets what came and was not taken. Until then this data is in memory of its own.
            ///
            /// # Examples
            ///
            /// ```
            /// use ringwise::{Ring, net::{ListenOptions, TcpListener, TcpStream}};
            ///
            /// # futures::executor::block_on(async {
            /// let ring = Ring::new()?;
            /// let group = ring.buffer_group(64, 2048).await?;
            /// # let any = "127.0.0.1:0".parse()?;
            /// # let listener = TcpListener::bind(&ring, &any, &ListenOptions::default())?;
            /// # let client = TcpStream::connect(&ring, listener.local_address()?).await?;
            /// # let (server, _address) = listener.accept().await?;
            /// # client.send_all(b"question".to_vec()).await.0?;
            /// # client.shutdown(ringwise::net::Shutdown::Write).await?;
            /// let mut pieces = server.recv_multi(&group, 4);
            /// while let Some(piece) = pieces.next().await {
            ///     // Sent as it is; its buffer goes back to the group after that.
            ///     server.send_all(piece?).await.0?;
            /// }
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// # }).unwrap();
            /// ```
            pub fn recv_multi(&self, group: &BufferGroup, credit: usize) -> Receiving<'_> {
                self.0.receive_many(group, credit)
            }

            /// The descriptor, for operations and options that this type has no function for. Bytes that are
            /// received through it are missing here, and the other way round.
            pub fn descriptor(&self) -> &Descriptor {
                &self.0.socket
            }

            /// The ring that its operations go through.
            pub fn ring(&self) -> &Ring {
                &self.0.ring
            }

            /// Waits for data, and gives the number of bytes received. It is 0 when the other end sends no more.
            /// Several receives take turns.
            ///
            /// # Cancel safety
            ///
            /// If the future is dropped, the bytes that it took out of the socket go to the next receive. The buffer
            /// is freed.
            ///
            /// # Errors
            ///
            /// What the receive failed with, such as `ECONNRESET`.
            pub async fn recv<B: OwnedBufferMut>(&self, buffer: B) -> BufResult<usize, B> {
                let received = self.0.receive(buffer.into_buffer_mut(), None).await;
                received.map_buffer(B::from_buffer)
            }

            /// Receives as [`recv`](Self::recv) does, within a time.
            ///
            /// # Errors
            ///
            /// As for [`recv`](Self::recv), and [`TimedOut`](crate::ErrorKind::TimedOut). The buffer comes back.
            pub async fn recv_deadline<B: OwnedBufferMut>(
                &self,
                buffer: B,
                after: Duration,
            ) -> BufResult<usize, B> {
                let received = self.0.receive(buffer.into_buffer_mut(), Some(after)).await;
                received.map_buffer(B::from_buffer)
            }

            /// Receives as [`recv`](Self::recv) does, into at most 1024 buffers in turn.
            ///
            /// # Errors
            ///
            /// As for [`recv`](Self::recv).
            pub async fn recv_vectored<B: OwnedBufferMut>(
                &self,
                buffers: Vec<B>,
            ) -> BufResult<usize, Vec<B>> {
                let buffers = buffers.into_iter().map(OwnedBufferMut::into_buffer_mut).collect();
                let received = self.0.receive_vectored(buffers).await;
                received.map_buffer(from_buffers)
            }

            /// Sends what the socket takes of the buffer, and gives the number of bytes. Several sends take turns.
            ///
            /// # Cancel safety
            ///
            /// If the future is dropped after the send has begun, all of the buffer is sent: the next send,
            /// [`flush`](Self::flush), [`shutdown`](Self::shutdown) or [`close`](Self::close) sends the rest before
            /// anything else, and reports a failure. If the send has not begun, nothing is sent.
            ///
            /// If the last clone of the stream is dropped too, the send has five more seconds. What the socket has not
            /// taken by then is lost, and the socket closes.
            ///
            /// # Errors
            ///
            /// What the send failed with, such as `EPIPE` or `ECONNRESET` when the other end has gone, or the failure
            /// of an earlier send whose future was dropped.
            pub async fn send<B: OwnedBuffer>(&self, buffer: B) -> BufResult<usize, B> {
                self.0.send(buffer.into_buffer()).await.map_buffer(B::from_buffer)
            }

            /// Sends all of the buffer.
            ///
            /// # Cancel safety
            ///
            /// As for [`send`](Self::send).
            ///
            /// # Errors
            ///
            /// As for [`send`](Self::send). Part of the buffer may have been sent.
            pub async fn send_all<B: OwnedBuffer>(&self, buffer: B) -> BufResult<(), B> {
                self.0.send_all(buffer.into_buffer(), None).await.map_buffer(B::from_buffer)
            }

            /// Sends all of the buffer within a time.
            ///
            /// # Errors
            ///
            /// As for [`send`](Self::send), and [`TimedOut`](crate::ErrorKind::TimedOut). Part of the buffer may have
            /// been sent, so close the connection then.
            pub async fn send_all_deadline<B: OwnedBuffer>(
                &self,
                buffer: B,
                after: Duration,
            ) -> BufResult<(), B> {
                let sent = self.0.send_all(buffer.into_buffer(), Some(after)).await;
                sent.map_buffer(B::from_buffer)
            }

            /// Sends as [`send`](Self::send) does, of at most 1024 buffers in turn.
            ///
            /// # Errors
            ///
            /// As for [`send`](Self::send).
            pub async fn send_vectored<B: OwnedBuffer>(
                &self,
                buffers: Vec<B>,
            ) -> BufResult<usize, Vec<B>> {
                let buffers = buffers.into_iter().map(OwnedBuffer::into_buffer).collect();
                let sent = self.0.send_vectored(buffers, false).await;
                sent.map_buffer(from_buffers)
            }

            /// Sends all of at most 1024 buffers in turn.
            ///
            /// # Errors
            ///
            /// As for [`send`](Self::send). Part of the buffers may have been sent.
            pub async fn send_all_vectored<B: OwnedBuffer>(
                &self,
                buffers: Vec<B>,
            ) -> BufResult<(), Vec<B>> {
                let buffers = buffers.into_iter().map(OwnedBuffer::into_buffer).collect();
                let sent = self.0.send_vectored(buffers, true).await.map(drop);
                sent.map_buffer(from_buffers)
            }

            /// Waits until the socket has taken everything that dropped futures began to send.
            ///
            /// # Errors
            ///
            /// What one of those sends failed with.
            pub async fn flush(&self) -> Result<(), Error> {
                self.0.flush().await
            }

            /// Ends one direction or both, after everything that was begun is sent. To break off a send that is stuck,
            /// call [`net::shutdown`](crate::net::shutdown) on the [`descriptor`](Self::descriptor), which does not wait.
            ///
            /// # Errors
            ///
            /// What shutdown(2) reports, or the failure of a send whose future was dropped.
            pub async fn shutdown(&self, which: Shutdown) -> Result<(), Error> {
                self.0.shutdown(which).await
            }

            /// Closes the socket after everything that was begun is sent. Without this call, the socket closes when the
            /// last clone and the last operation are gone. A send whose future was dropped then has at most five more
            /// seconds.
            ///
            /// # Errors
            ///
            /// The failure of a send whose future was dropped; `EBUSY` if a clone still holds the socket, which then
            /// keeps it open.
            pub async fn close(self) -> Result<(), Error> {
                self.0.close().await
            }
        }

        impl std::os::fd::AsFd for $stream {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.0.socket.as_fd()
            }
        }
    };
}

pub(super) use stream;
