//! Syncs of one file that are in flight beside each other (invariant 10).
//!
//! The kernel tells of a lost write to one sync of an open file only, and results come in any order:
//! a sync that succeeded may have met what another was told of a moment before. So a success is
//! handed out when every sync that was in flight beside it has ended; whoever takes it then looks
//! whether one of them failed.

use std::{collections::HashMap, sync::Arc};

use super::Key;
use crate::{
    completion::Completion,
    op::{Operation, Witness},
};

#[derive(Default)]
pub(super) struct Syncs {
    /// By the address of the witness, which lives as long as a sync that has it.
    files: HashMap<usize, FileSyncs>,
}

#[derive(Default)]
struct FileSyncs {
    in_flight: Vec<Key>,
    held: Vec<Held>,
}

/// A success that is not handed out yet.
struct Held {
    key: Key,
    completion: Completion,
    /// Syncs that were in flight beside it.
    beside: Vec<Key>,
}

fn name(witness: &Arc<Witness>) -> usize {
    Arc::as_ptr(witness).addr()
}

impl Syncs {
    /// An operation is about to be in flight.
    pub(super) fn begin(&mut self, key: Key, operation: &Operation) {
        if let Some(witness) = operation.witness() {
            self.files.entry(name(witness)).or_default().in_flight.push(key);
        }
    }

    /// It is not in flight after all, and may be later.
    pub(super) fn retract(&mut self, key: Key, operation: &Operation) {
        if let Some(witness) = operation.witness() {
            self.remove(name(witness), key, None, &mut Vec::new());
        }
    }

    /// An operation has ended. What can be handed out goes to `results`.
    pub(super) fn end(
        &mut self,
        key: Key,
        completion: Completion,
        results: &mut Vec<(Key, Completion)>,
    ) {
        let Some(witness) = completion.operation.witness() else {
            return results.push((key, completion));
        };
        witness.judge(completion.raw_result());
        let name = name(witness);
        self.remove(name, key, Some(completion), results);
    }

    fn remove(
        &mut self,
        name: usize,
        key: Key,
        completion: Option<Completion>,
        results: &mut Vec<(Key, Completion)>,
    ) {
        let file = self.files.entry(name).or_default();
        file.in_flight.retain(|other| *other != key);
        if let Some(completion) = completion {
            let beside = if completion.raw_result() < 0 { Vec::new() } else { file.in_flight.clone() };
            file.held.push(Held { key, completion, beside });
        }
        for held in &mut file.held {
            held.beside.retain(|other| *other != key);
        }
        for held in file.held.extract_if(.., |held| held.beside.is_empty()) {
            results.push((held.key, held.completion));
        }
        if file.in_flight.is_empty() {
            self.files.remove(&name);
        }
    }
}
