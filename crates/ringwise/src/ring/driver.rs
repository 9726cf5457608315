//! The driver of a ring: takes orders, keeps the loop busy, hands results out.
//!
//! One turn takes all orders, hands them over with one enter and delivers all results. Who calls
//! the turns, a thread of its own or a task of a runtime, is in the files beside this one.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    clock::{Clock, Expiry, Tick},
    hub::{Hub, Key, Order, Phase},
};
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
/// Of the timeout by which it keeps deadlines.
const TICK_TAG: u64 = u64::MAX - 2;

pub(super) struct Driver {
    pub(super) local: Local,
    pub(super) hub: Arc<Hub>,
    orders: Vec<Order>,
    /// Operations that the loop had no room for.
    backlog: VecDeque<Work>,
    /// The tickets of operations in flight, by their key.
    tickets: Vec<Option<(Key, Ticket)>>,
    /// What is to be cancelled.
    cancels: VecDeque<Key>,
    clock: Clock,
    /// Operations past their deadline that go on.
    overdue: Vec<Key>,
    results: Vec<(Key, Completion)>,
    /// Operations in flight that are the driver's own.
    own: usize,
    closing: Option<Closing>,
}

/// An operation, or a chain of them.
enum Work {
    Single(Key, Operation),
    Chain(Vec<(Key, Operation)>),
}

impl Work {
    /// How many operations it is.
    fn len(&self) -> usize {
        match self {
            Work::Single(..) => 1,
            Work::Chain(chain) => chain.len(),
        }
    }

    fn has(&self, key: Key) -> bool {
        match self {
            Work::Single(of, _) => *of == key,
            Work::Chain(chain) => chain.iter().any(|(of, _)| *of == key),
        }
    }
}

/// Room that users leave: for what wakes the driver, a timeout and a cancel.
const OWN_MAX: usize = 3;

/// Results on their way out.
pub(super) struct Results {
    results: Vec<(Key, Completion)>,
    overdue: Vec<Key>,
    stats: Stats,
}

impl Results {
    /// Hands all out; gives how many there were. Wakes, so no lock may be held.
    pub(super) fn deliver(mut self, hub: &Hub) -> usize {
        let count = self.results.len() + self.overdue.len();
        if !self.results.is_empty() {
            hub.deliver(&mut self.results, self.stats);
        }
        if !self.overdue.is_empty() {
            hub.rouse_waiters(&self.overdue);
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
            cancels: VecDeque::new(),
            clock: Clock::default(),
            overdue: Vec::new(),
            results: Vec::new(),
            own: 0,
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
                Order::Link(chain) => self.start_chain(chain),
                Order::Deadline(key, time, expiry) => self.set_deadline(key, time, expiry),
                Order::Cancel(key) => self.cancel(key),
                Order::Visit(visit) => visit(&mut self.local),
            }
        }
        self.orders = orders;
        self.keep_deadlines();
        self.start_cancels();
        if let Phase::Closing(time) = phase
            && self.closing.is_none()
        {
            self.begin_closing(time);
        }
    }

    fn start_backlog(&mut self) {
        // What the kernel refuses goes to the end again, so each is tried once.
        for _ in 0..self.backlog.len() {
            if !self.backlog.front().is_some_and(|work| self.has_room_for(work.len())) {
                return;
            }
            match self.backlog.pop_front().expect("seen just now") {
                Work::Single(key, operation) => self.start(key, operation),
                Work::Chain(chain) => self.start_chain(chain),
            }
        }
    }

    /// Pushes one operation, or keeps it until there is room. One that cannot be pushed at all has
    /// failed.
    fn start(&mut self, key: Key, operation: Operation) {
        if !self.has_room() {
            return self.backlog.push_back(Work::Single(key, operation));
        }
        match self.local.push(operation, key.tag()) {
            Ok(ticket) => self.note_ticket(key, ticket),
            Err(refused) => match refused.reason {
                PushRefusal::Full | PushRefusal::Submit(_) => {
                    self.backlog.push_back(Work::Single(key, refused.operation));
                }
                PushRefusal::Rejected(error) => {
                    let failed = Completion::refused(refused.operation, error.errno());
                    self.results.push((key, failed));
                }
            },
        }
    }

    fn note_ticket(&mut self, key: Key, ticket: Ticket) {
        let at = key.index();
        if at >= self.tickets.len() {
            self.tickets.resize(at + 1, None);
        }
        self.tickets[at] = Some((key, ticket));
    }

    /// As [`start`](Self::start), of a chain.
    fn start_chain(&mut self, chain: Vec<(Key, Operation)>) {
        if chain.len() <= self.local.longest_chain() && !self.has_room_for(chain.len()) {
            return self.backlog.push_back(Work::Chain(chain));
        }
        let keys: Vec<Key> = chain.iter().map(|(key, _)| *key).collect();
        let tagged = chain.into_iter().map(|(key, operation)| (operation, key.tag())).collect();
        let refused = match self.local.push_linked(tagged) {
            Ok(tickets) => {
                return keys.into_iter().zip(tickets).for_each(|(key, ticket)| {
                    self.note_ticket(key, ticket);
                });
            }
            Err(refused) => refused,
        };
        let operations = refused.operations.into_iter().map(|(operation, _)| operation);
        let chain = keys.into_iter().zip(operations);
        match refused.reason {
            PushRefusal::Full | PushRefusal::Submit(_) => {
                self.backlog.push_back(Work::Chain(chain.collect()));
            }
            PushRefusal::Rejected(error) => {
                let failed =
                    |(key, operation)| (key, Completion::refused(operation, error.errno()));
                self.results.extend(chain.map(failed));
            }
        }
    }

    fn cancel(&mut self, key: Key) {
        let Some(at) = self.backlog.iter().position(|work| work.has(key)) else {
            return self.cancels.push_back(key);
        };
        match self.backlog.remove(at).expect("found just now") {
            Work::Single(key, operation) => self.refuse(key, operation),
            Work::Chain(mut chain) => {
                // Those before it go on without the rest.
                let from = chain.iter().position(|(of, _)| *of == key).expect("it has it");
                for (key, operation) in chain.split_off(from) {
                    self.refuse(key, operation);
                }
                if !chain.is_empty() {
                    self.backlog.insert(at, Work::Chain(chain));
                }
            }
        }
    }

    /// Ends as cancelled what was never handed over.
    fn refuse(&mut self, key: Key, operation: Operation) {
        self.results.push((key, Completion::refused(operation, libc::ECANCELED)));
    }

    /// Whether it has come to its end, or nobody knows of it.
    fn is_under_way(&self, key: Key) -> bool {
        let ticket = self.tickets.get(key.index());
        matches!(ticket, Some(Some((current, _))) if *current == key)
    }

    fn set_deadline(&mut self, key: Key, time: Duration, expiry: Expiry) {
        let waits = self.is_under_way(key) || self.backlog.iter().any(|work| work.has(key));
        // A time beyond the clock's reach is no bound.
        if let Some(at) = self.local.now().checked_add(time).filter(|_| waits) {
            self.clock.watch(key, at, expiry);
        }
    }

    /// Ends what has no time left, and sees to being woken for what has.
    fn keep_deadlines(&mut self) {
        if !self.clock.is_running() {
            return;
        }
        let now = self.local.now();
        while let Some((key, expiry)) = self.clock.expire(now) {
            match &expiry {
                Expiry::Tell(_) if self.is_under_way(key) => {
                    expiry.tell();
                    self.overdue.push(key);
                }
                // What has not begun need not.
                Expiry::Tell(_) | Expiry::Cancel => self.cancel(key),
            }
        }
        let Some(next) = self.clock.next() else { return };
        match &mut self.clock.tick {
            None => {
                let timeout = Operation::timeout(next.saturating_duration_since(now));
                if let Some(ticket) = self.push_own(timeout, TICK_TAG) {
                    self.clock.tick = Some(Tick { at: next, ticket, is_cancelled: false });
                }
            }
            Some(tick) if next < tick.at && !tick.is_cancelled && self.own < OWN_MAX => {
                tick.is_cancelled = true;
                let cancel = Operation::cancel(tick.ticket);
                if self.push_own(cancel, CANCEL_TAG).is_none()
                    && let Some(tick) = &mut self.clock.tick
                {
                    tick.is_cancelled = false;
                }
            }
            Some(_) => {}
        }
    }

    /// Whether a cancel can be handed over, with room left for a timeout.
    fn has_room_for_cancel(&self) -> bool {
        self.own + usize::from(self.clock.needs_tick()) < OWN_MAX
    }

    /// Hands over as many cancels as there is room for.
    fn start_cancels(&mut self) {
        while self.has_room_for_cancel()
            && let Some(key) = self.cancels.pop_front()
        {
            match self.tickets.get(key.index()) {
                Some(Some((current, ticket))) if *current == key => {
                    let cancel = Operation::cancel(*ticket);
                    if self.push_own(cancel, CANCEL_TAG).is_none() {
                        return self.cancels.push_front(key);
                    }
                }
                // It has come to its end meanwhile.
                _ => {}
            }
        }
    }

    /// Whether there is room for a user's operation.
    fn has_room(&self) -> bool {
        self.has_room_for(1)
    }

    fn has_room_for(&self, count: usize) -> bool {
        self.local.in_flight() - self.own + count <= self.local.capacity() - OWN_MAX
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
        let mut results = std::mem::take(&mut self.results);
        for (key, completion) in &mut results {
            self.clock.settle(*key, completion);
        }
        let overdue = std::mem::take(&mut self.overdue);
        let stats = if results.is_empty() { Stats::default() } else { self.stats() };
        Results { results, overdue, stats }
    }

    /// Takes the loop's results and hands them out. Whether the bell was among them.
    pub(super) fn deliver(&mut self) -> bool {
        let rang = self.reap();
        let results = self.take_results();
        results.deliver(&self.hub);
        rang
    }

    /// Pushes an operation of the driver's own; nothing where there is no room.
    pub(super) fn push_own(&mut self, operation: Operation, tag: u64) -> Option<Ticket> {
        let pushed = self.local.push(operation, tag).ok();
        self.own += usize::from(pushed.is_some());
        pushed
    }

    /// The loop's counts, less what is the driver's own.
    fn stats(&mut self) -> Stats {
        let stats = self.local.stats();
        Stats { in_flight: stats.in_flight - self.own as u64, ..stats }
    }

    /// Keeps a result to be handed out; the driver's own go nowhere.
    fn keep(&mut self, completion: Completion) {
        if completion.tag() >= TICK_TAG {
            self.own -= 1;
            if completion.tag() == TICK_TAG {
                self.clock.tick = None;
            }
            return;
        }
        let key = Key::from_tag(completion.tag());
        self.tickets[key.index()] = None;
        self.results.push((key, completion));
    }

    /// Whether results are ready that the loop knows nothing of.
    pub(super) fn has_results(&self) -> bool {
        !self.results.is_empty() || !self.overdue.is_empty()
    }

    /// Whether there is room for what waits.
    pub(super) fn has_startable_backlog(&self) -> bool {
        let cancels = !self.cancels.is_empty() && self.has_room_for_cancel();
        let front = self.backlog.front();
        cancels
            || front.is_some_and(|work| self.has_room_for(work.len()))
            || self.local.has_due_steps()
            || self.clock.needs_tick()
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

    /// Whether the end has come: it was asked for, and nothing is in flight but what is the
    /// driver's own. Overdue, it is told once, and what is in flight is waited for all the same.
    pub(super) fn has_ended(&mut self) -> bool {
        let Some(closing) = &mut self.closing else { return false };
        let waiting: usize = self.backlog.iter().map(Work::len).sum();
        let operations = self.local.in_flight() - self.own + waiting;
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

    /// The last act. The loop ends before that is told, so that nothing is open any more by then.
    pub(super) fn end(mut self) {
        let stats = self.stats();
        self.hub.deliver(&mut self.results, stats);
        drop(self.local);
        self.hub.closed();
        self.hub.end(Ok(()));
    }
}
