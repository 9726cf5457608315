//! What a file knows of its syncs: whether one has failed.
//!
//! The kernel tells of a lost write once, to the sync that meets it (Linux 4.13, fs/sync.c and
//! lib/errseq.c). So it is noted when the sync ends, by what drives the ring, and not when somebody
//! looks at its result: whose future was dropped, nobody does.

use std::sync::{
    Arc,
    atomic::{AtomicI32, Ordering},
};

use super::{Kind, Operation};

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

impl Operation {
    /// A sync that `of` is to know the end of.
    pub(crate) fn witnessed_by(mut self, of: &Arc<Witness>) -> Operation {
        if let Some(Kind::Sync { witness, .. }) = self.0.as_deref_mut() {
            *witness = Some(of.clone());
        }
        self
    }

    /// Whether the failure of a sync is not its own.
    pub(crate) fn failed_with_another(&self) -> bool {
        matches!(self.0.as_deref(), Some(Kind::Sync { failed_with_another: true, .. }))
    }

    /// Who is to know how it ends.
    pub(crate) fn witness(&self) -> Option<&Arc<Witness>> {
        match self.0.as_deref()? {
            Kind::Sync { witness, .. } => witness.as_ref(),
            _ => None,
        }
    }
}
