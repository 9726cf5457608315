//! Reads of one range of an open file, into memory that becomes [`Bytes`] without a copy.

use std::{io, ops::Range};

use bytes::Bytes;
use futures_util::future::try_join_all;
use ringwise::{
    AlignedBuf, OwnedBuffer,
    fs::File,
    parts::{PART_BYTES, join, split},
};

use crate::cache::RingId;

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
        let parts = split(len, 1);
        let offsets = (range.start..).step_by(PART_BYTES);
        let reads = parts.into_iter().zip(offsets).map(|(part, offset)| async move {
            self.file.read_exact_at(part, offset).await.into_buffer()
        });
        Ok(join(try_join_all(reads).await?))
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
