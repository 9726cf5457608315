//! The events of a simulation as text: one line for each event, the same for the same seed.

use std::{collections::VecDeque, fmt};

/// The most lines that are kept; older ones are dropped.
const LINES_MAX: usize = 1 << 16;

/// The lines.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    lines: VecDeque<String>,
    dropped: u64,
}

impl Trace {
    pub(crate) fn note(&mut self, now_ns: u64, what: fmt::Arguments<'_>) {
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back(format!("{now_ns:>12} {what}"));
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dropped > 0 {
            writeln!(f, "({} earlier lines were dropped)", self.dropped)?;
        }
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
