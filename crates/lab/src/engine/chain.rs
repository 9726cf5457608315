//! `chain`: write a page, make it durable, read it back and compare it: by blocking calls in one
//! thread or in many. The ring's way is in `ring`.
//!
//! Each sample writes content of its own, so that what an earlier one has left is not taken for
//! what this one wrote.

mod ring;

pub use ring::{Flow, RingChain};

use std::{
    fmt,
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    sync::Arc,
};

use ringwise::AlignedBuf;
use serde::Serialize;

use super::{Engine, Tally, buffer, threads::in_threads};
use crate::{
    dataset::block::{Mismatch, Stamp},
    error::plain,
    sampling::{
        job::{Cache, Failure, Job, Request, Start},
        lane::Lane,
    },
};

/// What makes a page durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncKind {
    /// fsync(2) behind each write.
    Fsync,
    /// fdatasync(2) behind each write.
    Fdatasync,
    /// The write itself: the files are opened with O_DSYNC, by which every write is what
    /// RWF_DSYNC makes of one (both are `IOCB_DSYNC` to the kernel, include/linux/fs.h).
    Dsync,
}

impl SyncKind {
    /// All of them.
    pub const ALL: [SyncKind; 3] = [SyncKind::Fsync, SyncKind::Fdatasync, SyncKind::Dsync];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            SyncKind::Fsync => "fsync",
            SyncKind::Fdatasync => "fdatasync",
            SyncKind::Dsync => "dsync",
        }
    }

    /// Steps of a chain: the write, a sync where it is a call of its own, the read.
    pub fn steps(self) -> usize {
        match self {
            SyncKind::Fsync | SyncKind::Fdatasync => 3,
            SyncKind::Dsync => 2,
        }
    }
}

impl fmt::Display for SyncKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SyncKind::Dsync => "O_DSYNC",
            other => other.name(),
        })
    }
}

/// The file of a job, to be written and read back.
fn open(job: &Job, sync: SyncKind) -> Result<File, Failure> {
    let file = &job.files[0];
    let direct = if job.cache == Cache::Bypassed { libc::O_DIRECT } else { 0 };
    let dsync = if sync == SyncKind::Dsync { libc::O_DSYNC } else { 0 };
    let opened =
        OpenOptions::new().read(true).write(true).custom_flags(direct | dsync).open(&file.path);
    let opened = opened.map_err(|error| {
        Failure::Io(format!("opening {}: {}", file.path.display(), plain(&error)))
    })?;
    match opened.metadata() {
        Ok(found) if found.len() == file.bytes => Ok(opened),
        _ => Err(Failure::changed(file)),
    }
}

/// Who a page says that it is.
fn stamp(job: &Job, request: Request) -> Stamp {
    let block = request.offset / job.block_bytes as u64;
    Stamp { seed: job.seed, file: job.files[request.file].number, block }
}

/// What was read must be what was written, byte by byte.
fn compare(job: &Job, request: Request, written: &[u8], read: &[u8]) -> Result<(), Failure> {
    if written == read {
        return Ok(());
    }
    let expected = stamp(job, request);
    Err(Failure::Mismatch(Mismatch { expected, found: Stamp::of(read) }))
}

fn failed(job: &Job, step: &str, request: Request, error: impl fmt::Display) -> Failure {
    let path = job.files[request.file].path.display();
    Failure::Io(format!("{step} at {} of {path}: {error}", request.offset))
}

/// The chain by blocking calls, in as many threads as chains are to be in flight.
#[derive(Debug)]
pub struct BlockingChain {
    /// What makes a page durable.
    pub sync: SyncKind,
}

impl Engine for BlockingChain {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let file = open(job, self.sync)?;
        let prepare = || (buffer(job), buffer(job));
        let chains = |(mut page, mut back): (AlignedBuf, AlignedBuf), lane: &mut Lane| {
            while let Some(request) = lane.next_request() {
                stamp(job, request).fill(&mut page);
                let began_ns = lane.clock();
                lane.begin(1, began_ns);
                self.chain(&file, request.offset, &page, &mut back)
                    .map_err(|(step, error)| failed(job, step, request, plain(&error)))?;
                let ended_ns = lane.clock();
                compare(job, request, &page, &back)?;
                lane.complete(request, began_ns, ended_ns, &back)?;
            }
            Ok(())
        };
        let tally = in_threads(job, start, &prepare, &chains)?;
        let calls = tally.counts.completed * self.sync.steps() as u64;
        Ok(Tally { system_calls: Some(calls), ..tally })
    }
}

impl BlockingChain {
    /// Makes a chain at an offset. An error comes with the step that failed.
    fn chain(
        &self,
        file: &File,
        offset: u64,
        page: &[u8],
        back: &mut [u8],
    ) -> Result<(), (&'static str, std::io::Error)> {
        let fail = |step: &'static str| move |error: std::io::Error| (step, error);
        file.write_all_at(page, offset).map_err(fail("writing"))?;
        match self.sync {
            SyncKind::Fsync => file.sync_all().map_err(fail("fsync"))?,
            SyncKind::Fdatasync => file.sync_data().map_err(fail("fdatasync"))?,
            SyncKind::Dsync => {}
        }
        file.read_exact_at(back, offset).map_err(fail("reading"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dataset::{
            DataFile,
            block::{BLOCK_BYTES, verify},
        },
        sampling::{job::Pattern, lane::Record},
    };

    #[test]
    fn a_page_of_an_earlier_run_is_no_success() {
        let job = Job {
            files: [DataFile { path: "f".into(), number: 0, bytes: 1 << 20 }].into(),
            seed: 7,
            block_bytes: BLOCK_BYTES,
            depth: 1,
            pattern: Pattern::Sequential,
            cache: Cache::Warm,
            order_seed: 7,
            heatmap: false,
            interrupt: Arc::default(),
            failed: false.into(),
            latency: Record::default(),
        };
        let request = Request { file: 0, offset: 3 * BLOCK_BYTES as u64 };
        let mut page = vec![0; BLOCK_BYTES];
        stamp(&job, request).fill(&mut page);
        assert_eq!(compare(&job, request, &page, &page), Ok(()));
        assert_eq!(verify(job.seed, 0, request.offset, &page), Ok(()));
        let mut stale = vec![0; BLOCK_BYTES];
        Stamp { seed: 6, ..stamp(&job, request) }.fill(&mut stale);
        let failure = compare(&job, request, &page, &stale).unwrap_err();
        let text = failure.to_string();
        assert_eq!(text, "verification failed: block 3 of file 0 holds data of another run");
    }
}
