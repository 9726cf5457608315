//! A thread of a generator: its connections, driven by one epoll(7), from opening to the end.
//!
//! What is sent, and when, is the generator's ([`Kit`], [`Connection`]); that all of it is opened,
//! measured and ended in the same way is here.

use std::{ops::Range, sync::Arc};

use rustix::event::epoll::EventFlags;

use super::{
    desk::Desk,
    fault::Fault,
    post::{Order, Over, Post, Report, Shared},
};
use crate::{account::Mark, pace::Pace, poll::SLEEP_NS_MAX};

/// Connections that are being opened at the same time: what fits into the shortest queue of a
/// listening socket that is in use.
const OPENING_MAX: usize = 64;
/// How long the server may take to open a connection, its first answer included.
const OPENING_SECONDS: u64 = 10;

/// One connection. It never waits.
pub(crate) trait Connection {
    type Kit;

    /// Begins to connect.
    fn open(&mut self, desk: &mut Desk<Self::Kit>) -> Result<(), Fault>;

    /// Whether the server has taken it.
    fn is_open(&self) -> bool;

    fn is_failed(&self) -> bool;

    /// Whether nothing of it is under way, when nothing more begins.
    fn is_over(&self) -> bool;

    /// Does what a ready socket lets be done.
    fn ready(&mut self, flags: EventFlags, desk: &mut Desk<Self::Kit>) -> Result<(), Fault>;

    /// Begins what may begin, and sends what may be sent.
    fn advance(&mut self, desk: &mut Desk<Self::Kit>) -> Result<(), Fault>;

    /// Nothing more begins: says its last.
    fn wind_down(&mut self, desk: &mut Desk<Self::Kit>) -> Result<(), Fault>;

    /// The end of one that is over.
    fn finish(&mut self, desk: &mut Desk<Self::Kit>) -> Result<(), Fault>;

    /// What keeps it from being open, or at the end from being over, after `seconds` of nothing.
    fn stuck(&self, seconds: u64, desk: &Desk<Self::Kit>) -> Fault;

    /// Counts the connection as failed. What was under way took at least until now.
    fn fail(&mut self, fault: &Fault, desk: &mut Desk<Self::Kit>);
}

/// What a generator's connections have of their own, and what it does with all of a thread's.
pub(crate) trait Kit: Sized {
    type Connection: Connection<Kit = Self>;
    /// What it counts beyond what all count.
    type Ledger;

    /// How long what is under way at the end may go without anything happening.
    const SETTLING_SECONDS: u64;

    /// Whether those that send are made anew for each operation, and so not opened before.
    fn is_by_connection(&self) -> bool;

    /// The schedule of a thread, if there is one.
    fn pace(worker: &Worker<Self>, start_ns: u64) -> Option<Pace>;

    /// The first that is done when it may be sent.
    fn begin(worker: &mut Worker<Self>, start_ns: u64);

    /// Does what is due. Says when there is more to do, should nothing happen before.
    fn step(worker: &mut Worker<Self>, now_ns: u64) -> u64;

    /// The last that is done while it may be sent.
    fn end(worker: &mut Worker<Self>);

    /// Counts what was due and never begun: it would have taken at least until the end.
    fn count_unsent(worker: &mut Worker<Self>, pace: Pace);

    /// Lets those go on that stopped to give others their turn; says whether one did so again.
    fn go_on(worker: &mut Worker<Self>) -> bool;

    fn ledger(self) -> Self::Ledger;
}

/// A thread's state.
pub(crate) struct Worker<K: Kit> {
    /// Which of the threads it is.
    pub thread: usize,
    /// Those that send come first.
    pub connections: Vec<K::Connection>,
    pub senders: usize,
    pub desk: Desk<K>,
    /// The next operation, or burst, of the schedule.
    pub next: u64,
    shared: Arc<Shared>,
}

impl<K: Kit> Worker<K> {
    /// Does what it is told until it is over.
    pub(crate) fn run(
        kit: K,
        connections: Vec<K::Connection>,
        senders: usize,
        post: Post<K::Ledger>,
    ) {
        let Post { index: thread, clock, shared, poll, orders, reports } = post;
        let desk = Desk::new(clock, poll, kit);
        let mut worker = Worker { thread, connections, senders, desk, next: 0, shared };
        // A controller that is gone has nothing more to tell or to hear.
        while let Ok(order) = orders.recv() {
            let range = match order {
                Order::OpenActive => 0..worker.senders,
                Order::OpenBeside => worker.senders..worker.connections.len(),
                Order::Go => break,
            };
            worker.open(range.clone());
            let open = worker.connections[range].iter().filter(|one| one.is_open()).count();
            let _ = reports.send(Report::Opened(open));
        }
        worker.measure();
        worker.settle();
        let Desk { tally, own, kit, .. } = worker.desk;
        let _ = reports.send(Report::Over(Box::new(Over { tally, own, ledger: kit.ledger() })));
    }

    /// Opens connections until each is open or has failed.
    fn open(&mut self, range: Range<usize>) {
        if range.is_empty() || (range.start == 0 && self.desk.kit.is_by_connection()) {
            return;
        }
        let (mut next, mut progress_ns, mut seen) = (range.start, self.desk.clock.now_ns(), 0);
        let before = self.desk.opened;
        while !self.shared.is_interrupted() {
            let done = self.desk.opened - before;
            while next < range.end && next - range.start < done + OPENING_MAX {
                let opened = self.connections[next].open(&mut self.desk);
                self.settle_fault(next, opened);
                next += 1;
            }
            if done >= range.len() {
                return;
            }
            let now_ns = self.desk.clock.now_ns();
            if done > seen {
                (progress_ns, seen) = (now_ns, done);
            }
            if now_ns - progress_ns > OPENING_SECONDS * 1_000_000_000 {
                for place in range.start..next {
                    let connection = &self.connections[place];
                    if !connection.is_open() && !connection.is_failed() {
                        let stuck = connection.stuck(OPENING_SECONDS, &self.desk);
                        self.settle_fault(place, Err(stuck));
                    }
                }
            }
            self.wait(SLEEP_NS_MAX);
        }
    }

    /// Sends until the end of the measured time.
    fn measure(&mut self) {
        let start_ns = self.shared.start_ns();
        self.desk.from_ns = self.shared.measured_from_ns();
        self.desk.until_ns = self.shared.measured_until_ns();
        self.desk.pace = K::pace(self, start_ns);
        self.desk.may_send = true;
        K::begin(self, start_ns);
        let (mut from, mut now_ns) = (None, self.desk.clock.now_ns());
        while now_ns < self.desk.until_ns && self.has_senders() {
            if from.is_none() && now_ns >= self.desk.from_ns {
                from = Some(Mark::set(now_ns));
            }
            let wake_ns = K::step(self, now_ns).min(self.desk.until_ns);
            self.wait(wake_ns.saturating_sub(now_ns));
            self.desk.until_ns = self.shared.measured_until_ns();
            now_ns = self.desk.clock.now_ns();
        }
        if let Some(from) = from {
            self.desk.own = Mark::set(now_ns).since(&from);
        }
        K::end(self);
        self.desk.may_send = false;
    }

    fn has_senders(&self) -> bool {
        // Looked at with every event, so not counted over all connections.
        self.desk.tally.errors == 0
            || self.connections[..self.senders].iter().any(|one| !one.is_failed())
    }

    /// When the schedule wants the next operation.
    pub(crate) fn next_due_ns(&self) -> u64 {
        self.desk.pace.map_or(u64::MAX, |pace| pace.intended_ns(self.next))
    }

    pub(crate) fn advance(&mut self, place: usize) {
        let advanced = self.connections[place].advance(&mut self.desk);
        self.settle_fault(place, advanced);
    }

    pub(crate) fn settle_fault(&mut self, place: usize, result: Result<(), Fault>) {
        if let Err(fault) = result {
            self.connections[place].fail(&fault, &mut self.desk);
        }
    }

    /// Waits for what is under way, and for all to be over.
    fn settle(&mut self) {
        if let Some(pace) = self.desk.pace {
            K::count_unsent(self, pace);
        }
        for place in 0..self.connections.len() {
            let wound_down = self.connections[place].wind_down(&mut self.desk);
            self.settle_fault(place, wound_down);
        }
        let mut progress_ns = self.desk.clock.now_ns();
        while self.connections.iter().any(|one| !one.is_over()) {
            let now_ns = self.desk.clock.now_ns();
            if now_ns - progress_ns > K::SETTLING_SECONDS * 1_000_000_000 {
                break;
            }
            let sleep_ns = if K::go_on(self) { 0 } else { SLEEP_NS_MAX };
            if self.wait(sleep_ns) > 0 {
                progress_ns = self.desk.clock.now_ns();
            }
        }
        for place in 0..self.connections.len() {
            let connection = &mut self.connections[place];
            let finished = match connection.is_over() {
                true => connection.finish(&mut self.desk),
                false => Err(connection.stuck(K::SETTLING_SECONDS, &self.desk)),
            };
            self.settle_fault(place, finished);
        }
    }

    /// Waits for events, at most `sleep_ns`, and handles them. Says how many there were.
    fn wait(&mut self, sleep_ns: u64) -> usize {
        let is_open_loop = self.desk.pace.is_some() && self.desk.may_send;
        let count = self.desk.poll.wait(sleep_ns, is_open_loop);
        let mut handled = 0;
        for at in 0..count {
            let Some((place, flags)) = self.desk.poll.event(at) else { continue };
            handled += 1;
            let done = self.connections[place].ready(flags, &mut self.desk);
            self.settle_fault(place, done);
        }
        handled
    }
}
