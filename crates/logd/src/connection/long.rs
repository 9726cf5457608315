//! What becomes of lines that are too long, as the operator chose.
//!
//! The beginning of a dead letter is stored, up to `--max-line`, so who sends nothing else fills the
//! disk. Of a line that is refused nothing is stored, and nothing kept in memory while it goes on: it
//! is counted, told to who asked for answers, and said.

use clap::ValueEnum;

use super::{Batch, Connection, Limits, state::Greeting};
use crate::log;

/// The word for it, in answers and dead letters.
const REASON: &str = "too-long";

/// What becomes of lines that are too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LongLines {
    /// Their beginnings are stored, as dead letters
    DeadLetter,
    /// Nothing of them is stored; they are counted, and said with who sent them
    Refuse,
}

impl Limits {
    /// Whether a line without an end, of which so much came, is refused for its length.
    pub(super) fn refuses(&self, bytes: u64) -> bool {
        self.long_lines == LongLines::Refuse && bytes > self.line_max as u64
    }
}

impl Connection {
    /// A line ended that is too long: the next in number.
    pub(super) fn end_long_line(
        &mut self,
        start: &[u8],
        bytes: u64,
        limits: &Limits,
        batch: &mut Batch,
    ) {
        match limits.long_lines {
            LongLines::DeadLetter => self.reject(REASON, start.len() as u64, bytes, start, batch),
            LongLines::Refuse => self.refuse(bytes, limits, batch),
        }
    }

    /// Stores nothing of a line. It has its place in the batch all the same, so that it is told after
    /// those before it, and its number is stored where the client named itself.
    pub(super) fn refuse(&mut self, bytes: u64, limits: &Limits, batch: &mut Batch) {
        batch.refused_count += 1;
        self.filling.sequence = self.sequence;
        if self.greeting == Greeting::Wanted {
            self.rejected.push_back((self.sequence, REASON));
        }
        let why = match limits.refuses(bytes) {
            true => "more than --max-line",
            false => "and unfinished where memory was short (--budget)",
        };
        let peer = &self.peer;
        log::remark("long-line", format_args!("{peer}: refused a line of {bytes} bytes: {why}"));
    }
}
