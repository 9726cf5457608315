//! The driver of a ring: takes orders, keeps the loop busy, hands results out.
//!
//! One turn takes all orders, hands them over with one enter and delivers all results. Who calls
//! the turns, a thread of its own or a task of a runtime, is in the files beside this one.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use super::hub::{Hub, Key, Order, Phase};
use crate::{
    completion::Completion,
    error::PushRefusal,
    local::{Leaked, Local},
    op::Operation,
    slot::Ticket,
    stats::Stats,
};

/// Tags of what the driver submits for itself. No key has these: there are never 2^32 futures.
const CANCEL_TAG: u64 = u64::MAX;
/// Of what wakes it.
pub(super) const BELL_TAG: u64 = u64::MAX - 1;

pub(super) struct Driver {
    pub(super) local: Local,
    pub(super) hub: Arc<Hub>,
    orders: Vec<Order>,
    /// Operations that the loop had no room for.
    backlog: VecDeque<(Key, Operation)>,
    /// The tickets of operations in flight, by their key.
    tickets: Vec<Option<(Key, Ticket)>>,
    results: Vec<(Key, Completion)>,
    closing: Option<Closing>,
}

/// Results on their way out.
pub(super) struct Results {
    results: Vec<(Key, Completion)>,
    stats: Stats,
}

impl Results {
    /// Hands all out; gives how many there were. Wakes, so no lock may be held.
    pub(super) fn deliver(mut self, hub: &Hub) -> usize {
        let count = self.results.len();
        if count > 0 {
            hub.deliver(&mut self.results, self.stats);
        }
        count
    }
}

/// An end that has begun.
#[derive(Clone, Copy, Debug)]
struct Closing {
    deadline: Option<Instant>,
    told: bool,
}

impl Driver {
    pub(super) fn new(local: Local, hub: Arc<Hub>) -> Driver {
        Driver {
            local,
            hub,
            orders: Vec::new(),
            backlog: VecDeque::new(),
            tickets: Vec::new(),
            results: Vec::new(),
            closing: None,
        }
    }

    /// Takes all orders that are there. They are handed over with the next submit.
    pub(super) fn take_orders(&mut self) {
        let phase = self.hub.take_orders(&mut self.orders);
        let mut orders = std::mem::take(&mut self.orders);
        self.start_backlog();
        for order in orders.drain(..) {
            match order {
                Order::Start(key, operation) => self.start(key, operation),
                Order::Cancel(key) => self.cancel(key),
                Order::Visit(visit) => visit(&mut self.local),
            }
        }
        self.orders = orders;
        if let Phase::Closing(time) = phase
            && self.closing.is_none()
        {
            self.begin_closing(time);
        }
    }

    fn start_backlog(&mut self) {
        while self.local.in_flight() < self.local.capacity()
            && let Some((key, operation)) = self.backlog.pop_front()
        {
            self.start(key, operation);
        }
    }

    /// Pushes one operation, or keeps it until there is room. One that cannot be pushed at all has
    /// failed.
    fn start(&mut self, key: Key, operation: Operation) {
        if !self.backlog.is_empty() && self.local.in_flight() >= self.local.capacity() {
            return self.backlog.push_back((key, operation));
        }
        match self.local.push(operation, key.tag()) {
            Ok(ticket) => {
                let at = key.index();
                if at >= self.tickets.len() {
                    self.tickets.resize(at + 1, None);
                }
                self.tickets[at] = Some((key, ticket));
            }
            Err(refused) => match refused.reason {
                PushRefusal::Full | PushRefusal::Submit(_) => {
                    self.backlog.push_back((key, refused.operation));
                }
                PushRefusal::Rejected(error) => {
                    let failed = Completion::refused(refused.operation, error.errno());
                    self.results.push((key, failed));
                }
            },
        }
    }

    fn cancel(&mut self, key: Key) {
        if let Some(at) = self.backlog.iter().position(|(waiting, _)| *waiting == key) {
            let (key, operation) = self.backlog.remove(at).expect("found just now");
            self.results.push((key, Completion::refused(operation, libc::ECANCELED)));
            return;
        }
        let Some(Some((current, ticket))) = self.tickets.get(key.index()) else { return };
        if *current == key {
            // Where there is no room for a cancel, the operation comes to its end by itself.
            let _ = self.local.push(Operation::cancel(*ticket), CANCEL_TAG);
        }
    }

    /// Takes the loop's results. Whether the bell was among them.
    pub(super) fn reap(&mut self) -> bool {
        let mut rang = false;
        while let Some(completion) = self.local.next_completion() {
            rang |= completion.tag() == BELL_TAG;
            self.keep(completion);
        }
        rang
    }

    /// Results to be handed out, by whoever holds no lock.
    pub(super) fn take_results(&mut self) -> Results {
        let results = std::mem::take(&mut self.results);
        let stats = if results.is_empty() { Stats::default() } else { self.local.stats() };
        Results { results, stats }
    }

    /// Takes the loop's results and hands them out. Whether the bell was among them.
    pub(super) fn deliver(&mut self) -> bool {
        let rang = self.reap();
        let results = self.take_results();
        results.deliver(&self.hub);
        rang
    }

    /// Keeps a result to be handed out; the driver's own go nowhere.
    fn keep(&mut self, completion: Completion) {
        if completion.tag() < BELL_TAG {
            let key = Key::from_tag(completion.tag());
            self.tickets[key.index()] = None;
            self.results.push((key, completion));
        }
    }

    /// Whether results are ready that the loop knows nothing of.
    pub(super) fn has_results(&self) -> bool {
        !self.results.is_empty()
    }

    /// Whether there is room for what waits.
    pub(super) fn has_startable_backlog(&self) -> bool {
        !self.backlog.is_empty() && self.local.in_flight() < self.local.capacity()
    }

    fn begin_closing(&mut self, time: Duration) {
        let deadline = Instant::now().checked_add(time);
        self.closing = Some(Closing { deadline, told: false });
        let mut taken = Vec::new();
        self.local.cancel_for_shutdown(&mut |completion| taken.push(completion));
        taken.into_iter().for_each(|completion| self.keep(completion));
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// When the end that has begun is to be told as overdue.
    pub(super) fn closing_deadline(&self) -> Option<Instant> {
        self.closing.filter(|closing| !closing.told).and_then(|closing| closing.deadline)
    }

    /// Whether the end has come: it was asked for, and nothing is in flight but `own` operations
    /// of the driver. Overdue, it is told once, and what is in flight is waited for all the same.
    pub(super) fn has_ended(&mut self, own: usize) -> bool {
        let Some(closing) = &mut self.closing else { return false };
        let operations = self.local.in_flight() - own + self.backlog.len();
        if operations == 0 {
            return true;
        }
        let overdue = closing.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if overdue && !closing.told {
            closing.told = true;
            self.hub.end(Err(Leaked { operations }));
        }
        false
    }

    /// The kernel did not take what was handed over; what is in flight comes back when it does.
    pub(super) fn pause() {
        std::thread::sleep(Duration::from_millis(1));
    }

    /// The last act.
    pub(super) fn end(self) {
        self.hub.closed();
        self.hub.end(Ok(()));
    }
}
