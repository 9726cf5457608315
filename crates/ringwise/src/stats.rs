//! Counts that a loop keeps of itself.

/// What a loop did since it was built. Counts are totals.
///
/// Operations per enter, `submitted / enters`, tells whether batching works; a ring pays by it.
///
/// There is no count of operations that the kernel handed to its own worker threads (io-wq): it tells
/// no ring of them. They can be counted from outside, for a process or the machine, at the tracepoint
/// `io_uring:io_uring_queue_async_work`; `ringwise doctor` and `ringwise lab` do so where they may.
/// What the library itself gave to threads is
/// [`fallback_operations`](Self::fallback_operations).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Operations pushed.
    pub submitted: u64,
    /// Completions taken.
    pub completed: u64,
    /// Operations pushed whose completion was not taken yet.
    pub in_flight: u64,
    /// Times the kernel was entered for the ring. 0 on classic.
    pub enters: u64,
    /// Operations that a thread of the loop was given because the ring has no such call, or was
    /// to be avoided for it. On classic all that is not a no-op, a timeout or a cancel counts.
    pub fallback_operations: u64,
    /// Completions that the kernel could not place in the queue at once; it keeps them, so none is
    /// lost. Stays 0 without operations that have several completions: what can be in flight is
    /// bounded by the queue.
    pub overflows: u64,
    /// Completions for an operation that is no longer there. Stays 0.
    pub stale_completions: u64,
}
