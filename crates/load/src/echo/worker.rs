//! A thread of the generator: its connections, driven by one epoll(7).

use std::{ops::Range, sync::Arc};

use super::{
    connection::{Connection, Desk, Role},
    fault::Fault,
    ledger::Ledger,
    plan::{Mode, Plan},
};
use crate::{
    account::Mark,
    crew::{Order, Post, Report, Shared},
    pace::Pace,
    poll::SLEEP_NS_MAX,
};

/// Connections that are being opened at the same time: what fits into the shortest queue of a
/// listening socket that is in use.
const OPENING_MAX: usize = 64;
/// How long the server may take to answer a connection's first message.
const OPENING_SECONDS: u64 = 10;
/// How long what is under way at the end may go without anything coming back.
const SETTLING_SECONDS: u64 = 5;
/// How often slow readers read.
const TICK_NS: u64 = 10_000_000;

/// A thread's part of the connections: those that send, and those beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub active: usize,
    pub beside: usize,
}

impl Share {
    /// The part of thread `thread`, with every connection in one part and none in two.
    pub(super) fn of(plan: &Plan, thread: usize) -> Share {
        let part = |count: usize| count / plan.threads + usize::from(thread < count % plan.threads);
        Share { active: part(plan.connections), beside: part(plan.mode.idle() + plan.mode.slow()) }
    }
}

/// A thread's state.
pub(super) struct Worker {
    thread: usize,
    shared: Arc<Shared>,
    connections: Vec<Connection>,
    share: Share,
    desk: Desk,
    /// The next operation of the schedule.
    next: u64,
}

impl Worker {
    /// Does what it is told until it is over.
    pub(super) fn run(plan: &Arc<Plan>, seed: u64, post: Post<Ledger>) {
        let Post { index, clock, shared, poll, orders, reports } = post;
        let desk = Desk::new(plan.clone(), seed, clock, (index, plan.threads), poll);
        let mut worker = Worker::new(plan, &shared, index, desk);
        // A controller that is gone has nothing more to tell or to hear.
        while let Ok(order) = orders.recv() {
            let range = match order {
                Order::OpenActive => 0..worker.share.active,
                Order::OpenBeside => worker.share.active..worker.connections.len(),
                Order::Go => break,
            };
            worker.open(range.clone());
            let open = worker.connections[range].iter().filter(|open| open.is_greeted()).count();
            let _ = reports.send(Report::Opened(open));
        }
        worker.measure();
        worker.settle();
        let _ = reports.send(Report::Over(Box::new(worker.desk.ledger)));
    }

    /// A thread that has done nothing yet.
    fn new(plan: &Plan, shared: &Arc<Shared>, thread: usize, desk: Desk) -> Worker {
        let share = Share::of(plan, thread);
        let (active, beside) = match plan.mode {
            Mode::HalfClose => (Role::HalfCloser, Role::Idle),
            Mode::ConnectStorm => (Role::Stormer, Role::Idle),
            Mode::SlowReader { .. } => (Role::Pinger, Role::SlowReader),
            Mode::PingPong | Mode::Idle { .. } => (Role::Pinger, Role::Idle),
        };
        let roles = std::iter::repeat_n(active, share.active)
            .chain(std::iter::repeat_n(beside, share.beside));
        let connections =
            roles.enumerate().map(|(place, role)| Connection::new(role, place)).collect();
        Worker { thread, shared: shared.clone(), connections, share, desk, next: 0 }
    }

    /// Opens connections until each is greeted or has failed. Those that are made anew for each
    /// operation are not opened before.
    fn open(&mut self, range: Range<usize>) {
        if self.connections[range.clone()].first().is_none_or(|one| one.role().is_by_connection()) {
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
                    if !self.connections[place].is_greeted() && !self.connections[place].is_failed()
                    {
                        let fault = Fault::Unopened { seconds: OPENING_SECONDS };
                        self.settle_fault(place, Err(fault));
                    }
                }
            }
            self.wait(SLEEP_NS_MAX);
        }
    }

    /// Sends until the end of the measured time.
    fn measure(&mut self) {
        let plan = self.desk.plan.clone();
        let start_ns = self.shared.start_ns();
        self.desk.from_ns = self.shared.measured_from_ns();
        self.desk.until_ns = self.shared.measured_until_ns();
        self.desk.may_begin = true;
        self.desk.pace = plan.rate_per_s.map(|rate| {
            let (all, own) = (plan.connections, self.share.active);
            Pace::new(rate as f64, (self.thread, plan.threads), (own, all), start_ns)
        });
        for place in 0..self.share.active {
            self.advance(place);
        }
        let (mut tick_ns, mut from, mut now_ns) = (start_ns, None, self.desk.clock.now_ns());
        while now_ns < self.desk.until_ns && self.has_active() {
            if from.is_none() && now_ns >= self.desk.from_ns {
                from = Some(Mark::set(now_ns));
            }
            self.begin_due(now_ns);
            if now_ns >= tick_ns {
                tick_ns = now_ns + TICK_NS;
                self.tick();
            }
            let wake_ns = self.next_due_ns().min(tick_ns).min(self.desk.until_ns);
            self.wait(wake_ns.saturating_sub(now_ns));
            self.desk.until_ns = self.shared.measured_until_ns();
            now_ns = self.desk.clock.now_ns();
        }
        if let Some(from) = from {
            self.desk.ledger.own = Mark::set(now_ns).since(&from);
        }
        self.desk.may_begin = false;
    }

    fn has_active(&self) -> bool {
        // Looked at with every event, so not counted over all connections.
        self.desk.ledger.errors == 0
            || self.connections[..self.share.active].iter().any(|one| !one.is_failed())
    }

    /// Lets those operations begin whose time has come.
    fn begin_due(&mut self, now_ns: u64) {
        let Some(pace) = self.desk.pace else { return };
        loop {
            let intended_ns = pace.intended_ns(self.next);
            if intended_ns > now_ns || intended_ns >= self.desk.until_ns {
                return;
            }
            if intended_ns >= self.desk.from_ns {
                self.desk.ledger.lag.record_ns(now_ns - intended_ns);
            }
            let place = pace.connection(self.next);
            self.next += 1;
            self.connections[place].due += 1;
            self.advance(place);
        }
    }

    fn next_due_ns(&self) -> u64 {
        self.desk.pace.map_or(u64::MAX, |pace| pace.intended_ns(self.next))
    }

    fn tick(&mut self) {
        for place in self.share.active..self.connections.len() {
            if self.connections[place].role() == Role::SlowReader {
                let ticked = self.connections[place].tick(&mut self.desk);
                self.settle_fault(place, ticked);
            }
        }
    }

    fn advance(&mut self, place: usize) {
        let advanced = self.connections[place].advance(&mut self.desk);
        self.settle_fault(place, advanced);
    }

    fn settle_fault(&mut self, place: usize, result: Result<(), Fault>) {
        if let Err(fault) = result {
            self.connections[place].fail(&fault, &mut self.desk);
        }
    }

    /// Waits for what is under way, and closes.
    fn settle(&mut self) {
        self.count_unsent();
        for place in 0..self.connections.len() {
            let wound_down = self.connections[place].wind_down(&mut self.desk);
            self.settle_fault(place, wound_down);
        }
        let mut progress_ns = self.desk.clock.now_ns();
        while self.connections.iter().any(|one| !one.is_settled()) {
            let now_ns = self.desk.clock.now_ns();
            if now_ns - progress_ns > SETTLING_SECONDS * 1_000_000_000 {
                break;
            }
            if self.wait(SLEEP_NS_MAX) > 0 {
                progress_ns = self.desk.clock.now_ns();
            }
        }
        for place in 0..self.connections.len() {
            let connection = &mut self.connections[place];
            let finished = match connection.is_settled() {
                true => connection.finish(&mut self.desk),
                false => Err(connection.stuck(SETTLING_SECONDS)),
            };
            self.settle_fault(place, finished);
        }
    }

    /// What was due and never begun would have taken at least until the end.
    fn count_unsent(&mut self) {
        let (Some(pace), until_ns) = (self.desk.pace, self.desk.until_ns) else { return };
        for place in 0..self.share.active {
            let due = pace.count_before(place, until_ns);
            for number in self.connections[place].operations()..due {
                let intended_ns = pace.intended_of_ns(place, number);
                if intended_ns >= self.desk.from_ns {
                    self.desk.ledger.unsent += 1;
                    self.desk.took(intended_ns, until_ns);
                }
            }
        }
    }

    /// Waits for events, at most `sleep_ns`, and handles them. Says how many there were.
    fn wait(&mut self, sleep_ns: u64) -> usize {
        let is_open_loop = self.desk.pace.is_some() && self.desk.may_begin;
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
