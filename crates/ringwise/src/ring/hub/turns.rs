//! Who is woken when, where the runtime that drives a ring runs those who wait for it.
//!
//! Woken all at once, the tasks of a batch lie in a queue from which the runtime's other threads are
//! called to help, and a thread that was asleep costs more to wake than the tasks take. So one is
//! woken at a time: it wakes the next when it takes its result. A runtime runs only a few so before
//! it lets others go first; then the driver has the next turn. It has one whatever the tasks do, so
//! that nobody waits for a task that never comes.

use std::{collections::VecDeque, task::Waker};

use crate::ring::order::Key;

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
    pub(super) taken: u64,
}

/// Those who are held back, as somebody from outside sees them.
pub(crate) enum Held {
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

    pub(super) fn has_some(&self) -> bool {
        !self.held.is_empty()
    }

    /// Holds these back; gives whom to wake at once.
    pub(super) fn hold(&mut self, by: By, wakers: Vec<Waker>) -> Option<Waker> {
        let goes_first = by == By::Thread && !self.has_some();
        self.held.extend(wakers);
        if !goes_first {
            return None;
        }
        self.left = ROW;
        self.next()
    }

    pub(super) fn look_after(&mut self, turn: &mut u64) -> Held {
        if !self.has_some() {
            return Held::Nobody;
        }
        if std::mem::replace(turn, self.taken) != self.taken {
            return Held::InTurn;
        }
        Held::Back(self.release())
    }

    pub(super) fn begin(&mut self, spread: Spread) -> (Vec<Waker>, bool) {
        if spread == Spread::AtOnce {
            return (self.release(), false);
        }
        self.left = ROW;
        (self.next().into_iter().collect(), self.has_some())
    }

    fn release(&mut self) -> Vec<Waker> {
        self.left = 0;
        self.held.drain(..).collect()
    }
}

/// Who brings results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The driver, whose turn begins with the next thing that it does.
    Driver,
    /// Somebody who handed an order over, and may wait for this one.
    Caller(Option<Key>),
    /// A thread that is none of the runtime's.
    Thread,
}

/// How results are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// One task after the other.
    InTurn,
    /// To all at once, for as many threads as there are.
    AtOnce,
}
