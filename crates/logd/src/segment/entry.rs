//! An entry of an index: 64 bytes, little-endian, with a checksum of its own.
//!
//! Entries lie at multiples of their size, so none crosses a sector, and one that is damaged hides
//! none of the others.

/// The size of an entry in bytes.
pub(crate) const ENTRY_BYTES: usize = 64;

/// Set in a batch's entry: every batch before it had been synced when it was written.
pub(crate) const AFTER_SYNC: u32 = 1;

/// Set in a head: retention removes the lines, or has. Without it lines that are not there are lost.
pub(crate) const REMOVED: u32 = 1;

/// By how much a batch's flags are shifted to give the number of names' entries right before it.
/// Without them the batch is not whole.
pub(crate) const NAMES_SHIFT: u32 = 8;

/// What an entry has of a name, in bytes.
const PIECE_BYTES: usize = 40;

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first entry: `number` is the segment's, `first_line` the number of its first line.
    Head,
    /// A batch: the `number`th of the segment, at `offset`, `bytes` long, with a checksum.
    Batch,
    /// A piece of a client's name, 40 bytes from place 16 on, before the batch that has its lines
    /// up to `number`. The flags' lower half is how long the name is, the upper which piece.
    Name,
    /// The last entry: `number` batches, `offset` bytes and `lines` lines are all; `first_line` is
    /// the number of the line that comes after them.
    Seal,
}

impl Kind {
    fn magic(self) -> [u8; 4] {
        match self {
            Kind::Head => *b"RLH1",
            Kind::Batch => *b"RLB1",
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
    /// Of the batch's bytes: CRC-32 as in zip and PNG.
    pub(crate) checksum: u32,
}

impl Entry {
    /// An entry that has nothing but its kind and the time.
    pub(crate) fn new(kind: Kind) -> Entry {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let time_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        Entry {
            kind,
            flags: 0,
            number: 0,
            offset: 0,
            bytes: 0,
            lines: 0,
            first_line: 0,
            time_ms,
            checksum: 0,
        }
    }

    /// How many entries of names stand right before this batch's.
    pub(crate) fn names(&self) -> usize {
        (self.flags >> NAMES_SHIFT) as usize
    }

    /// Of a batch: the number of the line that comes after its last.
    pub(crate) fn line_end(&self) -> u64 {
        self.first_line.saturating_add(self.lines)
    }

    /// Of a batch: whether it comes before this line. One without lines, which has names only, does
    /// where the line is the next.
    pub(crate) fn is_before(&self, line: u64) -> bool {
        self.first_line < line || self.line_end() <= line
    }

    /// The entries of a name whose lines are stored up to `sequence`.
    pub(crate) fn of_name(name: &str, sequence: u64) -> impl Iterator<Item = Entry> {
        name.as_bytes().chunks(PIECE_BYTES).enumerate().map(move |(place, piece)| {
            let mut bytes = [0; PIECE_BYTES];
            bytes[..piece.len()].copy_from_slice(piece);
            let word = |at: usize| {
                let eight = [0, 1, 2, 3, 4, 5, 6, 7].map(|place| bytes[at * 8 + place]);
                u64::from_le_bytes(eight)
            };
            Entry {
                flags: name.len() as u32 | (place as u32) << 16,
                number: sequence,
                offset: word(0),
                bytes: word(1),
                lines: word(2),
                first_line: word(3),
                time_ms: word(4),
                ..Entry::new(Kind::Name)
            }
        })
    }

    /// Puts names together from their entries; what does not fit together is left out.
    pub(crate) fn names_of(entries: &[Entry]) -> Vec<(String, u64)> {
        let mut names = Vec::new();
        let mut bytes = Vec::new();
        for entry in entries {
            if entry.flags >> 16 == 0 {
                bytes.clear();
            }
            let words = [entry.offset, entry.bytes, entry.lines, entry.first_line, entry.time_ms];
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
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

    /// As it is written.
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

    /// As it is read; nothing where it is not whole, or none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Entry> {
        let bytes: &[u8; ENTRY_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|place| bytes[at + place]));
        let number = |place: usize| {
            let at = 8 + place * 8;
            u64::from(word(at)) | u64::from(word(at + 4)) << 32
        };
        if word(60) != crc32fast::hash(&bytes[..60]) {
            return None;
        }
        let kinds = [Kind::Head, Kind::Batch, Kind::Name, Kind::Seal];
        let kind = kinds.into_iter().find(|kind| kind.magic() == bytes[..4])?;
        Some(Entry {
            kind,
            flags: word(4),
            number: number(0),
            offset: number(1),
            bytes: number(2),
            lines: number(3),
            first_line: number(4),
            time_ms: number(5),
            checksum: word(56),
        })
    }
}

/// The index of a segment of these batches.
pub(crate) fn index_of(batches: &[Vec<u8>], is_synced: bool, is_sealed: bool) -> Vec<u8> {
    let mut index = Entry::new(Kind::Head).encode().to_vec();
    let (mut offset, mut first_line) = (0, 0);
    for (number, bytes) in batches.iter().enumerate() {
        let batch = Entry {
            flags: if is_synced { AFTER_SYNC } else { 0 },
            number: number as u64,
            offset,
            bytes: bytes.len() as u64,
            lines: memchr::memchr_iter(b'\n', bytes).count() as u64,
            first_line,
            checksum: crc32fast::hash(bytes),
            ..Entry::new(Kind::Batch)
        };
        offset += batch.bytes;
        first_line += batch.lines;
        index.extend_from_slice(&batch.encode());
    }
    if is_sealed {
        let seal = Entry {
            number: batches.len() as u64,
            offset,
            lines: first_line,
            first_line,
            ..Entry::new(Kind::Seal)
        };
        index.extend_from_slice(&seal.encode());
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_is_written_is_read_and_every_bit_counts() {
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
