//! `rustfs-uring`: the read backend of RustFS inside tokio. Each of its rings has a thread that drives it; the buffer
//! of a read is its own, and a new one each time.
//!
//! It has a ring for each processor if data is cached, because its thread copies it, and one ring if not, as its
//! documentation recommends. A ring admits at least as many reads as the job has in flight.

use std::{fs::File, io, sync::Arc, thread};

use ringwise_lab::{
    engine::{Engine, Tally},
    sampling::job::{Cache, Failure, Job, Start},
};
use rustfs_uring::UringDriver;
use tokio::runtime::Builder;

use super::BUFFER_ALIGNMENT;
use crate::tokio_lanes::{self, Reader};

/// RustFS's own depth of a ring.
const ENTRIES_MIN: usize = 128;

/// The engine: a task per read in flight.
#[derive(Debug)]
pub struct RustfsUring;

impl Engine for RustfsUring {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let entries = job.depth.max(ENTRIES_MIN).next_power_of_two() as u32;
        let rings = match job.cache {
            Cache::Warm => thread::available_parallelism().map_or(1, usize::from),
            Cache::Cold | Cache::Bypassed | Cache::Bounded => 1,
        };
        let driver = super::start(|| UringDriver::probe_and_start_sharded(entries, rings))?;
        let driver = Arc::new(driver);
        let runtime = super::start(|| Builder::new_multi_thread().build())?;
        let file = Arc::new(job.open()?.remove(0));
        let readers = (0..job.depth).map(|_| Driven {
            driver: driver.clone(),
            file: file.clone(),
            is_direct: job.cache == Cache::Bypassed,
            bytes: vec![0; job.block_bytes],
        });
        let readers = readers.collect();
        tokio_lanes::run(&runtime, job, start.ready()?, readers)
    }
}

struct Driven {
    driver: Arc<UringDriver>,
    file: Arc<File>,
    is_direct: bool,
    bytes: Vec<u8>,
}

impl Reader for Driven {
    async fn read(&mut self, offset: u64) -> io::Result<&[u8]> {
        let (file, length) = (self.file.clone(), self.bytes.len());
        let read = match self.is_direct {
            true => self.driver.read_at_direct(file, offset, length, BUFFER_ALIGNMENT),
            false => self.driver.read_at(file, offset, length),
        };
        self.bytes = read.await?;
        Ok(&self.bytes)
    }
}
