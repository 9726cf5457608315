//! Decides which batches of a segment are whole. It compares entries with each other and with the bytes that they
//! cover. It does no I/O: the caller passes the index and checks the data.

use std::{collections::HashMap, iter::Peekable, sync::Arc, vec::IntoIter};

use crate::disk::segment::format::{
    entry::{AFTER_SYNC, ENTRY_BYTES, Entry, Kind, REMOVED},
    record::{Mark, Records, Said, StoredPart},
};

/// Bytes of lines of each tenant. `None` stands for unknown tenants.
pub(crate) type ByTenant = HashMap<Option<Arc<str>>, u64>;

/// The content of an index, and the part of it that is valid.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    pub(crate) head: Option<Entry>,
    /// The batches before the first that is not whole.
    pub(crate) batches: Vec<Entry>,
    /// The entries of records and names, each with their batch.
    beside: Vec<(Entry, Vec<Entry>)>,
    /// The seal, if everything that it counts exists.
    pub(crate) seal: Option<Entry>,
    /// Good batches after one that was synced and is not whole.
    pub(crate) beyond: Vec<Entry>,
    /// There is a seal that does not match.
    is_broken: bool,
    /// The number of the line after all missing lines that had been durable according to a later entry.
    lost_until: Option<u64>,
    /// The first batch is missing, but its names exist.
    has_lost_first: bool,
    /// Retention removed the lines, and the head says so.
    is_removed: bool,
}

/// The state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It has ended and is whole.
    Sealed,
    /// It has not ended. Bytes after the last whole batch were never durable.
    Open,
    /// Something is missing that had been durable.
    Damaged,
    /// Nothing in it was ever acknowledged.
    Empty,
    /// Retention removed its lines, and its head says so.
    Removed,
}

impl Scan {
    /// Reads an index. `is_whole` decides whether a batch's bytes have its checksum.
    ///
    /// # Errors
    ///
    /// The error of `is_whole`.
    pub(crate) fn new<E>(
        index: &[u8],
        mut is_whole: impl FnMut(&Entry) -> Result<bool, E>,
    ) -> Result<Scan, E> {
        let mut scan = Scan::default();
        let entries: Vec<Option<Entry>> = index.chunks(ENTRY_BYTES).map(Entry::decode).collect();
        scan.head = entries.first().copied().flatten().filter(|entry| entry.kind == Kind::Head);
        let mut is_torn = scan.head.is_none();
        // The batches from the first on that is not whole. Each has a flag whether it is good itself, and its records.
        let mut torn: Vec<(Entry, bool, Vec<Entry>)> = Vec::new();
        let mut beside = Vec::new();
        for entry in entries.into_iter().skip(1) {
            match entry.filter(|entry| entry.kind != Kind::Head) {
                Some(piece) if matches!(piece.kind, Kind::Records | Kind::Name) => {
                    beside.push(piece)
                }
                Some(batch) if batch.kind == Kind::Batch => {
                    let own = std::mem::take(&mut beside);
                    let fits = !is_torn && scan.continues(&batch);
                    let is_good = is_whole(&batch)? && own.len() == batch.beside();
                    if fits && is_good {
                        scan.keep(batch, own);
                        scan.batches.push(batch);
                    } else {
                        is_torn = true;
                        torn.push((batch, is_good, own));
                    }
                }
                Some(seal) if !is_torn && scan.sums_up(&seal) => scan.seal = Some(seal),
                Some(seal) => {
                    scan.is_broken = true;
                    scan.lost_until = Some(seal.first_line);
                }
                None => is_torn = true,
            }
        }
        scan.judge(torn);
        Ok(scan)
    }

    /// Reads an index without checking the bytes of the batches.
    pub(crate) fn promised(index: &[u8]) -> Scan {
        let Ok(scan) = Scan::new(index, |_| Ok::<_, std::convert::Infallible>(true));
        scan
    }

    /// Decides which batches are damage, beginning with the first that is not whole. An entry with the flag
    /// [`AFTER_SYNC`] proves that all earlier batches were stored, even if its own batch is not whole.
    fn judge(&mut self, torn: Vec<(Entry, bool, Vec<Entry>)>) {
        let last_synced = torn.iter().rposition(|(batch, ..)| batch.flags & AFTER_SYNC != 0);
        let has_good =
            torn.iter().any(|(batch, is_good, _)| *is_good && batch.flags & AFTER_SYNC != 0);
        if !self.is_broken && !has_good && last_synced.is_none_or(|last| last == 0) {
            return;
        }
        for (place, (batch, is_good, own)) in torn.into_iter().enumerate() {
            let was_durable = self.is_broken || last_synced.is_some_and(|last| place < last);
            if is_good || was_durable {
                self.lost_until = self.lost_until.max(Some(batch.line_end()));
                self.has_lost_first |= batch.number == 0 && own.len() == batch.beside();
                self.keep(batch, own);
            }
            if is_good {
                self.beyond.push(batch);
            }
        }
    }

    /// Reads the index of a segment without a file of lines. Returns nothing unless retention removed the lines.
    pub(crate) fn removed(index: &[u8]) -> Option<Scan> {
        let whole = Scan::promised(index);
        let is_removed = whole.head.is_some_and(|head| head.flags & REMOVED != 0);
        is_removed.then(|| Scan {
            lost_until: Some(whole.next_line()),
            batches: Vec::new(),
            beyond: Vec::new(),
            is_removed: true,
            ..whole
        })
    }

    /// Leaves out batches from a line on, because the next segment has them.
    pub(crate) fn end_at(&mut self, line: u64) {
        self.batches.retain(|batch| batch.is_before(line));
        self.beside.retain(|(batch, _)| batch.is_before(line));
    }

    fn keep(&mut self, batch: Entry, beside: Vec<Entry>) {
        if !beside.is_empty() {
            self.beside.push((batch, beside));
        }
    }

    /// Whether a batch directly follows the earlier ones.
    fn continues(&self, batch: &Entry) -> bool {
        batch.number == self.batches.len() as u64
            && batch.offset == self.end()
            && batch.first_line == self.next_line()
    }

    fn sums_up(&self, seal: &Entry) -> bool {
        seal.number == self.batches.len() as u64
            && seal.offset == self.end()
            && seal.first_line == self.next_line()
    }

    /// The end of the last whole batch in the data, in bytes.
    pub(crate) fn end(&self) -> u64 {
        self.batches.last().map_or(0, |batch| batch.offset.saturating_add(batch.bytes))
    }

    /// The end of the last whole batch's entry in the index, in bytes.
    pub(crate) fn index_end(&self) -> u64 {
        let beside: usize = self.beside.iter().map(|(_, entries)| entries.len()).sum();
        ((1 + self.batches.len() + beside) * ENTRY_BYTES) as u64
    }

    /// The start of the last whole batch's entries in the index, including its records. For the first batch it is the
    /// start of the head.
    pub(crate) fn last_start(&self) -> u64 {
        match self.batches.last() {
            Some(last) if self.batches.len() > 1 => {
                self.index_end() - ((1 + last.beside()) * ENTRY_BYTES) as u64
            }
            _ => 0,
        }
    }

    /// Reads the records of its batches, in their order.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&Entry, Said)> {
        let mut records = Records::default();
        self.beside.iter().map(move |(batch, entries)| {
            let mut said = records.read(&Entry::records_of(entries), batch.time_ms);
            let old = Entry::names_of(entries).into_iter();
            let time_ms = batch.time_ms;
            said.marks.extend(old.map(|(name, line)| {
                let (name, network) = (name.into(), None);
                Mark { name, line, time_ms, network }
            }));
            (batch, said)
        })
    }

    /// Counts the bytes of lines of each tenant, from the index alone.
    pub(crate) fn by_tenant(index: &[u8]) -> ByTenant {
        let scan = Scan::promised(index);
        let mut bytes = HashMap::new();
        let mut known = 0;
        for part in scan.records().flat_map(|(_, said)| said.parts) {
            known += part.bytes;
            let tenant = part.origin.and_then(|origin| origin.tenant);
            *bytes.entry(tenant).or_default() += part.bytes;
        }
        // Earlier versions stored no tenants.
        let all: u64 = scan.batches.iter().map(|batch| batch.bytes).sum();
        if all > known {
            *bytes.entry(None).or_default() += all - known;
        }
        bytes
    }

    /// Returns the origins of the lines, which must be read in the order of the batches.
    pub(crate) fn into_origins(self) -> Origins {
        Origins { beside: self.beside.into_iter().peekable(), records: Records::default() }
    }

    /// Lists names with the number of their last stored line. A name may appear more than once.
    pub(crate) fn names(&self) -> Vec<Mark> {
        self.records().flat_map(|(_, said)| said.marks).collect()
    }

    /// Whether the segment has or had its first batch, which has all names.
    pub(crate) fn has_first_batch(&self) -> bool {
        !self.batches.is_empty() || self.is_removed || self.has_lost_first
    }

    /// Returns the number of the first line, if it is known.
    pub(crate) fn first_line(&self) -> Option<u64> {
        let entries = self.head.iter().chain(&self.batches).chain(&self.beyond);
        entries.map(|entry| entry.first_line).next()
    }

    /// Returns the number of the line after all known ones.
    pub(crate) fn next_line(&self) -> u64 {
        let head = self.head.map_or(0, |head| head.first_line);
        let last = self.batches.last().map_or(head, Entry::line_end);
        let last = self.seal.map_or(last, |seal| seal.first_line);
        self.lost_until.unwrap_or(0).max(last)
    }

    pub(crate) fn state(&self) -> State {
        match self {
            Scan { is_removed: true, .. } => State::Removed,
            Scan { lost_until: Some(_), .. } => State::Damaged,
            Scan { seal: Some(_), .. } => State::Sealed,
            Scan { head: None, .. } => State::Empty,
            _ => State::Open,
        }
    }
}

/// The senders of the lines of a segment's batches.
pub(crate) struct Origins {
    beside: Peekable<IntoIter<(Entry, Vec<Entry>)>>,
    records: Records,
}

impl Origins {
    /// Returns the parts of a batch. Batches must be asked for in their order. A batch with unknown origins has one
    /// part.
    pub(crate) fn of(&mut self, batch: &Entry) -> Vec<StoredPart> {
        let mut parts = Vec::new();
        while let Some((of, entries)) = self.beside.next_if(|(of, _)| of.number <= batch.number) {
            let said = self.records.read(&Entry::records_of(&entries), of.time_ms);
            parts = if of.number == batch.number { said.parts } else { Vec::new() };
        }
        parts_of(batch, parts)
    }
}

/// Returns the parts of a batch as its records have them. If they do not add up to it, it has one part of unknown
/// origin.
pub(crate) fn parts_of(batch: &Entry, parts: Vec<StoredPart>) -> Vec<StoredPart> {
    if adds_up(batch, &parts) {
        return parts;
    }
    let (lines, bytes, time_ms) = (batch.lines, batch.bytes, batch.time_ms);
    vec![StoredPart { origin: None, lines, bytes, time_ms }]
}

/// Whether the parts of a batch add up to its lines and bytes.
pub(crate) fn adds_up(batch: &Entry, parts: &[StoredPart]) -> bool {
    let sum = |count: fn(&StoredPart) -> u64| parts.iter().map(count).fold(0, u64::saturating_add);
    sum(|part| part.lines) == batch.lines && sum(|part| part.bytes) == batch.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(number: u64, flags: u32) -> Entry {
        Entry {
            number,
            flags,
            offset: number * 10,
            bytes: 10,
            lines: 2,
            first_line: 100 + number * 2,
            ..Entry::new(Kind::Batch)
        }
    }

    fn index(batches: &[Entry]) -> Vec<u8> {
        let head = Entry { first_line: 100, ..Entry::new(Kind::Head) };
        [head].iter().chain(batches).flat_map(Entry::encode).collect()
    }

    fn names(scan: &Scan) -> Vec<(Arc<str>, u64)> {
        scan.names().into_iter().map(|mark| (mark.name, mark.line)).collect()
    }

    fn scan(index: &[u8], bad: &[u64]) -> Scan {
        Scan::new(index, |batch| Ok::<_, ()>(!bad.contains(&batch.number))).unwrap()
    }

    #[test]
    fn only_the_last_batch_may_be_torn() {
        let synced = [batch(0, AFTER_SYNC), batch(1, AFTER_SYNC), batch(2, AFTER_SYNC)];
        let index = index(&synced);
        let whole = scan(&index, &[]);
        assert_eq!((whole.state(), whole.end(), whole.next_line()), (State::Open, 30, 106));
        let torn = scan(&index, &[2]);
        assert_eq!((torn.state(), torn.end(), torn.next_line()), (State::Open, 20, 104));
        assert_eq!(torn.index_end(), 3 * 64);
        let damaged = scan(&index, &[1]);
        assert_eq!((damaged.state(), damaged.end()), (State::Damaged, 10));
        assert_eq!(damaged.next_line(), 106, "a line number is never reused");
        for len in 0..index.len() {
            assert_ne!(scan(&index[..len], &[]).state(), State::Damaged, "cut at {len}");
        }
    }

    #[test]
    fn a_batch_without_its_names_is_not_whole() {
        let named = |number: u64, count: u32| {
            batch(number, AFTER_SYNC | count << crate::disk::segment::format::entry::BESIDE_SHIFT)
        };
        let name = |sequence| Entry::of_name("web", sequence).next().unwrap();
        let whole = [batch(0, AFTER_SYNC), name(5), named(1, 1), named(2, 0)];
        let seen = scan(&index(&whole), &[]);
        assert_eq!((seen.state(), seen.end()), (State::Open, 30));
        assert_eq!(names(&seen), [("web".into(), 5)]);
        assert_eq!(seen.index_end(), index(&whole).len() as u64);
        // The batch's entry was written, but not the entry of its name.
        let mut torn = index(&whole[..3]);
        torn[2 * ENTRY_BYTES] ^= 1;
        let seen = scan(&torn, &[]);
        assert_eq!((seen.state(), seen.end(), names(&seen)), (State::Open, 10, Vec::new()));
        // The entry of the name was written, but not the batch's bytes.
        let seen = scan(&index(&whole[..3]), &[1]);
        assert_eq!((seen.end(), names(&seen)), (10, Vec::new()));
        assert_eq!(seen.index_end(), 2 * ENTRY_BYTES as u64);
    }

    /// Such a batch has the number of the next line, which is also the first line of the next segment. Its names used
    /// to be lost.
    #[test]
    fn a_batch_of_names_alone_ends_a_segment() {
        let name = Entry::of_name("web", 5).next().unwrap();
        let names_only = Entry {
            bytes: 0,
            lines: 0,
            ..batch(1, AFTER_SYNC | 1 << crate::disk::segment::format::entry::BESIDE_SHIFT)
        };
        let mut seen = scan(&index(&[batch(0, AFTER_SYNC), name, names_only]), &[]);
        assert_eq!((seen.state(), seen.end(), seen.next_line()), (State::Open, 10, 102));
        seen.end_at(102);
        assert_eq!((seen.batches.len(), names(&seen)), (2, vec![("web".into(), 5)]));
        seen.end_at(100);
        assert_eq!((seen.batches.len(), names(&seen)), (0, Vec::new()));
    }

    #[test]
    fn without_syncs_several_batches_may_be_torn() {
        let index = index(&[batch(0, 0), batch(1, 0), batch(2, 0)]);
        let torn = scan(&index, &[1]);
        assert_eq!((torn.state(), torn.end()), (State::Open, 10));
    }

    #[test]
    fn a_seal_must_match_its_batches() {
        let seal =
            Entry { number: 2, offset: 20, lines: 4, first_line: 104, ..Entry::new(Kind::Seal) };
        let sealed = index(&[batch(0, 0), batch(1, 0), seal]);
        assert_eq!(scan(&sealed, &[]).state(), State::Sealed);
        assert_eq!(scan(&sealed, &[1]).state(), State::Damaged, "a sealed batch was synced");
        let wrong = index(&[batch(0, 0), seal]);
        assert_eq!(scan(&wrong, &[]).state(), State::Damaged);
    }

    #[test]
    fn a_segment_without_lines_is_damaged_unless_its_head_says_removed() {
        let seal =
            Entry { number: 2, offset: 20, lines: 4, first_line: 104, ..Entry::new(Kind::Seal) };
        let mut sealed = index(&[batch(0, 0), batch(1, 0), seal]);
        assert_eq!(Scan::removed(&sealed), None, "no removal is recorded");
        let lost = scan(&sealed, &[0, 1]);
        assert_eq!((lost.state(), lost.next_line()), (State::Damaged, 104));
        let head = Entry { first_line: 100, flags: REMOVED, ..Entry::new(Kind::Head) };
        sealed[..ENTRY_BYTES].copy_from_slice(&head.encode());
        let removed = Scan::removed(&sealed).unwrap();
        assert_eq!((removed.state(), removed.next_line()), (State::Removed, 104));
        assert_eq!((removed.first_line(), removed.end()), (Some(100), 0));
        // This segment failed and was never sealed.
        let removed = Scan::removed(&sealed[..3 * ENTRY_BYTES]).unwrap();
        assert_eq!((removed.state(), removed.next_line()), (State::Removed, 104));
        // The lines still exist, because a crash interrupted the removal.
        assert_eq!(scan(&sealed, &[]).state(), State::Sealed);
    }

    /// The entry of a batch after a sync proves that the earlier batches were stored, even if its own bytes are not
    /// whole. A file of lines that vanished, or was cut far before its end, used to count as a torn tail.
    #[test]
    fn losing_more_than_the_last_batch_is_damage() {
        let name = Entry::of_name("web", 6).next().unwrap();
        let named = batch(0, AFTER_SYNC | 1 << crate::disk::segment::format::entry::BESIDE_SHIFT);
        let index = index(&[name, named, batch(1, AFTER_SYNC), batch(2, AFTER_SYNC)]);
        let lost = scan(&index, &[0, 1, 2]);
        assert_eq!((lost.state(), lost.next_line()), (State::Damaged, 104));
        assert_eq!(names(&lost), [("web".into(), 6)], "its client was acknowledged");
        assert!(lost.has_first_batch());
        let cut = scan(&index, &[1, 2]);
        assert_eq!((cut.state(), cut.end(), cut.next_line()), (State::Damaged, 10, 104));
        assert_eq!(scan(&index, &[2]).state(), State::Open);
        assert_eq!(
            scan(&index[..3 * ENTRY_BYTES], &[0]).state(),
            State::Open,
            "the only batch may be torn"
        );
    }

    #[test]
    fn an_index_without_entries_is_empty_and_a_damaged_head_hides_no_batch() {
        assert_eq!(scan(&[], &[]).state(), State::Empty);
        assert_eq!(scan(&[0; 200], &[]).state(), State::Empty);
        let mut index = index(&[batch(0, AFTER_SYNC)]);
        index[0] ^= 1;
        let damaged = scan(&index, &[]);
        assert_eq!((damaged.state(), damaged.first_line()), (State::Damaged, Some(100)));
    }
}
