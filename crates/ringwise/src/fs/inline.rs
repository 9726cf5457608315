//! Reads and writes that the polling thread makes itself, because the page cache serves them at once; and metadata.
//!
//! The kernel refuses a call that would wait (`RWF_NOWAIT`, preadv2(2)). `file.rs` hands those to the ring
//! or to a thread.

use std::{io::IoSlice, ops::Range, os::fd::AsFd};

use rustix::io::{Errno as RawErrno, ReadWriteFlags, pwritev2};

use super::nature::{Nature, Way};
use crate::{
    buf::Buffer,
    descriptor::Descriptor,
    error::OFFSET_MAX,
    op::{Opcode, metadata::Metadata},
    ring::Ring,
    sys::{statx::RawStatx, vector::read_into},
};

/// What is copied on the caller's thread at a time.
pub(super) const INLINE_BYTES_MAX: usize = 1 << 20;

/// What came of a read on the caller's thread.
pub(super) enum Inline {
    /// So much, and there may be more.
    Some(usize),
    /// So much, and there the file ends.
    End(usize),
    /// Nothing that could be told from the end of the file.
    Missed,
}

/// A file, as the polling thread reads and writes it.
pub(super) struct Caller<'a> {
    pub(super) ring: &'a Ring,
    pub(super) descriptor: &'a Descriptor,
    pub(super) nature: &'a Nature,
}

impl Caller<'_> {
    /// Reads the next part on this thread, if that needs no waiting.
    pub(super) fn read(&self, buffer: &mut Buffer, done: usize, offset: u64) -> Inline {
        let len = (buffer.len() - done).min(INLINE_BYTES_MAX);
        self.read_cached(Opcode::Read, std::slice::from_mut(buffer), done..done + len, offset)
    }

    /// Reads into several buffers on this thread, if that needs no waiting.
    pub(super) fn read_vectored(&self, buffers: &mut [Buffer], offset: u64) -> Inline {
        let len = buffers.iter().fold(0_usize, |sum, each| sum.saturating_add(each.len()));
        if len > INLINE_BYTES_MAX || !buffers.iter().all(Buffer::is_writable) {
            return Inline::Missed;
        }
        self.read_cached(Opcode::ReadVectored, buffers, 0..len, offset)
    }

    /// Reads this range of the buffers, if that needs no waiting.
    fn read_cached(
        &self,
        opcode: Opcode,
        buffers: &mut [Buffer],
        range: Range<usize>,
        offset: u64,
    ) -> Inline {
        let (nature, len) = (self.nature, range.len());
        let Some(flags) = self.flags(opcode, nature.read_way(), len, offset) else {
            return Inline::Missed;
        };
        let read = match read_into(self.descriptor.as_fd(), buffers, range, offset, flags) {
            Ok(count) if count == len => Inline::Some(count),
            Ok(count) if flags.is_empty() => Inline::End(count),
            Err(RawErrno::OPNOTSUPP) => {
                nature.filesystem().learn_that_reads_wait();
                Inline::Missed
            }
            // Fewer bytes mean the end of the file or of what the cache has. The ring tells which.
            Ok(_) | Err(_) => Inline::Missed,
        };
        if let Inline::Some(count) | Inline::End(count) = read {
            self.trace(opcode, Some(offset), len, count);
        }
        read
    }

    /// Writes on this thread what needs no waiting, and gives its length. It is 0 if there is nothing,
    /// for whatever reason: the ring reports errors. A long write is not split, because other writes of
    /// the file could come between its parts.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> usize {
        let nature = self.nature;
        if bytes.len() > INLINE_BYTES_MAX {
            return 0;
        }
        let way = nature.write_way();
        let Some(flags) = self.flags(Opcode::Write, way, bytes.len(), offset) else {
            return 0;
        };
        match pwritev2(self.descriptor.as_fd(), &[IoSlice::new(bytes)], offset, flags) {
            Ok(count) => {
                if count > 0 {
                    self.trace(Opcode::Write, Some(offset), bytes.len(), count);
                }
                count
            }
            Err(errno) => {
                if errno == RawErrno::OPNOTSUPP {
                    nature.filesystem().learn_that_writes_wait();
                }
                0
            }
        }
    }

    /// Reads the metadata on this thread if that needs no waiting. A ring would hand it to a worker of the kernel
    /// (io_uring/statx.c, io_statx_prep, Linux 6.18).
    pub(super) fn metadata(&self) -> Option<Metadata> {
        if !self.nature.has_metadata_at_hand() || !self.ring.lets_callers_serve(Opcode::Statx) {
            return None;
        }
        // The ring reports an error.
        let about = RawStatx::of(self.descriptor.as_fd())?;
        self.trace(Opcode::Statx, None, 0, 0);
        Some(Metadata(about))
    }

    /// Makes the span of an operation that this thread made.
    #[inline]
    #[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "told to `tracing`"))]
    fn trace(&self, opcode: Opcode, offset: Option<u64>, bytes: usize, count: usize) {
        #[cfg(feature = "tracing")]
        crate::ring::span::tell_inline(opcode, self.descriptor, offset, bytes, count);
    }

    /// The flags with which this thread moves so many bytes, or nothing if the ring has to do it.
    fn flags(&self, opcode: Opcode, way: Way, len: usize, offset: u64) -> Option<ReadWriteFlags> {
        let flags = match way {
            Way::Ring => return None,
            Way::Memory => ReadWriteFlags::empty(),
            Way::Cache => ReadWriteFlags::NOWAIT,
        };
        (len > 0 && offset <= OFFSET_MAX && self.ring.lets_callers_serve(opcode)).then_some(flags)
    }
}
