//! Stores the lines of requests: one thread, which commits what has arrived while the commit before was on its way.
//!
//! It knows no protocol. A deposit goes in, and its verdict comes out when all its lines are committed.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use ringwise::Ring;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::{
    flights::Flights,
    recent::{Claims, Recent},
};
use crate::{
    clients::{addresses::Addresses, names::Names, tenants::Tenants},
    disk::{
        segment::writing::appender::Fatal,
        storage::{Shared, Storage},
    },
    error::LogdError,
    guarantee::Guarantee,
    lines::framing::Framing,
    live::Live,
    monitoring::stats::Stats,
    session::{
        connection::{Batch, Connection, Desk, Limits},
        unfinished::Held,
    },
};

/// How often it looks whether limits were changed.
const RELOAD_TIME: Duration = Duration::from_secs(1);

/// The lines of a request.
#[derive(Debug)]
pub(super) struct Deposit {
    pub(super) peer: SocketAddr,
    pub(super) tenant: Option<Arc<str>>,
    /// Whole lines. The last one may lack its line feed.
    pub(super) body: Vec<u8>,
    /// How they are told apart.
    pub(super) framing: Framing,
    /// Its share of the memory for all, unless the sender keeps that until the verdict.
    pub(super) room: Option<OwnedSemaphorePermit>,
    /// How many rejected lines its verdict lists.
    pub(super) rejected_max: usize,
    /// By what it is recognised if it comes again, each for a line, unless that is rejected. Line 0 is all of it.
    pub(super) claims: Claims,
    pub(super) verdict: oneshot::Sender<Verdict>,
}

/// What became of a deposit.
#[derive(Debug)]
pub(super) enum Verdict {
    /// All lines are committed; rejected ones as dead letters, or not at all (`--long-lines refuse`).
    Stored { lines: u64, rejected: Rejected },
    /// Nothing is stored: its tenant has no room.
    OverQuota,
}

/// Rejected lines of a request.
#[derive(Debug)]
pub(super) struct Rejected {
    pub(super) count: u64,
    /// The first of them, with the reasons.
    pub(super) first: Vec<(u64, &'static str)>,
    listed_max: usize,
}

impl Rejected {
    /// So many are listed; the rest is only counted.
    pub(super) fn new(listed_max: usize) -> Rejected {
        Rejected { count: 0, first: Vec::new(), listed_max }
    }

    pub(super) fn add(&mut self, line: u64, reason: &'static str) {
        self.count += 1;
        if self.first.len() < self.listed_max {
            self.first.push((line, reason));
        }
    }
}

/// What requests see of the depot while it works.
#[derive(Debug)]
pub(super) struct State {
    started: Instant,
    /// When it last told how it is, in milliseconds since then.
    beat_ms: AtomicU64,
    has_ended: AtomicBool,
    /// Storing failed, and is tried again.
    pub(super) is_stalled: AtomicBool,
    /// Too little space is free.
    pub(super) is_low: AtomicBool,
    pub(super) stats: Mutex<Stats>,
    /// What was stored and may come again.
    pub(super) recent: Arc<Recent>,
}

impl Default for State {
    fn default() -> State {
        State {
            started: Instant::now(),
            beat_ms: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            is_stalled: AtomicBool::new(false),
            is_low: AtomicBool::new(false),
            stats: Mutex::default(),
            recent: Arc::default(),
        }
    }
}

impl State {
    fn beat(&self) {
        let since = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.beat_ms.store(since, Ordering::Relaxed);
    }

    /// Whether it told how it is within this time, or has ended.
    pub(super) fn has_beaten_within(&self, time: Duration) -> bool {
        let beat = Duration::from_millis(self.beat_ms.load(Ordering::Relaxed));
        self.has_ended.load(Ordering::Relaxed) || self.started.elapsed() < beat + time
    }
}

/// What a depot is made of.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) storage: Shared,
    pub(crate) live: Arc<Mutex<Live>>,
    pub(crate) tenants: Arc<Tenants>,
    /// The number of connections of each address.
    pub(crate) addresses: Arc<Addresses>,
    /// The number of its stream.
    pub(crate) stream: u32,
}

/// The state of the thread.
pub(crate) struct Depot {
    flights: Flights,
    storage: Storage,
    guarantee: Guarantee,
    names: Arc<Names>,
    tenants: Arc<Tenants>,
    live: Arc<Mutex<Live>>,
    limits: Limits,
    partials: Held,
    batch: Batch,
    /// Requests that are not answered, and free places among them.
    requests: Vec<Option<Request>>,
    vacant: Vec<usize>,
    /// Requests with lines in the batch that is filled, and in the one that is on its way.
    filling: Vec<usize>,
    committing: Vec<usize>,
    /// Requests with lines for which there was no room.
    waiting: Vec<usize>,
    committing_bytes: usize,
    /// When the first line came of the batch that is filled, and of the one on its way.
    filling_since: Option<Instant>,
    committing_since: Option<Instant>,
    counts: Stats,
    /// How many deposits there were.
    deposits: u64,
    state: Arc<State>,
    /// When limits were last read.
    looked: Instant,
}

struct Request {
    connection: Connection,
    rejected: Rejected,
    claims: Claims,
    verdict: oneshot::Sender<Verdict>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Depot {
    /// Recovers its stream. `ring` is one that a runtime drives.
    pub(crate) fn new(parts: Parts, ring: Ring) -> Result<Depot, LogdError> {
        let live = parts.live.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut flights = Flights::new(ring);
        let storage = Storage::open(&parts.storage, parts.stream, live.segments)?;
        storage.watch(&mut flights)?;
        Ok(Depot {
            flights,
            storage,
            guarantee: parts.storage.guarantee,
            names: parts.storage.names.clone(),
            tenants: parts.tenants,
            live: parts.live,
            limits: live.limits,
            partials: Held::default(),
            batch: Batch::default(),
            requests: Vec::new(),
            vacant: Vec::new(),
            filling: Vec::new(),
            committing: Vec::new(),
            waiting: Vec::new(),
            committing_bytes: 0,
            filling_since: None,
            committing_since: None,
            counts: Stats::default(),
            deposits: 0,
            state: Arc::default(),
            looked: Instant::now(),
        })
    }

    pub(super) fn state(&self) -> Arc<State> {
        self.state.clone()
    }

    /// Stores deposits until their senders are gone and all are answered.
    ///
    /// # Errors
    ///
    /// Nothing more can be stored. Requests that wait get no verdict.
    pub(super) async fn run(
        mut self,
        mut deposits: mpsc::Receiver<Deposit>,
    ) -> Result<(), LogdError> {
        let mut has_ended = false;
        while !has_ended || !self.is_done() {
            let has_room = self.has_room();
            tokio::select! {
                done = self.flights.next() => {
                    if let Some(done) = done {
                        self.take(done)?;
                    }
                }
                deposit = deposits.recv(), if has_room && !has_ended => match deposit {
                    Some(deposit) => self.deposit(deposit),
                    None => has_ended = true,
                },
            }
            while self.has_room()
                && let Ok(deposit) = deposits.try_recv()
            {
                self.deposit(deposit);
            }
            self.begin()?;
            self.tell();
            // Storage's timer wakes it that often.
            if self.looked.elapsed() >= RELOAD_TIME {
                self.reload();
            }
        }
        self.storage.seal();
        self.tell();
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.requests.len() == self.vacant.len() && self.batch.is_empty() && !self.storage.is_busy()
    }

    /// Whether more lines may be added to the batch. What is received meanwhile waits with the requests.
    fn has_room(&self) -> bool {
        self.batch.bytes() < self.limits.commit_max
    }

    fn deposit(&mut self, deposit: Deposit) {
        let Deposit { peer, tenant, mut body, framing, room, rejected_max, claims, verdict } =
            deposit;
        if verdict.is_closed() {
            // It was told to send its lines again.
            return;
        }
        self.deposits += 1;
        let client = (peer, tenant.as_deref());
        let connection = Connection::of_request(self.deposits, client, framing, &self.tenants);
        if connection.is_over_quota() {
            // A client that has gone needs no verdict, here and below.
            let _ = verdict.send(Verdict::OverQuota);
            return;
        }
        if framing == Framing::Lines && body.last().is_some_and(|last| *last != b'\n') {
            body.push(b'\n');
        }
        self.counts.receives += 1;
        self.counts.received_bytes += body.len() as u64;
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        let rejected = Rejected::new(rejected_max);
        self.requests[index] = Some(Request { connection, rejected, claims, verdict, _room: room });
        self.feed(index, |connection, desk| connection.take_lines(&body, desk));
    }

    /// Lets a request add lines to the batch, and answers it if it has none that wait.
    fn feed(&mut self, index: usize, take: impl FnOnce(&mut Connection, &mut Desk<'_>)) {
        let Some(request) = &mut self.requests[index] else { return };
        let was_in_batch = request.connection.is_in_batch();
        let mut desk = Desk {
            limits: &self.limits,
            guarantee: self.guarantee,
            partials: &mut self.partials,
            batch: &mut self.batch,
            names: &self.names,
            tenants: &self.tenants,
            counts: &mut self.counts,
        };
        desk.counting(|desk| take(&mut request.connection, desk));
        for (line, reason) in request.connection.take_rejected() {
            request.rejected.add(line, reason);
        }
        if request.connection.is_in_batch() && !was_in_batch {
            self.filling.push(index);
        }
        if request.connection.has_backlog() {
            self.waiting.push(index);
        }
        let is_committed = request.connection.is_committed();
        if self.filling_since.is_none() && !self.batch.is_empty() {
            self.filling_since = Some(Instant::now());
        }
        if is_committed {
            self.answer(index);
        }
    }

    fn answer(&mut self, index: usize) {
        let Some(request) = self.requests[index].take() else { return };
        self.vacant.push(index);
        let lines = request.connection.lines();
        // Also if the client has gone, for it may come again.
        let listed = &request.rejected.first;
        let is_rejected = |line: u64| listed.binary_search_by_key(&line, |(line, _)| *line).is_ok();
        request.claims.stored(is_rejected);
        let _ = request.verdict.send(Verdict::Stored { lines, rejected: request.rejected });
    }

    fn take(&mut self, done: (u64, ringwise::Completion)) -> Result<(), LogdError> {
        if self.storage.take(&mut self.flights, done).map_err(failed)? {
            self.committed();
        }
        Ok(())
    }

    /// Commits all lines that have arrived, if no batch is on its way.
    fn begin(&mut self) -> Result<(), LogdError> {
        loop {
            for index in std::mem::take(&mut self.waiting) {
                self.feed(index, |connection, desk| {
                    connection.resume(desk);
                });
            }
            if self.batch.is_empty() {
                // Space may have become free, or storing possible again.
                return Ok(());
            }
            if !self.storage.is_ready(&mut self.flights).map_err(failed)? {
                return Ok(());
            }
            self.committing_bytes = self.batch.bytes();
            self.committing_since = self.filling_since.take();
            self.committing = std::mem::take(&mut self.filling);
            for &index in &self.committing {
                if let Some(request) = &mut self.requests[index] {
                    request.connection.batch_began(&mut self.batch.names);
                }
            }
            let commits = self.storage.commits;
            if self.storage.begin(&mut self.flights, &mut self.batch).map_err(failed)? {
                return Ok(());
            }
            if self.storage.commits == commits {
                // All lines were refused, so there is no commit to measure.
                self.committing_since = None;
            }
            self.committed();
        }
    }

    fn committed(&mut self) {
        self.counts.committed_bytes += std::mem::take(&mut self.committing_bytes) as u64;
        if let Some(since) = self.committing_since.take() {
            self.counts.commit_times.note(since.elapsed());
        }
        for index in std::mem::take(&mut self.committing) {
            let Some(request) = &mut self.requests[index] else { continue };
            request.connection.batch_committed();
            if request.connection.is_committed() {
                self.answer(index);
            }
        }
    }

    /// Says how it is.
    fn tell(&mut self) {
        let (is_stalled, is_low) = (self.storage.is_stalled(), self.storage.is_low());
        self.state.is_stalled.store(is_stalled, Ordering::Relaxed);
        self.state.is_low.store(is_low, Ordering::Relaxed);
        let stats = self.storage.tell(Stats {
            uncommitted_bytes: (self.batch.bytes() + self.committing_bytes) as u64,
            ..self.counts
        });
        *self.state.stats.lock().unwrap_or_else(PoisonError::into_inner) = stats;
        self.state.beat();
    }

    /// Takes over limits that SIGHUP changed.
    fn reload(&mut self) {
        self.looked = Instant::now();
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.storage.set_limits(live.segments);
        self.limits = live.limits;
    }
}

impl Drop for Depot {
    fn drop(&mut self) {
        self.state.has_ended.store(true, Ordering::Relaxed);
    }
}

fn failed(fatal: Fatal) -> LogdError {
    LogdError::Failed(fatal.0)
}
