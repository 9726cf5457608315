//! Operations with several results, which one future after another takes.
//!
//! The hub keeps the results that nobody has taken yet. If there are as many as the user gave
//! credit for, the operation is asked to end. The taker of the results starts it again after taking
//! them. Results that arrive before the kernel has handled this request are copied out of their
//! buffers. So are all results of an operation whose taker has left.

use std::{collections::VecDeque, task::Waker};

use super::{Hub, Stage, State};
use crate::{
    flight::completion::Completion,
    op::Operation,
    ring::{
        contained::wake,
        hub::order::{Admission, Key, Next, Order, Phase},
    },
};

/// An operation with several results.
pub(super) struct Flow {
    waker: Option<Waker>,
    parts: VecDeque<Completion>,
    /// How many results may lie untaken. It is 0 if nobody takes them for now.
    credit: usize,
    /// Whether the last result has come.
    is_over: bool,
}

impl Flow {
    /// Adds a result. Returns the waker, and whether the operation should end for now.
    pub(super) fn take_in(&mut self, part: Completion) -> (Option<Waker>, bool) {
        self.is_over |= !part.has_more();
        self.parts.push_back(part);
        // Asks again if this did not help.
        let is_too_much = !self.is_over && self.parts.len().is_multiple_of(self.credit);
        (self.waker.take(), is_too_much)
    }
}

impl Hub {
    /// Submits an operation with several results. When `credit` of them lie here untaken, the
    /// operation is asked to end; more may come until it has ended. `waker` is woken when there is
    /// a result.
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

    /// Takes the next result, or registers `waker` for it. After the last result the key may belong
    /// to another operation.
    pub(crate) fn poll_flow(&self, key: Key, waker: &Waker) -> Option<Completion> {
        // Cloned and dropped outside the lock, since a waker runs code of the user.
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

    /// Notes that nobody takes results for now. They are copied out of the buffers of their group, and so
    /// are all that still arrive, since other operations may need the buffers first.
    pub(crate) fn set_flow_aside(&self, key: Key) {
        let mut state = self.lock();
        let Stage::Flow(flow) = &mut state.waiters[key.index()].stage else { return };
        flow.credit = 0;
        let mut parts = std::mem::take(&mut flow.parts);
        drop(state);
        // Outside the lock, since a buffer that comes back may wake a loop.
        parts.iter_mut().for_each(Completion::give_lease_back);
        let mut state = self.lock();
        if let Stage::Flow(flow) = &mut state.waiters[key.index()].stage {
            // Those that arrived meanwhile come last.
            parts.append(&mut flow.parts);
            flow.parts = parts;
        }
    }

    /// Notes that nobody takes results any more. Returns the caller's next step, and the results to
    /// drop outside the lock.
    pub(crate) fn abandon_flow(&self, key: Key) -> (Next, VecDeque<Completion>) {
        let mut state = self.lock();
        let entry = &mut state.waiters[key.index()].stage;
        let flow = match std::mem::replace(entry, Stage::Abandoned) {
            Stage::Flow(flow) => flow,
            // This is not the first drop of a flow.
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

// The driver's side follows.

impl Hub {
    /// Adds a result of an operation with several, at once and in order. The driver stays locked
    /// meanwhile, since another thread may have the next result. A result beyond the credit is
    /// copied, so that it keeps no buffer from others. Returns the waker and a result to drop, both
    /// for use outside all locks.
    pub(crate) fn deliver_part(
        &self,
        key: Key,
        mut part: Completion,
    ) -> (Option<Waker>, Option<Completion>) {
        let mut state = self.lock();
        if part.has_lease() && state.is_overdrawn(key) {
            drop(state);
            part.give_lease_back();
            state = self.lock();
        }
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
    /// Returns whether the untaken results of a flow use up its credit.
    fn is_overdrawn(&self, key: Key) -> bool {
        let stage = &self.waiters[key.index()].stage;
        matches!(stage, Stage::Flow(flow) if flow.parts.len() >= flow.credit)
    }

    /// Adds a result of a flow, and returns the waker. If the key is not of a flow, the result
    /// comes back.
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
