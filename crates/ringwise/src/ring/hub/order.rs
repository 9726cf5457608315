//! Messages between futures, the hub and the driver.

use std::{task::Waker, time::Duration};

use crate::{local::Local, op::Operation};

/// The number of one submitted operation of a ring. It is the driver's tag for the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    pub(crate) fn tag(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_tag(tag: u64) -> Key {
        Key { index: tag as u32, generation: (tag >> 32) as u32 }
    }

    pub(crate) fn index(self) -> usize {
        self.index as usize
    }
}

/// An order to the driver.
pub(crate) enum Order {
    /// Start this operation. Its result goes to the key.
    Start(Key, Operation),
    /// Start this operation, which has several results.
    Flow(Key, Operation),
    /// Start these, each when the one before is complete.
    Link(Vec<(Key, Operation)>),
    /// Cancel this operation.
    Cancel(Key),
    /// Call this with the loop, which only the driver may enter.
    Visit(Visit),
}

/// The relation of operations that are submitted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// In no order.
    Batch,
    /// Each after the one before it.
    Chain,
}

/// A function of the library that runs with the loop. It returns the waker for its answer, to be
/// woken outside all locks.
pub(crate) type Visit = Box<dyn FnOnce(&mut Local) -> Option<Waker> + Send>;

/// Whether the ring takes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// The ring takes no new work. Operations in flight have this long to end.
    Closing(Duration),
    /// The driver is gone.
    Closed,
}

/// The hub's answer to a submitted operation.
pub(crate) enum Admission {
    /// The operation was taken. The caller has this step left to do.
    Taken(Key, Next),
    /// The ring is closing, so the operation comes back.
    Refused(Operation),
}

/// The caller's next step, so that the driver gets an order.
pub(crate) enum Next {
    /// Nothing: the driver looks for orders before it sleeps.
    Nothing,
    /// Wake the driver.
    Wake(Waker),
    /// Hand orders over on the caller's own thread. The caller waits for this operation, if any.
    #[cfg(feature = "tokio")]
    HandOver(Option<Key>),
}
