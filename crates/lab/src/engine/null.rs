//! The null engine: no I/O at all, to see what the lab itself costs per operation.
//!
//! It gives back blocks that lie in memory. What is left is choosing the block, the clock, the
//! histogram and the verification: the lab's own overhead, which every row is compared with.

use std::{collections::VecDeque, sync::Arc};

use super::{Engine, Tally, rolling};
use crate::{
    dataset::{
        DataFile,
        block::{BLOCK_BYTES, Stamp},
    },
    sampling::{
        job::{Failure, Job, Request, Start},
        lane::Lane,
    },
};

/// The engine, with the memory that stands for the file.
pub struct Null {
    memory: Vec<u8>,
}

impl std::fmt::Debug for Null {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Null").field("bytes", &self.memory.len()).finish()
    }
}

impl Null {
    /// A null engine over `bytes` of blocks (whole ones; at least one). Few stay in the processor's
    /// cache, as what a read has just copied does; many do not, as what a device has just
    /// written.
    pub fn new(bytes: usize, seed: u64) -> Null {
        let blocks = bytes.div_ceil(BLOCK_BYTES).max(1);
        let mut memory = vec![0; blocks * BLOCK_BYTES];
        for (block, content) in memory.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            Stamp { seed, file: 0, block: block as u64 }.fill(content);
        }
        Null { memory }
    }

    /// The file that the memory stands for.
    pub fn file(&self) -> DataFile {
        DataFile { path: "memory".into(), number: 0, bytes: self.memory.len() as u64 }
    }
}

impl Engine for Null {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let mut queue = Memory {
            bytes: &self.memory,
            block_bytes: job.block_bytes,
            pushed: VecDeque::new(),
            ready: 0,
        };
        let window = start.ready()?;
        rolling::drive(&mut queue, &window, Lane::new(job, window, 0, 1), job)
    }
}

struct Memory<'a> {
    bytes: &'a [u8],
    block_bytes: usize,
    pushed: VecDeque<(usize, Request)>,
    ready: usize,
}

impl rolling::Queue for Memory<'_> {
    fn push(&mut self, slot: usize, request: Request) -> Result<(), Failure> {
        self.pushed.push_back((slot, request));
        Ok(())
    }

    fn submit(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn submit_and_wait(&mut self, _want: usize) -> Result<(), Failure> {
        // As many come at once as from a busy device; the others are still on their way.
        self.ready = self.pushed.len().div_ceil(2);
        Ok(())
    }

    fn reap(&mut self, take: &mut rolling::Take<'_>) -> Result<(), Failure> {
        let Some(left) = self.ready.checked_sub(1) else { return Ok(()) };
        self.ready = left;
        let Some((slot, request)) = self.pushed.pop_front() else { return Ok(()) };
        let at = request.offset as usize;
        take(slot, &self.bytes[at..at + self.block_bytes])
    }
}
