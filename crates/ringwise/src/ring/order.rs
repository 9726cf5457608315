//! Messages between futures, the hub and the driver: orders, and what becomes of them.

use std::{task::Waker, time::Duration};

use crate::{local::Local, op::Operation};

/// Names one submitted operation of a ring; the driver's tag for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl Key {
    pub(super) fn tag(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(super) fn from_tag(tag: u64) -> Key {
        Key { index: tag as u32, generation: (tag >> 32) as u32 }
    }

    pub(super) fn index(self) -> usize {
        self.index as usize
    }
}

/// What the driver is asked to do.
pub(super) enum Order {
    /// Make this operation; its result goes to the key.
    Start(Key, Operation),
    /// The same, of one that has several results.
    Flow(Key, Operation),
    /// Make these, each when the one before is complete.
    Link(Vec<(Key, Operation)>),
    /// Nobody waits for it any more.
    Cancel(Key),
    /// Something that only the loop's own thread may do.
    Visit(Visit),
}

/// How operations that are handed in together stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Together {
    /// In no order.
    Batch,
    /// Each after the one before it.
    Chain,
}

/// A visit to the loop, of the library's own making.
/// It gives whom to wake for its answer, out of all locks.
pub(super) type Visit = Box<dyn FnOnce(&mut Local) -> Option<Waker> + Send>;

/// Whether work is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// No new work; what is in flight has this long.
    Closing(Duration),
    /// The driver is gone.
    Closed,
}

/// What happened to an operation that was handed in.
pub(super) enum Admission {
    /// Under way, after the caller has done its part.
    Taken(Key, Next),
    /// The ring is closing: here it is again.
    Refused(Operation),
}

/// What is to be done for an order to be heard.
pub(super) enum Next {
    /// Nothing: the driver looks for orders before it sleeps.
    Nothing,
    /// Wake the driver.
    Wake(Waker),
    /// Hand orders over on the caller's own thread, which waits for this one.
    #[cfg(feature = "tokio")]
    HandOver(Option<Key>),
}
