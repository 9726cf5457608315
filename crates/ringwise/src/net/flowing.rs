//! Data of a stream and connections of a listener, piece by piece, by one operation that goes on
//! (`recv_multi`, `accept_multi`).
//!
//! Each holds its socket's lane until it is dropped. The next user of the lane gets what came and was not
//! taken. If the operation ends by itself (the credit is used up, or the thread that submitted it has
//! ended), it begins anew when the pieces are taken.

use std::{
    future::poll_fn,
    task::{Context, Poll},
};

use super::{
    connection::{Connection, Taken},
    lane::Turn,
    listening::{Accepted, Listening},
};
use crate::{
    buf::{Buffer, BufferGroup},
    descriptor::Descriptor,
    error::{AcceptFailure, Error},
    flight::completion::Completion,
    op::Operation,
    ring::{Flow, Ring},
};

/// Results of an operation that is begun again and again, on a lane.
struct Lasting<'a, T> {
    turn: Turn<'a, T>,
    flow: Option<Flow>,
    credit: usize,
}

impl<T> Lasting<'_, T> {
    /// The next result that is one.
    async fn next(&mut self, ring: &Ring, operation: impl Fn() -> Operation) -> Completion {
        poll_fn(|context| self.poll_next(ring, &operation, context)).await
    }

    fn poll_next(
        &mut self,
        ring: &Ring,
        operation: &impl Fn() -> Operation,
        context: &Context<'_>,
    ) -> Poll<Completion> {
        loop {
            let flow = match &mut self.flow {
                Some(flow) => flow,
                None => match Flow::begin(ring, operation(), self.credit, context) {
                    Ok(flow) => self.flow.insert(flow),
                    Err(refused) => return Poll::Ready(refused),
                },
            };
            let polled = flow.poll_next(context);
            let Poll::Ready(part) = polled else { return Poll::Pending };
            if flow.is_over() {
                self.flow = None;
            }
            match part {
                Some(part) if part.raw_result() == -libc::ECANCELED => {}
                Some(part) => return Poll::Ready(part),
                None => {}
            }
        }
    }
}

impl<T> Drop for Lasting<'_, T> {
    fn drop(&mut self) {
        if let Some(flow) = self.flow.take() {
            self.turn.set_flow_aside(flow);
        }
    }
}

/// The data of a stream, piece by piece. Made by [`TcpStream::recv_multi`](super::TcpStream::recv_multi),
/// which has an example.
///
/// # Examples
///
/// ```
/// use ringwise::{Ring, net::{Shutdown, UnixStream}};
///
/// # futures::executor::block_on(async {
/// let ring = Ring::new()?;
/// let group = ring.buffer_group(8, 2048).await?;
/// # let (client, server) = std::os::unix::net::UnixStream::pair()?;
/// # let (client, server) = (UnixStream::from_std(&ring, client)?, UnixStream::from_std(&ring, server)?);
/// client.send_all("question").await.into_result()?;
/// client.shutdown(Shutdown::Write).await?;
/// let (mut pieces, mut bytes) = (server.recv_multi(&group, 4), 0);
/// while let Some(piece) = pieces.next().await {
///     bytes += piece?.as_slice().len();
/// }
/// assert_eq!(bytes, 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[must_use = "nothing is received but by `next`"]
pub struct Receiving<'a> {
    connection: &'a Connection,
    group: BufferGroup,
    credit: usize,
    lasting: Option<Lasting<'a, Taken>>,
    is_over: bool,
}

impl<'a> Receiving<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        group: &BufferGroup,
        credit: usize,
    ) -> Receiving<'a> {
        let group = group.clone();
        Receiving { connection, group, credit, lasting: None, is_over: false }
    }

    /// Waits for the next piece: a buffer of the group, which goes back when it is dropped. Bytes of a
    /// dropped receive come first, in memory of their own. Gives nothing when the other end sends no more,
    /// and after an error. If all buffers of the group are out, it waits for one to come back.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Errors
    ///
    /// What the receive failed with.
    pub async fn next(&mut self) -> Option<Result<Buffer, Error>> {
        if self.is_over {
            return None;
        }
        if self.lasting.is_none() {
            let turn = self.connection.turn_for_many().await;
            self.lasting = Some(Lasting { turn, flow: None, credit: self.credit });
        }
        let lasting = self.lasting.as_mut().expect("made just now");
        let kept = if lasting.flow.is_none() { lasting.turn.rest().take_all() } else { None };
        if let Some(kept) = kept {
            self.is_over = kept.is_err();
            return Some(kept.map(Buffer::from));
        }
        let (socket, group) = (&self.connection.socket, &self.group);
        let part =
            lasting.next(&self.connection.ring, || Operation::recv_multi(socket, group)).await;
        match part.result() {
            Ok(0) => {
                self.is_over = true;
                None
            }
            Ok(_) => part.into_buffer().map(Ok),
            Err(error) => {
                self.is_over = true;
                Some(Err(error))
            }
        }
    }
}

impl std::fmt::Debug for Receiving<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiving").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

/// The connections of a listener.
pub(super) struct Accepting<'a> {
    listening: &'a Listening,
    credit: usize,
    lasting: Option<Lasting<'a, Accepted>>,
}

impl<'a> Accepting<'a> {
    pub(super) fn new(listening: &'a Listening, credit: usize) -> Accepting<'a> {
        Accepting { listening, credit, lasting: None }
    }

    pub(super) async fn next(&mut self) -> Result<Descriptor, Error> {
        if self.lasting.is_none() {
            let turn = self.listening.turn_for_many().await;
            self.lasting = Some(Lasting { turn, flow: None, credit: self.credit });
        }
        let lasting = self.lasting.as_mut().expect("made just now");
        if let Some(kept) = lasting.turn.rest().take_one() {
            return kept;
        }
        let Listening { socket, ring, .. } = self.listening;
        loop {
            let part = lasting.next(ring, || Operation::accept_multi(socket)).await;
            match part.into_descriptor() {
                Err(error) if error.accept_failure() == AcceptFailure::Connection => {}
                accepted => return accepted,
            }
        }
    }
}

/// The connections of a listener, one after the other, under the address that each came from.
macro_rules! incoming {
    ($(#[$documentation:meta])* $incoming:ident, $item:ty, $accepted:ident) => {
        /// The connections of a listener, one after the other. Its `accept_multi` makes it, and
        /// `examples/echo_server.rs` uses it.
        ///
        $(#[$documentation])*
        #[must_use = "nothing is accepted but by `next`"]
        pub struct $incoming<'a>(pub(super) Accepting<'a>, pub(super) &'a Ring);

        impl $incoming<'_> {
            /// Waits for the next connection. It goes on if one failed before it was accepted
            /// (`ECONNABORTED` and others of accept(2)). At the limit on descriptors it waits until a
            /// [`Descriptor`](crate::Descriptor) of this process closes.
            ///
            /// # Cancel safety
            ///
            /// If the future is dropped, a connection that came goes to the next accept.
            ///
            /// # Errors
            ///
            /// What the accept failed with.
            pub async fn next(&mut self) -> Result<$item, Error> {
                loop {
                    let socket = self.0.next().await?;
                    if let Some(accepted) = $accepted(self.1, socket) {
                        return Ok(accepted);
                    }
                }
            }
        }

        impl std::fmt::Debug for $incoming<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($incoming))
            }
        }
    };
}

pub(super) use incoming;
