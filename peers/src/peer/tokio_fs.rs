//! `tokio-fs`: `tokio::fs::File` itself. It has a position and no positioned read, so that each task
//! has a file of its own, seeks and reads: two trips to the blocking pool for each block.
//!
//! Not for direct reads: it reads into a buffer of its own, whose address nobody can align.

use std::{
    io::SeekFrom,
    sync::{Arc, atomic::Ordering},
};

use ringwise_lab::{
    engine::{Engine, Tally},
    job::{Cache, Failure, Job, Start, Window},
    lane::{Counts, Lane},
};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt},
    runtime::Builder,
    task::JoinSet,
};

/// The engine: a task and a file per read in flight.
#[derive(Debug)]
pub struct TokioFs;

impl Engine for TokioFs {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        if job.cache == Cache::Bypassed {
            let reason = "n/a: tokio::fs::File reads into memory of its own, which is not aligned";
            return Err(Failure::Unavailable(reason.to_owned()));
        }
        let runtime = super::start(|| Builder::new_multi_thread().build())?;
        let files: Vec<Vec<std::fs::File>> =
            (0..job.depth).map(|_| job.open()).collect::<Result<_, _>>()?;
        let window = start.ready()?;
        let lanes = runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for (index, file) in files.into_iter().flatten().enumerate() {
                tasks.spawn(read_all(job.clone(), File::from_std(file), window, index));
            }
            tasks.join_all().await
        });
        Ok(Tally::of(job, &window, lanes.into_iter().collect::<Result<Vec<_>, _>>()?))
    }
}

async fn read_all(
    job: Arc<Job>,
    mut file: File,
    window: Window,
    index: usize,
) -> Result<Counts, Failure> {
    let mut lane = Lane::new(&job, window, index, job.depth);
    let mut bytes = vec![0; job.block_bytes];
    while let Some(request) = lane.next_request() {
        let began_ns = lane.clock();
        lane.begin(1, began_ns);
        let read = match file.seek(SeekFrom::Start(request.offset)).await {
            Ok(_) => file.read_exact(&mut bytes).await,
            Err(error) => Err(error),
        };
        let ended_ns = lane.clock();
        let result = read
            .map_err(|error| job.read_failed(request, &error))
            .and_then(|read| lane.complete(request, began_ns, ended_ns, &bytes[..read]));
        if result.is_err() {
            job.failed.store(true, Ordering::Relaxed);
            result?;
        }
    }
    Ok(lane.into_counts())
}
