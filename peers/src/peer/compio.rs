//! `compio`: one thread with its io_uring driver, a task per read in flight.
//!
//! Compiled without its polling driver, so that it cannot fall back unseen. Its documentation
//! recommends cooperative task running for a runtime of one thread.

use std::{rc::Rc, sync::Arc};

use compio::{
    BufResult,
    buf::{IoBuf, Slice},
    driver::ProactorBuilder,
    fs::{File, OpenOptions},
    io::AsyncReadAt,
    runtime::RuntimeBuilder,
};
use ringwise_lab::{
    engine::{Engine, Tally},
    sampling::job::{Cache, Failure, Job, Start},
};

use super::aligned;
use crate::shared_lane::SharedLane;

/// The engine: a task per read in flight.
#[derive(Debug)]
pub struct Compio;

impl Engine for Compio {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let mut driver = ProactorBuilder::new();
        driver.single_issuer(true).coop_taskrun(true).taskrun_flag(true);
        let runtime = super::start(|| RuntimeBuilder::new().with_proactor(driver).build())?;
        runtime.block_on(async {
            let file = open(job).await?;
            let lane = SharedLane::new(job, start.ready()?);
            let tasks = (0..job.depth).map(|_| {
                let (memory, part) = aligned(job);
                compio::runtime::spawn(read_all(lane.clone(), file.clone(), memory.slice(part)))
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.map_err(|_| Failure::Io("a task panicked".to_owned()))?;
            }
            lane.finish()
        })
    }
}

/// Its files are opened by itself only.
async fn open(job: &Job) -> Result<File, Failure> {
    let flags = if job.cache == Cache::Bypassed { libc::O_DIRECT } else { 0 };
    let path = &job.files[0].path;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path).await;
    let advised = opened.and_then(|file| job.advise(&file).map(|()| file));
    advised.map_err(|error| Failure::Io(format!("opening {}: {error}", path.display())))
}

async fn read_all(lane: Rc<SharedLane>, file: File, mut buffer: Slice<Vec<u8>>) {
    while let Some(read) = lane.begin() {
        let BufResult(result, given_back) = file.read_at(buffer, read.offset()).await;
        buffer = given_back;
        lane.end(read, result.map(|count| &buffer[..count]));
    }
}
