//! Handles lines that are too long, as the operator chose.
//!
//! A dead letter stores the beginning of such a line, up to `--max-line`, so a client that sends nothing else
//! fills the disk. A refused line is neither stored nor kept in memory. It is counted, reported to a client that
//! asked for answers, and logged.

use super::{
    Batch, Connection,
    limits::{Limits, LongLines},
    state::Greeting,
};
use crate::{
    lines::letter::{Cause, Fault},
    monitoring::log,
};

impl Connection {
    /// Takes the end of a line that is too long; it has the next number.
    pub(super) fn end_long_line(
        &mut self,
        start: &[u8],
        bytes: u64,
        limits: &Limits,
        batch: &mut Batch,
    ) {
        match limits.long_lines {
            LongLines::DeadLetter => {
                let fault = Fault { cause: Cause::TooLong, offset: start.len() as u64, bytes };
                self.reject(fault, start, batch);
            }
            LongLines::Refuse => self.refuse(bytes, limits, batch),
        }
    }

    /// Stores nothing of a line. It still has its place in the batch, so it is reported after the lines before
    /// it, and its number is stored if the client named itself.
    pub(super) fn refuse(&mut self, bytes: u64, limits: &Limits, batch: &mut Batch) {
        batch.refused_count += 1;
        self.filling.sequence = self.sequence;
        if self.greeting == Greeting::Wanted {
            self.rejected.push_back((self.sequence, Cause::TooLong.word()));
        }
        let why = match limits.refuses(bytes) {
            true => "it is longer than --max-line",
            false => "it is unfinished, and --budget is used up",
        };
        let peer = &self.peer;
        log::remark("long-line", format_args!("{peer}: refused a line of {bytes} bytes: {why}"));
    }
}
