//! Operations that have several results, on their way to one future after another.
//!
//! What has come and was not taken lies with the meeting place. Where that is as much as its user
//! gave credit for, the operation is asked to end, and whoever takes the results begins it anew when
//! they are taken. What comes until the kernel has heard of it is copied out of its buffer.

use std::{collections::VecDeque, task::Waker};

use super::{Hub, Stage, State};
use crate::{
    completion::Completion,
    op::Operation,
    ring::{
        contained::wake,
        order::{Admission, Key, Next, Order, Phase},
    },
};

/// An operation with several results.
pub(super) struct Flow {
    waker: Option<Waker>,
    parts: VecDeque<Completion>,
    credit: usize,
    /// The last has come.
    is_over: bool,
}

impl Flow {
    /// Takes a result in: whom to wake, and whether the operation is to end for now.
    pub(super) fn take_in(&mut self, part: Completion) -> (Option<Waker>, bool) {
        self.is_over |= !part.has_more();
        self.parts.push_back(part);
        // Asked again where it did not help.
        let is_too_much = !self.is_over && self.parts.len().is_multiple_of(self.credit);
        (self.waker.take(), is_too_much)
    }
}

impl Hub {
    /// Hands an operation in that has several results. When `credit` of them lie here untaken it is
    /// asked to end; more may come until it has. `waker` is woken when there is one.
    pub(crate) fn submit_flow(
        &self,
        operation: Operation,
        credit: usize,
        waker: Waker,
    ) -> Admission {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            drop(state);
            drop(waker);
            return Admission::Refused(operation);
        }
        let flow = Flow {
            waker: Some(waker),
            parts: VecDeque::new(),
            credit: credit.max(1),
            is_over: false,
        };
        let key = state.admit(Stage::Flow(Box::new(flow)));
        state.orders.push(Order::Flow(key, operation));
        Admission::Taken(key, state.next(Some(key)))
    }

    /// Takes the next result out, or leaves `waker` to be woken for it. After one that says that no
    /// more are to come, the key is another's.
    pub(crate) fn poll_flow(&self, key: Key, waker: &Waker) -> Option<Completion> {
        // Cloned and dropped out of the lock: a waker is a user's code.
        let mut fresh = None;
        loop {
            let mut state = self.lock();
            let Stage::Flow(flow) = &mut state.waiters[key.index()].stage else { return None };
            if let Some(part) = flow.parts.pop_front() {
                let is_last = flow.parts.is_empty();
                if !part.has_more() {
                    state.vacate(key);
                    state.counts.delivered += 1;
                }
                let next = if is_last { state.next_in_turn() } else { None };
                drop(state);
                wake(next);
                return Some(part);
            }
            if flow.waker.as_ref().is_some_and(|waiting| waiting.will_wake(waker)) {
                return None;
            }
            if fresh.is_some() {
                std::mem::swap(&mut flow.waker, &mut fresh);
                return None;
            }
            drop(state);
            fresh = Some(waker.clone());
        }
    }

    /// Nobody takes results any more. Gives what makes that heard, and what is to be dropped, out of
    /// the lock.
    pub(crate) fn abandon_flow(&self, key: Key) -> (Next, VecDeque<Completion>) {
        let mut state = self.lock();
        let entry = &mut state.waiters[key.index()].stage;
        let flow = match std::mem::replace(entry, Stage::Abandoned) {
            Stage::Flow(flow) => flow,
            // Not a flow's that is dropped for the first time.
            other => {
                *entry = other;
                return (Next::Nothing, VecDeque::new());
            }
        };
        state.counts.reclaimed += 1;
        let Flow { waker, parts, is_over, .. } = *flow;
        let next = if is_over {
            state.vacate(key);
            Next::Nothing
        } else {
            state.orders.push(Order::Cancel(key));
            state.next(None)
        };
        drop(state);
        drop(waker);
        (next, parts)
    }
}

// What follows is the driver's side.

impl Hub {
    /// Whether as many results lie untaken as there is credit for: what comes until the kernel has
    /// heard of it keeps no buffer from others.
    pub(crate) fn is_overdrawn(&self, key: Key) -> bool {
        let state = self.lock();
        let stage = &state.waiters[key.index()].stage;
        matches!(stage, Stage::Flow(flow) if flow.parts.len() >= flow.credit)
    }

    /// Takes a result in of an operation that has several, at once and in its order: while the driver
    /// is locked, since another thread may have the next. Gives what is to be woken, and what is to be
    /// dropped, out of all locks.
    pub(crate) fn deliver_part(
        &self,
        key: Key,
        part: Completion,
    ) -> (Option<Waker>, Option<Completion>) {
        let mut state = self.lock();
        let part = match state.take_in(key, part) {
            Ok(waker) => return (waker, None),
            Err(part) => part,
        };
        // Nobody takes it any more.
        if !part.has_more() {
            state.vacate(key);
        }
        (None, Some(part))
    }
}

impl State {
    /// A result of a flow; what is to be woken. It comes back where this is none.
    pub(super) fn take_in(
        &mut self,
        key: Key,
        part: Completion,
    ) -> Result<Option<Waker>, Completion> {
        let Stage::Flow(flow) = &mut self.waiters[key.index()].stage else { return Err(part) };
        let (waker, is_too_much) = flow.take_in(part);
        if is_too_much {
            self.orders.push(Order::Cancel(key));
        }
        Ok(waker)
    }
}
