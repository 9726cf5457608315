//! An entry of an index: 64 bytes, little-endian, with a checksum of its own.
//!
//! Entries lie at multiples of their size, so none crosses a sector, and one that is damaged hides
//! none of the others.

/// The size of an entry in bytes.
pub(crate) const ENTRY_BYTES: usize = 64;

/// Set in a batch's entry: every batch before it had been synced when it was written.
pub(crate) const AFTER_SYNC: u32 = 1;

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first entry: `number` is the segment's, `first_line` the number of its first line.
    Head,
    /// A batch: the `number`th of the segment, at `offset`, `bytes` long, with a checksum.
    Batch,
    /// The last entry: `number` batches, `offset` bytes and `lines` lines are all; `first_line` is
    /// the number of the line that comes after them.
    Seal,
}

impl Kind {
    fn magic(self) -> [u8; 4] {
        match self {
            Kind::Head => *b"RLH1",
            Kind::Batch => *b"RLB1",
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
        let kinds = [Kind::Head, Kind::Batch, Kind::Seal];
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

#[cfg(test)]
mod tests {
    use super::*;

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
