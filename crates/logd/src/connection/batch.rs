//! Lines that were accepted and are not committed yet, on their way from a connection's pieces into
//! what a thread commits at once.

use std::ops::Range;

use clap::ValueEnum;

use crate::names::Mark;

/// What is one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Gather {
    /// All of a batch
    Batch,
    /// What each receive brought of it, one after the other
    Receive,
}

/// Lines that wait to be committed, of all connections of a thread.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) lines: Vec<u8>,
    pub(crate) line_count: u64,
    pub(crate) letters: Vec<u8>,
    pub(crate) letter_count: u64,
    /// Lines that are answered with it, and of which nothing is stored.
    pub(crate) refused_count: u64,
    /// Clients that named themselves and have lines in it.
    pub(crate) names: Vec<Mark>,
    /// Where a write ends and another begins, where all of it is not to be one.
    pub(crate) line_cuts: Vec<usize>,
    pub(crate) letter_cuts: Vec<usize>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.letters.is_empty() && self.refused_count == 0
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lines.len() + self.letters.len()
    }

    /// What comes from here on is another write.
    pub(crate) fn cut(&mut self) {
        let cut = |cuts: &mut Vec<usize>, end| {
            if end > cuts.last().copied().unwrap_or(0) {
                cuts.push(end);
            }
        };
        cut(&mut self.line_cuts, self.lines.len());
        cut(&mut self.letter_cuts, self.letters.len());
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
