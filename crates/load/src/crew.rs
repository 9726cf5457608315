//! The threads of a generator and their controller: who starts them, tells them when, and takes
//! what they counted.
//!
//! It knows nothing of what they send. `worker` is what a thread does, `post` what the two tell each
//! other, `desk` what a thread's connections share, `totals` what all count.

mod desk;
mod fault;
mod post;
mod totals;
mod worker;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use ringwise_measure::{
    Sources,
    cpu::{ForeignProcess, pin_current_thread, process_cpu_ns},
};

use self::post::{Clock, Order, Over, Report, Shared};
pub use self::totals::Totals;
pub(crate) use self::{
    desk::Desk,
    fault::Fault,
    post::Post,
    totals::{CostFacts, CountFacts},
    worker::{Connection, Kit, Worker},
};
use crate::{
    account::{ClientUse, ServerUse},
    error::{LoadError, plain},
    poll::{Descriptors, Poll},
};

/// How often a signal is looked for.
const LOOK_TIME: Duration = Duration::from_millis(20);
/// How long before the end it is told, so that every thread knows of it when it comes.
const NOTICE_NS: u64 = 30_000_000;

/// An edge of the measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It begins.
    Start,
    /// It ends.
    End,
}

/// How a run goes.
pub(crate) struct Course {
    pub warm_up: Duration,
    pub duration: Duration,
    /// The server's process, where it is to be looked at.
    pub server_pid: Option<u32>,
    /// Whether the connections beside those that send are silent.
    pub has_idle: bool,
    /// Whether connections are made when it has begun, not before.
    pub opens_later: bool,
}

/// What a run left.
pub(crate) struct Conducted<L> {
    pub totals: Totals,
    pub ledgers: Vec<L>,
    /// When the threads began to send.
    pub start_ns: u64,
}

/// The clocks at an edge of the measured time.
struct Edge {
    at_ns: u64,
    cpu_ns: u64,
    server: Option<ForeignProcess>,
}

/// The threads, and how to speak with them.
pub(crate) struct Crew<L> {
    shared: Arc<Shared>,
    clock: Clock,
    orders: Vec<Sender<Order>>,
    reports: Receiver<Report<L>>,
    threads: Vec<JoinHandle<()>>,
    over: Vec<Over<L>>,
}

impl<L: Send + 'static> Crew<L> {
    /// Starts `threads` threads, on these processors in turn where there are any.
    pub(crate) fn start(
        threads: usize,
        processors: &[usize],
        interrupted: &Arc<AtomicBool>,
        body: impl Fn(Post<L>) + Clone + Send + 'static,
    ) -> Result<Crew<L>, LoadError> {
        let failed =
            |error: std::io::Error| LoadError::Failed(format!("threads: {}", plain(&error)));
        let shared = Arc::new(Shared {
            start_ns: AtomicU64::new(u64::MAX),
            from_ns: AtomicU64::new(u64::MAX),
            until_ns: AtomicU64::new(u64::MAX),
            interrupted: interrupted.clone(),
        });
        let clock = Clock::start();
        let (report, reports) = mpsc::channel();
        let (orders, over) = (Vec::new(), Vec::new());
        let mut crew = Crew { shared, clock, orders, reports, threads: Vec::new(), over };
        for index in 0..threads {
            let (order, orders) = mpsc::channel();
            let processor = processors.get(index % processors.len().max(1)).copied();
            let (shared, reports) = (crew.shared.clone(), report.clone());
            let descriptors = Descriptors::open().map_err(failed)?;
            let body = body.clone();
            let body = move || {
                // Checked to be allowed; one that was taken offline since leaves it unpinned.
                processor.map(|processor| pin_current_thread(&[processor]));
                let poll = Poll::new(descriptors);
                body(Post { index, clock, shared, poll, orders, reports });
            };
            let builder = thread::Builder::new().name(format!("load-{index}"));
            crew.threads.push(builder.spawn(body).map_err(failed)?);
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

    /// Sets the times and lets all threads begin: when the measured time begins and ends.
    fn go(&self, warm_up: Duration, duration: Duration) -> (u64, u64) {
        let start_ns = self.clock.now_ns() + 1_000_000;
        let from_ns = start_ns + warm_up.as_nanos() as u64;
        let until_ns = from_ns + duration.as_nanos() as u64;
        self.shared.start_ns.store(start_ns, Ordering::Relaxed);
        self.shared.from_ns.store(from_ns, Ordering::Relaxed);
        self.shared.until_ns.store(until_ns, Ordering::Relaxed);
        self.tell(|| Order::Go);
        (from_ns, until_ns)
    }

    /// Waits for a moment, unless all threads are over or a signal comes first.
    fn wait_until(&mut self, moment_ns: u64) {
        while self.over.len() < self.threads.len() && !self.shared.is_interrupted() {
            let left = Duration::from_nanos(moment_ns.saturating_sub(self.clock.now_ns()));
            if left.is_zero() {
                return;
            }
            match self.reports.recv_timeout(left.min(LOOK_TIME)) {
                Ok(Report::Over(over)) => self.over.push(*over),
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
    fn finish(mut self) -> Result<Vec<Over<L>>, LoadError> {
        while self.over.len() < self.threads.len() {
            match self.reports.recv() {
                Ok(Report::Over(over)) => self.over.push(*over),
                Ok(Report::Opened(_)) => {}
                Err(_) => return Err(died()),
            }
        }
        for thread in self.threads {
            thread.join().map_err(|_| died())?;
        }
        Ok(self.over)
    }

    /// Has all threads open their connections, send, and end: what a run is, whatever it sends.
    ///
    /// # Errors
    ///
    /// [`LoadError`]: nothing could be measured.
    pub(crate) fn conduct(
        mut self,
        course: &Course,
        at: &mut dyn FnMut(Moment),
    ) -> Result<Conducted<L>, LoadError> {
        let sources = Sources::default();
        let server = || course.server_pid.map(|pid| ForeignProcess::read(&sources, pid));
        if self.open(|| Order::OpenActive)? == 0 && !course.opens_later {
            return Err(self.dismiss()?);
        }
        let before_idle = server();
        let beside = self.open(|| Order::OpenBeside)?;
        let with_idle = server();
        let (from_ns, until_ns) = self.go(course.warm_up, course.duration);
        self.wait_until(from_ns);
        at(Moment::Start);
        let at_start =
            Edge { at_ns: self.clock.now_ns(), cpu_ns: process_cpu_ns(), server: server() };
        let until_ns = self.wait_for_end(until_ns);
        let at_end =
            Edge { at_ns: self.clock.now_ns(), cpu_ns: process_cpu_ns(), server: server() };
        at(Moment::End);
        let is_partial = self.shared.is_interrupted();
        let start_ns = self.shared.start_ns();
        let (tallies, ledgers) =
            self.finish()?.into_iter().map(|over| ((over.tally, over.own), over.ledger)).unzip();
        if from_ns >= until_ns && is_partial {
            return Err(LoadError::Interrupted);
        }
        let mut totals = Totals::of(tallies);
        let elapsed_ns = at_end.at_ns.saturating_sub(at_start.at_ns);
        let cpu_ns = at_end.cpu_ns.saturating_sub(at_start.cpu_ns);
        totals.client = ClientUse { elapsed_ns, cpu_ns, ..totals.client };
        let idle_bytes = with_idle.zip(before_idle).filter(|_| beside > 0 && course.has_idle);
        let bytes_per_idle = idle_bytes.map(|(with, before)| {
            let grown = |(with, before): (&u64, &u64)| with.saturating_sub(*before);
            let grown = with.resident_bytes.zip(&before.resident_bytes).map(grown);
            grown.map(|bytes| bytes as f64 / beside as f64)
        });
        totals.server = at_end.server.zip(at_start.server).map(|(end, start)| ServerUse {
            elapsed_ns,
            used: end.since(&start),
            resident_bytes: end.resident_bytes,
            bytes_per_idle,
        });
        totals.elapsed_ns = until_ns.saturating_sub(from_ns);
        totals.is_partial = is_partial;
        Ok(Conducted { totals, ledgers, start_ns })
    }

    /// Ends all threads before they begin: why none of their connections is open.
    fn dismiss(self) -> Result<LoadError, LoadError> {
        for moment in [&self.shared.start_ns, &self.shared.from_ns, &self.shared.until_ns] {
            moment.store(0, Ordering::Relaxed);
        }
        self.tell(|| Order::Go);
        let first =
            self.finish()?.into_iter().find_map(|over| over.tally.faults.into_iter().next());
        Ok(LoadError::Failed(first.unwrap_or_default()))
    }
}

fn died() -> LoadError {
    LoadError::Failed("a thread of the generator has ended by a bug in it".into())
}
