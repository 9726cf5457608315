//! A file whose source is not in memory, in a run that is too short for a ring with buffers
//! (`flight/cold.rs`): its parts are read past the page cache into pipes, and written from there
//! through it. Nothing is mapped, registered or made ready for that.
//!
//! Whoever reads a part waits for it. So a file alone is copied by several threads, which take its
//! parts in turn; of several files each has a thread of its own. Blocks are allocated, and the length
//! is set to all but the last part first, which is written at last: a copy that is interrupted is
//! shorter than its source.
//!
//! Whatever does not go as it should is begun again by ordinary calls.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use rustix::{
    fs::{self, FallocateFlags},
    io::Errno,
};

use super::{
    direct::{copy_again, is_as_it_was},
    pipe::{self, Step},
};
use crate::{
    job::Job,
    place::{retry, set_direct},
    report::Line,
};

/// A read. docs/copying.md has what was tried.
const PART_BYTES: u64 = 512 << 10;

/// A write. For longer ones the page cache takes longer runs of free pages (mm/filemap.c, large folios):
/// where free pages are given back to a host, those cost several times the copying (docs/copying.md).
const WRITE_BYTES: u64 = 64 << 10;

/// A write where several threads write one file: each time, one waits for the other.
const WRITE_BYTES_ALONE: u64 = 256 << 10;

/// Who reads one file alone.
const READERS: usize = 4;

/// Moves the content of a regular file.
pub(super) fn copy(job: &Job) -> Result<(), Line> {
    let moved = set_direct(&job.source, true).and_then(|()| carry(job));
    if moved.is_ok() && is_as_it_was(job) {
        return Ok(());
    }
    set_direct(&job.source, false).map_err(|errno| job.read_error(errno))?;
    copy_again(job)
}

fn carry(job: &Job) -> Result<(), Errno> {
    let size = job.size();
    let tail = size.saturating_sub(1) / PART_BYTES * PART_BYTES;
    // A file that is cut to nothing is written back when it is closed (ext4, auto_da_alloc).
    if tail > 0 {
        match retry(|| fs::fallocate(&job.copy, FallocateFlags::KEEP_SIZE, 0, size)) {
            Ok(()) | Err(Errno::OPNOTSUPP) => retry(|| fs::ftruncate(&job.copy, tail))?,
            Err(errno) => return Err(errno),
        }
        parts(job, tail)?;
    }
    part(job, tail, size)
}

/// All parts before the last, in any order.
fn parts(job: &Job, tail: u64) -> Result<(), Errno> {
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let body = || {
        while !failed.load(Relaxed) {
            let start = next.fetch_add(PART_BYTES, Relaxed);
            if start >= tail {
                return;
            }
            if part(job, start, tail.min(start + PART_BYTES)).is_err() {
                failed.store(true, Relaxed);
            }
        }
    };
    let is_alone = job.options.is_one_file();
    let readers = if is_alone { job.options.jobs.unwrap_or(READERS) } else { 1 };
    let others = readers.min((tail / PART_BYTES) as usize).saturating_sub(1);
    thread::scope(|scope| {
        for _ in 0..others {
            // Without it the others do all.
            let _ = thread::Builder::new().name("cp".into()).spawn_scoped(scope, body);
        }
        body();
    });
    if failed.load(Relaxed) { Err(Errno::IO) } else { Ok(()) }
}

fn part(job: &Job, start: u64, end: u64) -> Result<(), Errno> {
    let is_alone = job.options.is_one_file();
    let write_bytes = if is_alone { WRITE_BYTES_ALONE } else { WRITE_BYTES };
    let step = Step { read_bytes: PART_BYTES, write_bytes };
    pipe::carry(&job.source, &job.copy, start..end, step)?;
    job.meter.add_bytes(end - start);
    Ok(())
}
