//! Reads the batches of one segment that a caller wants, in order.
//!
//! The index has the times and senders of all lines, so batches without a wanted line are not read. A segment whose
//! first and last entry are far from the wanted times is not even opened. `reader` goes through the segments of a
//! stream.

use std::{borrow::Cow, ops::Range, vec::IntoIter};

use crate::{
    disk::segment::{
        format::{entry::Entry, record::StoredPart},
        reading::{
            source::Segments,
            view::{Report, Segment},
        },
        scan::{Origins, Scan},
    },
    error::LogdError,
};

/// How far the wall clock may have been wrong within a segment. Its first and last entry bound the times in it only if
/// nobody set the clock meanwhile, so segments that are nearer to the wanted times are opened.
const CLOCK_ERROR_MS: u64 = 24 * 3600 * 1000;

/// The lines that a caller wants, by what the index says of them.
pub(crate) trait Choice: Sync {
    /// The times at which they arrived, in milliseconds since 1970.
    fn times_ms(&self) -> Range<u64>;

    /// Whether these lines are wanted.
    fn wants(&self, part: &StoredPart) -> bool;
}

/// Finds the line at which a segment ends because the next segment has the following lines. It is the first line of the
/// nearest later segment for which that is known.
pub(crate) fn until_line(segments: &impl Segments, place: usize) -> Result<u64, LogdError> {
    for later in place + 1..segments.count() {
        if let Some(head) = segments.head(later)? {
            return Ok(head.first_line);
        }
        // The head of this segment is damaged, but it may have batches.
        if let Some(first) = segments.open(later)?.view(0, u64::MAX)?.first_line() {
            return Ok(first);
        }
    }
    Ok(u64::MAX)
}

/// The numbers of the lines of a piece.
enum Numbers {
    /// They follow one another.
    From(u64),
    Of(Vec<u64>),
}

/// A batch of lines for the caller.
pub(crate) struct Piece<'a> {
    /// When the batch began, in milliseconds since 1970.
    pub(crate) time_ms: u64,
    /// The lines that are missing before it.
    pub(crate) missing: Range<u64>,
    /// The number of lines in it.
    pub(crate) line_count: u64,
    /// The number of each line, if they do not follow one another.
    numbers: Numbers,
    /// The senders of its lines, if the reader was asked for them.
    parts: Vec<StoredPart>,
    bytes: Cow<'a, [u8]>,
    /// The number of lines at its start that the caller does not want.
    before: u64,
}

impl Piece<'_> {
    /// Makes a piece of lines that were selected from another one. Without numbers nobody may ask for them.
    pub(crate) fn selected(
        time_ms: u64,
        (line_count, numbers): (u64, Vec<u64>),
        parts: Vec<StoredPart>,
        bytes: Vec<u8>,
    ) -> Piece<'static> {
        let (bytes, numbers) = (bytes.into(), Numbers::Of(numbers));
        Piece { time_ms, missing: 0..0, line_count, numbers, parts, bytes, before: 0 }
    }

    /// Returns the numbers of its lines in their stream, from 0.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        let (from, numbers) = match &self.numbers {
            Numbers::From(first) => (*first..first + self.line_count, &[][..]),
            Numbers::Of(numbers) => (0..0, &numbers[..]),
        };
        from.chain(numbers.iter().copied())
    }

    /// Returns its lines, from the first wanted one on.
    pub(crate) fn lines(&self) -> &[u8] {
        after_lines(&self.bytes, self.before)
    }

    /// Whether the senders of its lines are known.
    pub(crate) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Returns the lines of each part, from the first wanted one on, and their number.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&StoredPart, &[u8], u64)> {
        let (mut rest, mut before) = (&self.bytes[..], self.before);
        self.parts.iter().map(move |part| {
            let (own, after) = rest.split_at(rest.len().min(part.bytes as usize));
            rest = after;
            let skipped = before.min(part.lines);
            before -= skipped;
            (part, after_lines(own, skipped), part.lines - skipped)
        })
    }

    /// Returns about how much memory it has.
    pub(crate) fn memory_bytes(&self) -> usize {
        let numbers = match &self.numbers {
            Numbers::From(_) => 0,
            Numbers::Of(numbers) => size_of_val(&**numbers),
        };
        self.bytes.len() + size_of_val(&*self.parts) + numbers + size_of::<Piece<'_>>()
    }

    /// Copies its bytes to a buffer.
    pub(crate) fn into_owned(self, mut buffer: Vec<u8>) -> Piece<'static> {
        buffer.clear();
        buffer.extend_from_slice(&self.bytes);
        let Piece { time_ms, missing, line_count, numbers, parts, before, .. } = self;
        Piece { time_ms, missing, line_count, numbers, parts, bytes: buffer.into(), before }
    }

    /// Returns the memory of its bytes.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.bytes.into_owned()
    }
}

/// Returns the bytes after the first `count` lines.
pub(crate) fn after_lines(bytes: &[u8], count: u64) -> &[u8] {
    &bytes[first_lines(bytes, count).len()..]
}

/// Returns the first `count` lines.
pub(crate) fn first_lines(bytes: &[u8], count: u64) -> &[u8] {
    let Some(last) = count.checked_sub(1) else { return &[] };
    let end = memchr::memchr_iter(b'\n', bytes).nth(last as usize);
    end.map_or(bytes, |end| &bytes[..=end])
}

/// A segment, opened or not.
pub(crate) enum Opened {
    /// No line in it is wanted. `next` is the number of the line after its last one.
    Passed {
        report: Report,
        next: u64,
    },
    Cursor(Box<Cursor>),
}

/// A segment that is being read.
pub(crate) struct Cursor {
    segment: Segment,
    /// The number of the next line.
    next: u64,
    until_line: u64,
    /// The next batches.
    batches: IntoIter<Entry>,
    origins: Origins,
    /// Whether the batches were checked. Before the check they are the batches that the index lists.
    are_checked: bool,
}

impl Cursor {
    /// Opens the segment at `place`, to read from the line `next` on.
    pub(crate) fn open(
        segments: &impl Segments,
        place: usize,
        next: u64,
        choice: Option<&dyn Choice>,
    ) -> Result<Opened, LogdError> {
        if let Some(choice) = choice
            && let Some(report) = pass(segments, place, &choice.times_ms())?
        {
            return Ok(report);
        }
        let until_line = until_line(segments, place)?;
        let segment = segments.open(place)?;
        let mut promised = Scan::promised(&segment.index);
        let batches = std::mem::take(&mut promised.batches).into_iter();
        let origins = promised.into_origins();
        let are_checked = false;
        let cursor = Cursor { segment, next, until_line, batches, origins, are_checked };
        Ok(Opened::Cursor(Box::new(cursor)))
    }

    /// Whether no file of the segment was found.
    pub(crate) fn is_absent(&self) -> bool {
        self.segment.is_absent()
    }

    /// Returns the number of the next line.
    pub(crate) fn next_line(&self) -> u64 {
        self.next
    }

    /// Returns how many bytes of lines were read, or unpacked, so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.segment.read_bytes()
    }

    /// Reads the next batch. It stops at the first one that is not whole. A [check](Self::check) finds those after it.
    pub(crate) fn next(
        &mut self,
        choice: Option<&dyn Choice>,
    ) -> Result<Option<Piece<'_>>, LogdError> {
        let Some((batch, parts)) = self.next_wanted(choice) else { return Ok(None) };
        let Some(bytes) = self.segment.bytes_of(&batch, self.batches.as_slice())? else {
            self.batches = Vec::new().into_iter();
            return Ok(None);
        };
        let from = std::mem::replace(&mut self.next, batch.line_end());
        let before = from.saturating_sub(batch.first_line);
        Ok(Some(Piece {
            time_ms: batch.time_ms,
            missing: from..from.max(batch.first_line),
            line_count: batch.lines.saturating_sub(before),
            numbers: Numbers::From(from.max(batch.first_line)),
            parts,
            bytes: bytes.into(),
            before,
        }))
    }

    /// Finds the next batch with a wanted line, without reading any.
    fn next_wanted(&mut self, choice: Option<&dyn Choice>) -> Option<(Entry, Vec<StoredPart>)> {
        let since_ms = choice.map_or(0, |choice| choice.times_ms().start);
        for batch in self.batches.by_ref() {
            if !batch.is_before(self.until_line) || batch.line_end() <= self.next {
                continue;
            }
            // Its lines arrived before its entry was written.
            if batch.time_ms >= since_ms {
                let Some(choice) = choice else { return Some((batch, Vec::new())) };
                let parts = self.origins.of(&batch);
                if parts.iter().any(|part| choice.wants(part)) {
                    return Some((batch, parts));
                }
            }
            self.next = batch.line_end();
        }
        None
    }

    /// Checks the remaining batches, once. After that it returns nothing.
    pub(crate) fn check(&mut self, is_last: bool) -> Result<Option<Report>, LogdError> {
        if std::mem::replace(&mut self.are_checked, true) {
            return Ok(None);
        }
        let view = self.segment.view(self.next, self.until_line)?;
        let report = Report::new(&view, is_last);
        self.batches = view.batches().copied().collect::<Vec<_>>().into_iter();
        self.origins = view.into_origins();
        Ok(Some(report))
    }
}

/// Passes a segment over if all its lines arrived long before or after the wanted times.
fn pass(
    segments: &impl Segments,
    place: usize,
    times_ms: &Range<u64>,
) -> Result<Option<Opened>, LogdError> {
    if *times_ms == (0..u64::MAX) {
        return Ok(None);
    }
    let ends = segments.ends(place)?;
    let (Some(head), Some(seal)) = (ends.head, ends.seal) else { return Ok(None) };
    let first_ms = head.time_ms.min(seal.time_ms).saturating_sub(CLOCK_ERROR_MS);
    let last_ms = head.time_ms.max(seal.time_ms).saturating_add(CLOCK_ERROR_MS);
    let is_far = last_ms < times_ms.start || first_ms >= times_ms.end;
    Ok(is_far.then(|| {
        let report = Report::passed(segments.name(place), &head, &seal);
        Opened::Passed { report, next: seal.first_line }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_skipped_within_a_batch() {
        assert_eq!(after_lines(b"1\n2\n3\n", 0), b"1\n2\n3\n");
        assert_eq!(after_lines(b"1\n2\n3\n", 2), b"3\n");
        assert_eq!(after_lines(b"1\n2\n3\n", 3), b"");
        assert_eq!(after_lines(b"1\n2\n3\n", 4), b"");
        assert_eq!(first_lines(b"1\n2\n3\n", 2), b"1\n2\n");
    }
}
