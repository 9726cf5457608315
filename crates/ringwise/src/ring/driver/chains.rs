//! Chains of a ring: what of them is in flight, and what is left.
//!
//! The loop makes a chain that it has room for (`local/linked.rs`). Here a chain of any length is
//! given to it in parts, so that one waits for room as any other operation does: the next part
//! begins when all of the one before was done in full. What ended with the thread that submitted it
//! begins anew, with what was to follow it, in order.

use std::collections::{HashMap, VecDeque};

use super::{Driver, Key, Work};
use crate::{completion::Completion, error::PushRefusal, local::is_whole, op::Operation};

/// A place in a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    chain: u64,
    /// In the part that is in flight.
    place: usize,
}

#[derive(Default)]
pub(super) struct Chains {
    chains: HashMap<u64, Chain>,
    made: u64,
}

impl Chains {
    /// Operations that are not in flight and have no result.
    pub(super) fn waiting(&self) -> usize {
        self.chains.values().map(|chain| chain.rest.len() + chain.cancelled.len()).sum()
    }
}

#[derive(Default)]
struct Chain {
    rest: VecDeque<(Key, Operation)>,
    /// Members of the part that is in flight, and how many of them have no result.
    part: usize,
    in_flight: usize,
    /// Members that were cancelled, while it is not known why.
    cancelled: Vec<Cancelled>,
    /// One was not done in full: those after it are cancelled.
    is_broken: bool,
    /// One cannot be handed over with others: each goes alone.
    is_single: bool,
}

struct Cancelled {
    place: usize,
    key: Key,
    completion: Completion,
    /// Somebody asked for its end.
    was_asked_for: bool,
}

impl Driver {
    pub(super) fn start_chain(&mut self, operations: Vec<(Key, Operation)>) {
        let number = self.chains.made;
        self.chains.made += 1;
        let chain = Chain { rest: operations.into(), ..Chain::default() };
        self.chains.chains.insert(number, chain);
        self.advance_chain(number);
    }

    /// Hands over the next part of a chain of which nothing is in flight, or ends it.
    pub(super) fn advance_chain(&mut self, number: u64) {
        let Some(mut chain) = self.chains.chains.remove(&number) else { return };
        let end = if chain.is_broken {
            0
        } else if self.is_closing() {
            // Nobody would cancel it once it has begun, and it may never end by itself.
            let is_over = |operation: &Operation| operation.opcode().cancels_on_shutdown();
            let over = chain.rest.iter().position(|(_, operation)| is_over(operation));
            over.unwrap_or(chain.rest.len())
        } else {
            chain.rest.len()
        };
        for (key, operation) in chain.rest.split_off(end) {
            self.refuse(key, operation, libc::ECANCELED);
        }
        if !chain.rest.is_empty() {
            let goes_on = self.push_part(number, &mut chain);
            self.chains.chains.insert(number, chain);
            if !goes_on {
                self.backlog.push_back(Work::Chain(number));
            }
        }
    }

    /// False where nothing of it could be handed over for now.
    fn push_part(&mut self, number: u64, chain: &mut Chain) -> bool {
        let most = if chain.is_single { 1 } else { self.local.longest_chain() };
        let count = chain.rest.len().min(self.room()).min(most);
        let (keys, operations): (Vec<Key>, Vec<(Operation, u64)>) =
            chain.rest.drain(..count).map(|(key, each)| (key, (each, key.tag()))).unzip();
        for (key, (operation, _)) in keys.iter().zip(&operations) {
            self.syncs.begin(*key, operation, Some(number));
        }
        match self.local.push_linked(operations) {
            Ok(tickets) => {
                for (place, (key, ticket)) in keys.iter().zip(tickets).enumerate() {
                    self.board(*key, ticket, Some(Member { chain: number, place }));
                }
                (chain.part, chain.in_flight) = (count, count);
                count > 0
            }
            Err(refused) => {
                for (key, (operation, _)) in keys.iter().zip(&refused.operations) {
                    self.syncs.retract(*key, operation, &mut self.results);
                }
                let back = keys.into_iter().zip(refused.operations);
                for (key, (operation, _)) in back.rev() {
                    chain.rest.push_front((key, operation));
                }
                self.refuse_part(chain, count, refused.reason)
            }
        }
    }

    fn refuse_part(&mut self, chain: &mut Chain, count: usize, reason: PushRefusal) -> bool {
        if let PushRefusal::Rejected(error) = reason {
            if count == 1
                && let Some((key, operation)) = chain.rest.pop_front()
            {
                self.refuse(key, operation, error.errno());
                chain.is_broken = true;
            }
            // It is not said which one: each is tried in its turn.
            chain.is_single = true;
        }
        false
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
            self.end_part(member.chain);
            // Handed over with the orders, before the next submit: nothing else would submit it.
            self.backlog.push_back(Work::Chain(member.chain));
        }
    }

    /// All of a part have their results. Tells what of it was cancelled, or begins that anew.
    fn end_part(&mut self, number: u64) {
        let chain = self.chains.chains.get_mut(&number).expect("its part ended just now");
        let mut cancelled = std::mem::take(&mut chain.cancelled);
        cancelled.sort_unstable_by_key(|each| each.place);
        let Some(first) = cancelled.first() else { return };
        let is_the_end = first.place + cancelled.len() == chain.part;
        // What somebody asked the end of does not begin anew, nor does what comes after it.
        let asked = cancelled.iter().position(|each| each.was_asked_for);
        let may_go_on = is_the_end && !chain.is_broken && asked != Some(0);
        let goes_on = may_go_on && self.goes_again(first.key, &first.completion);
        let again = if goes_on { asked.unwrap_or(cancelled.len()) } else { 0 };
        let ended = cancelled.split_off(again);
        let chain = self.chains.chains.get_mut(&number).expect("it has not ended");
        let mut severed = VecDeque::new();
        if !ended.is_empty() {
            severed = std::mem::take(&mut chain.rest);
        }
        for Cancelled { key, completion, .. } in cancelled.into_iter().rev() {
            self.syncs.retract(key, &completion.operation, &mut self.results);
            chain.rest.push_front((key, completion.operation));
        }
        for Cancelled { key, completion, .. } in ended {
            self.finish(key, completion);
        }
        for (key, operation) in severed {
            self.refuse(key, operation, libc::ECANCELED);
        }
    }

    /// Whether what is to be cancelled is of a chain and not in flight.
    pub(super) fn cancel_in_chains(&mut self, key: Key) -> bool {
        for chain in self.chains.chains.values_mut() {
            if let Some(at) = chain.rest.iter().position(|(waiting, _)| *waiting == key) {
                // It would not run in its turn, nor would what comes after it.
                let severed = chain.rest.split_off(at);
                for (key, operation) in severed {
                    self.results.push((key, Completion::refused(operation, libc::ECANCELED)));
                }
                return true;
            }
            if let Some(cancelled) = chain.cancelled.iter_mut().find(|each| each.key == key) {
                cancelled.was_asked_for = true;
                return true;
            }
        }
        false
    }
}
