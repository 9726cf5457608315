//! What the connections of the intake share, whatever is spoken on them: the way to the depot, memory, and counts.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::{Semaphore, mpsc, watch};

use super::depot::{Deposit, State};
use crate::{
    guarantee::Guarantee, live::Live, monitoring::stats::Stats, session::connection::Limits,
};

/// The bytes of a permit of the memory for all connections.
pub(super) const PERMIT_BYTES: usize = 1 << 10;

/// What it counts, for `/metrics`.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(super) state: Arc<State>,
    pub(super) connections: AtomicU64,
    pub(super) open: AtomicU64,
    pub(super) tls_failures: AtomicU64,
    pub(super) broken: AtomicU64,
    pub(super) idle_ended: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) refused_items: AtomicU64,
}

impl Counts {
    /// As those of a thread.
    pub(crate) fn stats(&self) -> Stats {
        let stats = *self.state.stats.lock().unwrap_or_else(PoisonError::into_inner);
        Stats {
            connections: self.connections.load(Ordering::Relaxed),
            open: self.open.load(Ordering::Relaxed),
            tls_failures: self.tls_failures.load(Ordering::Relaxed),
            broken: self.broken.load(Ordering::Relaxed),
            idle_ended: self.idle_ended.load(Ordering::Relaxed),
            refused_requests: self.refused.load(Ordering::Relaxed),
            refused_items: self.refused_items.load(Ordering::Relaxed),
            ..stats
        }
    }
}

/// What all connections share.
pub(super) struct Shared {
    pub(super) live: Arc<Mutex<Live>>,
    pub(super) deposits: mpsc::Sender<Deposit>,
    pub(super) memory: Arc<Semaphore>,
    pub(super) memory_bytes: usize,
    pub(super) counts: Arc<Counts>,
    pub(super) guarantee: Guarantee,
    pub(super) end: watch::Receiver<bool>,
}

/// Who is at the other end of a connection.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) peer: SocketAddr,
    pub(super) is_tls: bool,
    /// The name in its certificate.
    pub(super) tenant: Option<Arc<str>>,
}

impl Shared {
    /// The limits that apply now.
    pub(super) fn limits(&self) -> Limits {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).limits.clone()
    }

    /// Waits for the end of the intake.
    pub(super) async fn ended(&self) {
        let _ = self.end.clone().wait_for(|has_ended| *has_ended).await;
    }
}
