//! `monoio`: one thread with its io_uring driver, a task per read in flight.
//!
//! Compiled without its epoll driver, so that it cannot fall back unseen. `File::from_std` takes a
//! file that was opened with O_DIRECT. Its ring gets the flags that a runtime of one thread can have, by
//! the builder that its own takes.

use std::{ops::Range, rc::Rc, sync::Arc};

use monoio::{IoUringDriver, RuntimeBuilder, buf::SliceMut, fs::File};
use ringwise_lab::{
    engine::{Engine, Tally},
    sampling::job::{Failure, Job, Start},
};

use super::{aligned, refused};
use crate::shared_lane::SharedLane;

/// The engine: a task per read in flight.
#[derive(Debug)]
pub struct Monoio;

impl Engine for Monoio {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let mut ring = io_uring::IoUring::builder();
        ring.setup_single_issuer().setup_coop_taskrun();
        let builder = RuntimeBuilder::<IoUringDriver>::new().uring_builder(ring);
        let mut runtime = super::start(|| builder.build())?;
        let mut files = job.open()?;
        runtime.block_on(async {
            let file = Rc::new(File::from_std(files.remove(0)).map_err(refused)?);
            let lane = SharedLane::new(job, start.ready()?);
            let tasks = (0..job.depth).map(|_| {
                let (memory, part) = aligned(job);
                monoio::spawn(read_all(lane.clone(), file.clone(), memory, part))
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await;
            }
            lane.finish()
        })
    }
}

async fn read_all(lane: Rc<SharedLane>, file: Rc<File>, memory: Vec<u8>, part: Range<usize>) {
    let mut buffer = SliceMut::new(memory, part.start, part.end);
    while let Some(read) = lane.begin() {
        let (result, given_back) = file.read_at(buffer, read.offset()).await;
        buffer = given_back;
        lane.end(read, result.map(|count| &buffer.get_ref()[part.start..part.start + count]));
    }
}
