//! The hub's functions for a driver that is a task of a runtime.

use std::task::Waker;

use super::{
    super::contained::{contain_drop, wake},
    Hub, Stage, Waiter,
    turns::{By, Held, Spread},
};
use crate::{
    flight::completion::Completion,
    local::Leaked,
    ring::hub::order::{Key, Order, Phase},
    settings::stats::Stats,
};

impl Hub {
    /// Sets whether callers may hand over orders themselves: each order at once while the driver
    /// sleeps, and every few orders while it does not.
    pub(crate) fn let_callers_hand_over(&self, may: bool) {
        self.lock().callers_hand_over = may;
    }

    /// Makes the driver look at its loop once more: wakes it, or keeps it from sleeping.
    pub(crate) fn wake_driver(&self) {
        let mut state = self.lock();
        let rouse = state.rouse();
        state.is_called = rouse.is_none();
        drop(state);
        wake(rouse);
    }

    /// Puts results where their futures find them, and keeps their wakers for the driver's next
    /// turn. If it returns true, the caller must make sure that the driver has this turn.
    ///
    /// A caller wakes nobody but itself: a task that it woke would wait on its thread until the
    /// caller has finished its next step. If a thread outside the runtime brings results while
    /// nobody waits for a turn, the first task is woken at once.
    pub(crate) fn keep(
        &self,
        by: By,
        results: &mut Vec<(Key, Completion)>,
        woken: Vec<Waker>,
        stats: Stats,
    ) -> bool {
        let own = match by {
            By::Caller(own) => own,
            By::Driver | By::Thread => None,
        };
        let own = own.and_then(|own| results.iter().position(|(key, _)| *key == own));
        let own = own.map(|at| vec![results.swap_remove(at)]);
        let (mut wakers, mut first) = (woken, Vec::new());
        let mut state = self.lock();
        let mut orphans = state.place(results, stats, &mut wakers);
        if let Some(mut own) = own {
            orphans.extend(state.place(&mut own, stats, &mut first));
        }
        if !state.callers_hand_over {
            // The driver runs on its own thread, and has no turns.
            first.append(&mut wakers);
        }
        first.extend(state.turns.hold(by, wakers));
        let others_wait = state.turns.has_some();
        // Callers that bring orders meanwhile should not hand over each one by itself.
        let sleeper = if others_wait { state.asleep.take() } else { None };
        drop(state);
        drop(sleeper);
        first.into_iter().for_each(|waker| wake(Some(waker)));
        orphans.into_iter().for_each(contain_drop);
        others_wait
    }

    /// Returns how many tasks had their turn so far.
    pub(crate) fn turn(&self) -> u64 {
        self.lock().turns.taken
    }

    /// Checks whether tasks are held back although none had a turn since `turn`.
    pub(crate) fn look_after(&self, turn: &mut u64) -> Held {
        self.lock().turns.look_after(turn)
    }

    /// Begins a turn of the driver. Returns the tasks to wake now, and whether others wait for
    /// their turn.
    pub(crate) fn begin_turn(&self, spread: Spread) -> (Vec<Waker>, bool) {
        self.lock().turns.begin(spread)
    }

    /// Ends a ring whose driver is gone while operations are in flight, for which nobody can wait.
    pub(crate) fn orphan(&self) {
        let mut state = self.lock();
        state.phase = Phase::Closed;
        let orders = std::mem::take(&mut state.orders);
        let stats = state.stats;
        drop(state);
        // Operations that have not started are not lost with the rest. A visit that is dropped
        // reports this itself.
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
}
