//! `uring-file`: a ring of its own inside tokio, with a registered file and buffers that are used again. A thread
//! submits what tasks send it through a channel, and another takes the completions.
//!
//! It reads into all capacity of a `Vec`, and its trait for buffers is unsafe to implement. A direct read thus needs a
//! `Vec` of exactly a block that happens to be aligned; the allocator is asked until it has enough of them.

use std::{io, mem, sync::Arc};

use ringwise_lab::{
    engine::{Engine, Tally},
    sampling::job::{Cache, Failure, Job, Start},
};
use tokio::runtime::Builder;
use uring_file::uring::{RegisteredFile, Uring, UringCfg};

use crate::tokio_lanes::{self, Reader};

/// What direct reads want of an address, unless a device is unusual.
const ALIGNMENT: usize = 512;
/// How many `Vec`s are tried for each that is wanted. Neighbours in the heap are a block and 16 bytes apart, so that one
/// of 32 is aligned.
const TRIES: usize = 128;

/// The engine: a task per read in flight.
#[derive(Debug)]
pub struct UringFile;

impl Engine for UringFile {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let ring = super::start(|| Uring::new(UringCfg::default()))?;
        let runtime = super::start(|| Builder::new_multi_thread().build())?;
        let opened = job.open()?.remove(0);
        let file = Arc::new(super::start(|| ring.register(&opened))?);
        let readers = buffers(job)?.into_iter().map(|memory| Sent {
            ring: ring.clone(),
            file: file.clone(),
            memory,
        });
        let readers = readers.collect();
        tokio_lanes::run(&runtime, job, start.ready()?, readers)
    }
}

fn buffers(job: &Job) -> Result<Vec<Vec<u8>>, Failure> {
    let is_direct = job.cache == Cache::Bypassed;
    let (mut buffers, mut others) = (Vec::new(), Vec::new());
    while buffers.len() < job.depth {
        let memory = vec![0; job.block_bytes];
        match !is_direct || memory.as_ptr().addr().is_multiple_of(ALIGNMENT) {
            true => buffers.push(memory),
            false => others.push(memory),
        }
        if others.len() > job.depth * TRIES {
            let reason = "n/a: the allocator has no aligned Vec of exactly a block";
            return Err(Failure::Unavailable(reason.to_owned()));
        }
    }
    Ok(buffers)
}

struct Sent {
    ring: Uring,
    file: Arc<RegisteredFile>,
    memory: Vec<u8>,
}

impl Reader for Sent {
    async fn read(&mut self, offset: u64) -> io::Result<&[u8]> {
        let memory = mem::take(&mut self.memory);
        let read = self.ring.read_into_at(&*self.file, offset, memory).await?;
        self.memory = read.buf;
        Ok(&self.memory[..read.bytes_read as usize])
    }
}
