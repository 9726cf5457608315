//! Memory for direct writes: whole blocks, at addresses that direct I/O takes.
//!
//! A batch begins where the last one ended, mostly within a block. That block is written again with the same
//! bytes up to there, so a disk that keeps any mixture of the two keeps them. The rest of the last block is
//! filled with spaces. The next batch overwrites them, or they are cut off when the segment is sealed.

use ringwise::{AlignedBuf, Buffer, OwnedBuffer};

/// Offsets, lengths and addresses are multiples of this, which is enough for common devices.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// What is written behind the last line.
pub(crate) const FILLER: u8 = b' ';
/// Memory that is kept for the next batch at most.
const KEPT_BYTES: usize = 16 << 20;

/// A batch in whole blocks.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// Nothing while a write has it.
    memory: Option<AlignedBuf>,
    /// The bytes in the segment's last block, if that is not full.
    tail: Vec<u8>,
    /// Bytes to write.
    len: usize,
}

impl Staging {
    /// Another segment begins.
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

    /// Bytes of the segment before the batch in its first block.
    pub(crate) fn before(&self) -> usize {
        self.tail.len()
    }

    /// What is to be written, which [`fill`](Self::fill) made.
    pub(crate) fn give(&mut self) -> Buffer {
        let memory = self.memory.take().expect("it was filled, and is given once");
        Buffer::from(memory).slice(..self.len)
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
        // The end of it, or all if it ends in the block that it began in.
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
                assert!(staging.len.is_multiple_of(BLOCK_BYTES));
                let buffer = staging.give();
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
