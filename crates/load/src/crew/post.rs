//! What the controller and the threads of a generator tell each other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender},
    },
    time::Instant,
};

use super::totals::Totals;
use crate::{account::OwnTime, poll::Poll};

/// Nanoseconds since the run began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    /// Starts at zero.
    pub(super) fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    #[inline]
    pub(crate) fn now_ns(self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

/// What the controller tells all threads.
pub(crate) struct Shared {
    pub start_ns: AtomicU64,
    pub from_ns: AtomicU64,
    pub until_ns: AtomicU64,
    pub interrupted: Arc<AtomicBool>,
}

impl Shared {
    pub(crate) fn start_ns(&self) -> u64 {
        self.start_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn measured_from_ns(&self) -> u64 {
        self.from_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn measured_until_ns(&self) -> u64 {
        self.until_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// What the controller tells a thread.
pub(crate) enum Order {
    /// Open the connections that send.
    OpenActive,
    /// Open those beside them.
    OpenBeside,
    /// Begin: the times are set.
    Go,
}

/// What a thread tells the controller.
pub(crate) enum Report<L> {
    /// All connections that it was told to open are open or have failed: how many of them are open.
    Opened(usize),
    /// It is over, and this is what it counted.
    Over(Box<Over<L>>),
}

/// What a thread counted: what all generators count, and what this one counts beyond.
pub(crate) struct Over<L> {
    pub tally: Totals,
    pub own: OwnTime,
    pub ledger: L,
}

/// What a thread is given.
pub(crate) struct Post<L> {
    /// Which of the threads it is.
    pub index: usize,
    pub clock: Clock,
    pub shared: Arc<Shared>,
    pub poll: Poll,
    pub orders: Receiver<Order>,
    pub reports: Sender<Report<L>>,
}
