//! Sends that promise all their bytes, and of which the kernel took only a part.
//!
//! A send that waits for a stream ends when the thread that submitted it exits, as other waiting
//! operations do (`losses.rs`). If some bytes were sent by then, its result is a success. Nobody
//! asked for this end, and the caller may have dropped its future by now. So the driver sends the
//! rest, and reports the whole send. Only the driver does this: the caller of such a send finds all
//! bytes sent, or an error after a part.

use std::{collections::HashMap, ops::Range};

use crate::{
    buf::{Buffer, MOVED_BYTES_MAX},
    flight::completion::Completion,
    op::{Opcode, Operation},
    ring::hub::order::Key,
};

/// The sends of which a part was sent.
#[derive(Default)]
pub(super) struct Wholes(HashMap<usize, Whole>);

struct Whole {
    key: Key,
    /// The range that was selected of each buffer at first.
    ranges: Vec<Range<usize>>,
    sent: usize,
}

impl Wholes {
    /// Counts a part. Returns the operation for the rest, or the completion if there is no rest to
    /// send.
    pub(super) fn go_on(
        &mut self,
        key: Key,
        mut completion: Completion,
    ) -> Result<Operation, Completion> {
        let Some(part) = part_of_whole(&completion) else { return Err(completion) };
        let buffers = completion.operation.buffers_mut();
        let place = key.index();
        if self.0.get(&place).is_none_or(|whole| whole.key != key) {
            let ranges = buffers.iter().map(Buffer::range).collect();
            self.0.insert(place, Whole { key, ranges, sent: 0 });
        }
        if let Some(whole) = self.0.get_mut(&place) {
            whole.sent += part;
        }
        let mut left = part;
        for buffer in buffers {
            let range = buffer.range();
            let part = left.min(range.len());
            left -= part;
            buffer.select(range.start + part..range.end);
        }
        Ok(completion.operation)
    }

    /// Turns the result of the last part into the result of the whole.
    pub(super) fn settle(&mut self, key: Key, completion: &mut Completion) {
        let place = key.index();
        if self.0.is_empty() || self.0.get(&place).is_none_or(|whole| whole.key != key) {
            return;
        }
        let Some(Whole { ranges, sent, .. }) = self.0.remove(&place) else { return };
        for (buffer, range) in completion.operation.buffers_mut().iter_mut().zip(ranges) {
            buffer.select(range);
        }
        // Bytes that were sent before an error count. The next send gets the error.
        let sent = sent + usize::try_from(completion.result).unwrap_or(0);
        completion.result = i32::try_from(sent).unwrap_or(i32::MAX);
    }
}

/// Returns how much was sent, if that is only a part of a send that promises all. If a send is
/// longer than a result can express, the caller sends the rest.
fn part_of_whole(completion: &Completion) -> Option<usize> {
    if !matches!(completion.opcode(), Opcode::Send | Opcode::SendZeroCopy | Opcode::SendMessage) {
        return None;
    }
    let sent = usize::try_from(completion.result).ok().filter(|sent| *sent > 0)?;
    let all = completion.operation.whole_bytes()?;
    ((sent as u64) < all && all <= MOVED_BYTES_MAX as u64).then_some(sent)
}
