//! Lines that were accepted and are not committed yet, on their way from a connection's pieces into
//! what a thread commits at once.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    clients::names::Mark,
    disk::segment::format::record::{Origin, Part},
    lines::letter,
};

/// Lines of a connection that come within this time have one time of arrival.
const MOMENT: Duration = Duration::from_millis(1);

/// Lines that wait to be committed, of all connections of a thread.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) lines: Vec<u8>,
    pub(crate) line_count: u64,
    /// Of these, lines that were wrapped.
    pub(crate) wrapped_count: u64,
    pub(crate) letters: Vec<u8>,
    /// Lines that were rejected. Several may share a record.
    pub(crate) letter_count: u64,
    pub(crate) letter_records: u64,
    /// The last record, while another line may join it.
    pub(crate) open_letter: Option<letter::Open>,
    /// Lines that are answered with it, and of which nothing is stored.
    pub(crate) refused_count: u64,
    /// Clients that named themselves and have lines in it.
    pub(crate) names: Vec<Mark>,
    /// Who sent which of the lines, in their order.
    pub(crate) parts: Vec<Part>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.letters.is_empty() && self.refused_count == 0
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lines.len() + self.letters.len()
    }

    /// Bytes of memory, which are far more than its lines' if many connections send few.
    pub(crate) fn held(&self) -> usize {
        self.bytes() + self.parts.len() * size_of::<Part>()
    }

    /// Notes who sent the lines that came since there were so many, of so many bytes; says how many.
    pub(super) fn note(
        &mut self,
        origin: &Arc<Origin>,
        at: Instant,
        before: (u64, usize),
    ) -> (u64, u64) {
        let (lines, bytes) = (self.line_count - before.0, (self.lines.len() - before.1) as u64);
        if lines == 0 {
            return (0, 0);
        }
        match self.parts.last_mut() {
            Some(last)
                if Arc::ptr_eq(&last.origin, origin)
                    && at.saturating_duration_since(last.at) < MOMENT =>
            {
                last.lines += lines;
                last.bytes += bytes;
            }
            _ => self.parts.push(Part { origin: origin.clone(), lines, bytes, at }),
        }
        (lines, bytes)
    }
}

/// Accepted lines that lie one after the other in a piece: they are copied at once.
pub(super) struct Run<'a> {
    pub(super) piece: &'a [u8],
    pub(super) place: Range<usize>,
}

impl Run<'_> {
    #[inline]
    pub(super) fn extend(&mut self, place: Range<usize>, batch: &mut Batch) {
        if place.start != self.place.end {
            self.copy(batch);
            self.place.start = place.start;
        }
        self.place.end = place.end;
    }

    /// Copies what there is. What comes after a gap begins anew.
    pub(super) fn copy(&mut self, batch: &mut Batch) {
        batch.lines.extend_from_slice(&self.piece[self.place.clone()]);
        self.place.start = self.place.end;
    }
}
