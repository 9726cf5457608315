//! An entry of an index: 64 bytes, little-endian, with a checksum.
//!
//! Entries lie at multiples of their size. So none crosses a sector, and a damaged entry does not hide others.

use crate::disk::segment::now_ms;

/// The size of an entry in bytes.
pub(crate) const ENTRY_BYTES: usize = 64;

/// A flag of a batch's entry: all earlier batches had been synced when this entry was written.
pub(crate) const AFTER_SYNC: u32 = 1;

/// A flag of a head: retention is removing the lines or has removed them. Without it missing lines are a loss.
pub(crate) const REMOVED: u32 = 1;

/// Shifts a batch's flags to the number of entries of records, or of names, right before it. The batch is not whole
/// without those entries.
pub(crate) const BESIDE_SHIFT: u32 = 8;

/// Bytes of records in one entry.
const PIECE_BYTES: usize = 48;

/// The kind of an entry, and the meaning of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first entry. `number` is the number of the segment, `first_line` the number of its first line.
    Head,
    /// A batch. `number` is its place in the segment. It begins at `offset`, is `bytes` long and has a checksum.
    Batch,
    /// A piece of the [records](super::record) of the next batch: up to 48 bytes from byte 8 on. The flags are their
    /// number.
    Records,
    /// A piece of a client's name, as earlier versions wrote it: 40 bytes from byte 16 on, before the batch with the
    /// client's lines up to `number`. The lower half of the flags is the length of the name, the upper half the number
    /// of the piece.
    Name,
    /// The last entry. `number`, `offset` and `lines` are the totals of batches, bytes and lines. `first_line` is the
    /// number of the line after them.
    Seal,
}

impl Kind {
    fn magic(self) -> [u8; 4] {
        match self {
            Kind::Head => *b"RLH1",
            Kind::Batch => *b"RLB1",
            Kind::Records => *b"RLR1",
            Kind::Name => *b"RLN1",
            Kind::Seal => *b"RLS1",
        }
    }
}

/// An entry of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) flags: u32,
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) lines: u64,
    pub(crate) first_line: u64,
    /// Milliseconds since 1970.
    pub(crate) time_ms: u64,
    /// The CRC-32 of the batch's bytes, as in zip and PNG.
    pub(crate) checksum: u32,
}

impl Entry {
    /// Makes an entry with only its kind and the time.
    pub(crate) fn new(kind: Kind) -> Entry {
        Entry {
            kind,
            flags: 0,
            number: 0,
            offset: 0,
            bytes: 0,
            lines: 0,
            first_line: 0,
            time_ms: now_ms(),
            checksum: 0,
        }
    }

    /// The number of entries of records or names right before this batch.
    pub(crate) fn beside(&self) -> usize {
        (self.flags >> BESIDE_SHIFT) as usize
    }

    /// The number of the line after the last line of a batch.
    pub(crate) fn line_end(&self) -> u64 {
        self.first_line.saturating_add(self.lines)
    }

    /// Whether a batch comes before this line. A batch of names alone also does if `line` is its next line.
    pub(crate) fn is_before(&self, line: u64) -> bool {
        self.first_line < line || self.line_end() <= line
    }

    /// Makes the entries of a batch's records.
    pub(crate) fn of_records(bytes: &[u8]) -> impl Iterator<Item = Entry> {
        bytes.chunks(PIECE_BYTES).map(|piece| {
            let mut bytes = [0; ENTRY_BYTES];
            bytes[8..][..piece.len()].copy_from_slice(piece);
            Entry {
                kind: Kind::Records,
                flags: piece.len() as u32,
                ..Entry::read(Kind::Records, &bytes)
            }
        })
    }

    /// Joins the records in a batch's entries.
    pub(crate) fn records_of(entries: &[Entry]) -> Vec<u8> {
        let mut records = Vec::new();
        for entry in entries.iter().filter(|entry| entry.kind == Kind::Records) {
            let len = (entry.flags as usize).min(PIECE_BYTES);
            records.extend_from_slice(&entry.encode()[8..][..len]);
        }
        records
    }

    /// Joins names from entries of earlier versions. Entries that do not fit together are left out.
    pub(crate) fn names_of(entries: &[Entry]) -> Vec<(String, u64)> {
        let mut names = Vec::new();
        let mut bytes = Vec::new();
        for entry in entries.iter().filter(|entry| entry.kind == Kind::Name) {
            if entry.flags >> 16 == 0 {
                bytes.clear();
            }
            bytes.extend_from_slice(&entry.encode()[16..56]);
            let len = (entry.flags & 0xffff) as usize;
            if bytes.len() >= len
                && let Ok(name) = std::str::from_utf8(&bytes[..len])
            {
                names.push((name.to_owned(), entry.number));
                bytes.clear();
            }
        }
        names
    }

    /// Encodes the entry.
    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&self.kind.magic());
        bytes[4..8].copy_from_slice(&self.flags.to_le_bytes());
        let numbers =
            [self.number, self.offset, self.bytes, self.lines, self.first_line, self.time_ms];
        for (place, number) in numbers.iter().enumerate() {
            bytes[8 + place * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[56..60].copy_from_slice(&self.checksum.to_le_bytes());
        let own = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// Decodes an entry. Returns nothing if the bytes are not a valid entry.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Entry> {
        let bytes: &[u8; ENTRY_BYTES] = bytes.try_into().ok()?;
        if bytes[60..] != crc32fast::hash(&bytes[..60]).to_le_bytes() {
            return None;
        }
        let kinds = [Kind::Head, Kind::Batch, Kind::Records, Kind::Name, Kind::Seal];
        let kind = kinds.into_iter().find(|kind| kind.magic() == bytes[..4])?;
        Some(Entry::read(kind, bytes))
    }

    pub(crate) fn read(kind: Kind, bytes: &[u8; ENTRY_BYTES]) -> Entry {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|place| bytes[at + place]));
        let number = |place: usize| {
            let at = 8 + place * 8;
            u64::from(word(at)) | u64::from(word(at + 4)) << 32
        };
        Entry {
            kind,
            flags: word(4),
            number: number(0),
            offset: number(1),
            bytes: number(2),
            lines: number(3),
            first_line: number(4),
            time_ms: number(5),
            checksum: word(56),
        }
    }
}

/// The first and the last entry of an index. They say whether the segment has ended, without the entries between.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(crate) head: Option<Entry>,
    pub(crate) seal: Option<Entry>,
}

impl Ends {
    /// Reads them from an index of `len` bytes. `read` reads the entry at an offset.
    ///
    /// # Errors
    ///
    /// The error of `read`.
    pub(crate) fn read<E>(
        len: u64,
        mut read: impl FnMut(u64) -> Result<Vec<u8>, E>,
    ) -> Result<Ends, E> {
        let Some(last) = len.checked_sub(ENTRY_BYTES as u64) else { return Ok(Ends::default()) };
        let mut entry = |start, kind| {
            let bytes = read(start)?;
            Ok(Entry::decode(&bytes).filter(|entry| entry.kind == kind))
        };
        Ok(Ends { head: entry(0, Kind::Head)?, seal: entry(last, Kind::Seal)? })
    }

    /// Whether retention recorded that the lines go.
    pub(crate) fn is_marked(&self) -> bool {
        self.head.is_some_and(|head| head.flags & REMOVED != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_any_length_come_back() {
        for len in [0, 1, 47, 48, 49, 500] {
            let records: Vec<u8> = (0..len).map(|place| place as u8).collect();
            let read: Vec<Entry> = Entry::of_records(&records)
                .map(|entry| Entry::decode(&entry.encode()).unwrap())
                .collect();
            assert_eq!(read.len(), records.len().div_ceil(48));
            assert_eq!(Entry::records_of(&read), records);
        }
    }

    #[test]
    fn a_name_of_any_length_comes_back() {
        for len in [1, 39, 40, 41, 80, 160] {
            let name: String = ('a'..='z').cycle().take(len).collect();
            let entries: Vec<Entry> =
                Entry::of_name("first", 1).chain(Entry::of_name(&name, u64::MAX)).collect();
            let read: Vec<Entry> =
                entries.iter().map(|entry| Entry::decode(&entry.encode()).unwrap()).collect();
            assert_eq!(read, entries);
            let expected = [("first".to_owned(), 1), (name, u64::MAX)];
            assert_eq!(Entry::names_of(&read), expected);
        }
    }

    #[test]
    fn an_entry_is_read_as_written_and_any_flipped_bit_is_found() {
        let entry = Entry {
            flags: AFTER_SYNC,
            number: 1,
            offset: u64::MAX,
            bytes: 1 << 40,
            lines: 7,
            first_line: 1 << 33,
            checksum: 0xdead_beef,
            ..Entry::new(Kind::Batch)
        };
        let bytes = entry.encode();
        assert_eq!(Entry::decode(&bytes), Some(entry));
        for bit in 0..ENTRY_BYTES * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Entry::decode(&bytes), None, "bit {bit}");
        }
        assert_eq!(Entry::decode(&bytes[..63]), None);
        assert_eq!(Entry::decode(&[0; ENTRY_BYTES]), None);
    }
}
