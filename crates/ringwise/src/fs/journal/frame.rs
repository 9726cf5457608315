//! The bytes of a journal: the heading of a segment, and the frames of records behind it.
//!
//! A segment begins with a [`Heading`]. Each batch of records that was written and synced together follows
//! as one frame: a header of 24 bytes, then for each record its length (4 bytes) and its bytes. All numbers
//! are little-endian. A frame is stored as a whole or counts as missing, since its header has the checksum
//! of its records.
//!
//! The header has a checksum of its own, over the segment's salt and the number of the frame's first record.
//! So bytes of another segment, or of an earlier use of the disk's blocks, never pass for a frame. The
//! length in a header that passes can be trusted.
//!
//! It does no I/O and keeps no state.

/// The bytes of a segment before its first frame.
pub(super) const HEADING_BYTES: usize = 28;
/// The bytes of a frame before its records.
pub(super) const FRAME_BYTES: usize = 24;
/// The bytes of a record's length.
const LENGTH_BYTES: usize = 4;
/// The format and its version.
const MAGIC: [u8; 8] = *b"rwjrnl01";

/// What a segment begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heading {
    /// The number of the segment's first record.
    pub(super) first: u64,
    /// Drawn for each segment, and part of the checksums of its frames.
    pub(super) salt: u64,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The number of its first record.
    pub(super) first: u64,
    /// How many records it has; never 0.
    pub(super) count: u32,
    body_bytes: u32,
    body_sum: u32,
}

/// What the bytes at the place of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// A frame, with all its records.
    Whole(Frame),
    /// Unknown: so many bytes are needed to tell.
    Needs(usize),
    /// Something else.
    Wrong,
}

/// Records that are gathered to be written as one frame.
#[derive(Debug)]
pub(super) struct Batch {
    first: u64,
    count: u32,
    /// Room for the header, and the records.
    bytes: Vec<u8>,
}

impl Heading {
    pub(super) fn to_bytes(self) -> [u8; HEADING_BYTES] {
        let mut bytes = [0; HEADING_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.salt.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..24]);
        bytes[24..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The heading in the first bytes of a segment.
    pub(super) fn parse(bytes: &[u8]) -> Option<Heading> {
        let bytes = bytes.get(..HEADING_BYTES)?;
        let is_good = bytes[..8] == MAGIC && u32_at(bytes, 24) == crc32fast::hash(&bytes[..24]);
        is_good.then(|| Heading { first: u64_at(bytes, 8), salt: u64_at(bytes, 16) })
    }
}

impl Frame {
    fn to_bytes(self, salt: u64) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[..8].copy_from_slice(&self.first.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.count.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.body_sum.to_le_bytes());
        let sum = salted_sum(salt, &bytes[..20]);
        bytes[20..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The header in the first bytes, if it is one of this segment.
    fn parse(bytes: &[u8], salt: u64) -> Option<Frame> {
        let bytes = bytes.get(..FRAME_BYTES)?;
        let frame = Frame {
            first: u64_at(bytes, 0),
            count: u32_at(bytes, 8),
            body_bytes: u32_at(bytes, 12),
            body_sum: u32_at(bytes, 16),
        };
        let is_good = frame.count > 0 && u32_at(bytes, 20) == salted_sum(salt, &bytes[..20]);
        is_good.then_some(frame)
    }

    /// Looks at bytes where a frame is to begin, whose first record has the number `first`.
    pub(super) fn look(bytes: &[u8], salt: u64, first: u64) -> Look {
        if bytes.len() < FRAME_BYTES {
            return Look::Needs(FRAME_BYTES);
        }
        match Frame::parse(bytes, salt).filter(|frame| frame.first == first) {
            None => Look::Wrong,
            Some(frame) => match bytes.get(FRAME_BYTES..frame.len()) {
                None => Look::Needs(frame.len()),
                Some(body) if crc32fast::hash(body) == frame.body_sum => Look::Whole(frame),
                Some(_) => Look::Wrong,
            },
        }
    }

    /// Whether somewhere in these bytes a later frame begins than one whose first record has the number
    /// `first`. Such a frame was written only after everything before it was durable.
    pub(super) fn has_later(bytes: &[u8], salt: u64, first: u64) -> bool {
        // No segment has more records, and few bytes have a number in this range by chance.
        let is_near = |number: u64| number > first && number - first <= u64::from(u32::MAX);
        bytes
            .windows(FRAME_BYTES)
            .any(|header| is_near(u64_at(header, 0)) && Frame::parse(header, salt).is_some())
    }

    /// Its bytes, header and records.
    pub(super) fn len(&self) -> usize {
        FRAME_BYTES + self.body_bytes as usize
    }

    /// The number after its last record.
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }
}

impl Batch {
    /// An empty batch in this memory.
    pub(super) fn new(first: u64, mut bytes: Vec<u8>) -> Batch {
        bytes.clear();
        bytes.resize(FRAME_BYTES, 0);
        Batch { first, count: 0, bytes }
    }

    /// Adds a record of less than 4 GiB, and gives its number.
    pub(super) fn push(&mut self, record: &[u8]) -> u64 {
        let number = self.end();
        self.bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(record);
        self.count += 1;
        number
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of its first record.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The number after its last record.
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// The bytes of its frame.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Its length with another record.
    pub(super) fn len_with(&self, record: &[u8]) -> usize {
        self.bytes.len().saturating_add(LENGTH_BYTES).saturating_add(record.len())
    }

    /// Makes it a frame of the segment with this salt.
    pub(super) fn seal(mut self, salt: u64) -> Vec<u8> {
        let (header, body) = self.bytes.split_at_mut(FRAME_BYTES);
        let frame = Frame {
            first: self.first,
            count: self.count,
            body_bytes: body.len() as u32,
            body_sum: crc32fast::hash(body),
        };
        header.copy_from_slice(&frame.to_bytes(salt));
        self.bytes
    }
}

/// Takes the first record off the records of a frame.
pub(super) fn split_record(records: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = records.split_at_checked(LENGTH_BYTES)?;
    rest.split_at_checked(u32_at(len, 0) as usize)
}

fn salted_sum(salt: u64, bytes: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&salt.to_le_bytes());
    sum.update(bytes);
    sum.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SALT: u64 = 0x5a17;

    /// Frames of these records as they follow each other.
    fn frames(first: u64, batches: &[Vec<Vec<u8>>]) -> Vec<u8> {
        let (mut bytes, mut next) = (Vec::new(), first);
        for records in batches {
            let mut batch = Batch::new(next, Vec::new());
            for record in records {
                batch.push(record);
            }
            next = batch.end();
            bytes.extend(batch.seal(SALT));
        }
        bytes
    }

    /// The records of all frames up to the first that is wrong, and where that is.
    fn walk(bytes: &[u8], first: u64) -> (Vec<Vec<u8>>, usize) {
        let (mut records, mut at, mut next) = (Vec::new(), 0, first);
        while let Look::Whole(frame) = Frame::look(&bytes[at..], SALT, next) {
            let mut body = &bytes[at + FRAME_BYTES..at + frame.len()];
            for _ in 0..frame.count {
                let (record, rest) = split_record(body).unwrap();
                records.push(record.to_vec());
                body = rest;
            }
            assert!(body.is_empty());
            (at, next) = (at + frame.len(), frame.end());
        }
        (records, at)
    }

    fn batches() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
        let record = prop::collection::vec(any::<u8>(), 0..40);
        prop::collection::vec(prop::collection::vec(record, 1..5), 1..6)
    }

    proptest! {
        #[test]
        fn what_was_sealed_is_read_back(batches in batches(), first in any::<u32>()) {
            let bytes = frames(first.into(), &batches);
            let (records, end) = walk(&bytes, first.into());
            prop_assert_eq!(end, bytes.len());
            prop_assert_eq!(records, batches.concat());
        }

        /// Whatever is changed, cut off or lost: what is read is a beginning of what was written.
        #[test]
        fn damage_never_makes_a_record(
            batches in batches(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 1..4),
            cut in any::<prop::sample::Index>(),
            is_cut in any::<bool>(),
        ) {
            let mut bytes = frames(7, &batches);
            let mut first_change = bytes.len();
            for (place, change) in changes {
                let at = place.index(bytes.len());
                bytes[at] ^= change;
                first_change = first_change.min(at);
            }
            if is_cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            let (records, end) = walk(&bytes, 7);
            prop_assert!(batches.concat().starts_with(&records));
            // Two changes of one byte may have undone each other; if not, the frame of the first is wrong.
            prop_assert!(end <= first_change || frames(7, &batches).starts_with(&bytes[..end]));
        }

        #[test]
        fn bytes_of_another_segment_are_no_frame(batches in batches(), salt in any::<u64>()) {
            prop_assume!(salt != SALT);
            let bytes = frames(0, &batches);
            prop_assert_eq!(Frame::look(&bytes, salt, 0), Look::Wrong);
            prop_assert!(!Frame::has_later(&bytes, salt, 0));
        }

        #[test]
        fn a_heading_is_whole_or_none(first in any::<u64>(), salt in any::<u64>(),
            at in 0..HEADING_BYTES, change in 1_u8..) {
            let heading = Heading { first, salt };
            let mut bytes = heading.to_bytes();
            prop_assert_eq!(Heading::parse(&bytes), Some(heading));
            bytes[at] ^= change;
            prop_assert_eq!(Heading::parse(&bytes), None);
            prop_assert_eq!(Heading::parse(&bytes[..at]), None);
        }
    }

    #[test]
    fn a_later_frame_tells_damage_from_a_torn_end() {
        let record = |byte: u8| vec![vec![byte; 30]];
        let mut bytes = frames(0, &[record(1), record(2), record(3)]);
        let len = bytes.len() / 3;
        bytes[len + FRAME_BYTES + 9] ^= 1;
        assert_eq!(walk(&bytes, 0).1, len);
        assert!(Frame::has_later(&bytes[len + 1..], SALT, 1));
        assert!(!Frame::has_later(&bytes[len + 1..2 * len + FRAME_BYTES - 1], SALT, 1));
        assert!(!Frame::has_later(&bytes[len + 1..], SALT, 2), "the last is not later than itself");
    }

    #[test]
    fn a_number_that_was_given_before_is_not_given_again() {
        let bytes = frames(5, &[vec![b"five".to_vec()]]);
        assert!(matches!(Frame::look(&bytes, SALT, 5), Look::Whole(_)));
        assert_eq!(Frame::look(&bytes, SALT, 6), Look::Wrong);
        assert_eq!(Frame::look(&[0; 64], SALT, 0), Look::Wrong, "a hole is no frame");
        assert_eq!(Frame::look(&bytes[..20], SALT, 5), Look::Needs(FRAME_BYTES));
        assert_eq!(Frame::look(&bytes[..25], SALT, 5), Look::Needs(bytes.len()));
    }
}
