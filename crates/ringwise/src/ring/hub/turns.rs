//! The order in which tasks are woken, if the runtime that drives a ring also runs the tasks that
//! wait for it.
//!
//! If the tasks of a batch were woken all at once, the runtime would wake its other threads to
//! help, and waking a sleeping thread costs more than the tasks do. So one task is woken at a time,
//! and it wakes the next when it takes its result. A runtime runs only a few tasks in this way
//! before it lets others go first. Then the driver has the next turn. The driver has its turn
//! whatever the tasks do, so that nobody waits for a task that never comes.

use std::{collections::VecDeque, task::Waker};

use crate::ring::hub::order::Key;

/// The number of tasks that a thread of tokio runs in a row when each wakes the next
/// (`MAX_LIFO_POLLS_PER_TICK`, tokio/src/runtime/scheduler/multi_thread/worker.rs). Any thread may
/// run the task after them.
const ROW: usize = 3;

/// The tasks whose results are ready and that were not woken yet.
#[derive(Default)]
pub(super) struct Turns {
    held: VecDeque<Waker>,
    /// How many may be woken before the driver's next turn.
    left: usize,
    /// How many had their turn so far.
    pub(super) taken: u64,
}

/// The tasks that are held back, as the lookout sees them.
pub(crate) enum Held {
    Nobody,
    /// Some had their turn since the last look.
    InTurn,
    /// None had a turn: these must be woken now.
    Back(Vec<Waker>),
}

impl Turns {
    /// Takes the next task to wake, if there is one in this turn.
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

    /// Holds these back. Returns the task to wake at once, if any.
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
    /// The driver, whose turn begins next.
    Driver,
    /// A caller that handed orders over, and may wait for this operation.
    Caller(Option<Key>),
    /// A thread that does not belong to the runtime.
    Thread,
}

/// How results are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// One task after the other.
    InTurn,
    /// To all tasks at once, for all threads of the runtime.
    AtOnce,
}
