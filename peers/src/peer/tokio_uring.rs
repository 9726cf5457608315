//! `tokio-uring`: one thread, a task per read in flight, buffers registered with its ring
//! (`FixedBufRegistry`, `read_fixed_at`).
//!
//! Its `OpenOptions` has no O_DIRECT; `File::from_std` takes a file that was opened with it. Its
//! ring gets the flags that a runtime of one thread can have, but for DEFER_TASKRUN, with which it
//! hangs: it waits for completions by epoll, and never enters the ring to have them delivered.

use std::{rc::Rc, sync::Arc};

use ringwise_lab::{
    engine::{Engine, Tally},
    sampling::job::{Failure, Job, Start},
};
use tokio_uring::{
    Runtime,
    buf::{
        BoundedBuf, Slice,
        fixed::{FixedBuf, FixedBufRegistry},
    },
    fs::File,
};

use super::{aligned, refused};
use crate::shared_lane::SharedLane;

/// Its default.
const ENTRIES_MIN: usize = 256;

/// The engine: a task per read in flight.
#[derive(Debug)]
pub struct TokioUring;

impl Engine for TokioUring {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let mut ring = tokio_uring::uring_builder();
        ring.setup_single_issuer().setup_coop_taskrun();
        let mut builder = tokio_uring::builder();
        builder.entries(job.depth.max(ENTRIES_MIN) as u32).uring_builder(&ring);
        let runtime = super::start(|| Runtime::new(&builder))?;
        let mut files = job.open()?;
        runtime.block_on(async {
            let file = Rc::new(File::from_std(files.remove(0)));
            let buffers = buffers(job)?;
            let lane = SharedLane::new(job, start.ready()?);
            let tasks = buffers
                .into_iter()
                .map(|buffer| tokio_uring::spawn(read_all(lane.clone(), file.clone(), buffer)));
            for task in tasks.collect::<Vec<_>>() {
                task.await.map_err(|error| Failure::Io(error.to_string()))?;
            }
            lane.finish()
        })
    }
}

fn buffers(job: &Job) -> Result<Vec<Slice<FixedBuf>>, Failure> {
    let (memory, parts): (Vec<_>, Vec<_>) = (0..job.depth).map(|_| aligned(job)).unzip();
    let registry = FixedBufRegistry::new(memory);
    registry.register().map_err(|error| refused(format_args!("registering buffers: {error}")))?;
    let buffers = parts
        .into_iter()
        .enumerate()
        .map(|(index, part)| registry.check_out(index).map(|buffer| buffer.slice(part)));
    buffers.collect::<Option<Vec<_>>>().ok_or_else(|| refused("a buffer is not to be had"))
}

async fn read_all(lane: Rc<SharedLane>, file: Rc<File>, mut buffer: Slice<FixedBuf>) {
    while let Some(read) = lane.begin() {
        let (result, given_back) = file.read_fixed_at(buffer, read.offset()).await;
        buffer = given_back;
        lane.end(read, result.map(|count| &buffer[..count]));
    }
}
