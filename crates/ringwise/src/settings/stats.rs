//! Counts that a loop keeps of itself.

/// What a loop did since it was built. Counts are totals.
///
/// [`operations_per_enter`](Self::operations_per_enter) tells whether batching works; a ring pays by
/// it.
///
/// The kernel tells no ring what it handed to its own worker threads (io-wq):
/// [`worker_punts`](Self::worker_punts) are those that are known beforehand. All can be counted from
/// outside, for a process or the machine, at the tracepoint `io_uring:io_uring_queue_async_work`;
/// `ringwise doctor` and `ringwise lab` do so where they may. What the library itself gave to threads
/// is [`fallback_operations`](Self::fallback_operations).
///
/// # Examples
///
/// ```
/// use ringwise::{Local, Operation};
///
/// let mut local = Local::new()?;
/// for tag in 0..8 {
///     local.push(Operation::nop(), tag)?;
/// }
/// local.submit_and_wait(8)?;
/// let stats = local.stats();
/// assert_eq!((stats.submitted, stats.in_flight), (8, 8));
/// println!("operations for each entry of the kernel: {:?}", stats.operations_per_enter());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Operations pushed.
    pub submitted: u64,
    /// Completions taken.
    pub completed: u64,
    /// Operations pushed whose completion was not taken yet.
    pub in_flight: u64,
    /// Of those in flight, the operations that take none of the completion queue's room while they
    /// wait: accepts, what has several completions, and receives, sends, reads of pipes and timeouts
    /// beyond half of that room. On classic calls all of these.
    pub waiting: u64,
    /// Times the kernel was entered for the ring. 0 on classic.
    pub enters: u64,
    /// Operations that the library gave to its own threads, because the ring cannot make them or
    /// [`Builder::avoid`](crate::Builder::avoid) names them. On classic: all but no-ops, timeouts and
    /// cancels.
    pub fallback_operations: u64,
    /// A lower bound of the operations that the kernel's worker threads made. It counts syncs, statx, changes
    /// of names, lengths and space, opens that create or truncate, and reads and writes of
    /// [`fs::File`](crate::fs::File) on file systems without non-blocking buffered I/O, such as writes on
    /// ext4 (docs/reference/kernels.md). 0 on classic.
    pub worker_punts: u64,
    /// How often the loop found the completion queue full and more behind it, which the kernel keeps,
    /// so that none is lost. Stays 0 without accepts and operations that have several completions: what
    /// else can complete by the queue is bounded by it.
    pub overflows: u64,
    /// Completions for an operation that is no longer there. Stays 0.
    pub stale_completions: u64,
}

impl Stats {
    /// Operations that the ring made, for each time the kernel was entered for them; nothing where it
    /// never was, as on classic.
    pub fn operations_per_enter(&self) -> Option<f64> {
        let by_ring = self.submitted.saturating_sub(self.fallback_operations);
        (self.enters > 0).then(|| by_ring as f64 / self.enters as f64)
    }
}
