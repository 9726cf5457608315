//! Sends of which all was promised, and of which the kernel took a part.
//!
//! A send that waits for a stream ends when the thread that handed it over does, as others do that wait
//! (`losses.rs`), and what was sent by then makes it a success. Nobody asked for that end, and whoever
//! asked for the whole may have gone by now. So the driver sends the rest, and tells of the whole. It
//! is the only one to do so: who waits for such a send finds all of it sent, or an error after a part.

use std::{collections::HashMap, ops::Range};

use crate::ring::order::Key;
use crate::{
    buf::{Buffer, MOVED_BYTES_MAX},
    completion::Completion,
    op::{Opcode, Operation},
};

/// The sends of which a part was taken.
#[derive(Default)]
pub(super) struct Wholes(HashMap<usize, Whole>);

struct Whole {
    key: Key,
    /// What was selected of each buffer at first.
    ranges: Vec<Range<usize>>,
    sent: usize,
}

impl Wholes {
    /// Takes a part in: what is left to be sent, or the completion where nothing is.
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

    /// Tells of the whole what came of its last part.
    pub(super) fn settle(&mut self, key: Key, completion: &mut Completion) {
        let place = key.index();
        if self.0.is_empty() || self.0.get(&place).is_none_or(|whole| whole.key != key) {
            return;
        }
        let Some(Whole { ranges, sent, .. }) = self.0.remove(&place) else { return };
        for (buffer, range) in completion.operation.buffers_mut().iter_mut().zip(ranges) {
            buffer.select(range);
        }
        // What was sent before an error counts: the error is told to the next.
        let sent = sent + usize::try_from(completion.result).unwrap_or(0);
        completion.result = i32::try_from(sent).unwrap_or(i32::MAX);
    }
}

/// How much was sent, if that is a part of a send of which all was promised. Of one that is longer than
/// a result can tell whoever waits for it sends the rest.
fn part_of_whole(completion: &Completion) -> Option<usize> {
    if !matches!(completion.opcode(), Opcode::Send | Opcode::SendZeroCopy | Opcode::SendMessage) {
        return None;
    }
    let sent = usize::try_from(completion.result).ok().filter(|sent| *sent > 0)?;
    let all = completion.operation.whole_bytes()?;
    ((sent as u64) < all && all <= MOVED_BYTES_MAX as u64).then_some(sent)
}
