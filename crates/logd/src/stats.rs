//! What a thread counted, and how it is printed.

use std::{fmt, iter::Sum};

/// Counts of one thread, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    pub(crate) connections: u64,
    pub(crate) open: u64,
    /// Connections that an error ended.
    pub(crate) broken: u64,
    /// Connections that ended because what came was not the TLS that it has to be.
    pub(crate) tls_failures: u64,
    pub(crate) received_bytes: u64,
    pub(crate) receives: u64,
    pub(crate) accepted_lines: u64,
    pub(crate) rejected_lines: u64,
    pub(crate) committed_bytes: u64,
    pub(crate) commits: u64,
    pub(crate) syncs: u64,
    /// Sends of answers.
    pub(crate) sends: u64,
    /// Times that nothing more was received from a sender for a while.
    pub(crate) stopped_senders: u64,
    /// Times that storage failed for a while, and threads where it does now.
    pub(crate) stalls: u64,
    pub(crate) stalled: u64,
    /// Threads below the floor of free space.
    pub(crate) low: u64,
    /// Segments that failed and are not written to any more.
    pub(crate) dead_segments: u64,
    /// System calls that hand over and wait; on epoll not counted.
    pub(crate) enters: u64,
}

impl Sum for Stats {
    fn sum<I: Iterator<Item = Stats>>(all: I) -> Stats {
        all.fold(Stats::default(), |sum, one| Stats {
            connections: sum.connections + one.connections,
            open: sum.open + one.open,
            broken: sum.broken + one.broken,
            tls_failures: sum.tls_failures + one.tls_failures,
            received_bytes: sum.received_bytes + one.received_bytes,
            receives: sum.receives + one.receives,
            accepted_lines: sum.accepted_lines + one.accepted_lines,
            rejected_lines: sum.rejected_lines + one.rejected_lines,
            committed_bytes: sum.committed_bytes + one.committed_bytes,
            commits: sum.commits + one.commits,
            syncs: sum.syncs + one.syncs,
            sends: sum.sends + one.sends,
            stopped_senders: sum.stopped_senders + one.stopped_senders,
            stalls: sum.stalls + one.stalls,
            stalled: sum.stalled + one.stalled,
            low: sum.low + one.low,
            dead_segments: sum.dead_segments + one.dead_segments,
            enters: sum.enters + one.enters,
        })
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} connections, {} open, {} broken, {} refused by TLS; {} lines accepted, {} rejected; {} bytes received \
             by {} receives, {} committed by {} commits and {} syncs; {} sends, {} senders stopped, \
             {} stalls, {} threads stalled, {} short of space, {} dead segments, {} enters",
            self.connections,
            self.open,
            self.broken,
            self.tls_failures,
            self.accepted_lines,
            self.rejected_lines,
            self.received_bytes,
            self.receives,
            self.committed_bytes,
            self.commits,
            self.syncs,
            self.sends,
            self.stopped_senders,
            self.stalls,
            self.stalled,
            self.low,
            self.dead_segments,
            self.enters
        )
    }
}
