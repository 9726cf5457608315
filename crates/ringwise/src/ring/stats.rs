//! Counts that a ring keeps of itself.

use crate::{
    setup::{Backend, FallbackReason},
    stats::Stats,
};

/// What a ring did since it was built. Counts are totals.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct RingStats {
    /// Operations handed in.
    pub submitted: u64,
    /// Results that a future took.
    pub delivered: u64,
    /// Operations whose future was dropped.
    pub reclaimed: u64,
    /// Times the driver was woken for an order. Orders that come while it is busy wake nobody.
    pub wakes: u64,
    /// Reads and writes of files that the caller's thread served by itself, from or into the page
    /// cache or memory, and sends and receives of a [`Buffered`](crate::net::Buffered) stream that
    /// it made by itself. They are in no other count.
    pub inline_hits: u64,
    /// Reads of direct files that were not aligned: each was made by a longer one, and a copy.
    pub bounced_reads: u64,
    /// Operations that wait for room in the loop at this moment (see [`Builder::entries`](crate::Builder::entries)). Those that
    /// wait for a socket, a pipe or a time need no room, so this is 0 unless more operations work at
    /// once than the loop holds.
    pub waiting_for_room: usize,
    /// Of the loop, as of the last results.
    pub local: Stats,
    /// What makes its operations.
    pub backend: Backend,
    /// Why that is not a ring, where it is not: asked for, or what stood in the way.
    pub fallback: Option<FallbackReason>,
}
