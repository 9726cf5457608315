//! `a10`: its ring inside tokio. A thread polls the ring; the tasks of two workers queue reads and wake the ring.
//!
//! a10 has no runtime and no adapter for tokio. Its futures are `Send`, and it submits what they queue only when its
//! ring is polled, so that `SubmissionQueue::wake` has to follow each read that is queued. Its own tests do the same.
//! It reads into the free capacity of a `Vec`, here from an aligned address on.

use std::{
    future::poll_fn,
    io, mem,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use a10::{AsyncFd, Ring, SubmissionQueue, io::BufMut};
use ringwise_lab::{
    engine::{Engine, Tally},
    sampling::job::{Failure, Job, Start},
};
use tokio::runtime::Builder;

use super::aligned;
use crate::tokio_lanes::{self, Reader};

/// Its default length of the queue.
const ENTRIES_MIN: usize = 32;

/// The engine: a task per read in flight.
#[derive(Debug)]
pub struct A10;

impl Engine for A10 {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let entries = job.depth.max(ENTRIES_MIN).next_power_of_two() as u32;
        let ring = super::start(|| Ring::config().with_submission_queue_size(entries).build())?;
        let queue = ring.sq();
        let runtime = super::start(|| Builder::new_multi_thread().build())?;
        let file = Arc::new(AsyncFd::new(job.open()?.remove(0).into(), queue.clone()));
        let readers = (0..job.depth).map(|_| Queued::new(job, &file, &queue)).collect();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let driver = scope.spawn(|| drive(ring, &is_over));
            let tally =
                start.ready().and_then(|window| tokio_lanes::run(&runtime, job, window, readers));
            is_over.store(true, Ordering::Release);
            queue.wake();
            let driven = driver.join().map_err(|_| Failure::Io("its ring panicked".to_owned()))?;
            driven.map_err(|error| Failure::Io(format!("polling its ring: {error}")))?;
            tally
        })
    }
}

/// Polls the ring until all is over. The wake-up that follows the end of the last read ends the last wait.
fn drive(mut ring: Ring, is_over: &AtomicBool) -> io::Result<()> {
    while !is_over.load(Ordering::Acquire) {
        ring.poll(None)?;
    }
    Ok(())
}

struct Queued {
    file: Arc<AsyncFd>,
    queue: SubmissionQueue,
    memory: Vec<u8>,
    /// What is filled before the block, so that the block is aligned.
    before_bytes: usize,
    block_bytes: usize,
}

impl Queued {
    fn new(job: &Job, file: &Arc<AsyncFd>, queue: &SubmissionQueue) -> Queued {
        let (memory, part) = aligned(job);
        Queued {
            file: file.clone(),
            queue: queue.clone(),
            memory,
            before_bytes: part.start,
            block_bytes: job.block_bytes,
        }
    }
}

impl Reader for Queued {
    async fn read(&mut self, offset: u64) -> io::Result<&[u8]> {
        self.memory.truncate(self.before_bytes);
        let memory = mem::take(&mut self.memory).limit(self.block_bytes);
        let mut read = pin!(self.file.read(memory).from(offset));
        let memory = poll_fn(|context| {
            let polled = read.as_mut().poll(context);
            if polled.is_pending() {
                self.queue.wake();
            }
            polled
        });
        self.memory = memory.await?.into_inner();
        Ok(&self.memory[self.before_bytes..])
    }
}
