//! What a file knows of its syncs: whether one has failed.
//!
//! The kernel tells of a lost write once, to the sync that meets it (Linux 4.13, fs/sync.c and
//! lib/errseq.c). So it is noted when the sync ends, by what drives the ring, and not when somebody
//! looks at its result: whose future was dropped, nobody does.

use std::sync::atomic::{AtomicI32, Ordering};

/// Kept by a file and by its syncs.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    /// The error of a sync that failed, or 0.
    errno: AtomicI32,
}

impl Witness {
    /// Keeps in mind how a sync ended that the loop had: one that it was never given, since the ring was
    /// shut down, says nothing about the file. Whether it failed.
    pub(crate) fn judge(&self, result: i32) -> bool {
        // What was cancelled says nothing about it either.
        let is_failure = result < 0 && result != -libc::ECANCELED;
        if is_failure {
            self.errno.store(-result, Ordering::Relaxed);
        }
        is_failure
    }

    /// The error of a sync that failed.
    pub(crate) fn failure(&self) -> Option<i32> {
        Some(self.errno.load(Ordering::Relaxed)).filter(|errno| *errno != 0)
    }
}
