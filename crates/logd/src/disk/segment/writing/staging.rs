//! Memory for direct writes: whole blocks at aligned addresses.
//!
//! A batch begins where the last one ended, usually within a block. That block is written again with the same bytes
//! before the batch, so even a disk that mixes old and new content of the block keeps them. The rest of the last block
//! is filled with spaces. The next batch overwrites them, and a seal cuts them off.

use ringwise::{AlignedBuf, Buffer, OwnedBuffer};

/// Offsets, lengths and addresses are multiples of this, which is enough for common devices.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// The byte that fills the last block after the last line.
pub(crate) const FILLER: u8 = b' ';
/// The most memory that is kept for the next batch.
const KEPT_BYTES: usize = 16 << 20;

/// A batch as whole blocks.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// Nothing during a write, which owns the memory.
    memory: Option<AlignedBuf>,
    /// The bytes of the segment in its last block, if that is not full.
    tail: Vec<u8>,
    /// Bytes to write.
    len: usize,
}

impl Staging {
    /// Starts another segment.
    pub(crate) fn restart(&mut self) {
        self.tail.clear();
    }

    /// Takes the next batch of the segment.
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

    /// The bytes of the segment in the first block, before the batch.
    pub(crate) fn before(&self) -> usize {
        self.tail.len()
    }

    /// Returns the blocks to write, as [`fill`](Self::fill) made them.
    pub(crate) fn give(&mut self) -> Buffer {
        let memory = self.memory.take().expect("the memory was filled and is taken once");
        Buffer::from(memory).slice(..self.len)
    }

    /// Takes the memory back after a write.
    pub(crate) fn take_back(&mut self, buffer: Option<Buffer>) {
        self.memory = buffer.and_then(|buffer| AlignedBuf::try_from_buffer(buffer).ok());
    }

    /// Notes that the batch is now part of the segment.
    pub(crate) fn commit(&mut self, data: &[u8]) {
        let end = self.tail.len() + data.len();
        if end >= BLOCK_BYTES {
            self.tail.clear();
        }
        // Keeps the bytes after the last block boundary, or the whole batch if it crosses none.
        let rest = (end % BLOCK_BYTES).min(data.len());
        self.tail.extend_from_slice(&data[data.len() - rest..]);
        self.memory = self.memory.take().filter(|memory| memory.len() <= KEPT_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of any size make the same file as plain writes, and no write changes the bytes before it.
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
                assert!(staging.len.is_multiple_of(BLOCK_BYTES));
                let buffer = staging.give();
                let written = buffer.selected();
                assert!(written.starts_with(&expected[start..]), "earlier bytes stay");
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
