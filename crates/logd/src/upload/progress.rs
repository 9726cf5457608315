//! What is to be uploaded and what was: facts that the keeper, the uploading thread and the figures share.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    disk::segment::{format::name::Stream, now_ms},
    ship::destination::Troubles,
};

/// A segment that is to be uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) segment: (Stream, u64),
    /// Size of its files.
    pub(crate) bytes: u64,
    /// When it ended, in milliseconds since 1970.
    pub(crate) ended_ms: u64,
    /// Whether its upload may begin.
    pub(crate) is_ready: bool,
}

/// The uploads of a daemon.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    /// As the keeper found it last.
    waiting: Mutex<Vec<Waiting>>,
    pub(crate) segments: AtomicU64,
    /// Bytes of objects that were uploaded and checked.
    pub(crate) bytes: AtomicU64,
    pub(crate) lost_segments: AtomicU64,
    pub(crate) troubles: Troubles,
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what waits.
    pub(crate) fn found(&self, waiting: Vec<Waiting>) {
        *self.lock() = waiting;
    }

    /// What waits.
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        self.lock().clone()
    }

    /// A segment is uploaded, with so many bytes of objects. True means that the store was away before.
    pub(crate) fn succeed(&self, segment: (Stream, u64), bytes: u64) -> bool {
        self.lock().retain(|one| one.segment != segment);
        self.segments.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.troubles.succeed()
    }

    /// A segment was removed before it was uploaded.
    pub(crate) fn lose(&self) {
        self.lost_segments.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn waiting_segments(&self) -> u64 {
        self.lock().len() as u64
    }

    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.lock().iter().map(|one| one.bytes).sum()
    }

    /// How long ago the oldest segment ended that waits, in seconds; 0 if none waits.
    pub(crate) fn oldest_seconds(&self) -> u64 {
        let oldest_ms = self.lock().iter().map(|one| one.ended_ms).min();
        oldest_ms.map_or(0, |ended_ms| now_ms().saturating_sub(ended_ms) / 1000)
    }
}
