//! Lines that are stored in JSON of the daemon's making (`--wrap`).

use super::{Batch, Connection, Limits};
use crate::lines::{
    json::Reason,
    letter::{Cause, Fault},
    wrap::Wrap,
};

impl Limits {
    /// Whether a line is wrapped that was rejected for this. JSON without a required field, or too deep, is JSON.
    pub(super) fn wraps(&self, reason: Reason) -> bool {
        self.wrap != Wrap::None && !matches!(reason, Reason::Depth | Reason::Missing | Reason::Type)
    }
}

impl Connection {
    /// Wraps a line and accepts it, if it then has what a line needs. Accepted lines before it have to be in the batch.
    pub(super) fn wrap(&mut self, line: &[u8], limits: &Limits, batch: &mut Batch) {
        let start = batch.lines.len();
        limits.wrap.write(line, &mut batch.lines);
        match limits.rules.check(&batch.lines[start..]) {
            Ok(()) => {
                batch.lines.push(b'\n');
                batch.line_count += 1;
                batch.wrapped_count += 1;
                self.filling.bytes += batch.lines.len() - start;
                self.filling.sequence = self.sequence;
            }
            Err(invalid) => {
                batch.lines.truncate(start);
                let cause = Cause::Invalid(invalid.reason);
                self.reject(Fault { cause, offset: 0, bytes: line.len() as u64 }, line, batch);
            }
        }
    }
}
