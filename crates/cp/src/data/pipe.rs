//! A pipe of each thread's own, through which splice(2) moves pages from file to file.
//!
//! What a pipe holds are references to pages: those of the source's page cache, or, where the source
//! is open for direct reads, pages that the kernel has for the moment (fs/splice.c, copy_splice_read).
//! No page is mapped and no buffer is made ready, which is what short copies pay for otherwise.

use std::{cell::RefCell, ops::Range, os::fd::OwnedFd};

use ringwise::Descriptor;
use rustix::{
    io::Errno,
    pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice},
};

use crate::{names::place::retry, way::DIRECT_ALIGNMENT_BYTES};

/// What a pipe is asked to hold: as much as anybody may ask for (`fs.pipe-max-size`; pipe(7)).
pub(super) const PIPE_BYTES: u64 = 1 << 20;

thread_local! {
    static KEPT: RefCell<Option<Pipe>> = const { RefCell::new(None) };
}

/// How many bytes are moved at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
}

/// Moves a range of one file to the same in another. It begins with a whole block; where it does not
/// end with one, the source has to end there.
pub(super) fn carry(
    source: &Descriptor,
    copy: &Descriptor,
    range: Range<u64>,
    step: Step,
) -> Result<(), Errno> {
    KEPT.with_borrow_mut(|kept| {
        // What is left in a pipe by a failure goes with the pipe.
        let pipe = match kept.take() {
            Some(pipe) => pipe,
            None => Pipe::open()?,
        };
        let read_bytes = step.read_bytes.min(pipe.bytes);
        let mut at = range.start;
        while at < range.end {
            let left = range.end - at;
            let wanted = left.next_multiple_of(DIRECT_ALIGNMENT_BYTES).min(read_bytes);
            let filled = pipe.fill(source, at, wanted)?;
            // It was cut meanwhile, or grew.
            if filled == 0 || filled > left {
                return Err(Errno::IO);
            }
            pipe.empty(copy, at..at + filled, step.write_bytes)?;
            at += filled;
        }
        *kept = Some(pipe);
        Ok(())
    })
}

/// A pipe, empty but while something is moved.
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    bytes: u64,
}

impl Pipe {
    fn open() -> Result<Pipe, Errno> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        // A user who has many has shorter ones.
        let _ = fcntl_setpipe_size(&writer, PIPE_BYTES as usize);
        let bytes = fcntl_getpipe_size(&writer)? as u64;
        Ok(Pipe { reader, writer, bytes })
    }

    fn fill(&self, source: &Descriptor, at: u64, len: u64) -> Result<u64, Errno> {
        let filled = retry(|| {
            let (mut from, flags) = (at, SpliceFlags::empty());
            splice(source, Some(&mut from), &self.writer, None, len as usize, flags)
        })?;
        Ok(filled as u64)
    }

    /// Writes what the pipe has.
    fn empty(&self, copy: &Descriptor, range: Range<u64>, most: u64) -> Result<(), Errno> {
        let mut at = range.start;
        while at < range.end {
            let emptied = retry(|| {
                let (len, mut to) = ((range.end - at).min(most) as usize, at);
                splice(&self.reader, None, copy, Some(&mut to), len, SpliceFlags::empty())
            })?;
            if emptied == 0 {
                return Err(Errno::IO);
            }
            at += emptied as u64;
        }
        Ok(())
    }
}
