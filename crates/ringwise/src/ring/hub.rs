//! The meeting place of futures and the driver: orders go in, results come out.
//!
//! The hub knows a future only by its number (invariant 1). The operation and its memory are in the
//! order, then in the driver's slot, then in the result. One lock guards the hub's state for a few
//! stores at a time. No waker runs under the lock, and no value of a user is dropped under it
//! (invariant 12). The hub makes no syscalls.

mod flow;
#[cfg(all(ringwise_loom, test))]
mod interleavings;
pub(crate) mod order;
#[cfg(feature = "tokio")]
mod runtime;
#[cfg(all(not(ringwise_loom), test))]
mod tests;
#[cfg(feature = "tokio")]
pub(super) mod turns;

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

use super::contained::{contain_drop, wake};
use crate::{
    flight::completion::Completion,
    local::Leaked,
    op::Operation,
    ring::hub::order::{Admission, Key, Next, Order, Phase, Together, Visit},
    settings::stats::Stats,
    sync::{Mutex, MutexGuard},
};

/// The state of an operation.
enum Stage {
    /// Free, with the next free entry, if any.
    Vacant(Option<u32>),
    Waiting(Waker),
    Done(Completion),
    /// It has several results.
    Flow(Box<Flow>),
    /// Its future was dropped.
    Abandoned,
}

struct Waiter {
    /// Grows whenever the entry is used again.
    generation: u32,
    stage: Stage,
}

/// Orders wait so that several are handed over together, but not so many that a device runs out of
/// work: a sixteenth of the open operations (docs/notes/library/driver.md has the figures).
#[cfg(feature = "tokio")]
const PARTS: usize = 16;
#[cfg(feature = "tokio")]
const ORDERS_MAX: usize = 16;

/// The meeting place of one ring.
pub(super) struct Hub {
    state: Mutex<State>,
    /// How many orders wait for room in the driver's loop. Reading and writing it needs no lock.
    waiting_for_room: AtomicUsize,
}

struct State {
    orders: Vec<Order>,
    waiters: Vec<Waiter>,
    vacant: Option<u32>,
    /// Wakes the driver, while it sleeps.
    asleep: Option<Waker>,
    /// Whether somebody called the driver while it was awake, for something other than an order.
    is_called: bool,
    phase: Phase,
    /// The phase when the driver last took orders.
    told: Phase,
    ended: Option<Result<(), Leaked>>,
    /// The number of operations that were submitted and whose result nobody has taken. If each task
    /// has one operation, this is the number of tasks, even while a batch of results is on its way
    /// to them.
    open: usize,
    /// Whether callers may hand over their orders themselves. They may not if only the driver's own
    /// thread enters its ring.
    #[cfg(feature = "tokio")]
    callers_hand_over: bool,
    /// The wakers of those who wait for the end.
    mourners: Vec<Waker>,
    counts: Counts,
    stats: Stats,
    #[cfg(feature = "tokio")]
    turns: Turns,
}

/// The hub's own counts.
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

    /// Submits an operation. `waker` is woken when its result is ready.
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

    /// Submits many operations under one lock, and returns their keys. If the ring is closing, the
    /// operations come back.
    pub(super) fn submit_all(
        &self,
        operations: Vec<Operation>,
        together: Together,
        waker: &Waker,
    ) -> Result<(Vec<Key>, Next), Vec<Operation>> {
        // Cloned outside the lock, since a waker runs code of the user.
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

    /// Cancels an operation. Its future still waits for the result.
    pub(super) fn cancel(&self, key: Key) -> Next {
        let mut state = self.lock();
        state.orders.push(Order::Cancel(key));
        state.next(None)
    }

    /// Takes the result, or registers `waker` for it.
    pub(super) fn poll(&self, key: Key, waker: &Waker) -> Option<Completion> {
        // Cloned and dropped outside the lock, since a waker runs code of the user.
        let mut fresh = None;
        loop {
            let mut state = self.lock();
            let Stage::Waiting(waiting) = &mut state.waiters[key.index()].stage else {
                let completion = state.take_done(key)?;
                state.counts.delivered += 1;
                let next = state.next_in_turn();
                drop(state);
                wake(next);
                return Some(completion);
            };
            if waiting.will_wake(waker) {
                return None;
            }
            if let Some(fresh) = &mut fresh {
                std::mem::swap(waiting, fresh);
                return None;
            }
            drop(state);
            fresh = Some(waker.clone());
        }
    }

    /// Notes that a future was dropped. With `cancel`, its operation is cancelled. Returns the
    /// caller's next step, and a result to drop outside the lock.
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
            // This is not the first drop of a future.
            other @ (Stage::Vacant(_) | Stage::Abandoned | Stage::Flow(_)) => {
                *entry = other;
                (Next::Nothing, None)
            }
        }
    }

    /// Sends a visitor to the loop. If the ring is closing, the visitor comes back.
    pub(super) fn visit(&self, visit: Visit) -> Result<Next, Visit> {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Err(visit);
        }
        state.orders.push(Order::Visit(visit));
        Ok(state.next(None))
    }

    /// Begins to close the ring. The first call decides how much time it has.
    pub(super) fn close(&self, time: Duration) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Closing(time);
        }
        let rouse = state.rouse();
        drop(state);
        wake(rouse);
    }

    /// Returns how the ring ended. Before the end, registers `waker`.
    pub(super) fn poll_ended(&self, waker: &Waker) -> Option<Result<(), Leaked>> {
        // Cloned outside the lock, since a waker runs code of the user.
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

    /// Returns how many operations wait for room.
    pub(super) fn waiting_for_room(&self) -> usize {
        self.waiting_for_room.load(Ordering::Relaxed)
    }

    // The driver's side follows.

    /// Stores how many operations wait for room.
    pub(super) fn tell_waiting(&self, count: usize) {
        if self.waiting_for_room() != count {
            self.waiting_for_room.store(count, Ordering::Relaxed);
        }
    }

    /// Moves the orders into `into`, which must be empty.
    pub(super) fn take_orders(&self, into: &mut Vec<Order>) -> Phase {
        let mut state = self.lock();
        std::mem::swap(&mut state.orders, into);
        state.told = state.phase;
        state.phase
    }

    /// Notes that the driver is awake. It looks for orders before it sleeps again.
    pub(super) fn awake(&self) {
        let mut state = self.lock();
        (state.asleep, state.is_called) = (None, false);
    }

    /// Lets the driver sleep. Returns false if it must not: there is an order, somebody called it,
    /// or it does not know yet that the ring is closing.
    pub(super) fn sleep(&self, waker: &Waker) -> bool {
        let mut state = self.lock();
        let was_called = std::mem::take(&mut state.is_called);
        let idle = state.orders.is_empty() && state.phase == state.told && !was_called;
        state.asleep = idle.then(|| waker.clone());
        idle
    }

    /// Hands out results: wakes the tasks that wait for them, and drops the results that nobody
    /// waits for.
    pub(super) fn deliver(&self, results: &mut Vec<(Key, Completion)>, stats: Stats) {
        let mut wakers = Vec::with_capacity(results.len());
        let orphans = self.lock().place(results, stats, &mut wakers);
        wakers.into_iter().for_each(|waker| wake(Some(waker)));
        orphans.into_iter().for_each(contain_drop);
    }

    /// Reports how the ring ended to all who wait for it.
    pub(super) fn end(&self, outcome: Result<(), Leaked>) {
        let mut state = self.lock();
        state.ended.get_or_insert(outcome);
        let mourners = std::mem::take(&mut state.mourners);
        drop(state);
        mourners.into_iter().for_each(|waker| wake(Some(waker)));
    }

    /// Notes that the driver is gone and takes no more orders.
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
        // The list contains only free entries, and each names the next.
        self.vacant = match std::mem::replace(&mut waiter.stage, stage) {
            Stage::Vacant(next) => next,
            Stage::Waiting(_) | Stage::Done(_) | Stage::Flow(_) | Stage::Abandoned => None,
        };
        Key { index, generation: waiter.generation }
    }

    /// Puts results where their futures find them. Adds the wakers to `wakers`, and returns the
    /// results that nobody wants.
    fn place(
        &mut self,
        results: &mut Vec<(Key, Completion)>,
        stats: Stats,
        wakers: &mut Vec<Waker>,
    ) -> Vec<Completion> {
        let mut orphans = Vec::new();
        // Two threads may take results one after the other, and arrive here in the opposite order.
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
                // It already has its result, and nobody waits for another.
                other @ (Stage::Vacant(_) | Stage::Done(_) | Stage::Flow(_)) => {
                    entry.stage = other;
                    orphans.push(completion);
                }
            }
        }
        orphans
    }

    /// Returns the task to wake after another has taken its result.
    fn next_in_turn(&mut self) -> Option<Waker> {
        #[cfg(feature = "tokio")]
        return self.turns.next();
        #[cfg(not(feature = "tokio"))]
        None
    }

    /// Takes the result of a future, if it is ready.
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

    /// Returns how the caller passes on a new order. `own`: the operation that the caller waits
    /// for.
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

    /// Takes the driver's waker, if the driver sleeps and nobody has woken it yet.
    fn rouse(&mut self) -> Option<Waker> {
        let waker = self.asleep.take();
        self.counts.wakes += u64::from(waker.is_some());
        waker
    }
}
