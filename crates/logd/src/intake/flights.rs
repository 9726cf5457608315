//! Storage's operations as futures of a ring that a tokio runtime drives.

use std::{future::Future, pin::Pin};

use futures_util::stream::{FuturesUnordered, StreamExt};
use ringwise::{Completion, Operation, Ring};

use crate::disk::submission::Submission;

type Flight = Pin<Box<dyn Future<Output = (u64, Completion)> + Send>>;

/// A ring, with the operations that are in flight.
pub(super) struct Flights {
    ring: Ring,
    flights: FuturesUnordered<Flight>,
}

impl Flights {
    pub(super) fn new(ring: Ring) -> Flights {
        Flights { ring, flights: FuturesUnordered::new() }
    }

    /// The next completion, with its tag. Storage always has an operation in flight: its timer.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped: nothing is lost.
    pub(super) async fn next(&mut self) -> Option<(u64, Completion)> {
        self.flights.next().await
    }
}

impl Submission for Flights {
    fn push(&mut self, operation: Operation, tag: u64) -> Result<(), String> {
        let pending = self.ring.submit(operation);
        self.flights.push(Box::pin(async move { (tag, pending.await) }));
        Ok(())
    }

    fn push_linked(&mut self, operations: Vec<(Operation, u64)>) -> Result<(), String> {
        let (operations, tags): (Vec<Operation>, Vec<u64>) = operations.into_iter().unzip();
        for (pending, tag) in self.ring.submit_linked(operations).into_iter().zip(tags) {
            self.flights.push(Box::pin(async move { (tag, pending.await) }));
        }
        Ok(())
    }
}
