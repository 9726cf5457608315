//! The controller: starts the threads, tells them when, and looks at the clocks at the edges of the
//! measured time.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ringwise_measure::{
    Fact, Sources,
    cpu::{ForeignProcess, pin_current_thread, process_cpu_ns},
};

use super::{
    ledger::Ledger,
    outcome::{Outcome, ServerUse},
    plan::Plan,
    worker::{Descriptors, Order, Report, Worker},
};
use crate::error::{LoadError, plain};

/// How often a signal is looked for.
const LOOK_TIME: Duration = Duration::from_millis(20);
/// How long before the end it is told, so that every thread knows of it when it comes.
const NOTICE_NS: u64 = 30_000_000;

/// Nanoseconds since the run began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    origin: Instant,
}

impl Clock {
    #[inline]
    pub(super) fn now_ns(self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

/// What the controller tells all threads.
pub(super) struct Shared {
    start_ns: AtomicU64,
    from_ns: AtomicU64,
    until_ns: AtomicU64,
    interrupted: Arc<AtomicBool>,
}

impl Shared {
    pub(super) fn start_ns(&self) -> u64 {
        self.start_ns.load(Ordering::Relaxed)
    }

    pub(super) fn measured_from_ns(&self) -> u64 {
        self.from_ns.load(Ordering::Relaxed)
    }

    pub(super) fn measured_until_ns(&self) -> u64 {
        self.until_ns.load(Ordering::Relaxed)
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// The threads, and how to speak with them.
struct Crew {
    shared: Arc<Shared>,
    clock: Clock,
    orders: Vec<Sender<Order>>,
    reports: Receiver<Report>,
    threads: Vec<JoinHandle<()>>,
    ledgers: Vec<Ledger>,
}

/// An edge of the measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It begins.
    Start,
    /// It ends.
    End,
}

/// Does what the plan says. A signal that sets `interrupted` ends the measured time early.
///
/// # Errors
///
/// [`LoadError`]: nothing could be measured. Connections that fail among others that do not are
/// counted in the [`Outcome`].
pub fn run(plan: &Plan, interrupted: &Arc<AtomicBool>) -> Result<Outcome, LoadError> {
    run_observed(plan, interrupted, &mut |_| {})
}

/// The same, for a caller that has something to look at when the measured time begins and ends.
///
/// # Errors
///
/// As for [`run`].
pub fn run_observed(
    plan: &Plan,
    interrupted: &Arc<AtomicBool>,
    at: &mut dyn FnMut(Moment),
) -> Result<Outcome, LoadError> {
    let sources = Sources::default();
    let server = |pid| ForeignProcess::read(&sources, pid);
    if let Some(pid) = plan.server_pid.filter(|&pid| !server(pid).exists()) {
        return Err(LoadError::Failed(format!("--server-pid {pid}: no such process")));
    }
    let mut crew = Crew::start(plan, interrupted)?;
    let opened = crew.open(|| Order::OpenActive)?;
    if opened == 0 && !plan.mode.is_by_connection() {
        return Err(crew.failure());
    }
    let before_idle = plan.server_pid.map(server);
    let beside = crew.open(|| Order::OpenBeside)?;
    let with_idle = plan.server_pid.map(server);
    let (from_ns, until_ns) = crew.go(plan);
    crew.wait_until(from_ns);
    at(Moment::Start);
    let at_start = Edge::look(crew.clock, plan, &sources);
    let until_ns = crew.wait_for_end(until_ns);
    let at_end = Edge::look(crew.clock, plan, &sources);
    at(Moment::End);
    let is_partial = crew.shared.is_interrupted();
    let ledgers = crew.finish()?;
    if from_ns >= until_ns && is_partial {
        return Err(LoadError::Interrupted);
    }
    let mut outcome = Outcome::of(&ledgers, until_ns.saturating_sub(from_ns));
    outcome.is_partial = is_partial;
    outcome.client.cpu_ns = at_end.own_cpu_ns.saturating_sub(at_start.own_cpu_ns);
    outcome.client.elapsed_ns = at_end.at_ns.saturating_sub(at_start.at_ns);
    outcome.server = at_end.server.zip(at_start.server).map(|(end, start)| {
        let idle_bytes = with_idle.zip(before_idle).map(|(with, before)| {
            let grown = |(with, before): (&u64, &u64)| with.saturating_sub(*before);
            with.resident_bytes.zip(&before.resident_bytes).map(grown)
        });
        let idle = plan.mode.idle() > 0 && beside > 0;
        ServerUse {
            elapsed_ns: outcome.client.elapsed_ns,
            used: end.since(&start),
            resident_bytes: end.resident_bytes,
            bytes_per_idle: idle_bytes
                .filter(|_| idle)
                .map(|bytes: Fact<u64>| bytes.map(|bytes| bytes as f64 / beside as f64)),
        }
    });
    Ok(outcome)
}

/// The clocks at an edge of the measured time.
struct Edge {
    at_ns: u64,
    own_cpu_ns: u64,
    server: Option<ForeignProcess>,
}

impl Edge {
    fn look(clock: Clock, plan: &Plan, sources: &Sources) -> Edge {
        let server = plan.server_pid.map(|pid| ForeignProcess::read(sources, pid));
        Edge { at_ns: clock.now_ns(), own_cpu_ns: process_cpu_ns(), server }
    }
}

impl Crew {
    fn start(plan: &Plan, interrupted: &Arc<AtomicBool>) -> Result<Crew, LoadError> {
        let failed = |error: &io::Error| LoadError::Failed(format!("threads: {}", plain(error)));
        let shared = Arc::new(Shared {
            start_ns: AtomicU64::new(u64::MAX),
            from_ns: AtomicU64::new(u64::MAX),
            until_ns: AtomicU64::new(u64::MAX),
            interrupted: interrupted.clone(),
        });
        let clock = Clock { origin: Instant::now() };
        let (plan, seed) = (Arc::new(plan.clone()), fastrand::u64(..));
        let (report, reports) = mpsc::channel();
        let mut crew = Crew {
            shared,
            clock,
            orders: Vec::new(),
            reports,
            threads: Vec::new(),
            ledgers: Vec::new(),
        };
        for index in 0..plan.threads {
            let descriptors = Descriptors::open().map_err(|error| failed(&error))?;
            let (order, orders) = mpsc::channel();
            let report = report.clone();
            let processor = match plan.processors.len() {
                0 => None,
                count => Some(plan.processors[index % count]),
            };
            let (plan, shared) = (plan.clone(), crew.shared.clone());
            let body = move || {
                // Checked to be allowed; one that was taken offline since leaves it unpinned.
                processor.map(|processor| pin_current_thread(&[processor]));
                Worker::new(&plan, &shared, (index, seed), clock, descriptors)
                    .run(&orders, &report);
            };
            let builder = thread::Builder::new().name(format!("load-{index}"));
            crew.threads.push(builder.spawn(body).map_err(|error| failed(&error))?);
            crew.orders.push(order);
        }
        Ok(crew)
    }

    fn tell(&self, order: impl Fn() -> Order) {
        for thread in &self.orders {
            // One that is gone is found out when it does not report.
            let _ = thread.send(order());
        }
    }

    /// Has all threads open connections: how many are open.
    fn open(&mut self, order: impl Fn() -> Order) -> Result<usize, LoadError> {
        self.tell(order);
        let mut opened = 0;
        for _ in 0..self.threads.len() {
            match self.reports.recv() {
                Ok(Report::Opened(count)) => opened += count,
                Ok(Report::Over(_)) | Err(_) => return Err(died()),
            }
        }
        if self.shared.is_interrupted() { Err(LoadError::Interrupted) } else { Ok(opened) }
    }

    /// Sets the times and lets all threads begin.
    fn go(&self, plan: &Plan) -> (u64, u64) {
        let start_ns = self.clock.now_ns() + 1_000_000;
        let from_ns = start_ns + plan.warm_up.as_nanos() as u64;
        let until_ns = from_ns + plan.duration.as_nanos() as u64;
        self.shared.start_ns.store(start_ns, Ordering::Relaxed);
        self.shared.from_ns.store(from_ns, Ordering::Relaxed);
        self.shared.until_ns.store(until_ns, Ordering::Relaxed);
        self.tell(|| Order::Go);
        (from_ns, until_ns)
    }

    /// Waits for a moment, unless all threads are over or a signal comes first.
    fn wait_until(&mut self, moment_ns: u64) {
        while self.ledgers.len() < self.threads.len() && !self.shared.is_interrupted() {
            let left = Duration::from_nanos(moment_ns.saturating_sub(self.clock.now_ns()));
            if left.is_zero() {
                return;
            }
            match self.reports.recv_timeout(left.min(LOOK_TIME)) {
                Ok(Report::Over(ledger)) => self.ledgers.push(*ledger),
                Ok(Report::Opened(_)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Waits for the end of the measured time, and says when it was.
    fn wait_for_end(&mut self, until_ns: u64) -> u64 {
        self.wait_until(until_ns);
        let now_ns = self.clock.now_ns();
        if now_ns >= until_ns {
            return until_ns;
        }
        let early_ns = until_ns.min(now_ns + NOTICE_NS);
        self.shared.until_ns.store(early_ns, Ordering::Relaxed);
        thread::sleep(Duration::from_nanos(early_ns.saturating_sub(self.clock.now_ns())));
        early_ns
    }

    /// Waits for all threads to be over.
    fn finish(mut self) -> Result<Vec<Ledger>, LoadError> {
        while self.ledgers.len() < self.threads.len() {
            match self.reports.recv() {
                Ok(Report::Over(ledger)) => self.ledgers.push(*ledger),
                Ok(Report::Opened(_)) => {}
                Err(_) => return Err(died()),
            }
        }
        for thread in self.threads {
            thread.join().map_err(|_| died())?;
        }
        Ok(self.ledgers)
    }

    /// Why no connection is open.
    fn failure(self) -> LoadError {
        self.shared.until_ns.store(0, Ordering::Relaxed);
        self.tell(|| Order::Go);
        match self.finish() {
            Ok(ledgers) => {
                let faults = ledgers.into_iter().flat_map(|ledger| ledger.faults);
                LoadError::Failed(faults.take(1).collect())
            }
            Err(error) => error,
        }
    }
}

fn died() -> LoadError {
    LoadError::Failed("a thread of the generator has ended by a bug in it".into())
}
