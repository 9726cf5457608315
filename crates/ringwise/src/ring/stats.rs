//! The statistics of a ring.

use crate::settings::{failure::FallbackReason, setup::Backend, stats::Stats};

/// Counts of a ring's work. They are totals since the ring was built.
///
/// # Examples
///
/// ```
/// use ringwise::{Operation, Ring};
///
/// # futures::executor::block_on(async {
/// let ring = Ring::new()?;
/// ring.submit(Operation::nop()).await.result()?;
/// drop(ring.submit(Operation::nop()));
/// let stats = ring.stats();
/// assert_eq!((stats.submitted, stats.delivered), (1, 1));
/// assert_eq!(stats.waiting_for_room, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct RingStats {
    /// Operations submitted.
    pub submitted: u64,
    /// Results that a future took.
    pub delivered: u64,
    /// Operations whose future was dropped.
    pub reclaimed: u64,
    /// How often an order woke the driver. An order that arrives while the driver is busy wakes
    /// nobody.
    pub wakes: u64,
    /// Reads and writes of files that the caller's thread served itself, through the page cache or
    /// memory, metadata of open files of local file systems, and the sends and receives that it made for a [`Buffered`](crate::net::Buffered)
    /// stream. No other count includes them.
    pub inline_hits: u64,
    /// Unaligned reads of direct files. Each was made by a longer read and a copy.
    pub bounced_reads: u64,
    /// Operations that now wait for room in the loop. If this is often above 0, raise
    /// [`Builder::completion_entries`](crate::Builder::completion_entries).
    pub waiting_for_room: usize,
    /// The loop's statistics, as of the last results.
    pub local: Stats,
    /// The backend that performs the operations.
    pub backend: Backend,
    /// The reason if the backend is not io_uring: somebody chose another, or something prevented
    /// it.
    pub fallback: Option<FallbackReason>,
}
