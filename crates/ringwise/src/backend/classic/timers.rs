//! Timeouts in the order of their ends. There may be as many as operations, and most are cancelled.

use std::{
    collections::{BTreeSet, HashMap},
    time::Instant,
};

/// See the header. Each timeout has the number of its operation.
#[derive(Debug, Default)]
pub(super) struct Timers {
    by_end: BTreeSet<(Instant, u64)>,
    ends: HashMap<u64, Instant>,
}

impl Timers {
    pub(super) fn is_empty(&self) -> bool {
        self.by_end.is_empty()
    }

    pub(super) fn start(&mut self, end: Instant, user_data: u64) {
        self.by_end.insert((end, user_data));
        self.ends.insert(user_data, end);
    }

    /// Cancels a timeout. Returns whether it was running.
    pub(super) fn cancel(&mut self, user_data: u64) -> bool {
        let Some(end) = self.ends.remove(&user_data) else { return false };
        self.by_end.remove(&(end, user_data))
    }

    /// Returns when the next timeout ends.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_end.first().map(|(end, _)| *end)
    }

    /// Removes a timeout that has ended by `now`.
    pub(super) fn expire(&mut self, now: Instant) -> Option<u64> {
        let (end, user_data) = *self.by_end.first()?;
        if end > now {
            return None;
        }
        self.cancel(user_data);
        Some(user_data)
    }
}
