//! Reads of one range of an open file, into memory that becomes [`Bytes`] without a copy.

use std::{io, ops::Range};

use bytes::{Bytes, BytesMut};
use futures_util::future::try_join_all;
use ringwise::{AlignedBuf, OwnedBuffer, fs::File};

use crate::cache::RingId;

/// A longer range is read in parts of this length, all of them in flight together.
const PART_BYTES: usize = 1 << 20;

/// An open file.
#[derive(Debug)]
pub(crate) struct Source {
    file: File,
    /// If reads are direct, the number of bytes of which they are multiples.
    block_bytes: Option<u64>,
}

impl Source {
    pub(crate) fn buffered(file: File) -> Source {
        Source { file, block_bytes: None }
    }

    /// Takes over a file that was opened for direct reads.
    pub(crate) async fn direct(file: File) -> io::Result<Source> {
        let asked = file.metadata().await?.direct_alignment().unwrap_or_default();
        let block_bytes = u64::from(asked.offset.max(asked.memory));
        Ok(Source { file, block_bytes: Some(block_bytes) })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Which ring reads it, while the file is open.
    pub(crate) fn ring(&self) -> RingId {
        // All handles of a ring share its settings, so their address names the ring.
        RingId(std::ptr::from_ref(self.file.ring().setup()).addr())
    }

    /// Reads a range that is not empty.
    ///
    /// # Errors
    ///
    /// What a read failed with; `UnexpectedEof` if the file does not have all of the range; `OutOfMemory` if the range
    /// does not fit into memory.
    pub(crate) async fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        match self.block_bytes {
            None => self.read_parts(range).await,
            Some(block_bytes) => self.read_blocks(range, block_bytes).await,
        }
    }

    async fn read_parts(&self, range: Range<u64>) -> io::Result<Bytes> {
        let len = (range.end - range.start) as usize;
        let buffer = reserve(len)?;
        if len <= PART_BYTES {
            return Ok(self.file.read_exact_at(buffer, range.start).await.into_buffer()?.into());
        }
        drop(buffer);
        let parts = split(len);
        let offsets = (range.start..).step_by(PART_BYTES);
        let reads = parts.into_iter().zip(offsets).map(|(part, offset)| async move {
            self.file.read_exact_at(part, offset).await.into_buffer()
        });
        Ok(joined(try_join_all(reads).await?).freeze())
    }

    /// Reads all blocks that a range touches, and gives the range out of them.
    async fn read_blocks(&self, range: Range<u64>, block_bytes: u64) -> io::Result<Bytes> {
        let start = range.start - range.start % block_bytes;
        let end = range.end.next_multiple_of(block_bytes);
        let wanted = (range.start - start) as usize..(range.end - start) as usize;
        drop(reserve((end - start).saturating_add(block_bytes) as usize)?);
        let mut blocks = AlignedBuf::zeroed((end - start) as usize, block_bytes as usize);
        let mut done = 0;
        // The file may end within the last block, so not all of the blocks has to be read.
        while done < wanted.end {
            let rest = blocks.part(done..);
            let (count, rest) = self.file.read_at(rest, start + done as u64).await.into_result()?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += count;
            blocks = rest.into_inner();
        }
        Ok(Bytes::from(blocks).slice(wanted))
    }
}

/// Reserves memory for so many bytes. The memory of `BytesMut` and `AlignedBuf` aborts the process if there is none, so
/// this is asked before. The length may come from a damaged file.
fn reserve(len: usize) -> io::Result<Vec<u8>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    Ok(buffer)
}

/// Allocates memory for so many bytes, at least one, in parts of [`PART_BYTES`] that lie behind each other.
fn split(len: usize) -> Vec<BytesMut> {
    let mut first = BytesMut::with_capacity(len);
    if first.capacity() > len {
        // A read would fill this too.
        drop(first.split_off(len));
    }
    let starts = (0..len).step_by(PART_BYTES).skip(1);
    // From the last to the first, since each is split off the rest.
    let mut parts: Vec<_> = starts.rev().map(|start| first.split_off(start)).collect();
    parts.push(first);
    parts.reverse();
    parts
}

/// Puts parts that lie behind each other together again.
fn joined(parts: Vec<BytesMut>) -> BytesMut {
    let mut parts = parts.into_iter();
    let mut whole = parts.next().unwrap_or_default();
    parts.for_each(|part| whole.unsplit(part));
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_become_the_whole_again_without_a_copy() {
        for len in [1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 3 * PART_BYTES + 7] {
            let mut parts = split(len);
            assert_eq!(parts.len(), len.div_ceil(PART_BYTES));
            let start = parts[0].as_ptr();
            for (number, part) in parts.iter_mut().enumerate() {
                let capacity = part.capacity();
                part.resize(capacity, number as u8);
                assert_eq!(part.capacity(), capacity);
            }
            let whole = joined(parts);
            assert_eq!((whole.len(), whole.as_ptr()), (len, start));
            assert_eq!(usize::from(whole[len - 1]), (len - 1) / PART_BYTES);
        }
    }
}
