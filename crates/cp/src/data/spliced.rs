//! A file that the device takes straight from the page cache of its source, through a pipe.
//!
//! splice(2) puts references to the source's pages into the pipe, and takes them from there into one
//! direct write for a mebibyte: nothing is copied in memory, nothing is left to be written back, and
//! no page is mapped, which for a file of a mebibyte costs more than its write (docs/copying.md; long
//! files are mapped, `flight/mapped.rs`). A ring makes such calls by worker threads of the kernel only
//! (io_uring/splice.c), so threads of the program do, one write each in flight.
//!
//! The copy grows with each write, the last of which is a whole block, of which what is too much is
//! cut off. Whatever does not go as it should is begun again by ordinary calls.

use ringwise::AlignedBuf;
use rustix::{
    fs,
    io::{self, Errno},
};

use super::{
    direct::{copy_again, is_as_it_was},
    pipe::{self, PIPE_BYTES, Step},
};
use crate::{
    job::Job,
    place::{retry, set_direct},
    report::Line,
    way::DIRECT_ALIGNMENT_BYTES,
};

/// Moves the content of a regular file.
pub(super) fn copy(job: &Job) -> Result<(), Line> {
    let moved = set_direct(&job.copy, true).and_then(|()| carry(job));
    if moved.is_ok() && is_as_it_was(job) {
        job.meter.add_bytes(job.size());
        return Ok(());
    }
    copy_again(job)
}

fn carry(job: &Job) -> Result<(), Errno> {
    let size = job.size();
    let whole = size / DIRECT_ALIGNMENT_BYTES * DIRECT_ALIGNMENT_BYTES;
    let step = Step { read_bytes: PIPE_BYTES, write_bytes: PIPE_BYTES };
    pipe::carry(&job.source, &job.copy, 0..whole, step)?;
    if whole == size { Ok(()) } else { write_last(job, whole, size) }
}

/// Writes the block in which the source ends, and cuts off what lies behind its end.
fn write_last(job: &Job, start: u64, size: u64) -> Result<(), Errno> {
    let alignment = DIRECT_ALIGNMENT_BYTES as usize;
    let mut block = AlignedBuf::zeroed(alignment, alignment);
    let (len, mut read) = ((size - start) as usize, 0);
    while read < len {
        let rest = &mut block[read..len];
        match retry(|| io::pread(&job.source, &mut *rest, start + read as u64))? {
            0 => return Err(Errno::IO),
            count => read += count,
        }
    }
    // A part of a block cannot be gone on from by a direct write.
    if retry(|| io::pwrite(&job.copy, &block[..], start))? != alignment {
        return Err(Errno::IO);
    }
    retry(|| fs::ftruncate(&job.copy, size))
}
