//! A listening socket on a ring: what TCP and Unix listeners have in common.
//!
//! If the future of an accept is dropped, its connection goes to the next accept. It knows no addresses.

use std::{collections::VecDeque, sync::Arc};

use super::lane::{Lane, Turn, is_of_the_ring};
use crate::{
    descriptor::Descriptor,
    error::{AcceptFailure, Error},
    flight::completion::Completion,
    op::Operation,
    ring::Ring,
};

/// A listening socket. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Listening {
    pub(super) ring: Ring,
    pub(super) socket: Descriptor,
    lane: Arc<Lane<Accepted>>,
}

/// Connections, and errors of the listener, whose futures were dropped.
#[derive(Debug, Default)]
pub(super) struct Accepted(VecDeque<Result<Descriptor, Error>>);

impl Accepted {
    pub(super) fn take_one(&mut self) -> Option<Result<Descriptor, Error>> {
        self.0.pop_front()
    }

    fn keep(&mut self, done: Completion) {
        match done.into_descriptor() {
            Err(error)
                if is_of_the_ring(&error)
                    || error.accept_failure() == AcceptFailure::Connection => {}
            accepted => self.0.push_back(accepted),
        }
    }
}

impl Listening {
    pub(super) fn new(ring: &Ring, socket: Descriptor) -> Listening {
        Listening { ring: ring.clone(), socket, lane: Arc::default() }
    }

    pub(super) async fn accept(&self) -> Result<Descriptor, Error> {
        let turn = self.lane.enter().await;
        self.settle(&turn).await;
        if let Some(accepted) = turn.rest().take_one() {
            return accepted;
        }
        loop {
            let operation = self.ring.submit(Operation::accept(&self.socket));
            let accepted = turn.make(operation).await.into_descriptor();
            match accepted {
                Err(error) if error.accept_failure() == AcceptFailure::Connection => {}
                _ => return accepted,
            }
        }
    }

    async fn settle(&self, turn: &Turn<'_, Accepted>) {
        if let Some(accept) = turn.take_set_aside() {
            let done: Completion = turn.make(accept).await;
            turn.rest().keep(done);
        }
        turn.settle_flow(Accepted::keep).await;
    }

    /// Enters the lane for many accepts.
    pub(super) async fn turn_for_many(&self) -> Turn<'_, Accepted> {
        let turn = self.lane.enter().await;
        self.settle(&turn).await;
        turn
    }

    pub(super) async fn close(self) -> Result<(), Error> {
        // A clone keeps the socket open, and may wait for a connection for ever.
        if Arc::strong_count(&self.lane) == 1 {
            let turn = self.lane.enter().await;
            self.settle(&turn).await;
        }
        let Listening { ring, socket, lane } = self;
        drop(lane);
        ring.submit(Operation::close(socket)).await.result().map(drop)
    }

    /// The socket itself, if nobody else holds it and no connection is kept here.
    pub(super) fn into_socket(self) -> Result<Descriptor, Listening> {
        let Listening { ring, socket, lane } = self;
        let mut lane = match Arc::try_unwrap(lane) {
            Ok(lane) => lane,
            Err(lane) => return Err(Listening { ring, socket, lane }),
        };
        if !lane.rest_mut().0.is_empty() || lane.is_under_way() {
            return Err(Listening { ring, socket, lane: Arc::new(lane) });
        }
        Ok(socket)
    }
}

/// The functions of both kinds of listener. A listener is a `Listening` with addresses.
macro_rules! listener {
    ($listener:ident, $standard:ty, $incoming:ident) => {
        impl $listener {
            /// Takes over a socket that listens already, and sets it to blocking, as a ring needs it. A
            /// ring on classic syscalls sets `O_NONBLOCK` again when it accepts.
            ///
            /// # Errors
            ///
            /// What fcntl(2) reports.
            pub fn from_std(ring: &Ring, listener: $standard) -> Result<$listener, Error> {
                listener.set_nonblocking(false).map_err(|error| not_configured(&error))?;
                let socket = Descriptor::of_socket(OwnedFd::from(listener));
                Ok($listener(Listening::new(ring, socket)))
            }

            /// Gives the socket back for use with the standard library. If it accepted on classic
            /// syscalls, `O_NONBLOCK` is set.
            ///
            /// # Errors
            ///
            /// The listener itself, if a clone or an operation in flight still holds it, or if it keeps
            /// the connection of an accept whose future was dropped.
            pub fn into_std(self) -> Result<$standard, $listener> {
                let ring = self.0.ring.clone();
                let socket = self.0.into_socket().map_err($listener)?;
                let owned = socket.into_owned();
                owned.map(Into::into).map_err(|socket| $listener(Listening::new(&ring, socket)))
            }

            /// Accepts connections as they come, by one operation that goes on. If `credit` connections
            /// wait to be taken, later ones stay in the kernel's backlog, except for a few. A credit of 0
            /// counts as 1.
            ///
            /// It is this listener's accept until it is dropped. Other accepts wait for their turn, and
            /// get the connections that came by then.
            ///
            /// On a ring, the limit on descriptors is the one that holds when the operation begins
            /// (io_uring/net.c). Raise it before.
            pub fn accept_multi(&self, credit: usize) -> $incoming<'_> {
                $incoming(Accepting::new(&self.0, credit), &self.0.ring)
            }

            /// The descriptor, for operations and options that this type has no function for.
            pub fn descriptor(&self) -> &Descriptor {
                &self.0.socket
            }

            /// The ring that its operations go through.
            pub fn ring(&self) -> &Ring {
                &self.0.ring
            }

            /// Closes the socket. Without this call, it closes when the last clone and the last operation
            /// are gone.
            ///
            /// # Cancel safety
            ///
            /// If the future is dropped, the socket closes as without this call.
            ///
            /// # Errors
            ///
            /// `EBUSY` if a clone still holds the socket, which then keeps it open.
            pub async fn close(self) -> Result<(), Error> {
                self.0.close().await
            }
        }
    };
}

pub(super) use listener;
