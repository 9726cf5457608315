//! Concurrent syncs of one file (invariant 10).
//!
//! The kernel reports a lost write to only one sync of an open file, and results arrive in any
//! order. So a sync may succeed although the kernel has just reported a lost write to another sync.
//! The driver therefore hands out a success only after all concurrent syncs have ended, and only if
//! none of them failed. Syncs of one chain follow each other, so they are not concurrent.

use std::{collections::HashMap, sync::Arc};

use crate::{
    flight::completion::Completion,
    op::{Operation, Witness},
    ring::hub::order::Key,
};

#[derive(Default)]
pub(super) struct Syncs {
    /// Keyed by the address of the witness, which lives as long as a sync that has it.
    files: HashMap<usize, FileSyncs>,
}

#[derive(Default)]
struct FileSyncs {
    in_flight: Vec<InFlight>,
    held: Vec<Held>,
}

struct InFlight {
    key: Key,
    /// The chain that it is in, if any.
    chain: Option<u64>,
    /// The error of a sync that failed before this one started, or concurrently.
    failure: Option<i32>,
}

/// A result that is not handed out yet.
struct Held {
    key: Key,
    completion: Completion,
    /// Concurrent syncs that have not ended.
    beside: Vec<Key>,
}

fn name(witness: &Arc<Witness>) -> usize {
    Arc::as_ptr(witness).addr()
}

impl Syncs {
    /// Notes an operation that is about to be in flight.
    pub(super) fn begin(&mut self, key: Key, operation: &Operation, chain: Option<u64>) {
        if let Some(witness) = operation.witness() {
            let file = self.files.entry(name(witness)).or_default();
            file.in_flight.push(InFlight { key, chain, failure: witness.failure() });
        }
    }

    /// Removes an operation that is not in flight after all, and may be later. Results that waited
    /// only for this one go to `results`.
    pub(super) fn retract(
        &mut self,
        key: Key,
        operation: &Operation,
        results: &mut Vec<(Key, Completion)>,
    ) {
        let Some(witness) = operation.witness() else { return };
        let name = name(witness);
        if let Some(file) = self.files.get_mut(&name) {
            file.remove(key);
            self.release(name, key, results);
        }
    }

    /// Ends an operation. The results that can be handed out go to `results`.
    pub(super) fn end(
        &mut self,
        key: Key,
        mut completion: Completion,
        results: &mut Vec<(Key, Completion)>,
    ) {
        let Some(witness) = completion.operation.witness() else {
            return results.push((key, completion));
        };
        let is_failure = witness.judge(completion.raw_result());
        let name = name(witness);
        let file = self.files.entry(name).or_default();
        let ended = file.remove(key);
        if is_failure {
            file.spread(key, -completion.raw_result());
        }
        let mut beside = Vec::new();
        if completion.raw_result() >= 0 {
            if let Some(errno) = ended.as_ref().and_then(|ended| ended.failure) {
                completion.fail_with_another(errno);
            } else {
                let chain = ended.and_then(|ended| ended.chain);
                let is_beside = |other: &&InFlight| chain.is_none() || other.chain != chain;
                let others = file.in_flight.iter().filter(is_beside);
                beside = others.map(|other| other.key).collect();
            }
        }
        file.held.push(Held { key, completion, beside });
        self.release(name, key, results);
    }

    /// Hands out the results that waited only for this one.
    fn release(&mut self, name: usize, ended: Key, results: &mut Vec<(Key, Completion)>) {
        let Some(file) = self.files.get_mut(&name) else { return };
        for held in &mut file.held {
            held.beside.retain(|other| *other != ended);
        }
        for held in file.held.extract_if(.., |held| held.beside.is_empty()) {
            results.push((held.key, held.completion));
        }
        if file.in_flight.is_empty() {
            debug_assert!(file.held.is_empty(), "nothing is left to wait for");
            self.files.remove(&name);
        }
    }
}

impl FileSyncs {
    fn remove(&mut self, key: Key) -> Option<InFlight> {
        let at = self.in_flight.iter().position(|each| each.key == key)?;
        Some(self.in_flight.swap_remove(at))
    }

    /// Makes all concurrent syncs fail, because one has failed.
    fn spread(&mut self, failed: Key, errno: i32) {
        for other in &mut self.in_flight {
            other.failure = Some(errno);
        }
        for held in self.held.iter_mut().filter(|held| held.beside.contains(&failed)) {
            held.completion.fail_with_another(errno);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flight::slot::Ticket;

    struct File {
        witness: Arc<Witness>,
        syncs: Syncs,
        results: Vec<(Key, Completion)>,
    }

    impl File {
        fn new() -> File {
            File { witness: Arc::default(), syncs: Syncs::default(), results: Vec::new() }
        }

        fn sync(&self) -> Operation {
            let nobody =
                crate::descriptor::Descriptor::from(std::fs::File::open("/dev/null").unwrap());
            Operation::sync_data(nobody).witnessed_by(&self.witness)
        }

        fn begin(&mut self, key: u64, chain: Option<u64>) {
            let sync = self.sync();
            self.syncs.begin(Key::from_tag(key), &sync, chain);
        }

        /// Ends this one with its result, and returns the results that are handed out.
        fn end(&mut self, key: u64, result: i32) -> Vec<(u64, i32)> {
            let completion = Completion::new(Ticket::NONE, key, result, self.sync());
            self.syncs.end(Key::from_tag(key), completion, &mut self.results);
            self.results.drain(..).map(|(key, done)| (key.tag(), done.raw_result())).collect()
        }
    }

    #[test]
    fn a_success_waits_for_those_beside_it() {
        let mut file = File::new();
        file.begin(1, None);
        file.begin(2, None);
        assert_eq!(file.end(2, 0), [], "the kernel may report to the first what the second met");
        // A success does not wait for a sync that starts later.
        file.begin(3, None);
        assert_eq!(file.end(1, 0), [(2, 0)], "the third started while the first was in flight");
        assert_eq!(file.end(3, 0), [(1, 0), (3, 0)]);
        assert!(file.syncs.files.is_empty());
    }

    #[test]
    fn a_failure_is_that_of_all_beside_it() {
        let mut file = File::new();
        (1..=3).for_each(|key| file.begin(key, None));
        assert_eq!(file.end(2, 0), []);
        assert_eq!(file.end(1, -libc::EIO), [(1, -libc::EIO)]);
        assert_eq!(file.end(3, 0), [(2, -libc::EIO), (3, -libc::EIO)]);
        file.begin(4, None);
        assert_eq!(file.end(4, 0), [(4, -libc::EIO)], "started after a failure");
        assert!(file.syncs.files.is_empty());
    }

    #[test]
    fn a_cancelled_sync_does_not_affect_others() {
        let mut file = File::new();
        (1..=2).for_each(|key| file.begin(key, None));
        assert_eq!(file.end(1, 0), []);
        assert_eq!(file.end(2, -libc::ECANCELED), [(1, 0), (2, -libc::ECANCELED)]);
        (3..=4).for_each(|key| file.begin(key, None));
        assert_eq!(file.end(3, 0), []);
        let sync = file.sync();
        file.syncs.retract(Key::from_tag(4), &sync, &mut file.results);
        assert_eq!(file.results.len(), 1, "it is not in flight any more");
        assert!(file.syncs.files.is_empty());
    }

    /// A later sync of a chain starts when the earlier one has ended, so its failure does not
    /// spread.
    #[test]
    fn syncs_of_a_chain_are_not_beside_each_other() {
        let mut file = File::new();
        (1..=2).for_each(|key| file.begin(key, Some(7)));
        file.begin(3, Some(8));
        assert_eq!(file.end(3, -libc::EIO), [(3, -libc::EIO)]);
        assert_eq!(file.end(1, 0), [(1, -libc::EIO)]);
        assert_eq!(file.end(2, 0), [(2, -libc::EIO)]);
        let mut file = File::new();
        (1..=2).for_each(|key| file.begin(key, Some(7)));
        assert_eq!(file.end(1, 0), [(1, 0)]);
        assert_eq!(file.end(2, -libc::EIO), [(2, -libc::EIO)]);
    }
}
