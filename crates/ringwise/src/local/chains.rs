//! The chains of a loop in flight: the member that is next, and the meaning of a result for the
//! members after it.
//!
//! It submits nothing: the steps to take are in [`Chains::due`], and `linked.rs` takes them.

use std::collections::{HashMap, VecDeque};

use crate::{
    backend::Cqe,
    descriptor::Blocking,
    flight::{call::Call, completion::Completion, slot::Ticket},
    op::{Opcode, Operation},
};

/// The result of a member that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Success,
    /// As many bytes as it was asked to move.
    Bytes(u64),
    /// The end of a timeout, which the kernel reports as an error.
    Expiry,
}

impl Expected {
    pub(super) fn of(operation: &Operation) -> Expected {
        match operation.whole_bytes() {
            Some(all) => Expected::Bytes(all),
            None if operation.opcode() == Opcode::Timeout => Expected::Expiry,
            None => Expected::Success,
        }
    }

    pub(super) fn is_met_by(self, result: i32) -> bool {
        match self {
            Expected::Success => result >= 0,
            Expected::Bytes(asked) => u64::try_from(result).is_ok_and(|moved| moved == asked),
            Expected::Expiry => result == -libc::ETIME,
        }
    }
}

/// Returns whether an operation was done in full.
pub(crate) fn is_whole(completion: &Completion) -> bool {
    match Expected::of(&completion.operation) {
        expected @ Expected::Bytes(_) => expected.is_met_by(completion.raw_result()),
        Expected::Success | Expected::Expiry => completion.raw_result() >= 0,
    }
}

pub(super) struct Member {
    pub(super) ticket: Ticket,
    pub(super) expected: Expected,
    /// The call that the loop queues when its turn comes; nothing if the ring has the whole chain.
    pub(super) call: Option<(Call, Blocking)>,
    /// Whether it needs no permit when its turn comes.
    pub(super) waits: bool,
    /// Whether it was cancelled before its turn came.
    pub(super) is_doomed: bool,
}

struct Chain {
    members: Vec<Member>,
    /// The place after the last member that was seen to end.
    seen: usize,
    /// How many members have no result that was seen.
    left: usize,
    /// Whether it goes on only if the loop looks at results: the loop makes the chain, or a member
    /// is to be cancelled.
    is_watched: bool,
}

/// A step to take for a chain at the next submit.
#[derive(Clone, Copy)]
pub(super) enum Due {
    Start(Ticket, Call, Blocking),
    /// Cancel this member, which the ring has started.
    Cancel(Ticket),
}

/// The chains of a loop that are in flight.
#[derive(Default)]
pub(super) struct Chains {
    chains: HashMap<u64, Chain>,
    /// Members whose result was not seen: their chain, and their place in it.
    places: HashMap<u64, (u64, usize)>,
    made: u64,
    watched: usize,
    pub(super) due: VecDeque<Due>,
}

impl Chains {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    /// Returns whether a wait has to look at results on the way.
    #[inline]
    pub(super) fn are_watched(&self) -> bool {
        self.watched > 0
    }

    /// Adds a chain whose members have their slots. If the members have no calls, the ring has the
    /// chain.
    pub(super) fn begin(&mut self, members: Vec<Member>) {
        let number = self.made;
        self.made += 1;
        for (at, member) in members.iter().enumerate() {
            self.places.insert(member.ticket.user_data(), (number, at));
        }
        let is_watched = members[0].call.is_some();
        self.watched += usize::from(is_watched);
        let left = members.len();
        self.chains.insert(number, Chain { members, seen: 0, left, is_watched });
        self.start_next(number);
    }

    /// Returns the member that has the permit of a chain that the loop makes, and the next member,
    /// which gets it.
    pub(super) fn hand_on(&self, user_data: u64) -> Option<(Ticket, Ticket)> {
        let &(number, at) = self.places.get(&user_data)?;
        let members = &self.chains[&number].members;
        let next = members.get(at + 1).filter(|next| next.call.is_some() && !next.waits)?;
        Some((members[at].ticket, next.ticket))
    }

    /// Makes the first member that was not seen due, if the loop makes the chain or the member is
    /// to be cancelled.
    fn start_next(&mut self, number: u64) {
        let chain = &self.chains[&number];
        let Some(member) = chain.members.get(chain.seen) else { return };
        if let Some((call, blocking)) = member.call {
            self.due.push_back(Due::Start(member.ticket, call, blocking));
        } else if member.is_doomed {
            self.due.push_back(Due::Cancel(member.ticket));
        }
    }

    /// Looks at a result when it is first met. Members that will never run because of it go to
    /// `ended`.
    pub(super) fn observe(&mut self, user_data: u64, result: i32, ended: &mut Vec<Cqe>) {
        let Some((number, at)) = self.places.remove(&user_data) else { return };
        let chain = self.chains.get_mut(&number).expect("it has a member in flight");
        // The ring's own results come in any order.
        chain.seen = chain.seen.max(at + 1);
        chain.left -= 1;
        let is_complete = chain.members[at].expected.is_met_by(result);
        let next = chain.members.get(at + 1);
        let runs_on = is_complete && next.is_some_and(|next| !next.is_doomed);
        match next {
            Some(next) if next.call.is_some() && !runs_on => {
                for member in &chain.members[at + 1..] {
                    self.places.remove(&member.ticket.user_data());
                    ended.push(Cqe::cancelled(member.ticket.user_data()));
                }
                self.end(number);
                return;
            }
            _ => {}
        }
        if chain.left == 0 {
            self.end(number);
        } else if is_complete {
            self.start_next(number);
        }
    }

    fn end(&mut self, number: u64) {
        let chain = self.chains.remove(&number).expect("it ends once");
        self.watched -= usize::from(chain.is_watched);
    }

    /// Cancels a member that waits for another, so that it does not run when its turn comes.
    /// Returns false if it does not wait.
    pub(super) fn doom(&mut self, user_data: u64) -> bool {
        let Some(&(number, at)) = self.places.get(&user_data) else { return false };
        let chain = self.chains.get_mut(&number).expect("it has a member in flight");
        let waits = at > chain.seen;
        if waits {
            chain.members[at].is_doomed = true;
            self.watched += usize::from(!std::mem::replace(&mut chain.is_watched, true));
        }
        waits
    }

    /// Cancels a member again that a cancel did not find although its turn has come. The kernel
    /// starts the next member of a chain in deferred work (io_uring/io_uring.c, io_queue_next), so
    /// a cancel may miss it. Returns false if that is not the reason.
    pub(super) fn doom_again(&mut self, user_data: u64) -> bool {
        let Some(&(number, at)) = self.places.get(&user_data) else { return false };
        let chain = self.chains.get_mut(&number).expect("it has a member in flight");
        let member = &mut chain.members[at];
        if member.call.is_some() || at == 0 {
            return false;
        }
        member.is_doomed = true;
        self.due.push_back(Due::Cancel(member.ticket));
        self.watched += usize::from(!std::mem::replace(&mut chain.is_watched, true));
        true
    }

    /// Does the same as [`doom_again`](Self::doom_again) for all members that were to be cancelled.
    pub(super) fn doom_all_again(&mut self) {
        let missed: Vec<u64> = self
            .chains
            .values()
            .filter_map(|chain| chain.members.get(chain.seen))
            .filter(|member| member.is_doomed)
            .map(|member| member.ticket.user_data())
            .collect();
        for user_data in missed {
            self.doom_again(user_data);
        }
    }

    /// Returns whether it is a member whose result was not seen.
    pub(super) fn contains(&self, user_data: u64) -> bool {
        self.places.contains_key(&user_data)
    }
}
