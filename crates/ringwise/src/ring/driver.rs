//! The driver of a ring: takes orders, keeps the loop busy, hands results out.
//!
//! One turn takes all orders, hands them over with one syscall and delivers all results. A thread
//! (`ring/driver/thread.rs`) or a task of a runtime (`ring/driver/task.rs`) calls the turns.

mod chains;
mod losses;
#[cfg(feature = "tokio")]
pub(crate) mod portable;
mod syncs;
#[cfg(feature = "tokio")]
pub(crate) mod task;
pub(crate) mod thread;
mod wholes;

use std::task::Waker;
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use chains::{Chains, Member};
use losses::Losses;
use syncs::Syncs;
use wholes::Wholes;

#[cfg(feature = "tokio")]
use super::hub::turns::By;
use super::{
    contained::{contain_drop, wake},
    hub::Hub,
};
#[cfg(feature = "tracing")]
use crate::ring::future::span;
use crate::{
    flight::{completion::Completion, refusal::PushRefusal, slot::Ticket},
    local::{Leaked, Local},
    op::{Opcode, Operation},
    ring::hub::order::{Key, Order, Phase},
    settings::stats::Stats,
};

/// The tag of the driver's own cancels. No key equals this or `BELL_TAG`, since there are never
/// 2^32 futures.
const CANCEL_TAG: u64 = u64::MAX;
/// The tag of the read on the bell, which wakes the driver.
pub(super) const BELL_TAG: u64 = u64::MAX - 1;

pub(super) struct Driver {
    pub(super) local: Local,
    pub(super) hub: Arc<Hub>,
    orders: Vec<Order>,
    /// Operations that the loop had no room for, or that start again.
    backlog: VecDeque<Work>,
    chains: Chains,
    syncs: Syncs,
    /// Operations in flight, by their key.
    tickets: Vec<Option<Flight>>,
    /// Whether many threads submit. The kernel ends an operation that waits for a stream when the
    /// thread that submitted it exits: `io_req_task_work_add` falls back, and the request fails
    /// with `ECANCELED` (io_uring/io_uring.c). Nobody asked for this end, so the driver starts the
    /// operation again.
    is_shared: bool,
    losses: Losses,
    wholes: Wholes,
    /// Operations to cancel.
    cancels: VecDeque<Key>,
    results: Vec<(Key, Completion)>,
    /// Wakers for results that the hub already has, and results that nobody wants.
    woken: Vec<Waker>,
    orphans: Vec<Completion>,
    /// The driver's own operations in flight.
    own: usize,
    /// How many operations of its own the driver ever pushed.
    own_pushed: u64,
    /// Whether a read on the bell is in flight.
    has_bell: bool,
    closing: Option<Closing>,
    /// Whether operations had to wait for room, and whether a warning said so.
    #[cfg(feature = "tracing")]
    was_full: bool,
    #[cfg(feature = "tracing")]
    has_warned: bool,
}

/// The room kept for the driver itself: for the read on the bell, and for a cancel.
const OWN_MAX: usize = 2;

/// Work that waits for room.
enum Work {
    Single(Key, Operation),
    /// Each starts after the one before.
    Chain(Vec<(Key, Operation)>),
}

impl Work {
    fn operations(&self) -> usize {
        match self {
            Work::Single(..) => 1,
            Work::Chain(operations) => operations.len(),
        }
    }
}

/// An operation in flight.
#[derive(Clone, Copy)]
struct Flight {
    key: Key,
    ticket: Ticket,
    /// Its place, if it is in a chain.
    member: Option<Member>,
    /// Whether somebody cancelled it.
    is_cancelled: bool,
}

/// Results on their way out.
pub(super) struct Results {
    results: Vec<(Key, Completion)>,
    woken: Vec<Waker>,
    orphans: Vec<Completion>,
    stats: Stats,
    /// How many operations wait for room, when this happens for the first time.
    #[cfg(feature = "tracing")]
    newly_full: Option<usize>,
}

impl Results {
    /// Hands out all results, and returns how many there were. Wakes tasks, so no lock may be held.
    pub(super) fn deliver(mut self, hub: &Hub) -> usize {
        #[cfg(feature = "tracing")]
        self.newly_full.into_iter().for_each(span::warn_full);
        let count = self.results.len() + self.woken.len();
        if !self.results.is_empty() {
            hub.deliver(&mut self.results, self.stats);
        }
        self.woken.into_iter().for_each(|waker| wake(Some(waker)));
        self.orphans.into_iter().for_each(contain_drop);
        count
    }

    /// Gives all results to the hub, which chooses the order of wake-ups. Returns true if that
    /// needs another turn of the driver.
    #[cfg(feature = "tokio")]
    pub(super) fn keep(mut self, hub: &Hub, by: By) -> bool {
        #[cfg(feature = "tracing")]
        self.newly_full.into_iter().for_each(span::warn_full);
        let is_news = !self.results.is_empty() || !self.woken.is_empty();
        let others_wait = is_news && hub.keep(by, &mut self.results, self.woken, self.stats);
        self.orphans.into_iter().for_each(contain_drop);
        others_wait
    }
}

/// The state of a ring that is closing.
#[derive(Clone, Copy, Debug)]
struct Closing {
    deadline: Option<Instant>,
    told: bool,
    /// Whether every operation that the close cancels has been asked to end.
    has_cancelled: bool,
}

impl Driver {
    pub(super) fn new(local: Local, hub: Arc<Hub>) -> Driver {
        Driver {
            local,
            hub,
            orders: Vec::new(),
            backlog: VecDeque::new(),
            chains: Chains::default(),
            syncs: Syncs::default(),
            tickets: Vec::new(),
            is_shared: false,
            losses: Losses::default(),
            wholes: Wholes::default(),
            cancels: VecDeque::new(),
            results: Vec::new(),
            woken: Vec::new(),
            orphans: Vec::new(),
            own: 0,
            own_pushed: 0,
            has_bell: false,
            closing: None,
            #[cfg(feature = "tracing")]
            was_full: false,
            #[cfg(feature = "tracing")]
            has_warned: false,
        }
    }

    /// Notes that many threads submit.
    #[cfg(feature = "tokio")]
    pub(super) fn share(&mut self) {
        self.is_shared = true;
    }

    /// Takes all orders. The next submit hands them over.
    pub(super) fn take_orders(&mut self) {
        let phase = self.hub.take_orders(&mut self.orders);
        let mut orders = std::mem::take(&mut self.orders);
        self.start_backlog();
        for order in orders.drain(..) {
            match order {
                Order::Start(key, operation) if !operation.completes_once() => {
                    self.refuse(key, operation, libc::EOPNOTSUPP);
                }
                Order::Start(key, operation) | Order::Flow(key, operation) => {
                    self.start(key, operation);
                }
                Order::Link(operations) => self.start_chain(operations),
                Order::Cancel(key) => self.cancel(key),
                Order::Visit(visit) => self.woken.extend(visit(&mut self.local)),
            }
        }
        self.orders = orders;
        self.hub.tell_waiting(self.backlog.len());
        #[cfg(feature = "tracing")]
        {
            self.was_full |= !self.backlog.is_empty();
        }
        self.start_cancels();
        if let Phase::Closing(time) = phase
            && self.closing.is_none()
        {
            self.begin_closing(time);
        }
        if self.closing.is_some_and(|closing| !closing.has_cancelled) {
            self.cancel_in_flight();
        }
    }

    fn start_backlog(&mut self) {
        // Refused work goes to the end again, so each is tried once.
        for _ in 0..self.backlog.len() {
            if !self.has_room() {
                return;
            }
            match self.backlog.pop_front().expect("counted just now") {
                Work::Single(key, operation) => self.start(key, operation),
                Work::Chain(operations) => self.start_chain(operations),
            }
        }
    }

    /// Pushes one operation, or keeps it until there is room. If it cannot be pushed at all, it
    /// fails.
    fn start(&mut self, key: Key, operation: Operation) {
        if !self.has_room() && self.local.needs_permit(&operation) {
            return self.backlog.push_back(Work::Single(key, operation));
        }
        self.syncs.begin(key, &operation, None);
        match self.local.push(operation, key.tag()) {
            Ok(ticket) => self.board(key, ticket, None),
            Err(refused) => {
                self.syncs.retract(key, &refused.operation, &mut self.results);
                match refused.reason {
                    PushRefusal::Full | PushRefusal::Submit(_) => {
                        self.backlog.push_back(Work::Single(key, refused.operation));
                    }
                    PushRefusal::Rejected(error) => {
                        self.refuse(key, refused.operation, error.errno());
                    }
                }
            }
        }
    }

    /// Notes that an operation is in flight.
    fn board(&mut self, key: Key, ticket: Ticket, member: Option<Member>) {
        let at = key.index();
        if at >= self.tickets.len() {
            self.tickets.resize(at + 1, None);
        }
        self.tickets[at] = Some(Flight { key, ticket, member, is_cancelled: false });
    }

    /// Fails an operation that the loop does not have.
    fn refuse(&mut self, key: Key, operation: Operation, errno: i32) {
        let mut completion = Completion::refused(operation, errno);
        self.wholes.settle(key, &mut completion);
        self.results.push((key, completion));
    }

    fn cancel(&mut self, key: Key) {
        let is_it = |work: &Work| matches!(work, Work::Single(waiting, _) if *waiting == key);
        if let Some(at) = self.backlog.iter().position(is_it) {
            if let Some(Work::Single(key, operation)) = self.backlog.remove(at) {
                self.refuse(key, operation, libc::ECANCELED);
            }
            return;
        }
        if self.cancel_in_chains(key) {
            return;
        }
        if let Some(Some(flight)) = self.tickets.get_mut(key.index())
            && flight.key == key
        {
            flight.is_cancelled = true;
            self.cancels.push_back(key);
        }
    }

    /// Hands over as many cancels as there is room for.
    fn start_cancels(&mut self) {
        while self.own < OWN_MAX
            && let Some(key) = self.cancels.pop_front()
        {
            match self.tickets.get(key.index()) {
                Some(Some(flight)) if flight.key == key => {
                    let cancel = Operation::cancel(flight.ticket);
                    if !self.push_own(cancel, CANCEL_TAG) {
                        return self.cancels.push_front(key);
                    }
                }
                // It has ended meanwhile.
                _ => {}
            }
        }
    }

    /// Returns whether there is room for a user's operation.
    fn has_room(&self) -> bool {
        let users = self.local.working().saturating_sub(self.own);
        users < self.local.capacity() - OWN_MAX
    }

    /// Takes the loop's results.
    pub(super) fn reap(&mut self) {
        while let Some(completion) = self.local.next_completion() {
            self.keep(completion);
        }
    }

    /// Returns whether a read on the bell is in flight.
    pub(super) fn has_bell(&self) -> bool {
        self.has_bell
    }

    /// Takes the results, which the caller hands out while it holds no lock.
    pub(super) fn take_results(&mut self) -> Results {
        let results = std::mem::take(&mut self.results);
        let is_news = !results.is_empty() || !self.woken.is_empty();
        let stats = if is_news { self.stats() } else { Stats::default() };
        let (woken, orphans) = (std::mem::take(&mut self.woken), std::mem::take(&mut self.orphans));
        Results {
            results,
            woken,
            orphans,
            stats,
            #[cfg(feature = "tracing")]
            newly_full: (self.was_full && !std::mem::replace(&mut self.has_warned, self.was_full))
                .then_some(self.backlog.len()),
        }
    }

    /// Takes the loop's results and hands them out.
    pub(super) fn deliver(&mut self) {
        self.reap();
        self.take_results().deliver(&self.hub);
    }

    /// Pushes an operation of the driver's own. Returns false if there is no room.
    pub(super) fn push_own(&mut self, operation: Operation, tag: u64) -> bool {
        let pushed = self.local.push(operation, tag).is_ok();
        self.own += usize::from(pushed);
        self.own_pushed += u64::from(pushed);
        self.has_bell |= pushed && tag == BELL_TAG;
        pushed
    }

    /// Returns the loop's counts without the driver's own operations.
    fn stats(&mut self) -> Stats {
        let stats = self.local.stats();
        let (submitted, in_flight) =
            (stats.submitted - self.own_pushed, stats.in_flight - self.own as u64);
        // A simulated machine counts nothing as waiting, not even the bell.
        let waiting = stats.waiting.saturating_sub(u64::from(self.has_bell));
        Stats { submitted, in_flight, waiting, completed: submitted - in_flight, ..stats }
    }

    /// Keeps a result to be handed out. Drops results of the driver's own operations.
    fn keep(&mut self, completion: Completion) {
        if completion.tag() >= BELL_TAG {
            self.own -= 1;
            if completion.tag() == BELL_TAG {
                self.has_bell = false;
            }
            return;
        }
        let key = Key::from_tag(completion.tag());
        if matches!(completion.opcode(), Opcode::AcceptMulti | Opcode::ReceiveMulti) {
            if !completion.has_more() {
                self.tickets[key.index()] = None;
            }
            let (woken, orphan) = self.hub.deliver_part(key, completion);
            self.woken.extend(woken);
            return self.orphans.extend(orphan);
        }
        let flight = self.tickets[key.index()].take();
        let is_ended_by_closing = self.is_closing() && completion.opcode().cancels_on_shutdown();
        let was_asked_for = is_ended_by_closing || flight.is_none_or(|flight| flight.is_cancelled);
        if let Some(member) = flight.and_then(|flight| flight.member) {
            return self.keep_member(key, member, completion, was_asked_for);
        }
        if !was_asked_for && self.goes_again(key, &completion) {
            self.syncs.retract(key, &completion.operation, &mut self.results);
            return self.backlog.push_back(Work::Single(key, completion.operation));
        }
        if was_asked_for {
            return self.finish(key, completion);
        }
        match self.wholes.go_on(key, completion) {
            Ok(rest) => self.backlog.push_back(Work::Single(key, rest)),
            Err(completion) => self.finish(key, completion),
        }
    }

    fn goes_again(&mut self, key: Key, completion: &Completion) -> bool {
        self.losses.goes_again(key, completion, &mut self.local, self.is_shared)
    }

    /// Ends an operation.
    fn finish(&mut self, key: Key, mut completion: Completion) {
        self.wholes.settle(key, &mut completion);
        self.syncs.end(key, completion, &mut self.results);
    }

    /// Returns whether results are ready that have left the loop.
    pub(super) fn has_results(&self) -> bool {
        !self.results.is_empty() || !self.woken.is_empty() || !self.orphans.is_empty()
    }

    /// Returns whether work that waits can go on now.
    pub(super) fn has_startable_backlog(&self) -> bool {
        let cancels = !self.cancels.is_empty() && self.own < OWN_MAX;
        let begins = !self.backlog.is_empty() && self.has_room();
        let ends = self.closing.is_some_and(|closing| !closing.has_cancelled);
        cancels || begins || ends || self.local.has_due_steps() || self.local.has_unheeded()
    }

    /// Returns whether there is work for which nothing would wake a sleeping driver.
    #[cfg(feature = "tokio")]
    pub(super) fn needs_turn(&mut self) -> bool {
        self.has_startable_backlog() || !self.local.is_armed()
    }

    fn begin_closing(&mut self, time: Duration) {
        let deadline = Instant::now().checked_add(time);
        self.closing = Some(Closing { deadline, told: false, has_cancelled: false });
        self.cancel_backlog();
    }

    /// Cancels operations in flight. Cancels that the kernel did not take are tried again with the
    /// next orders.
    fn cancel_in_flight(&mut self) {
        let mut taken = Vec::new();
        let has_cancelled =
            self.local.cancel_for_shutdown(&mut |completion| taken.push(completion));
        taken.into_iter().for_each(|completion| self.keep(completion));
        if let Some(closing) = &mut self.closing {
            closing.has_cancelled = has_cancelled;
        }
    }

    /// Refuses the waiting operations that would be cancelled if they were in flight.
    fn cancel_backlog(&mut self) {
        let backlog = std::mem::take(&mut self.backlog);
        for work in backlog {
            match work {
                Work::Single(key, operation) if operation.opcode().cancels_on_shutdown() => {
                    self.refuse(key, operation, libc::ECANCELED);
                }
                work => self.backlog.push_back(work),
            }
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Returns the time at which the close is reported as overdue.
    pub(super) fn closing_deadline(&self) -> Option<Instant> {
        self.closing.filter(|closing| !closing.told).and_then(|closing| closing.deadline)
    }

    /// Returns whether the ring has ended: it is closing, and only the driver's own operations are
    /// in flight. A close that is overdue is reported once, and the driver still waits for the
    /// operations in flight.
    pub(super) fn has_ended(&mut self) -> bool {
        let Some(closing) = &mut self.closing else { return false };
        let waiting: usize = self.backlog.iter().map(Work::operations).sum();
        let operations = self.local.in_flight() - self.own + waiting + self.chains.waiting();
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

    /// Waits before the next submit, after the kernel refused one.
    pub(super) fn pause() {
        std::thread::sleep(Duration::from_millis(1));
    }

    /// Ends the driver. The loop is dropped before the end is reported, so that nothing is open any
    /// more by then.
    pub(super) fn end(mut self) {
        let stats = self.stats();
        self.hub.deliver(&mut self.results, stats);
        self.take_results().deliver(&self.hub);
        drop(self.local);
        self.hub.closed();
        self.hub.end(Ok(()));
    }
}
