//! Memory that a batch is written from past the page cache: whole blocks, at a block's address.
//!
//! A batch begins where the last one ended, which is mostly within a block. So the block that it
//! begins in is written again, with the same bytes as before up to there; a disk that keeps any
//! mixture of the two has those. What is left of the last block is filled with spaces, and is
//! written over by the next batch, or cut off when the segment is sealed.

use std::ops::Range;

use ringwise::{AlignedBuf, Buffer, OwnedBuffer};

/// What offsets, lengths and addresses are multiples of: no device here asks for more.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// What is written behind the last line.
pub(crate) const FILLER: u8 = b' ';
/// Memory that is kept for the next batch at most.
const KEPT_BYTES: usize = 16 << 20;

/// A batch in whole blocks.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// Nothing while it is written.
    memory: Option<AlignedBuf>,
    /// Of the segment: what stands in its last block, if that is not full.
    tail: Vec<u8>,
    /// Bytes to write.
    len: usize,
}

impl Staging {
    /// Another segment begins.
    pub(crate) fn restart(&mut self) {
        self.tail.clear();
    }

    /// Takes a batch that comes next in the segment.
    pub(crate) fn fill(&mut self, data: &[u8]) {
        let (start, end) = (self.tail.len(), self.tail.len() + data.len());
        self.len = end.next_multiple_of(BLOCK_BYTES);
        let enough = self.memory.take().filter(|memory| memory.len() >= self.len);
        let mut memory =
            enough.unwrap_or_else(|| AlignedBuf::zeroed(self.len.next_power_of_two(), BLOCK_BYTES));
        memory[..start].copy_from_slice(&self.tail);
        memory[start..end].copy_from_slice(data);
        memory[end..self.len].fill(FILLER);
        self.memory = Some(memory);
    }

    /// Bytes from the beginning of the first block to the end of the last.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the segment that stand before the batch in its first block.
    pub(crate) fn before(&self) -> usize {
        self.tail.len()
    }

    /// Whether nobody writes from it.
    pub(crate) fn is_here(&self) -> bool {
        self.memory.is_some()
    }

    /// What is to be written, or a part of it, for a write; nothing while another has it.
    pub(crate) fn give(&mut self, part: Range<usize>) -> Option<Buffer> {
        let memory = self.memory.take()?;
        Some(Buffer::from(memory).slice(part))
    }

    /// A write has ended.
    pub(crate) fn take_back(&mut self, buffer: Option<Buffer>) {
        self.memory = buffer.and_then(|buffer| AlignedBuf::try_from_buffer(buffer).ok());
    }

    /// The batch is in the segment now.
    pub(crate) fn commit(&mut self, data: &[u8]) {
        let end = self.tail.len() + data.len();
        if end >= BLOCK_BYTES {
            self.tail.clear();
        }
        // The end of it, or all where it is in the block that it began in.
        let rest = (end % BLOCK_BYTES).min(data.len());
        self.tail.extend_from_slice(&data[data.len() - rest..]);
        self.memory = self.memory.take().filter(|memory| memory.len() <= KEPT_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of any size make the same file as plain writes, and no write changes what was there.
    #[test]
    fn blocks_add_up_to_the_lines() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..50 {
            let (mut staging, mut file, mut expected) = (Staging::default(), vec![], vec![]);
            for _ in 0..20 {
                let most = if random.bool() { 300 } else { 3 * BLOCK_BYTES };
                let data: Vec<u8> =
                    (0..random.usize(1..most)).map(|_| random.alphanumeric() as u8).collect();
                staging.fill(&data);
                let start: usize = expected.len() - staging.before();
                assert!(start.is_multiple_of(BLOCK_BYTES));
                assert!(staging.len().is_multiple_of(BLOCK_BYTES));
                let buffer = staging.give(0..staging.len()).unwrap();
                assert!(!staging.is_here());
                let written = buffer.selected();
                assert!(written.starts_with(&expected[start..]), "what was there stays");
                file.truncate(start);
                file.extend_from_slice(written);
                staging.take_back(Some(buffer));
                expected.extend_from_slice(&data);
                staging.commit(&data);
                assert_eq!(file[..expected.len()], expected);
                assert!(file[expected.len()..].iter().all(|byte| *byte == FILLER));
                if random.u8(..) < 20 {
                    staging.restart();
                    file.clear();
                    expected.clear();
                }
            }
        }
    }
}
