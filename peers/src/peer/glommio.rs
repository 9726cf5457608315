//! `glommio`: one executor, a task per read in flight. Direct reads by `DmaFile::read_at_aligned`
//! into memory that it registers with its ring by itself, buffered ones by `BufferedFile::read_at`;
//! both bring a buffer of their own with each read.
//!
//! Its rings are as deep as the job. It refuses a memlock limit below 512 KiB.

use std::{io, ops::Deref, rc::Rc, sync::Arc};

use glommio::{
    LocalExecutorBuilder,
    io::{BufferedFile, DmaFile, ReadResult},
};
use ringwise_lab::{
    engine::{Engine, Tally},
    sampling::job::{Cache, Failure, Job, Start},
};

use crate::shared_lane::SharedLane;

/// Its default depth of rings.
const RING_DEPTH_MIN: usize = 128;

/// The engine: a task per read in flight.
#[derive(Debug)]
pub struct Glommio;

impl Engine for Glommio {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let builder = LocalExecutorBuilder::default().ring_depth(job.depth.max(RING_DEPTH_MIN));
        let executor = super::start(|| builder.make())?;
        executor.run(async {
            let file = Rc::new(File::open(job).await?);
            let lane = SharedLane::new(job, start.ready()?);
            let tasks = (0..job.depth).map(|_| {
                glommio::spawn_local(read_all(lane.clone(), file.clone(), job.block_bytes)).detach()
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.ok_or_else(|| Failure::Io("a task was cancelled".to_owned()))?;
            }
            let file = Rc::into_inner(file);
            if let Some(file) = file {
                file.close().await;
            }
            lane.finish()
        })
    }
}

enum File {
    Direct(DmaFile),
    Buffered(BufferedFile),
}

impl File {
    async fn open(job: &Job) -> Result<File, Failure> {
        let path = &job.files[0].path;
        let opened = match job.cache {
            Cache::Bypassed => DmaFile::open(path).await.map(File::Direct),
            Cache::Warm | Cache::Cold | Cache::Bounded => {
                BufferedFile::open(path).await.map(File::Buffered)
            }
        };
        opened.map_err(|error| Failure::Io(format!("opening {}: {error}", path.display())))
    }

    async fn read_at(&self, offset: u64, bytes: usize) -> io::Result<ReadResult> {
        let read = match self {
            File::Direct(file) => file.read_at_aligned(offset, bytes).await,
            File::Buffered(file) => file.read_at(offset, bytes).await,
        };
        read.map_err(io::Error::from)
    }

    /// A file that is only dropped is complained about.
    async fn close(self) {
        // Nothing was written that an error could concern.
        let _ = match self {
            File::Direct(file) => file.close().await,
            File::Buffered(file) => file.close().await,
        };
    }
}

async fn read_all(lane: Rc<SharedLane>, file: Rc<File>, block_bytes: usize) {
    while let Some(read) = lane.begin() {
        let result = file.read_at(read.offset(), block_bytes).await;
        lane.end(
            read,
            result
                .as_ref()
                .map(Deref::deref)
                .map_err(|error| io::Error::new(error.kind(), error.to_string())),
        );
    }
}
