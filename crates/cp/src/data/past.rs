//! A copy past the page cache on one side or both, through a pipe.
//!
//! A source that is not in memory is read with direct reads into the pipe. Of one that is in memory
//! splice(2) puts references to its pages into the pipe. From there they are written through the page
//! cache, or the device takes them with direct writes. So no byte is copied more than once, and nothing
//! is mapped or registered.
//!
//! Each thread waits for the part that it moves. So a file alone is copied by several threads, which
//! take its parts in turn; of several files each has one thread. Blocks are allocated, and the length
//! is set to all but the last part, which is written at last: a copy that is interrupted is shorter
//! than its source. For a moment after a direct write of its last block it is longer.
//!
//! Whatever does not go as it should is begun again by ordinary calls.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use ringwise::AlignedBuf;
use rustix::{
    fs::{self, FallocateFlags, Stat},
    io::{self, Errno},
};

use super::{
    calls::copy_again,
    pipe::{self, PIPE_BYTES, Step},
};
use crate::{
    job::Job,
    messages::report::Line,
    names::place::{retry, set_direct},
    way::{DIRECT_ALIGNMENT_BYTES, Sides},
};

/// A direct read. docs/notes/cp/cold-files.md has what was tried.
const READ_BYTES: u64 = 512 << 10;

/// A write through the page cache. For longer ones the page cache takes longer runs of free pages
/// (mm/filemap.c, large folios): on a machine that gives free pages back to its host those cost
/// several times the copying (docs/notes/cp/cold-files.md).
const WRITE_BYTES: u64 = 64 << 10;

/// The same where several threads write one file: with each write, one waits for the other.
const WRITE_BYTES_ALONE: u64 = 256 << 10;

/// Threads that copy one file alone.
const THREADS_ALONE: usize = 4;

/// A file on its way.
struct Moving<'a> {
    job: &'a Job,
    sides: Sides,
    part_bytes: u64,
    step: Step,
}

/// Moves the content of a regular file.
pub(super) fn copy(job: &Job, sides: Sides) -> Result<(), Line> {
    let moving = Moving::new(job, sides);
    let moved = set_direct(&job.source, sides.source)
        .and_then(|()| set_direct(&job.copy, sides.copy))
        .and_then(|()| moving.carry());
    if moved.is_ok() && is_as_it_was(job) {
        return Ok(());
    }
    set_direct(&job.source, false).map_err(|errno| job.read_error(errno))?;
    copy_again(job)
}

/// Whether nobody changed the source since it was opened. Its length alone does not tell: where it is
/// cut and grows again, the device is given zeros that the kernel puts behind the cut, in pages which
/// are held for as long as a write takes, and which no read ever returned.
fn is_as_it_was(job: &Job) -> bool {
    let what = |stat: &Stat| (stat.st_size, stat.st_ctime, stat.st_ctime_nsec);
    fs::fstat(&job.source).is_ok_and(|now| what(&now) == what(&job.source_stat))
}

impl Moving<'_> {
    fn new(job: &Job, sides: Sides) -> Moving<'_> {
        let part_bytes = if sides.source { READ_BYTES } else { PIPE_BYTES };
        let write_bytes = match sides.copy {
            true => part_bytes,
            false if job.options.is_one_file() => WRITE_BYTES_ALONE,
            false => WRITE_BYTES,
        };
        let step = Step { read_bytes: part_bytes, write_bytes };
        Moving { job, sides, part_bytes, step }
    }

    fn carry(&self) -> Result<(), Errno> {
        let (copy, size) = (&self.job.copy, self.job.size());
        let tail = size.saturating_sub(1) / self.part_bytes * self.part_bytes;
        // A file that is cut to nothing is written back when it is closed (ext4, auto_da_alloc).
        if tail > 0 {
            match retry(|| fs::fallocate(copy, FallocateFlags::KEEP_SIZE, 0, size)) {
                Ok(()) | Err(Errno::OPNOTSUPP) => retry(|| fs::ftruncate(copy, tail))?,
                Err(errno) => return Err(errno),
            }
            self.parts(tail)?;
        }
        let whole = size / DIRECT_ALIGNMENT_BYTES * DIRECT_ALIGNMENT_BYTES;
        if !self.sides.copy || whole == size {
            return self.part(tail, size);
        }
        self.part(tail, whole)?;
        self.write_last(whole, size)
    }

    /// Moves all parts before the last, in any order.
    fn parts(&self, tail: u64) -> Result<(), Errno> {
        let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
        let body = || {
            while !failed.load(Relaxed) {
                let start = next.fetch_add(self.part_bytes, Relaxed);
                if start >= tail {
                    return;
                }
                if self.part(start, tail.min(start + self.part_bytes)).is_err() {
                    failed.store(true, Relaxed);
                }
            }
        };
        let options = &self.job.options;
        let threads = if options.is_one_file() { options.jobs.unwrap_or(THREADS_ALONE) } else { 1 };
        let others = threads.min((tail / self.part_bytes) as usize).saturating_sub(1);
        thread::scope(|scope| {
            for _ in 0..others {
                // Without it the others do all.
                let _ = thread::Builder::new().name("cp".into()).spawn_scoped(scope, body);
            }
            body();
        });
        if failed.load(Relaxed) { Err(Errno::IO) } else { Ok(()) }
    }

    fn part(&self, start: u64, end: u64) -> Result<(), Errno> {
        pipe::carry(&self.job.source, &self.job.copy, start..end, self.step)?;
        self.job.meter.add_bytes(end - start);
        Ok(())
    }

    /// Writes the block in which the source ends, and cuts off what lies behind its end.
    fn write_last(&self, start: u64, size: u64) -> Result<(), Errno> {
        let job = self.job;
        let alignment = DIRECT_ALIGNMENT_BYTES as usize;
        let mut block = AlignedBuf::zeroed(alignment, alignment);
        let (len, mut read) = ((size - start) as usize, 0);
        while read < len {
            // A direct read wants a whole block too, and gets what is before the end.
            let rest = &mut block[read..];
            match retry(|| io::pread(&job.source, &mut *rest, start + read as u64))? {
                0 => return Err(Errno::IO),
                count => read += count,
            }
        }
        // A part of a block cannot be gone on from by a direct write.
        if retry(|| io::pwrite(&job.copy, &block[..], start))? != alignment {
            return Err(Errno::IO);
        }
        job.meter.add_bytes(size - start);
        retry(|| fs::ftruncate(&job.copy, size))
    }
}
