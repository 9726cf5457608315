//! The lines that a tool prints: by time and sender, which the index has, and by their content.

mod condition;
mod filter;
mod number;

pub(super) use filter::Sought;

use crate::{
    disk::segment::{
        format::record::StoredPart,
        reading::cursor::{Choice, Piece},
    },
    tool::shown::Shown,
};
use filter::Filter;

/// The lines that are printed, or only counted.
pub(super) struct Selection<'a> {
    pub(super) shown: &'a Shown,
    filter: Filter,
    /// Whether only their number is wanted.
    pub(super) is_counted: bool,
    /// Whether the numbers of the lines are wanted.
    pub(super) has_numbers: bool,
}

/// The selected lines of a piece.
pub(super) struct Selected {
    /// If the lines are only counted, it has no bytes.
    pub(super) piece: Piece<'static>,
    /// How many lines were compared with all conditions.
    pub(super) looked_at: u64,
}

impl<'a> Selection<'a> {
    /// Selects lines by time and sender.
    pub(super) fn shown(shown: &'a Shown) -> Selection<'a> {
        Selection { shown, filter: Filter::default(), is_counted: false, has_numbers: false }
    }

    /// Selects them by their content too.
    pub(super) fn sought(shown: &'a Shown, sought: &Sought, is_counted: bool) -> Selection<'a> {
        Selection { shown, filter: Filter::new(sought), is_counted, has_numbers: false }
    }

    /// Returns what a reader has to know of it, if senders and times matter.
    pub(super) fn choice(&self) -> Option<&dyn Choice> {
        let has_choice = self.shown.is_filter() || self.shown.has_origins();
        has_choice.then_some(self.shown as &dyn Choice)
    }

    /// Whether all lines are selected.
    pub(super) fn is_everything(&self) -> bool {
        !self.shown.is_filter() && self.filter.is_empty() && !self.is_counted
    }

    /// Selects lines of a piece.
    pub(super) fn select(&self, piece: &Piece<'_>) -> Selected {
        let mut found = Found { next: piece.numbers().next().unwrap_or(0), ..Found::default() };
        if piece.has_parts() {
            for (part, lines, count) in piece.parts() {
                if self.shown.wants(part) {
                    self.select_of(Some(part), lines, count, &mut found);
                }
                found.next += count;
            }
        } else {
            self.select_of(None, piece.lines(), piece.line_count, &mut found);
        }
        let Found { lines, numbers, parts, bytes, looked_at, .. } = found;
        let piece = Piece::selected(piece.time_ms, (lines, numbers), parts, bytes);
        Selected { piece, looked_at }
    }

    /// Selects lines that have one sender. `count` is their number.
    fn select_of(&self, part: Option<&StoredPart>, lines: &[u8], count: u64, found: &mut Found) {
        let (lines_before, bytes_before) = (found.lines, found.bytes.len());
        if self.filter.is_empty() {
            found.lines += count;
            if !self.is_counted {
                found.bytes.extend_from_slice(lines);
            }
            if self.has_numbers {
                found.numbers.extend(found.next..found.next + count);
            }
        } else {
            let (mut number, mut at) = (found.next, 0);
            found.looked_at += self.filter.find(lines, |line| {
                found.lines += 1;
                if self.has_numbers {
                    number += memchr::memchr_iter(b'\n', &lines[at..line.start]).count() as u64;
                    at = line.start;
                    found.numbers.push(number);
                }
                if !self.is_counted {
                    found.bytes.extend_from_slice(&lines[line]);
                }
            });
        }
        if let Some(part) = part
            && found.lines > lines_before
            && self.shown.has_origins()
        {
            let lines = found.lines - lines_before;
            let bytes = (found.bytes.len() - bytes_before) as u64;
            found.parts.push(StoredPart { lines, bytes, ..part.clone() });
        }
    }
}

#[derive(Default)]
struct Found {
    lines: u64,
    /// Their numbers, if they are wanted.
    numbers: Vec<u64>,
    /// The number of the first line of the part that is looked at.
    next: u64,
    parts: Vec<StoredPart>,
    bytes: Vec<u8>,
    looked_at: u64,
}
