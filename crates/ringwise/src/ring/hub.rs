//! Where futures and the driver meet: orders on their way in, results on their way out.
//!
//! A future is a number here and nothing more (invariant 1): what its operation owns is in the
//! order, then in the driver's slot, then in the result. One lock guards it all, held for a few
//! stores; no waker runs and nothing of a user's is dropped under it (invariant 12). It makes no
//! system call and knows no kernel.

mod flow;
#[cfg(all(ringwise_loom, test))]
mod interleavings;
#[cfg(all(not(ringwise_loom), test))]
mod tests;
#[cfg(feature = "tokio")]
mod turns;

use std::{
    sync::{
        PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::Waker,
    time::Duration,
};

use flow::Flow;
#[cfg(feature = "tokio")]
use turns::Turns;
#[cfg(feature = "tokio")]
pub(super) use turns::{By, Held, Spread};

use crate::{
    completion::Completion,
    local::{Leaked, Local},
    op::Operation,
    stats::Stats,
    sync::{Mutex, MutexGuard},
};

/// Names one submitted operation of a ring; the driver's tag for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    pub(super) fn tag(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(super) fn from_tag(tag: u64) -> Key {
        Key { index: tag as u32, generation: (tag >> 32) as u32 }
    }

    pub(super) fn index(self) -> usize {
        self.index as usize
    }
}

/// What the driver is asked to do.
pub(super) enum Order {
    /// Make this operation; its result goes to the key.
    Start(Key, Operation),
    /// The same, of one that has several results.
    Flow(Key, Operation),
    /// Make these, each when the one before is complete.
    Link(Vec<(Key, Operation)>),
    /// Nobody waits for it any more.
    Cancel(Key),
    /// Something that only the loop's own thread may do.
    Visit(Visit),
}

/// How operations that are handed in together stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Together {
    /// In no order.
    Batch,
    /// Each after the one before it.
    Chain,
}

/// A visit to the loop, of the library's own making.
/// It gives whom to wake for its answer, out of all locks.
pub(super) type Visit = Box<dyn FnOnce(&mut Local) -> Option<Waker> + Send>;

/// What becomes of an operation.
enum Stage {
    /// Free; the next free entry, if any.
    Vacant(Option<u32>),
    Waiting(Waker),
    Done(Completion),
    /// It has several results.
    Flow(Box<Flow>),
    /// Its future was dropped.
    Abandoned,
}

struct Waiter {
    /// Counted up whenever the entry is used again.
    generation: u32,
    stage: Stage,
}

/// Whether work is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// No new work; what is in flight has this long.
    Closing(Duration),
    /// The driver is gone.
    Closed,
}

/// What happened to an operation that was handed in.
pub(super) enum Admission {
    /// Under way, after the caller has done its part.
    Taken(Key, Next),
    /// The ring is closing: here it is again.
    Refused(Operation),
}

/// What is to be done for an order to be heard.
pub(super) enum Next {
    /// Nothing: the driver looks for orders before it sleeps.
    Nothing,
    /// Wake the driver.
    Wake(Waker),
    /// Hand orders over on the caller's own thread, which waits for this one.
    #[cfg(feature = "tokio")]
    HandOver(Option<Key>),
}

/// Orders wait to be handed over with others, but not so many that a device has nothing to do
/// meanwhile: a sixteenth of what is open (docs/benchmarking.md has the figures).
#[cfg(feature = "tokio")]
const PARTS: usize = 16;
#[cfg(feature = "tokio")]
const ORDERS_MAX: usize = 16;

/// The meeting place of one ring.
pub(super) struct Hub {
    state: Mutex<State>,
    /// Orders that the driver has and that wait for room in its loop. Apart from the rest, so that it
    /// is told while nothing else goes on.
    waiting_for_room: AtomicUsize,
}

struct State {
    orders: Vec<Order>,
    waiters: Vec<Waiter>,
    vacant: Option<u32>,
    /// Wakes the driver, while it sleeps.
    asleep: Option<Waker>,
    /// The driver was called while it did not sleep: there is something to do that is no order.
    is_called: bool,
    phase: Phase,
    /// The phase as the driver knows it, since it last took orders.
    told: Phase,
    ended: Option<Result<(), Leaked>>,
    /// Operations that were handed in and whose result was not taken: with a task for each, how
    /// many there are, even while a batch of results is on its way to them.
    open: usize,
    /// Whether those who bring orders may hand them over; not where only the driver's own thread
    /// enters its ring.
    #[cfg(feature = "tokio")]
    callers_hand_over: bool,
    /// Those who wait for the end.
    mourners: Vec<Waker>,
    counts: Counts,
    stats: Stats,
    #[cfg(feature = "tokio")]
    turns: Turns,
}

/// What the meeting place counts by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) submitted: u64,
    pub(super) delivered: u64,
    pub(super) reclaimed: u64,
    pub(super) wakes: u64,
}

impl Hub {
    pub(super) fn new() -> Hub {
        let state = State {
            orders: Vec::new(),
            waiters: Vec::new(),
            vacant: None,
            asleep: None,
            is_called: false,
            phase: Phase::Open,
            told: Phase::Open,
            ended: None,
            open: 0,
            #[cfg(feature = "tokio")]
            callers_hand_over: false,
            mourners: Vec::new(),
            counts: Counts::default(),
            stats: Stats::default(),
            #[cfg(feature = "tokio")]
            turns: Turns::default(),
        };
        Hub { state: Mutex::new(state), waiting_for_room: AtomicUsize::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic half-way runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands an operation in. `waker` is woken when its result is there.
    pub(super) fn submit(&self, operation: Operation, waker: Waker) -> Admission {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            drop(state);
            drop(waker);
            return Admission::Refused(operation);
        }
        let key = state.admit(Stage::Waiting(waker));
        state.orders.push(Order::Start(key, operation));
        Admission::Taken(key, state.next(Some(key)))
    }

    /// Hands many operations in under one lock, to be handed over together; gives their keys. The
    /// operations themselves come back where the ring is closing.
    pub(super) fn submit_all(
        &self,
        operations: Vec<Operation>,
        together: Together,
        waker: &Waker,
    ) -> Result<(Vec<Key>, Next), Vec<Operation>> {
        // Cloned out of the lock: a waker is a user's code.
        let wakers: Vec<Waker> = operations.iter().map(|_| waker.clone()).collect();
        let mut state = self.lock();
        if state.phase != Phase::Open {
            drop(state);
            return Err(operations);
        }
        let mut admitted = Vec::with_capacity(operations.len());
        for (operation, waker) in operations.into_iter().zip(wakers) {
            admitted.push((state.admit(Stage::Waiting(waker)), operation));
        }
        let keys = admitted.iter().map(|(key, _)| *key).collect();
        match together {
            Together::Batch => {
                let start = |(key, operation)| Order::Start(key, operation);
                state.orders.extend(admitted.into_iter().map(start));
            }
            Together::Chain => state.orders.push(Order::Link(admitted)),
        }
        Ok((keys, state.next(None)))
    }

    /// Asks for the end of an operation whose future goes on to wait for it.
    pub(super) fn cancel(&self, key: Key) -> Next {
        let mut state = self.lock();
        state.orders.push(Order::Cancel(key));
        state.next(None)
    }

    /// Whether callers may hand orders over by themselves: at once while the driver sleeps, and
    /// every few while it does not.
    #[cfg(feature = "tokio")]
    pub(super) fn let_callers_hand_over(&self, may: bool) {
        self.lock().callers_hand_over = may;
    }

    /// Has the driver look at its loop once more: wakes it, or keeps it from going to sleep.
    #[cfg(feature = "tokio")]
    pub(super) fn wake_driver(&self) {
        let mut state = self.lock();
        let rouse = state.rouse();
        state.is_called = rouse.is_none();
        drop(state);
        wake(rouse);
    }

    /// Takes the result out, or leaves `waker` to be woken for it.
    pub(super) fn poll(&self, key: Key, waker: &Waker) -> Option<Completion> {
        let mut state = self.lock();
        if let Stage::Waiting(waiting) = &state.waiters[key.index()].stage {
            if waiting.will_wake(waker) {
                return None;
            }
            drop(state);
            // A waker is a user's code.
            let fresh = waker.clone();
            state = self.lock();
            if let Stage::Waiting(waiting) = &mut state.waiters[key.index()].stage {
                let old = std::mem::replace(waiting, fresh);
                drop(state);
                drop(old);
                return None;
            }
        }
        let completion = state.take_done(key)?;
        state.counts.delivered += 1;
        let next = state.next_in_turn();
        drop(state);
        wake(next);
        Some(completion)
    }

    /// Its future is gone. `cancel`: the operation need not go on to its end. Returns what makes that
    /// heard, and what is to be dropped, out of the lock.
    pub(super) fn abandon(&self, key: Key, cancel: bool) -> (Next, Option<Completion>) {
        let mut state = self.lock();
        state.counts.reclaimed += 1;
        let entry = &mut state.waiters[key.index()].stage;
        match std::mem::replace(entry, Stage::Abandoned) {
            Stage::Waiting(waker) => {
                let next = if cancel {
                    state.orders.push(Order::Cancel(key));
                    state.next(None)
                } else {
                    Next::Nothing
                };
                drop(state);
                drop(waker);
                (next, None)
            }
            Stage::Done(completion) => {
                state.vacate(key);
                (state.next_in_turn().map_or(Next::Nothing, Next::Wake), Some(completion))
            }
            // Not a future's that is dropped for the first time.
            other @ (Stage::Vacant(_) | Stage::Abandoned | Stage::Flow(_)) => {
                *entry = other;
                (Next::Nothing, None)
            }
        }
    }

    /// Sends a visitor to the loop; nothing where the ring is closed.
    pub(super) fn visit(&self, visit: Visit) -> Result<Next, Visit> {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Err(visit);
        }
        state.orders.push(Order::Visit(visit));
        Ok(state.next(None))
    }

    /// Begins the end. The first to say how long decides.
    pub(super) fn close(&self, time: Duration) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Closing(time);
        }
        let rouse = state.rouse();
        drop(state);
        wake(rouse);
    }

    /// How the ring ended; nothing while it has not, and then `waker` is told.
    pub(super) fn poll_ended(&self, waker: &Waker) -> Option<Result<(), Leaked>> {
        // Cloned out of the lock: a waker is a user's code.
        let waker = waker.clone();
        let mut state = self.lock();
        let is_known = state.mourners.iter().any(|mourner| mourner.will_wake(&waker));
        if state.ended.is_none() && !is_known {
            state.mourners.push(waker);
        }
        state.ended
    }

    pub(super) fn counts(&self) -> (Counts, Stats) {
        let state = self.lock();
        (state.counts, state.stats)
    }

    /// How many operations wait for room.
    pub(super) fn waiting_for_room(&self) -> usize {
        self.waiting_for_room.load(Ordering::Relaxed)
    }

    // What follows is the driver's side.

    /// So many operations wait for room.
    pub(super) fn tell_waiting(&self, count: usize) {
        if self.waiting_for_room() != count {
            self.waiting_for_room.store(count, Ordering::Relaxed);
        }
    }

    /// Moves the orders into `into`, which is empty.
    pub(super) fn take_orders(&self, into: &mut Vec<Order>) -> Phase {
        let mut state = self.lock();
        std::mem::swap(&mut state.orders, into);
        state.told = state.phase;
        state.phase
    }

    /// The driver is up, and looks for orders before it sleeps again.
    pub(super) fn awake(&self) {
        let mut state = self.lock();
        (state.asleep, state.is_called) = (None, false);
    }

    /// The driver is about to sleep: false, and it should not, if there is an order, somebody called
    /// it since it looked, or the ring is closing and it was not told.
    pub(super) fn sleep(&self, waker: &Waker) -> bool {
        let mut state = self.lock();
        let was_called = std::mem::take(&mut state.is_called);
        let idle = state.orders.is_empty() && state.phase == state.told && !was_called;
        state.asleep = idle.then(|| waker.clone());
        idle
    }

    /// Hands results out, wakes who waits for them, and drops those that nobody does.
    pub(super) fn deliver(&self, results: &mut Vec<(Key, Completion)>, stats: Stats) {
        let mut wakers = Vec::with_capacity(results.len());
        let orphans = self.lock().place(results, stats, &mut wakers);
        wakers.into_iter().for_each(|waker| wake(Some(waker)));
        orphans.into_iter().for_each(contain_drop);
    }

    /// The driver's last word.
    pub(super) fn end(&self, outcome: Result<(), Leaked>) {
        let mut state = self.lock();
        state.ended.get_or_insert(outcome);
        let mourners = std::mem::take(&mut state.mourners);
        drop(state);
        mourners.into_iter().for_each(|waker| wake(Some(waker)));
    }

    /// The driver is gone with operations in flight, and nobody can wait for them.
    #[cfg(feature = "tokio")]
    pub(super) fn orphan(&self) {
        let mut state = self.lock();
        state.phase = Phase::Closed;
        let orders = std::mem::take(&mut state.orders);
        let stats = state.stats;
        drop(state);
        // What nobody has begun is not lost with the rest, and a visit that is dropped says so itself.
        let mut refused = Vec::new();
        for order in orders {
            match order {
                Order::Start(key, operation) | Order::Flow(key, operation) => {
                    refused.push((key, Completion::refused(operation, libc::ESHUTDOWN)));
                }
                Order::Link(operations) => {
                    let refuse = |operation| Completion::refused(operation, libc::ESHUTDOWN);
                    let members = operations.into_iter();
                    refused.extend(members.map(|(key, operation)| (key, refuse(operation))));
                }
                Order::Cancel(_) | Order::Visit(_) => {}
            }
        }
        self.deliver(&mut refused, stats);
        let is_lost = |waiter: &&Waiter| !matches!(waiter.stage, Stage::Vacant(_) | Stage::Done(_));
        let operations = self.lock().waiters.iter().filter(is_lost).count();
        self.end(Err(Leaked { operations }));
    }

    /// The driver is gone: nobody takes orders any more.
    pub(super) fn closed(&self) {
        self.lock().phase = Phase::Closed;
    }
}

impl State {
    fn admit(&mut self, stage: Stage) -> Key {
        self.counts.submitted += 1;
        self.open += 1;
        let Some(index) = self.vacant else {
            let index = u32::try_from(self.waiters.len()).expect("fewer than 2^32 futures");
            self.waiters.push(Waiter { generation: 0, stage });
            return Key { index, generation: 0 };
        };
        let waiter = &mut self.waiters[index as usize];
        // Only the free are in the list, and each knows the next.
        self.vacant = match std::mem::replace(&mut waiter.stage, stage) {
            Stage::Vacant(next) => next,
            Stage::Waiting(_) | Stage::Done(_) | Stage::Flow(_) | Stage::Abandoned => None,
        };
        Key { index, generation: waiter.generation }
    }

    /// Puts results where their futures find them. Adds who is to be woken to `wakers`, and gives what
    /// nobody wants.
    fn place(
        &mut self,
        results: &mut Vec<(Key, Completion)>,
        stats: Stats,
        wakers: &mut Vec<Waker>,
    ) -> Vec<Completion> {
        let mut orphans = Vec::new();
        // Of two threads that went round one after the other the first may be the last to come here.
        let age = |stats: &Stats| (stats.completed, stats.enters, stats.submitted);
        if age(&stats) >= age(&self.stats) {
            self.stats = stats;
        }
        for (key, completion) in results.drain(..) {
            debug_assert_eq!(self.waiters[key.index()].generation, key.generation);
            let completion = match self.take_in(key, completion) {
                Ok(waker) => {
                    wakers.extend(waker);
                    continue;
                }
                Err(completion) => completion,
            };
            let entry = &mut self.waiters[key.index()];
            match std::mem::replace(&mut entry.stage, Stage::Abandoned) {
                Stage::Waiting(waker) => {
                    entry.stage = Stage::Done(completion);
                    wakers.push(waker);
                }
                Stage::Abandoned => {
                    orphans.push(completion);
                    self.vacate(key);
                }
                // It has its result: nobody waits for another.
                other @ (Stage::Vacant(_) | Stage::Done(_) | Stage::Flow(_)) => {
                    entry.stage = other;
                    orphans.push(completion);
                }
            }
        }
        orphans
    }

    /// Who is woken after one that has taken its result.
    fn next_in_turn(&mut self) -> Option<Waker> {
        #[cfg(feature = "tokio")]
        return self.turns.next();
        #[cfg(not(feature = "tokio"))]
        None
    }

    /// The result of a future, if it is there.
    fn take_done(&mut self, key: Key) -> Option<Completion> {
        let entry = &mut self.waiters[key.index()].stage;
        match std::mem::replace(entry, Stage::Abandoned) {
            Stage::Done(completion) => {
                self.vacate(key);
                Some(completion)
            }
            other => {
                *entry = other;
                None
            }
        }
    }

    fn vacate(&mut self, key: Key) {
        self.open -= 1;
        let next = self.vacant.replace(key.index);
        let waiter = &mut self.waiters[key.index()];
        waiter.generation = waiter.generation.wrapping_add(1);
        waiter.stage = Stage::Vacant(next);
    }

    /// What makes an order heard that came just now. `own`: what the caller waits for.
    #[cfg_attr(
        not(feature = "tokio"),
        allow(unused_variables, reason = "callers hand nothing over")
    )]
    fn next(&mut self, own: Option<Key>) -> Next {
        #[cfg(feature = "tokio")]
        {
            let few = (self.open / PARTS).clamp(1, ORDERS_MAX);
            if self.callers_hand_over && (self.asleep.is_some() || self.orders.len() >= few) {
                return Next::HandOver(own);
            }
        }
        self.rouse().map_or(Next::Nothing, Next::Wake)
    }

    /// What wakes the driver, if it sleeps and nobody has woken it yet.
    fn rouse(&mut self) -> Option<Waker> {
        let waker = self.asleep.take();
        self.counts.wakes += u64::from(waker.is_some());
        waker
    }
}

/// Wakes, and contains a panic of what is woken (invariant 12).
pub(crate) fn wake(waker: Option<Waker>) {
    let Some(waker) = waker else { return };
    // What a panic leaves half-done is the waker's own.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
}

/// Drops a result, and contains a panic of what it owns.
pub(super) fn contain_drop(completion: Completion) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(completion)));
}
