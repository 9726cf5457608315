//! A partition of the mock: batches with their offsets, and what became of their transactions.

use super::record::{Batch, Stored, marker, place};
use crate::ship::kafka::batch::Producer;

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Committed,
    Aborted,
    /// It is the marker that ends a transaction.
    Marker,
}

struct Entry {
    offset: i64,
    producer: i64,
    fate: Fate,
    bytes: Vec<u8>,
    records: Vec<Stored>,
}

/// The batches of a partition.
#[derive(Default)]
pub(crate) struct Log {
    entries: Vec<Entry>,
    /// The offset after the last record.
    pub(super) end: i64,
    /// The producer of each aborted transaction, and where it begins and ends.
    aborted: Vec<(i64, i64, i64)>,
    /// The first offset that is there.
    pub(super) first: i64,
}

impl Log {
    pub(super) fn add(&mut self, batch: Batch, bytes: &[u8]) {
        let offset = self.end;
        self.end += batch.records.len() as i64;
        let fate = if batch.is_transactional { Fate::Open } else { Fate::Committed };
        let (bytes, producer) = (place(bytes, offset), batch.producer.id);
        self.entries.push(Entry { offset, producer, fate, bytes, records: batch.records });
    }

    /// Ends the transaction of a producer.
    pub(super) fn finish(&mut self, producer: Producer, is_committed: bool) {
        let fate = if is_committed { Fate::Committed } else { Fate::Aborted };
        let is_own = |entry: &&mut Entry| entry.producer == producer.id && entry.fate == Fate::Open;
        let mut own = self.entries.iter_mut().filter(is_own).peekable();
        if let Some(first) = own.peek().filter(|_| !is_committed) {
            self.aborted.push((producer.id, first.offset, self.end));
        }
        own.for_each(|entry| entry.fate = fate);
        let (offset, bytes) = (self.end, marker(self.end, producer, is_committed));
        self.end += 1;
        let (producer, records) = (producer.id, Vec::new());
        self.entries.push(Entry { offset, producer, fate: Fate::Marker, bytes, records });
    }

    /// Up to three batches from an offset on, none of an open transaction or after it. The last one may be cut.
    pub(super) fn fetch(&self, from: i64) -> Vec<u8> {
        let open = self.entries.iter().find(|entry| entry.fate == Fate::Open);
        let stable = open.map_or(self.end, |entry| entry.offset);
        let is_there = |entry: &&Entry| {
            let end = entry.offset + entry.records.len().max(1) as i64;
            end > from && entry.offset < stable
        };
        let mut found = self.entries.iter().filter(is_there).map(|entry| &entry.bytes[..]);
        let mut out = found.by_ref().take(3).collect::<Vec<_>>().concat();
        out.extend(found.next().map_or(&[][..], |next| &next[..next.len() / 2]));
        out
    }

    /// The aborted transactions that do not end before an offset: their producers, and where they begin.
    pub(super) fn aborted(&self, from: i64) -> Vec<(i64, i64)> {
        let own = self.aborted.iter().filter(|(.., last)| *last >= from);
        own.map(|(producer, first, _)| (*producer, *first)).collect()
    }

    /// What a consumer of committed records reads.
    pub(crate) fn committed(&self) -> Vec<Stored> {
        let is_committed = |entry: &&Entry| entry.fate == Fate::Committed;
        let committed = self.entries.iter().filter(is_committed);
        committed.flat_map(|entry| entry.records.iter().cloned()).collect()
    }

    /// Removes all records, as retention does.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.aborted.clear();
        self.first = self.end;
    }
}
