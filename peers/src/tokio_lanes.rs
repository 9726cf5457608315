//! A task and a lane for each read in flight, in a tokio runtime with several workers: the loop that all peers share
//! whose futures are `Send`.
//!
//! It starts no runtime and opens no file. `shared_lane` is the same for runtimes of one thread.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use ringwise_lab::{
    engine::Tally,
    sampling::job::{Failure, Job, Window},
    sampling::lane::{Counts, Lane},
};
use tokio::{runtime::Runtime, task::JoinSet};

/// What one task reads with.
pub trait Reader: Send + 'static {
    /// Reads the block at this offset, and lends it until the next read.
    fn read(&mut self, offset: u64) -> impl Future<Output = io::Result<&[u8]>> + Send;
}

/// Reads in a task for each reader until all lanes are over.
///
/// # Errors
///
/// The first failure of a read.
pub fn run<R: Reader>(
    runtime: &Runtime,
    job: &Arc<Job>,
    window: Window,
    readers: Vec<R>,
) -> Result<Tally, Failure> {
    let lanes = runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for (index, reader) in readers.into_iter().enumerate() {
            tasks.spawn(read_all(job.clone(), Lane::new(job, window, index, job.depth), reader));
        }
        tasks.join_all().await
    });
    Ok(Tally::of(job, &window, lanes.into_iter().collect::<Result<Vec<_>, _>>()?))
}

async fn read_all(
    job: Arc<Job>,
    mut lane: Lane,
    mut reader: impl Reader,
) -> Result<Counts, Failure> {
    while let Some(request) = lane.next_request() {
        let began_ns = lane.clock();
        lane.begin(1, began_ns);
        let read = reader.read(request.offset).await;
        let ended_ns = lane.clock();
        let result = read
            .map_err(|error| job.read_failed(request, &error))
            .and_then(|bytes| lane.complete(request, began_ns, ended_ns, bytes));
        if result.is_err() {
            job.failed.store(true, Ordering::Relaxed);
            result?;
        }
    }
    Ok(lane.into_counts())
}
