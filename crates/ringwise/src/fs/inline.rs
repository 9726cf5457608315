//! What needs no waiting: reads that the page cache can serve and writes that it can take, made by the
//! thread that polls.
//!
//! Whether the kernel would wait it says itself (`RWF_NOWAIT`, preadv2(2)); what it refuses is the ring's
//! or a thread's, by `file.rs`.

use std::{io::IoSlice, os::fd::AsFd};

use rustix::io::{Errno as RawErrno, ReadWriteFlags, pwritev2};

use super::{File, nature::Way};
use crate::{buf::Buffer, error::OFFSET_MAX, op::Opcode, sys::vector::read_into};

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

impl File {
    /// Reads the next part on this thread, if that needs no waiting.
    pub(super) fn read_inline(&self, buffer: &mut Buffer, done: usize, offset: u64) -> Inline {
        let len = (buffer.len() - done).min(INLINE_BYTES_MAX);
        self.read_cached(Opcode::Read, std::slice::from_mut(buffer), done, len, offset)
    }

    /// Reads into several buffers on this thread, if that needs no waiting.
    pub(super) fn read_vectored_inline(&self, buffers: &mut [Buffer], offset: u64) -> Inline {
        let len = buffers.iter().fold(0_usize, |sum, each| sum.saturating_add(each.len()));
        if len > INLINE_BYTES_MAX || !buffers.iter().all(Buffer::is_writable) {
            return Inline::Missed;
        }
        self.read_cached(Opcode::ReadVectored, buffers, 0, len, offset)
    }

    /// Reads so many bytes behind the first `done`, if that needs no waiting.
    #[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "told to `tracing`"))]
    fn read_cached(
        &self,
        opcode: Opcode,
        buffers: &mut [Buffer],
        done: usize,
        len: usize,
        offset: u64,
    ) -> Inline {
        let nature = &self.shared.nature;
        let Some(flags) = self.inline_flags(nature.read_way(), len, offset) else {
            return Inline::Missed;
        };
        let read =
            match read_into(self.descriptor.as_fd(), buffers, done..done + len, offset, flags) {
                Ok(count) if count == len => Inline::Some(count),
                Ok(count) if flags.is_empty() => Inline::End(count),
                Err(RawErrno::OPNOTSUPP) => {
                    nature.filesystem().learn_that_reads_wait();
                    Inline::Missed
                }
                // Fewer may be the end of the file, or of what the cache has: the ring tells.
                Ok(_) | Err(_) => Inline::Missed,
            };
        #[cfg(feature = "tracing")]
        if let Inline::Some(count) | Inline::End(count) = read {
            crate::ring::span::tell_inline(opcode, &self.descriptor, offset, len, count);
        }
        read
    }

    /// Writes as much as needs no waiting on this thread; 0 where that is nothing, for whatever
    /// reason: the ring tells it. A long write is not taken apart, since other writes of the file
    /// could come in between its parts.
    pub(super) fn write_inline(&self, bytes: &[u8], offset: u64) -> usize {
        let nature = &self.shared.nature;
        if bytes.len() > INLINE_BYTES_MAX {
            return 0;
        }
        let Some(flags) = self.inline_flags(nature.write_way(), bytes.len(), offset) else {
            return 0;
        };
        let vector = [IoSlice::new(bytes)];
        let written = pwritev2(self.descriptor.as_fd(), &vector, offset, flags);
        let count = written.unwrap_or_else(|errno| {
            if errno == RawErrno::OPNOTSUPP {
                nature.filesystem().learn_that_writes_wait();
            }
            0
        });
        #[cfg(feature = "tracing")]
        if count > 0 {
            crate::ring::span::tell_inline(
                Opcode::Write,
                &self.descriptor,
                offset,
                bytes.len(),
                count,
            );
        }
        count
    }

    /// With which flags so many bytes are moved on this thread; none where the ring is to do it.
    fn inline_flags(&self, way: Way, len: usize, offset: u64) -> Option<ReadWriteFlags> {
        let flags = match way {
            Way::Ring => return None,
            Way::Memory => ReadWriteFlags::empty(),
            Way::Cache => ReadWriteFlags::NOWAIT,
        };
        (len > 0 && offset <= OFFSET_MAX && self.ring.lets_callers_serve()).then_some(flags)
    }
}
