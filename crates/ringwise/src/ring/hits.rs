//! Counts the requests that callers' threads served without an operation. Each thread counts in a
//! place of its own, because the cache line of a common counter would move between the processors.
//! With two processors no difference could be measured (docs/notes/library/deep-queues.md).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// More threads than that share places.
const PLACES: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Hits([Place; PLACES]);

/// Two cache lines, since the processor fetches them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place(AtomicU64);

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static PLACE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % PLACES;
}

impl Hits {
    #[inline]
    pub(super) fn count(&self) {
        self.0[PLACE.with(|place| *place)].0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sum(&self) -> u64 {
        self.0.iter().map(|place| place.0.load(Ordering::Relaxed)).sum()
    }
}
