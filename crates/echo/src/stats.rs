//! What a thread counted, and how it is printed.

use std::{fmt, iter::Sum};

/// Counts of one thread, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    pub(crate) accepted: u64,
    /// Accepts that failed, after which accepting went on.
    pub(crate) accept_failures: u64,
    pub(crate) open: u64,
    /// Connections that an error ended.
    pub(crate) broken: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) receives: u64,
    /// Of these, by looking, where one connection was alone.
    pub(crate) direct_receives: u64,
    pub(crate) sends: u64,
    /// Sends that the socket did not take at once.
    pub(crate) stalled_sends: u64,
    /// Times that a sender was stopped because its answers were not read.
    pub(crate) stopped_senders: u64,
    /// System calls that hand over and wait; on epoll not counted.
    pub(crate) enters: u64,
    pub(crate) sleeps: u64,
    /// Sleeps that looking for work spared.
    pub(crate) spared_sleeps: u64,
}

impl Stats {
    /// A send is handed over. What of it is not taken has to be subtracted.
    pub(crate) fn sending(&mut self, bytes: usize) {
        self.sends += 1;
        self.sent_bytes += bytes as u64;
    }
}

impl Sum for Stats {
    fn sum<I: Iterator<Item = Stats>>(all: I) -> Stats {
        all.fold(Stats::default(), |sum, one| Stats {
            accepted: sum.accepted + one.accepted,
            accept_failures: sum.accept_failures + one.accept_failures,
            open: sum.open + one.open,
            broken: sum.broken + one.broken,
            received_bytes: sum.received_bytes + one.received_bytes,
            sent_bytes: sum.sent_bytes + one.sent_bytes,
            receives: sum.receives + one.receives,
            direct_receives: sum.direct_receives + one.direct_receives,
            sends: sum.sends + one.sends,
            stalled_sends: sum.stalled_sends + one.stalled_sends,
            stopped_senders: sum.stopped_senders + one.stopped_senders,
            enters: sum.enters + one.enters,
            sleeps: sum.sleeps + one.sleeps,
            spared_sleeps: sum.spared_sleeps + one.spared_sleeps,
        })
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} connections accepted, {} accepts failed, {} open, {} broken; {} bytes received by {} receives, {} \
             of them by spinning, {} sent by {} sends, {} of them stalled; {} senders stopped; {} enters, {} sleeps, {} \
             spared by spinning",
            self.accepted,
            self.accept_failures,
            self.open,
            self.broken,
            self.received_bytes,
            self.receives,
            self.direct_receives,
            self.sent_bytes,
            self.sends,
            self.stalled_sends,
            self.stopped_senders,
            self.enters,
            self.sleeps,
            self.spared_sleeps
        )
    }
}
