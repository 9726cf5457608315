//! A listening socket on a ring: what TCP and Unix listeners have in common.
//!
//! A connection that came when nobody waited for it any more, since the future was dropped, goes to
//! the next one who asks. It knows no addresses.

use std::{collections::VecDeque, sync::Arc};

use super::{
    connection::is_of_the_ring,
    lane::{Lane, Turn},
};
use crate::{
    completion::Completion,
    descriptor::Descriptor,
    error::{AcceptFailure, Error},
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

    /// On the lane, for one who accepts for a long time.
    pub(super) async fn turn_for_many(&self) -> Turn<'_, Accepted> {
        let turn = self.lane.enter().await;
        self.settle(&turn).await;
        turn
    }

    pub(super) async fn close(self) -> Result<(), Error> {
        {
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
