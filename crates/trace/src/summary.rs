//! Counts the records of a trace: operations and bytes by kind, files, threads, lost events.
//!
//! It needs the same memory for every trace. It is what `ringwise lab record` prints, and what tests compare with the
//! counts of the recorded program.

use crate::model::{Kind, Outcome, Record};

/// What was counted of one kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Operations, including failed ones.
    pub operations: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Operations that failed.
    pub failed: u64,
}

/// Counts of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    counts: [Count; Kind::ALL.len()],
    /// Files that were opened, with each set of flags.
    pub files: u64,
    /// Threads that made an operation.
    pub threads: u64,
    /// Operations whose file is unknown.
    pub unknown_files: u64,
    /// Lost events.
    pub lost_events: u64,
}

impl Summary {
    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        match record {
            Record::File(_) => self.files += 1,
            Record::Thread(_) => self.threads += 1,
            Record::Operation(operation) => {
                let count = &mut self.counts[operation.kind as usize];
                count.operations += 1;
                count.bytes += operation.bytes();
                count.failed += u64::from(matches!(operation.outcome, Outcome::Failed { .. }));
                self.unknown_files += u64::from(operation.file.is_none());
            }
            Record::Lost(lost) => self.lost_events += lost.events,
            Record::End(_) => {}
        }
    }

    /// The counts of a kind.
    pub fn of(&self, kind: Kind) -> Count {
        self.counts[kind as usize]
    }

    /// All operations.
    pub fn operations(&self) -> u64 {
        self.counts.iter().map(|count| count.operations).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_its_place() {
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
        }
    }
}
