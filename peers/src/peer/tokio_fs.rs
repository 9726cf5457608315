//! `tokio-fs` and `tokio-fs-uring`: `tokio::fs::File` itself. It has a position and no positioned read, so that each
//! task has a file of its own, seeks and reads: two trips to the blocking pool for each block.
//!
//! With the driver for io_uring that tokio has if built with `--cfg tokio_unstable`, the read is one of its ring. The
//! seek is still a trip to the blocking pool (tokio 1.54).
//!
//! Not for direct reads: it reads into a buffer of its own, whose address nobody can align.

#[cfg(tokio_unstable)]
use std::path::Path;
use std::{
    io::{self, SeekFrom},
    sync::Arc,
};

use ringwise_lab::{
    engine::{Engine, Tally},
    sampling::job::{Cache, Failure, Job, Start},
};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt},
    runtime::{Builder, Runtime},
};

use crate::tokio_lanes::{self, Reader};

/// The engine: a task and a file per read in flight.
#[derive(Debug)]
pub struct TokioFs {
    /// Whether reads go through tokio's ring, or else its blocking pool.
    pub has_ring: bool,
}

impl Engine for TokioFs {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        if job.cache == Cache::Bypassed {
            let reason = "n/a: tokio::fs::File reads into memory of its own, which is not aligned";
            return Err(Failure::Unavailable(reason.to_owned()));
        }
        let runtime = match self.has_ring {
            true => with_ring(job)?,
            false => super::start(|| Builder::new_multi_thread().build())?,
        };
        let files: Vec<Vec<std::fs::File>> =
            (0..job.depth).map(|_| job.open()).collect::<Result<_, _>>()?;
        let readers = files
            .into_iter()
            .flatten()
            .map(|file| Seeking { file: File::from_std(file), bytes: vec![0; job.block_bytes] });
        tokio_lanes::run(&runtime, job, start.ready()?, readers.collect())
    }
}

/// A runtime whose files use a ring. tokio sets its ring up for the first file, and reads on its blocking pool without
/// a word if the kernel gives it none.
#[cfg(tokio_unstable)]
fn with_ring(job: &Job) -> Result<Runtime, Failure> {
    let runtime = super::start(|| Builder::new_multi_thread().enable_io_uring().build())?;
    let path = &job.files[0].path;
    runtime
        .block_on(File::open(path))
        .map_err(|error| Failure::Io(format!("opening {}: {error}", path.display())))?;
    let descriptors = super::start(|| std::fs::read_dir("/proc/self/fd"))?;
    let mut targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let is_there = targets.any(|target| target == Path::new("anon_inode:[io_uring]"));
    match is_there {
        true => Ok(runtime),
        false => Err(super::refused("tokio was not permitted a ring, and uses its blocking pool")),
    }
}

#[cfg(not(tokio_unstable))]
fn with_ring(_: &Job) -> Result<Runtime, Failure> {
    let reason = "n/a: built without --cfg tokio_unstable; start cargo in the directory peers";
    Err(Failure::Unavailable(reason.to_owned()))
}

struct Seeking {
    file: File,
    bytes: Vec<u8>,
}

impl Reader for Seeking {
    async fn read(&mut self, offset: u64) -> io::Result<&[u8]> {
        self.file.seek(SeekFrom::Start(offset)).await?;
        let count = self.file.read_exact(&mut self.bytes).await?;
        Ok(&self.bytes[..count])
    }
}
