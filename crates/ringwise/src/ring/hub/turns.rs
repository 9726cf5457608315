//! Who is woken when, where the runtime that drives a ring runs those who wait for it.
//!
//! Woken all at once, the tasks of a batch lie in a queue from which the runtime's other threads are
//! called to help, and a thread that was asleep costs more to wake than the tasks take. So one is
//! woken at a time: it wakes the next when it takes its result. A runtime runs only a few so before
//! it lets others go first; then the driver has the next turn. It has one whatever the tasks do, so
//! that nobody waits for a task that never comes.

use std::{collections::VecDeque, task::Waker};

use super::{Hub, Key, contain_drop, wake};
use crate::{completion::Completion, stats::Stats};

/// Tasks that a thread of tokio runs in a row when each wakes the next (`MAX_LIFO_POLLS_PER_TICK`,
/// tokio/src/runtime/scheduler/multi_thread/worker.rs). The one after them would be anybody's.
const ROW: usize = 3;

/// Those whose results are there and who were not told yet.
#[derive(Default)]
pub(super) struct Turns {
    held: VecDeque<Waker>,
    /// How many may be woken before the driver's next turn.
    left: usize,
    /// How many had their turn so far.
    taken: u64,
}

/// Those who are held back, as somebody from outside sees them.
pub(in crate::ring) enum Held {
    Nobody,
    /// Others had their turn since the last look.
    InTurn,
    /// Nobody had: these are to be woken now.
    Back(Vec<Waker>),
}

impl Turns {
    /// Whoever comes next, if there is one in this turn.
    pub(super) fn next(&mut self) -> Option<Waker> {
        if self.left == 0 {
            return None;
        }
        let next = self.held.pop_front();
        self.left -= usize::from(next.is_some());
        self.taken += u64::from(next.is_some());
        next
    }
}

/// Who brings results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ring) enum By {
    /// The driver, whose turn begins with the next thing that it does.
    Driver,
    /// Somebody who handed an order over, and may wait for this one.
    Caller(Option<Key>),
    /// A thread that is none of the runtime's.
    Thread,
}

/// How results are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ring) enum Spread {
    /// One task after the other.
    InTurn,
    /// To all at once, for as many threads as there are.
    AtOnce,
}

impl Hub {
    /// Puts results where their futures find them, and keeps who is to be woken for the driver's next
    /// turn, for which to see is the caller's part where this says so.
    ///
    /// A caller wakes nobody but itself: a task that is woken on its thread would wait there until the
    /// caller is through with what it does next. What another thread brings while nobody waits for a
    /// turn wakes the first at once.
    pub(in crate::ring) fn keep(
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
            // The driver has gone on with a thread, and has no turns.
            first.append(&mut wakers);
        }
        let goes_first = by == By::Thread && state.turns.held.is_empty();
        state.turns.held.extend(wakers);
        if goes_first {
            state.turns.left = ROW;
            first.extend(state.turns.next());
        }
        let others_wait = !state.turns.held.is_empty();
        // Those who bring orders meanwhile are not to hand each over by itself.
        let sleeper = if others_wait { state.asleep.take() } else { None };
        drop(state);
        drop(sleeper);
        first.into_iter().for_each(|waker| wake(Some(waker)));
        orphans.into_iter().for_each(contain_drop);
        others_wait
    }

    /// How many had their turn so far.
    pub(in crate::ring) fn turn(&self) -> u64 {
        self.lock().turns.taken
    }

    /// Whether somebody is held back and nobody had a turn since `turn`.
    pub(in crate::ring) fn look_after(&self, turn: &mut u64) -> Held {
        let mut state = self.lock();
        if state.turns.held.is_empty() {
            return Held::Nobody;
        }
        if std::mem::replace(turn, state.turns.taken) != state.turns.taken {
            return Held::InTurn;
        }
        state.turns.left = 0;
        Held::Back(state.turns.held.drain(..).collect())
    }

    /// A turn of the driver: whom to wake now, and whether others wait for their turn.
    pub(in crate::ring) fn begin_turn(&self, spread: Spread) -> (Vec<Waker>, bool) {
        let mut state = self.lock();
        if spread == Spread::AtOnce {
            state.turns.left = 0;
            return (state.turns.held.drain(..).collect(), false);
        }
        state.turns.left = ROW;
        (state.turns.next().into_iter().collect(), !state.turns.held.is_empty())
    }
}
