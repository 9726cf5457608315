//! Finds where the newest lines of a stream begin, by the indexes alone: no line is read.
//!
//! An index may list a batch before it is whole. A reader that begins there finds it at a later look, so this is for
//! readers that follow a stream.

use crate::{
    disk::segment::{reading::source::Segments, scan::Scan},
    error::LogdError,
};

/// How many of the newest lines a reader wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) lines: u64,
    /// Whether they are counted before the newest batch, which the reader gets too. While that batch is not whole, a reader
    /// that began in it would find nothing.
    pub(crate) is_before_newest: bool,
    /// Their batches have no more bytes than this, but for the newest.
    pub(crate) bytes: u64,
}

/// Returns the first of the newest lines that a reader wants, if it is at the line `from`. The newest batch is always
/// among them, unless fewer of its lines are wanted.
pub(crate) fn begin_of_newest(
    segments: &impl Segments,
    from: u64,
    most: Most,
) -> Result<u64, LogdError> {
    let (mut wanted, mut begin, mut bytes) = (None, None, 0_u64);
    for place in (0..segments.count()).rev() {
        let listed = Scan::promised(&segments.open(place)?.index);
        for batch in listed.batches.iter().rev().filter(|batch| batch.lines > 0) {
            let end = batch.line_end();
            let last = if most.is_before_newest { batch.first_line } else { end };
            let wanted = *wanted.get_or_insert(from.max(last.saturating_sub(most.lines)));
            if end <= wanted {
                return Ok(begin.unwrap_or(wanted));
            }
            bytes = bytes.saturating_add(batch.bytes);
            match begin {
                Some(begin) if bytes > most.bytes => return Ok(begin),
                _ => begin = Some(batch.first_line.max(wanted)),
            }
        }
    }
    Ok(begin.unwrap_or(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        disk::segment::{reading::source::InMemory, tests::index_of_one},
        fuzzing::index_of,
    };

    #[track_caller]
    fn check(segments: &InMemory, from: u64, (lines, bytes): (u64, u64), begin: u64) {
        check_most(segments, from, Most { lines, is_before_newest: false, bytes }, begin);
    }

    #[track_caller]
    fn check_most(segments: &InMemory, from: u64, most: Most, begin: u64) {
        let found = begin_of_newest(segments, from, most).unwrap();
        assert_eq!(found, begin, "from {from}, at most {most:?}");
    }

    /// Two batches of two lines of 9 bytes.
    #[test]
    fn the_newest_lines_begin_at_a_limit_or_where_the_reader_is() {
        let batches = [b"12345678\n".repeat(2), b"12345678\n".repeat(2)];
        let mut segments = InMemory::default();
        segments.0.insert(0, (index_of(&batches, true, false), Some(batches.concat())));
        for (from, limits, begin) in [
            (0, (1, u64::MAX), 3),
            (0, (3, u64::MAX), 1),
            (0, (99, 36), 0),
            (0, (99, 35), 2),
            (0, (99, 0), 2),
            (0, (1, 0), 3),
            (1, (u64::MAX, u64::MAX), 1),
            (1, (u64::MAX, 20), 2),
            (3, (u64::MAX, 0), 3),
            (4, (u64::MAX, u64::MAX), 4),
            (9, (1, u64::MAX), 9),
        ] {
            check(&segments, from, limits, begin);
        }
        check(&InMemory::default(), 7, (1, 1), 7);
        for (from, lines, begin) in
            [(0, 0, 2), (0, 1, 1), (0, 9, 0), (1, 9, 1), (3, 1, 3), (9, 1, 9)]
        {
            let most = Most { lines, is_before_newest: true, bytes: u64::MAX };
            check_most(&segments, from, most, begin);
        }
    }

    /// Segments of one line of two bytes each; their lines are never looked at.
    #[test]
    fn the_newest_lines_may_be_in_several_segments() {
        let mut segments = InMemory::default();
        for serial in 0..6 {
            segments.0.insert(serial, (index_of_one(serial, 0), None));
        }
        check(&segments, 0, (4, u64::MAX), 2);
        check(&segments, 0, (u64::MAX, 6), 3);
        check(&segments, 5, (u64::MAX, 6), 5);
        check(&segments, 0, (u64::MAX, u64::MAX), 0);
    }
}
