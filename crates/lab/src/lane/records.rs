//! Records of latencies that are used again: a quarter of a mebibyte for each lane.
//!
//! With a lane for each of hundreds of threads they would be most of what a run in a bounded memory
//! takes, and the engines with many threads would have less of the page cache for it. So they are
//! made before such a run begins, and kept.

use std::sync::{Mutex, PoisonError};

use ringwise_measure::Latency;

static FREE: Mutex<Vec<Latency>> = Mutex::new(Vec::new());

/// Makes records for so many lanes, in memory that is there from now on.
pub fn provide(lanes: usize) {
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    while free.len() < lanes {
        let mut latency = Latency::new();
        // Writes to all of it: what was only promised would be charged to who writes first.
        latency.clear();
        free.push(latency);
    }
}

/// An empty record.
pub(super) fn take() -> Latency {
    FREE.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
}

/// Takes a record back, once what it holds is elsewhere.
pub(crate) fn give_back(mut latency: Latency) {
    latency.clear();
    FREE.lock().unwrap_or_else(PoisonError::into_inner).push(latency);
}
