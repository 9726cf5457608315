//! Where shipments go. Kafka is one destination; an upload of segments could be another.
//!
//! A destination knows nothing of segments, cursors or pauses. The lane of a stream decides what to send when.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::shipment::Shipment;

/// Why a destination did not do what it was asked for, in words. It may do it later.
#[derive(Debug)]
pub(crate) struct Trouble(pub(crate) String);

/// The troubles of a destination so far, and whether it is away: figures that threads share.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    count: AtomicU64,
    is_away: AtomicBool,
    last: Mutex<String>,
}

impl Troubles {
    /// Notes one that the destination is not to blame for.
    pub(crate) fn note(&self, trouble: &str) {
        self.count.fetch_add(1, Ordering::Relaxed);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = trouble.to_owned();
    }

    /// Notes one of the destination. True means that it was not away before.
    pub(crate) fn fail(&self, trouble: &str) -> bool {
        self.note(trouble);
        !self.is_away.swap(true, Ordering::Relaxed)
    }

    /// Notes that the destination answers. True means that it was away before.
    pub(crate) fn succeed(&self) -> bool {
        self.is_away() && self.is_away.swap(false, Ordering::Relaxed)
    }

    /// Whether the last thing that the destination was asked for failed.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the last one. It is empty if there was none.
    pub(crate) fn last(&self) -> String {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How far a destination has a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The line to go on with.
    pub(crate) line: u64,
    /// CRC-32 of the line before it, if the destination knows that.
    pub(crate) checksum: Option<u32>,
}

/// The place to which the lines of one stream go.
///
/// After an error the caller calls [`connect`](Self::connect) and sends all shipments again that were not acknowledged:
/// the same ones, in the same order. A destination may have stored some of them.
pub(crate) trait Destination {
    /// Connects. Shipments that were sent before are not in flight any more. Some destinations know how far
    /// they have the stream; the others return nothing.
    fn connect(&mut self) -> Result<Option<Reached>, Trouble>;

    /// Sends a shipment, without waiting until it is stored.
    fn send(&mut self, shipment: &Shipment) -> Result<(), Trouble>;

    /// Waits for acknowledgements. Returns how many shipments are acknowledged now, the oldest first.
    fn receive(&mut self, wait: Duration) -> Result<usize, Trouble>;

    /// The most shipments that are not acknowledged.
    fn window(&self) -> usize;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_once() {
        let troubles = Troubles::default();
        assert!(!troubles.succeed());
        assert!(troubles.fail("a"));
        assert!(!troubles.fail("b"));
        assert!(troubles.succeed() && !troubles.succeed());
        assert_eq!((troubles.count(), &*troubles.last()), (2, "b"));
    }
}
