//! The operations of a loop that have several results, or none: which are parked, due or silent, and which
//! results say nothing to their user.
//!
//! It submits nothing: what is due is `streams.rs`'s to hand over.

use std::collections::VecDeque;

use crate::{
    backend::Cqe,
    error::AcceptFailure,
    op::{Kind, Manner, Operation},
    slot::{Slots, Ticket},
};

/// A loop's operations of this kind.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// How many are in a slot.
    pub(super) watched: usize,
    /// To be handed over again with the next submit.
    pub(super) due: Vec<Ticket>,
    /// Until a buffer comes back, or a descriptor closes.
    pub(super) parked: Vec<Ticket>,
    /// Something became parked or due since that was last looked at: nobody will nudge the loop for
    /// it yet.
    pub(super) is_unheeded: bool,
    /// Those that a cancel is under way for: they are not handed over again.
    pub(super) doomed: Vec<Ticket>,
    /// Sends that are with the kernel and have a result only where they failed.
    pub(super) muted: VecDeque<Ticket>,
    /// Quiet sends whose result is to come.
    pub(super) quiet: usize,
    /// Those that were taken whole, to be dropped outside of the reaping.
    pub(super) finished: Vec<Operation>,
    pub(super) expects_nudges: bool,
    /// The loop ends: nothing is handed over again.
    pub(super) is_closing: bool,
}

/// What a completion is made of. The ticket says whether more are to come.
pub(super) struct Part {
    pub(super) ticket: Ticket,
    pub(super) tag: u64,
    pub(super) operation: Operation,
    pub(super) result: i32,
}

impl Streams {
    /// Absorbs a result that says nothing to the user; false where it is one for the user.
    pub(super) fn absorb(&mut self, slots: &mut Slots, ticket: Ticket, cqe: Cqe) -> bool {
        let Some((_, operation)) = slots.get_mut(ticket) else { return false };
        match operation.0.as_deref_mut() {
            Some(Kind::AcceptMulti { .. }) if cqe.result < 0 && !self.is_closing => {
                match AcceptFailure::of(-cqe.result) {
                    // Memory comes back without a word; a descriptor that closes gives one.
                    AcceptFailure::Exhausted
                        if matches!(-cqe.result, libc::EMFILE | libc::ENFILE) =>
                    {
                        self.parked.push(ticket);
                    }
                    AcceptFailure::Connection => self.due.push(ticket),
                    AcceptFailure::Exhausted | AcceptFailure::Listener => return false,
                }
                self.is_unheeded = true;
                true
            }
            Some(Kind::ReceiveMulti { group, armed_at, .. })
                if cqe.result == -libc::ENOBUFS && !cqe.has_more() && !self.is_closing =>
            {
                group.run_dry(*armed_at);
                self.parked.push(ticket);
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
                    // A socket that cannot do without a copy (io_uring/net.c): told with the
                    // memory's release, or instead of it.
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

    /// Frees the slot of a send that is done and has nothing to tell.
    pub(super) fn finish(&mut self, slots: &mut Slots, ticket: Ticket) {
        if slots.free(ticket).is_some() {
            self.watched -= 1;
            self.finished.push(slots.take(ticket));
        }
    }
}
