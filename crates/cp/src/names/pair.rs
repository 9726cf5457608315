//! A directory of the source with the one that was made for it, which bundles of names share.
//!
//! Both stay open as long as a bundle has names of them. It copies nothing.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::names::place::{Identity, Place};

/// A directory of the source and the one that was made for it.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) source: Arc<OwnedFd>,
    pub(crate) target: Arc<OwnedFd>,
    pub(crate) source_path: Vec<u8>,
    pub(crate) target_path: Vec<u8>,
    pub(crate) source_identity: Identity,
    pub(crate) target_identity: Identity,
    /// Bundles that are not dealt with yet. Only the walk looks at it.
    pending: AtomicUsize,
}

impl Pair {
    pub(crate) fn new(
        (source, target): (Arc<OwnedFd>, Arc<OwnedFd>),
        (source_path, target_path): (&[u8], &[u8]),
        (source_identity, target_identity): (Identity, Identity),
    ) -> Pair {
        Pair {
            source,
            target,
            source_path: source_path.to_vec(),
            target_path: target_path.to_vec(),
            source_identity,
            target_identity,
            pending: AtomicUsize::new(0),
        }
    }

    pub(crate) fn begin(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.pending() == 0
    }

    pub(crate) fn source_of(&self, name: &[u8]) -> Place {
        Place::within(self.source.clone(), &self.source_path, name)
    }

    pub(crate) fn target_of(&self, name: &[u8]) -> Place {
        Place::within(self.target.clone(), &self.target_path, name)
    }
}

/// What the walk is to do with a bundle that came back.
#[derive(Debug)]
pub(crate) struct Landed {
    pub(crate) pair: Arc<Pair>,
    /// Names that were left, by the numbers of their places in the report.
    pub(crate) returned: Vec<(u64, Vec<u8>)>,
    pub(crate) spent: Spent,
}

/// How long the work on a bundle took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// Making names. Meanwhile the kernel holds the lock of the directory (fs/namei.c, open_last_lookups).
    pub(crate) making: Duration,
    /// All of it.
    pub(crate) whole: Duration,
}
