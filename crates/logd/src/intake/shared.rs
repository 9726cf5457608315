//! What the connections of the intake share, whatever is spoken on them: the way to the depot, memory, and counts.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, mpsc, watch};

use super::{
    depot::{Deposit, State},
    recent::{Lately, Recent},
};
use crate::{
    clients::{addresses::Addresses, tenants::Tenants},
    guarantee::Guarantee,
    live::Live,
    monitoring::stats::Stats,
};

/// Storage wakes the depot each second, so one that was silent for longer hangs.
const BEAT_TIME: Duration = Duration::from_secs(2);
/// How often it looks whether a depot that was silent is so no more.
const LOOK_TIME: Duration = Duration::from_millis(20);

/// The bytes of a permit of the memory for all connections.
pub(super) const PERMIT_BYTES: usize = 1 << 10;

/// What it counts, for `/metrics`.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(super) state: Arc<State>,
    pub(super) connections: AtomicU64,
    pub(super) open: AtomicU64,
    pub(super) turned_away: AtomicU64,
    pub(super) broken: AtomicU64,
    pub(super) tls_failures: AtomicU64,
    pub(super) idle_ended: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) refused_items: AtomicU64,
    pub(super) repeated_items: AtomicU64,
}

impl Counts {
    /// As those of a thread.
    pub(crate) fn stats(&self) -> Stats {
        let stats = *self.state.stats.lock().unwrap_or_else(PoisonError::into_inner);
        Stats {
            connections: self.connections.load(Ordering::Relaxed),
            open: self.open.load(Ordering::Relaxed),
            turned_away: self.turned_away.load(Ordering::Relaxed),
            broken: self.broken.load(Ordering::Relaxed),
            tls_failures: self.tls_failures.load(Ordering::Relaxed),
            idle_ended: self.idle_ended.load(Ordering::Relaxed),
            refused_requests: self.refused.load(Ordering::Relaxed),
            refused_items: self.refused_items.load(Ordering::Relaxed),
            repeated_items: self.repeated_items.load(Ordering::Relaxed),
            ..stats
        }
    }

    /// The same, and whether the thread that stores answers until then.
    pub(crate) fn ask(&self, until: Instant) -> (Stats, bool) {
        let mut answers = self.state.has_beaten_within(BEAT_TIME);
        while !answers && Instant::now() < until {
            thread::sleep(LOOK_TIME);
            answers = self.state.has_beaten_within(BEAT_TIME);
        }
        (self.stats(), answers)
    }
}

/// What all connections share.
pub(super) struct Shared {
    pub(super) live: Arc<Mutex<Live>>,
    pub(super) deposits: mpsc::Sender<Deposit>,
    pub(super) memory: Arc<Semaphore>,
    pub(super) memory_bytes: usize,
    /// Half of it, for messages that are not whole.
    pub(super) unfinished: Arc<Semaphore>,
    pub(super) counts: Arc<Counts>,
    pub(super) guarantee: Guarantee,
    pub(super) end: watch::Receiver<bool>,
    pub(super) addresses: Arc<Addresses>,
    pub(super) tenants: Arc<Tenants>,
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
    /// What may change while the daemon runs.
    pub(super) fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a client may send lines. `tenant` is who it has shown itself to be.
    pub(super) fn may_send(&self, peer: SocketAddr, tenant: Option<&str>) -> bool {
        self.live().limits.lets_send(tenant) || self.tenants.of_address(peer.ip()).is_some()
    }

    /// What was stored lately of a tenant.
    pub(super) fn lately<'a>(&'a self, tenant: Option<&'a str>) -> Lately<'a> {
        Lately { recent: self.recent(), tenant }
    }

    /// What was stored lately, and is on its way.
    pub(super) fn recent(&self) -> &Arc<Recent> {
        &self.counts.state.recent
    }

    /// Waits for the end of the intake.
    pub(super) async fn ended(&self) {
        let _ = self.end.clone().wait_for(|has_ended| *has_ended).await;
    }
}
