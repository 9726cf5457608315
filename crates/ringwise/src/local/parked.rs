//! A loop's operations with several results, or none: the ones that are parked, due or silent, and
//! the results that their user does not see.
//!
//! It submits nothing: `streams.rs` hands over the due operations.

use std::collections::VecDeque;

use crate::{
    backend::Cqe,
    error::AcceptFailure,
    flight::slot::{Slots, Ticket},
    op::{Kind, Manner, Operation},
};

/// A loop's operations of this kind.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// How many are in a slot.
    pub(super) watched: usize,
    /// Operations to hand over again with the next submit.
    pub(super) due: Vec<Ticket>,
    /// Operations that wait until a buffer comes back, or a descriptor closes. Receives that got a
    /// buffer since they were handed over are last.
    pub(super) parked: Vec<Ticket>,
    /// Whether an operation became parked or due since the last pass. No nudge will come for it
    /// yet.
    pub(super) is_unheeded: bool,
    /// Operations with a cancel in progress: they are not handed over again.
    pub(super) doomed: Vec<Ticket>,
    /// Sends that the kernel has, and that have a result only if they fail.
    pub(super) muted: VecDeque<Ticket>,
    /// The number of quiet sends whose result is still to come.
    pub(super) quiet: usize,
    /// Sends that were taken whole, to be dropped after the reaping.
    pub(super) finished: Vec<Operation>,
    pub(super) expects_nudges: bool,
    /// Whether the loop is ending. Then nothing is handed over again.
    pub(super) is_closing: bool,
}

/// The parts of a completion. The ticket says whether more will come.
pub(super) struct Part {
    pub(super) ticket: Ticket,
    pub(super) tag: u64,
    pub(super) operation: Operation,
    pub(super) result: i32,
}

impl Streams {
    /// Absorbs a result that says nothing to the user. Returns false if the result is for the user.
    pub(super) fn absorb(&mut self, slots: &mut Slots, ticket: Ticket, cqe: Cqe) -> bool {
        let Some((_, operation)) = slots.get_mut(ticket) else { return false };
        match operation.0.as_deref_mut() {
            Some(Kind::AcceptMulti { .. }) if cqe.result < 0 && !self.is_closing => {
                match AcceptFailure::of(-cqe.result) {
                    // A descriptor that closes nudges the loop; memory that is freed does not.
                    AcceptFailure::Exhausted
                        if matches!(-cqe.result, libc::EMFILE | libc::ENFILE) =>
                    {
                        self.parked.insert(0, ticket);
                    }
                    AcceptFailure::Connection => self.due.push(ticket),
                    AcceptFailure::Exhausted | AcceptFailure::Listener => return false,
                }
                self.is_unheeded = true;
                true
            }
            Some(Kind::ReceiveMulti { has_received, .. }) if cqe.result > 0 => {
                *has_received = true;
                false
            }
            Some(Kind::ReceiveMulti { group, armed_at, has_received, .. })
                if cqe.result == -libc::ENOBUFS && !cqe.has_more() && !self.is_closing =>
            {
                group.run_dry(*armed_at);
                let has_received = *has_received;
                self.park_receive(slots, ticket, has_received);
                self.is_unheeded = true;
                true
            }
            Some(Kind::Send { manner, buffer, .. }) => {
                let is_quiet = *manner == Manner::Quiet;
                match manner {
                    Manner::Quiet if cqe.result >= 0 && cqe.result as usize == buffer.len() => {
                        self.quiet = self.quiet.saturating_sub(1);
                        self.finish(slots, ticket);
                        return true;
                    }
                    Manner::Quiet => *manner = Manner::Loud,
                    Manner::ZeroCopy { sent } if cqe.has_more() => {
                        *sent = Some(cqe.result);
                        return true;
                    }
                    // The socket needs a copy (io_uring/net.c). The kernel says so together with
                    // the release of the memory, or instead of it.
                    Manner::ZeroCopy { sent }
                        if sent.unwrap_or(cqe.result) == -libc::EOPNOTSUPP && !self.is_closing =>
                    {
                        *manner = Manner::Copied;
                        self.due.push(ticket);
                        self.is_unheeded = true;
                        return true;
                    }
                    _ => {}
                }
                if is_quiet {
                    self.quiet = self.quiet.saturating_sub(1);
                }
                false
            }
            _ => false,
        }
    }

    /// Parks a receive behind those that got no buffer since they were handed over, and before
    /// those that did. Otherwise one with a fast sender would take all buffers again and again.
    fn park_receive(&mut self, slots: &Slots, ticket: Ticket, has_received: bool) {
        let is_before = |parked: &Ticket| has_received || !slots.get(*parked).is_some_and(got_one);
        let place = self.parked.partition_point(is_before);
        self.parked.insert(place, ticket);
    }

    /// Frees the slot of a send that is done and has no result for its user.
    pub(super) fn finish(&mut self, slots: &mut Slots, ticket: Ticket) {
        if slots.free(ticket).is_some() {
            self.watched -= 1;
            self.finished.push(slots.take(ticket));
        }
    }
}

/// Returns whether it is a receive that got a buffer since it was handed over.
fn got_one(operation: &Operation) -> bool {
    matches!(operation.0.as_deref(), Some(Kind::ReceiveMulti { has_received: true, .. }))
}
