//! The batch that is being filled: who has lines in it, since when, and whether it may grow before it begins.
//!
//! Larger batches cost less. But a client that sent little waits for its answer, and rejected lines come from clients
//! that would keep the others waiting. So only a batch without either may grow while more is there to add to it.

use std::time::{Duration, Instant};

use crate::session::connection::Batch;

/// A batch of so many bytes begins.
const GATHERED_BYTES: usize = 512 << 10;
/// A batch that is so old begins.
const GATHER_TIME: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
pub(super) struct Filling {
    /// Connections with lines in it.
    pub(super) clients: Vec<usize>,
    /// When its first line came.
    pub(super) since: Option<Instant>,
    /// Whether a client that sent little has lines in it.
    pub(super) is_awaited: bool,
}

impl Filling {
    /// Whether it may grow, if there is more to add to it.
    pub(super) fn may_grow(&self, batch: &Batch) -> bool {
        !self.is_awaited
            && batch.letter_count == 0
            && batch.bytes() < GATHERED_BYTES
            && self.since.is_some_and(|since| since.elapsed() < GATHER_TIME)
    }

    /// Notes when the first line came.
    pub(super) fn note(&mut self, batch: &Batch) {
        if self.since.is_none() && !batch.is_empty() {
            self.since = Some(Instant::now());
        }
    }
}
