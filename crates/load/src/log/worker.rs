//! A thread of the generator: its connections, driven by one epoll(7).

use std::{ops::Range, sync::Arc};

use super::{
    connection::{Connection, Desk},
    fault::Fault,
    ledger::Ledger,
    lines::Lines,
    plan::Plan,
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
/// How long the target may take to answer a connection's greeting.
const OPENING_SECONDS: u64 = 10;
/// How long what is under way at the end may go without anything happening.
const SETTLING_SECONDS: u64 = 10;
/// How often at most is looked what is due: what fell due meanwhile is sent by one call for each
/// connection.
const LOOK_NS: u64 = 100_000;

/// A thread's state.
pub(super) struct Worker {
    thread: usize,
    shared: Arc<Shared>,
    connections: Vec<Connection>,
    /// How many of them send; those come first.
    senders: usize,
    desk: Desk,
    /// The next burst of the schedule.
    next: u64,
}

impl Worker {
    /// Does what it is told until it is over.
    pub(super) fn run(plan: &Arc<Plan>, lines: &Arc<Lines>, post: Post<Ledger>) {
        let Post { index, clock, shared, poll, orders, reports } = post;
        let own = |count: usize| (index..count).step_by(plan.threads);
        let senders = own(plan.connections).map(|number| (true, number));
        let idle = own(plan.idle).map(|number| (false, plan.connections + number));
        let connections: Vec<Connection> = senders
            .chain(idle)
            .enumerate()
            .map(|(place, (is_sender, number))| Connection::new(is_sender, place, number as u64))
            .collect();
        let mut worker = Worker {
            thread: index,
            shared,
            connections,
            senders: own(plan.connections).count(),
            desk: Desk::new(plan.clone(), lines.clone(), clock, poll),
            next: 0,
        };
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
        let _ = reports.send(Report::Over(Box::new(worker.desk.ledger)));
    }

    /// Opens connections until each is greeted or has failed.
    fn open(&mut self, range: Range<usize>) {
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
                        self.settle_fault(place, Err(Fault::Unopened { seconds: OPENING_SECONDS }));
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
        self.desk.pace = self.pace(start_ns);
        self.desk.may_send = true;
        let (mut from, mut now_ns) = (None, self.desk.clock.now_ns());
        let mut look_ns = start_ns;
        if self.desk.pace.is_none() {
            self.desk.again.extend(0..self.senders);
        }
        while now_ns < self.desk.until_ns && self.has_senders() {
            if from.is_none() && now_ns >= self.desk.from_ns {
                from = Some(Mark::set(now_ns));
            }
            if now_ns >= look_ns {
                self.begin_due(now_ns);
                look_ns = self.next_due_ns().max(now_ns + LOOK_NS);
            }
            self.go_on();
            let wake_ns = look_ns.min(self.desk.until_ns);
            self.wait(wake_ns.saturating_sub(now_ns));
            self.desk.until_ns = self.shared.measured_until_ns();
            now_ns = self.desk.clock.now_ns();
        }
        if let Some(from) = from {
            self.desk.ledger.own = Mark::set(now_ns).since(&from);
        }
        // What fell due since the last look was due in time.
        self.begin_due(self.desk.until_ns);
        self.desk.may_send = false;
    }

    fn pace(&self, start_ns: u64) -> Option<Pace> {
        let plan = &self.desk.plan;
        if let Some(period_ns) = plan.burst_period_ns() {
            return Some(Pace::together(period_ns, self.senders, start_ns));
        }
        let (thread, own) = ((self.thread, plan.threads), (self.senders, plan.connections));
        plan.rate_per_s.map(|rate| Pace::new(rate as f64, thread, own, start_ns))
    }

    fn has_senders(&self) -> bool {
        // Looked at with every event, so not counted over all connections.
        self.desk.ledger.errors == 0
            || self.connections[..self.senders].iter().any(|one| !one.is_failed())
    }

    /// Lets those bursts begin whose time has come.
    fn begin_due(&mut self, now_ns: u64) {
        let Some(pace) = self.desk.pace else { return };
        let first_ns = pace.intended_ns(self.next);
        if first_ns > now_ns {
            return;
        }
        if first_ns >= self.desk.from_ns && first_ns < self.desk.until_ns {
            self.desk.ledger.lag.record_ns(now_ns - first_ns);
        }
        let (burst, end_ns) = (self.desk.plan.burst_lines, (now_ns + 1).min(self.desk.until_ns));
        let senders = self.senders as u64;
        while pace.intended_ns(self.next) < end_ns {
            let place = pace.connection(self.next);
            if place == 0 && pace.intended_ns(self.next + senders) < end_ns {
                self.begin_rounds(pace, end_ns);
                continue;
            }
            self.connections[place].due += burst;
            self.next += 1;
            self.advance(place);
        }
    }

    /// Lets all bursts of all connections begin that are due, where each has several: a call for
    /// each, not for every burst.
    fn begin_rounds(&mut self, pace: Pace, end_ns: u64) {
        // Of the last connection, which is the last to have begun a round.
        let rounds = pace.count_before(self.senders - 1, end_ns);
        for place in 0..self.senders {
            self.connections[place].due = rounds * self.desk.plan.burst_lines;
            self.advance(place);
        }
        self.next = rounds * self.senders as u64;
    }

    fn next_due_ns(&self) -> u64 {
        self.desk.pace.map_or(u64::MAX, |pace| pace.intended_ns(self.next))
    }

    /// Lets those go on that stopped to give others their turn.
    fn go_on(&mut self) {
        for _ in 0..self.desk.again.len() {
            if let Some(place) = self.desk.again.pop_front() {
                self.advance(place);
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

    /// Waits for what is under way, and for the target to have taken all.
    fn settle(&mut self) {
        self.count_unsent();
        self.desk.is_ending = true;
        for place in 0..self.connections.len() {
            self.advance(place);
        }
        let mut progress_ns = self.desk.clock.now_ns();
        while self.connections.iter().any(|one| !one.is_over()) {
            let now_ns = self.desk.clock.now_ns();
            if now_ns - progress_ns > SETTLING_SECONDS * 1_000_000_000 {
                break;
            }
            self.go_on();
            if self.wait(SLEEP_NS_MAX) > 0 {
                progress_ns = self.desk.clock.now_ns();
            }
        }
        for place in 0..self.connections.len() {
            if !self.connections[place].is_over() {
                let stuck = self.connections[place].stuck(SETTLING_SECONDS, &self.desk);
                self.settle_fault(place, Err(stuck));
            }
        }
    }

    /// What was due and never sent would have taken at least until the end.
    fn count_unsent(&mut self) {
        let (Some(pace), until_ns) = (self.desk.pace, self.desk.until_ns) else { return };
        let burst = self.desk.plan.burst_lines;
        for place in 0..self.senders {
            let due = pace.count_before(place, until_ns) * burst;
            let mut line = self.connections[place].made();
            while line < due {
                let (nth, end) = (line / burst, (line / burst + 1) * burst);
                let begun_ns = pace.intended_of_ns(place, nth);
                if begun_ns >= self.desk.from_ns {
                    self.desk.ledger.unsent += end - line;
                    self.desk.took(begun_ns, until_ns, end - line);
                }
                line = end;
            }
        }
    }

    /// Waits for events, at most `sleep_ns`, and handles them. Says how many there were.
    fn wait(&mut self, sleep_ns: u64) -> usize {
        let is_open_loop = self.desk.pace.is_some() && self.desk.may_send;
        let sleep_ns = if self.desk.again.is_empty() { sleep_ns } else { 0 };
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
