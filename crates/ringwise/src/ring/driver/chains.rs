//! The chains of a ring: their members in flight, and how those end.
//!
//! The loop runs a chain (`local/linked.rs`). Here a chain waits for room, as any other operation
//! does. If members ended because the thread that submitted them has exited, they start again, with
//! the members that follow, in order.

use std::collections::HashMap;

use super::{Driver, Work};
use crate::{
    flight::{completion::Completion, refusal::PushRefusal},
    local::is_whole,
    op::Operation,
    ring::hub::order::Key,
};

/// A place in a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    chain: u64,
    place: usize,
}

#[derive(Default)]
pub(super) struct Chains {
    chains: HashMap<u64, Chain>,
    made: u64,
}

impl Chains {
    /// Returns how many operations are not in flight and have no result.
    pub(super) fn waiting(&self) -> usize {
        self.chains.values().map(|chain| chain.cancelled.len() + chain.tail.operations.len()).sum()
    }
}

/// A chain in flight.
#[derive(Default)]
struct Chain {
    members: usize,
    /// How many members have no result yet.
    in_flight: usize,
    /// Members that were cancelled, until the reason is known.
    cancelled: Vec<Cancelled>,
    /// Whether a member was not done in full. The members after it are cancelled.
    is_broken: bool,
    tail: Tail,
}

/// The last part of a chain, which cannot be handed over.
#[derive(Default)]
struct Tail {
    operations: Vec<(Key, Operation)>,
    /// The error of the first of them, when its turn comes.
    errno: i32,
}

struct Cancelled {
    place: usize,
    key: Key,
    completion: Completion,
    /// Whether somebody cancelled it.
    was_asked_for: bool,
}

impl Driver {
    /// Hands a chain over, or keeps it until there is room. A member that cannot be handed over
    /// fails in its turn: the members before it run.
    pub(super) fn start_chain(&mut self, operations: Vec<(Key, Operation)>) {
        self.start_chain_before(operations, Tail::default());
    }

    fn start_chain_before(&mut self, mut operations: Vec<(Key, Operation)>, tail: Tail) {
        if self.is_closing() {
            // Once started, nobody would cancel such an operation, and it may never end by itself.
            let is_over = |(_, each): &(Key, Operation)| each.opcode().cancels_on_shutdown();
            let end = operations.iter().position(is_over).unwrap_or(operations.len());
            self.sever(operations.split_off(end));
        }
        let Some((_, first)) = operations.first() else { return self.refuse_tail(tail) };
        if !self.has_room() && self.local.needs_permit(first) {
            return self.keep_chain(operations, tail);
        }
        let number = self.chains.made;
        self.chains.made += 1;
        for (key, operation) in &operations {
            self.syncs.begin(*key, operation, Some(number));
        }
        let (keys, operations): (Vec<Key>, Vec<(Operation, u64)>) =
            operations.into_iter().map(|(key, each)| (key, (each, key.tag()))).unzip();
        match self.local.push_linked(operations) {
            Ok(tickets) => {
                let members = keys.len();
                for (place, (key, ticket)) in keys.into_iter().zip(tickets).enumerate() {
                    self.board(key, ticket, Some(Member { chain: number, place }));
                }
                let chain = Chain { members, in_flight: members, tail, ..Chain::default() };
                self.chains.chains.insert(number, chain);
            }
            Err(refused) => {
                for (key, (operation, _)) in keys.iter().zip(&refused.operations) {
                    self.syncs.retract(*key, operation, &mut self.results);
                }
                let operations = refused.operations.into_iter().map(|(operation, _)| operation);
                let mut operations: Vec<_> = keys.into_iter().zip(operations).collect();
                let PushRefusal::Rejected(error) = refused.reason else {
                    return self.keep_chain(operations, tail);
                };
                let mut rejected = operations.split_off(refused.place);
                rejected.extend(tail.operations);
                let tail = Tail { operations: rejected, errno: error.errno() };
                self.start_chain_before(operations, tail);
            }
        }
    }

    fn keep_chain(&mut self, mut operations: Vec<(Key, Operation)>, tail: Tail) {
        operations.extend(tail.operations);
        self.backlog.push_back(Work::Chain(operations));
    }

    /// Fails a tail whose turn has come.
    fn refuse_tail(&mut self, tail: Tail) {
        let mut operations = tail.operations.into_iter();
        if let Some((key, operation)) = operations.next() {
            self.refuse(key, operation, tail.errno);
        }
        self.sever(operations.collect());
    }

    /// Refuses operations that do not run any more.
    fn sever(&mut self, operations: Vec<(Key, Operation)>) {
        for (key, operation) in operations {
            self.refuse(key, operation, libc::ECANCELED);
        }
    }

    /// Keeps the result of a member.
    pub(super) fn keep_member(
        &mut self,
        key: Key,
        member: Member,
        completion: Completion,
        was_asked_for: bool,
    ) {
        let chain = self.chains.chains.get_mut(&member.chain).expect("it has a member in flight");
        chain.in_flight -= 1;
        let is_complete = chain.in_flight == 0;
        if completion.raw_result() == -libc::ECANCELED {
            let place = member.place;
            chain.cancelled.push(Cancelled { place, key, completion, was_asked_for });
        } else {
            chain.is_broken |= !is_whole(&completion);
            self.finish(key, completion);
        }
        if is_complete {
            let chain = self.chains.chains.remove(&member.chain).expect("found above");
            self.end_chain(chain);
        }
    }

    /// Ends a chain when all its members have their results. Reports the cancelled members, or
    /// starts them again.
    fn end_chain(&mut self, chain: Chain) {
        let Chain { members, mut cancelled, is_broken, mut tail, .. } = chain;
        cancelled.sort_unstable_by_key(|each| each.place);
        let Some(first) = cancelled.first() else {
            return if is_broken { self.sever(tail.operations) } else { self.refuse_tail(tail) };
        };
        let is_the_end = first.place + cancelled.len() == members;
        // A member that somebody cancelled does not start again, nor do the members after it.
        let asked = cancelled.iter().position(|each| each.was_asked_for);
        let may_go_on = is_the_end && !is_broken && asked != Some(0);
        let goes_on = may_go_on && self.goes_again(first.key, &first.completion);
        let again = if goes_on { asked.unwrap_or(cancelled.len()) } else { 0 };
        if again < cancelled.len() {
            self.sever(std::mem::take(&mut tail.operations));
        }
        for Cancelled { key, completion, .. } in cancelled.split_off(again) {
            self.finish(key, completion);
        }
        let mut anew = Vec::with_capacity(cancelled.len());
        for Cancelled { key, completion, .. } in cancelled {
            self.syncs.retract(key, &completion.operation, &mut self.results);
            anew.push((key, completion.operation));
        }
        if !anew.is_empty() {
            // They are handed over with the orders, before the next submit. Nothing else would
            // submit them.
            self.keep_chain(anew, tail);
        }
    }

    /// Cancels a member of a chain that is not in flight. Returns false if there is no such member.
    pub(super) fn cancel_in_chains(&mut self, key: Key) -> bool {
        let backlog = self.backlog.iter_mut().filter_map(|work| match work {
            Work::Chain(operations) => Some(operations),
            Work::Single(..) => None,
        });
        let tails = self.chains.chains.values_mut().map(|chain| &mut chain.tail.operations);
        let severed = backlog.chain(tails).find_map(|operations| {
            let at = operations.iter().position(|(waiting, _)| *waiting == key)?;
            // Neither this member nor the members after it run.
            Some(operations.split_off(at))
        });
        if let Some(severed) = severed {
            self.sever(severed);
            return true;
        }
        let mut cancelled = self.chains.chains.values_mut().flat_map(|chain| &mut chain.cancelled);
        let found = cancelled.find(|each| each.key == key);
        found.map(|each| each.was_asked_for = true).is_some()
    }
}
