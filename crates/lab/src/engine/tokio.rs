//! `tokio`: `spawn_blocking` around pread(2) in a multi-threaded runtime, with as many tasks as reads are to be in flight.
//!
//! `tokio::fs::File` does the same and more: it copies out of memory of its own, which is not aligned for direct reads.

use std::{fs::File, os::unix::fs::FileExt, sync::Arc};

use tokio::task::{JoinSet, spawn_blocking};

use super::{Engine, Named, Tally, buffer};
use crate::{
    error::plain,
    sampling::{
        job::{Failure, Job, Start, Timing, Window},
        lane::{Counts, Lane},
    },
};

/// The engine: a task per unit of depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tokio;

impl Named for Tokio {
    const DEFAULT: Tokio = Tokio;

    fn engine(self, _: Timing) -> Box<dyn Engine> {
        Box::new(self)
    }
}

impl Engine for Tokio {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let files = Arc::new(job.open()?);
        // Its own defaults: a worker per processor, and up to 512 blocking threads.
        let runtime = tokio::runtime::Builder::new_multi_thread().build().map_err(|error| {
            Failure::Unavailable(format!("starting the runtime: {}", plain(&error)))
        })?;
        let window = start.ready()?;
        let lanes = runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for index in 0..job.depth {
                tasks.spawn(read_all(job.clone(), files.clone(), window, index));
            }
            let mut lanes = Vec::with_capacity(job.depth);
            while let Some(lane) = tasks.join_next().await {
                lanes.push(lane.expect("lanes do not panic"));
            }
            lanes
        });
        Ok(Tally::of(job, &window, lanes.into_iter().collect::<Result<Vec<_>, _>>()?))
    }
}

async fn read_all(
    job: Arc<Job>,
    files: Arc<Vec<File>>,
    window: Window,
    index: usize,
) -> Result<Counts, Failure> {
    let mut lane = Lane::new(&job, window, index, job.depth);
    let mut bytes = buffer(&job);
    while let Some(request) = lane.next_request() {
        let files = files.clone();
        let began_ns = lane.clock();
        lane.begin(1, began_ns);
        let read = spawn_blocking(move || {
            let read = files[request.file].read_at(&mut bytes, request.offset);
            (read, bytes)
        });
        let (read, given_back) = read.await.expect("a read does not panic");
        bytes = given_back;
        let ended_ns = lane.clock();
        let complete = |read: usize| lane.complete(request, began_ns, ended_ns, &bytes[..read]);
        let result = read.map_err(|error| job.read_failed(request, &error)).and_then(complete);
        if result.is_err() {
            job.failed.store(true, std::sync::atomic::Ordering::Relaxed);
            result?;
        }
    }
    Ok(lane.into_counts())
}
