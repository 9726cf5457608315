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

use std::{cell::RefCell, os::fd::OwnedFd};

use ringwise::AlignedBuf;
use rustix::{
    fs,
    io::{self, Errno},
    pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice},
};

use super::direct::{copy_again, is_as_it_was};
use crate::{
    job::Job,
    place::{retry, set_direct},
    report::Line,
    way::DIRECT_ALIGNMENT_BYTES,
};

/// What a pipe is asked to hold, and with it the length of a write: as much as anybody may ask for
/// (`fs.pipe-max-size`; pipe(7)).
const PIPE_BYTES: usize = 1 << 20;

thread_local! {
    static PIPE: RefCell<Option<Pipe>> = const { RefCell::new(None) };
}

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
    PIPE.with_borrow_mut(|kept| {
        // What is left in a pipe by a failure goes with the pipe.
        let pipe = match kept.take() {
            Some(pipe) => pipe,
            None => Pipe::open()?,
        };
        pipe.carry(job, whole)?;
        *kept = Some(pipe);
        Ok(())
    })?;
    if whole == size { Ok(()) } else { write_last(job, whole, size) }
}

/// A pipe, empty but while a file is copied.
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    bytes: usize,
}

impl Pipe {
    fn open() -> Result<Pipe, Errno> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        // A user who has many has shorter ones.
        let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
        let bytes = fcntl_getpipe_size(&writer)?;
        Ok(Pipe { reader, writer, bytes })
    }

    /// Moves whole blocks.
    fn carry(&self, job: &Job, end: u64) -> Result<(), Errno> {
        let mut at = 0;
        while at < end {
            let len = usize::try_from(end - at).map_or(self.bytes, |len| len.min(self.bytes));
            let filled = retry(|| {
                let (mut from, flags) = (at, SpliceFlags::empty());
                splice(&job.source, Some(&mut from), &self.writer, None, len, flags)
            })?;
            if filled == 0 {
                // It was cut meanwhile.
                return Err(Errno::IO);
            }
            self.empty(job, &mut at, filled as u64)?;
        }
        Ok(())
    }

    /// Writes what the pipe has.
    fn empty(&self, job: &Job, at: &mut u64, filled: u64) -> Result<(), Errno> {
        let end = *at + filled;
        while *at < end {
            let emptied = retry(|| {
                let (left, mut to) = ((end - *at) as usize, *at);
                let flags = SpliceFlags::empty();
                splice(&self.reader, None, &job.copy, Some(&mut to), left, flags)
            })?;
            if emptied == 0 {
                return Err(Errno::IO);
            }
            *at += emptied as u64;
        }
        Ok(())
    }
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
