//! Lines in memory, in blocks of bytes as they go to the wire.
//!
//! A line costs its bytes, its line feed and four bytes for its end, and that is what counts against the limit. On
//! top of the limit come the rest of the last block and what is acknowledged of the first. The other blocks have no
//! rest: a block gives it back when the next one begins.

use std::collections::VecDeque;

use super::places::{Places, PushError};

/// How long a block is. A longer line has a block of its own.
const BLOCK_BYTES: usize = 64 << 10;
/// What a line costs beside its bytes: its line feed, and its end in the list.
const LINE_COST: usize = 5;

/// Lines that wait for their acknowledgement.
#[derive(Debug)]
pub(crate) struct Memory {
    blocks: VecDeque<Block>,
    places: Places,
    bytes: usize,
    limit: usize,
}

#[derive(Debug)]
struct Block {
    /// The number of its first line.
    first: u64,
    bytes: Vec<u8>,
    /// Where each line ends, after its line feed.
    ends: Vec<u32>,
}

impl Block {
    fn last(&self) -> u64 {
        self.first + self.ends.len() as u64 - 1
    }

    /// Where a line begins; the end of the block for the line after its last.
    fn start(&self, line: u64) -> usize {
        match line - self.first {
            0 => 0,
            place => self.ends[place as usize - 1] as usize,
        }
    }
}

impl Memory {
    /// Nothing, and room for so many bytes.
    pub(crate) fn new(limit: usize) -> Memory {
        Memory { blocks: VecDeque::new(), places: Places::default(), bytes: 0, limit }
    }

    pub(super) fn push(&mut self, line: &[u8]) -> Result<(), PushError> {
        let length = line.len() + 1;
        if self.bytes + line.len() + LINE_COST > self.limit {
            return Err(PushError::Full);
        }
        let has_room = |block: &Block| block.bytes.len() + length <= block.bytes.capacity();
        if !self.blocks.back().is_some_and(has_room) {
            if let Some(full) = self.blocks.back_mut() {
                full.bytes.shrink_to_fit();
                full.ends.shrink_to_fit();
            }
            self.blocks.push_back(Block {
                first: self.places.last + 1,
                bytes: Vec::with_capacity(length.max(BLOCK_BYTES.min(self.limit))),
                ends: Vec::new(),
            });
        }
        if let Some(block) = self.blocks.back_mut() {
            block.bytes.extend_from_slice(line);
            block.bytes.push(b'\n');
            // The limit of a line is below 4 GiB, and so is a block.
            block.ends.push(block.bytes.len() as u32);
        }
        self.places.last += 1;
        self.bytes += line.len() + LINE_COST;
        Ok(())
    }

    pub(super) fn places(&self) -> Places {
        self.places
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    pub(super) fn read(&mut self, out: &mut Vec<u8>, bytes_max: usize) {
        let begin = out.len();
        let from = self.blocks.partition_point(|block| block.last() <= self.places.sent);
        for block in self.blocks.range(from..) {
            let start = block.start(self.places.sent + 1);
            let room = bytes_max.saturating_sub(out.len() - begin);
            let mut count = block.ends.partition_point(|&end| end as usize <= start + room);
            if out.len() == begin {
                // At least one line.
                count = count.max((self.places.sent + 2 - block.first) as usize);
            }
            let end = block.start(block.first + count as u64);
            if end <= start {
                return;
            }
            out.extend_from_slice(&block.bytes[start..end]);
            self.places.sent = block.first + count as u64 - 1;
            if self.places.sent < block.last() {
                return;
            }
        }
    }

    pub(super) fn rewind(&mut self) {
        self.places.sent = self.places.acknowledged;
    }

    pub(super) fn acknowledge(&mut self, line: u64) {
        let line = line.min(self.places.last);
        while let Some(block) = self.blocks.front()
            && self.places.acknowledged < line
        {
            let upto = block.last().min(line);
            let freed = block.start(upto + 1) - block.start(self.places.acknowledged + 1);
            let lines = (upto - self.places.acknowledged) as usize;
            self.bytes -= freed + lines * (LINE_COST - 1);
            self.places.acknowledged = upto;
            if upto == block.last() {
                self.blocks.pop_front();
            }
        }
        self.places.sent = self.places.sent.max(self.places.acknowledged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(memory: &mut Memory, bytes_max: usize) -> String {
        let mut out = Vec::new();
        memory.read(&mut out, bytes_max);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_are_given_in_order_and_again_until_they_are_acknowledged() {
        let mut memory = Memory::new(1 << 20);
        for line in ["1", "22", "333"] {
            memory.push(line.as_bytes()).unwrap();
        }
        assert_eq!(read(&mut memory, 1), "1\n", "at least one");
        assert_eq!(read(&mut memory, 6), "22\n");
        assert_eq!(read(&mut memory, 100), "333\n");
        assert_eq!(read(&mut memory, 100), "");
        memory.acknowledge(1);
        memory.rewind();
        assert_eq!(read(&mut memory, 100), "22\n333\n");
        memory.acknowledge(3);
        assert_eq!((memory.bytes(), memory.blocks.len()), (0, 0));
    }

    #[test]
    fn blocks_are_filled_and_freed() {
        let mut memory = Memory::new(1 << 20);
        let long = "x".repeat(BLOCK_BYTES + 1);
        let lines: Vec<String> = (0..3000).map(|number| format!("{number:0>40}")).collect();
        let mut expected = String::new();
        for (place, line) in lines.iter().enumerate() {
            memory.push(line.as_bytes()).unwrap();
            expected += &format!("{line}\n");
            if place == 1500 {
                memory.push(long.as_bytes()).unwrap();
                expected += &format!("{long}\n");
            }
        }
        let mut all = String::new();
        for round in 1.. {
            let piece = read(&mut memory, 10_000);
            if piece.is_empty() {
                break;
            }
            assert!(piece.len() <= 10_000 || piece.len() == long.len() + 1);
            all += &piece;
            if round % 2 == 0 {
                memory.acknowledge(memory.places.sent - 1);
            }
        }
        assert!(all == expected);
        memory.acknowledge(u64::MAX);
        assert_eq!((memory.bytes(), memory.places.waiting(), memory.blocks.len()), (0, 0, 0));
    }

    /// One of the longest lines fits into a block, two of the next, and many of the last.
    #[test]
    fn only_the_last_block_takes_more_than_its_lines() {
        let limit = 4 << 20;
        for length in [BLOCK_BYTES / 2 + 1, BLOCK_BYTES / 3 + 1, 10] {
            let mut memory = Memory::new(limit);
            let line = vec![b'1'; length];
            while memory.push(&line).is_ok() {}
            let allocated = |block: &Block| block.bytes.capacity() + 4 * block.ends.capacity();
            let mut allocated: Vec<usize> = memory.blocks.iter().map(allocated).collect();
            allocated.pop();
            let sum: usize = allocated.iter().sum();
            assert!(sum <= memory.bytes && sum > limit / 2, "{length}: {sum}");
        }
    }

    #[test]
    fn the_limit_counts_every_line() {
        let mut memory = Memory::new(60);
        let taken = (0..).take_while(|_| memory.push(b"1").is_ok()).count();
        assert_eq!(taken, 60 / (1 + LINE_COST));
        memory.acknowledge(1);
        memory.push(b"1").unwrap();
        assert!(matches!(memory.push(b"1"), Err(PushError::Full)));
    }
}
