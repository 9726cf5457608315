//! One buffer in parts that lie behind each other, so that several reads fill it at the same time.
//!
//! Taking the buffer apart and putting it together again copies nothing. This module reads nothing.
//!
//! # Examples
//!
//! ```
//! # futures::executor::block_on(async {
//! use ringwise::{OpenOptions, Ring, fs::File, parts};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("file");
//! # std::fs::write(&path, vec![7; 3 << 20])?;
//! let file = File::open(&Ring::new()?, &path, OpenOptions::new().read(true)).await?;
//! let offsets = (0..).step_by(parts::PART_BYTES);
//! let reads = parts::split(3 << 20, 1).into_iter().zip(offsets).map(|(part, offset)| {
//!     let file = &file;
//!     async move { file.read_exact_at(part, offset).await.into_buffer() }
//! });
//! let whole = parts::join(futures::future::try_join_all(reads).await?);
//! assert_eq!(whole.len(), 3 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

use bytes::{Bytes, BytesMut};

use crate::buf::aligned::{HUGE_PAGE_BYTES, ask_for_huge_pages};

/// The length of a part in bytes; the last one may be shorter.
pub const PART_BYTES: usize = 1 << 20;

/// Allocates memory for `len` bytes, at least one, at a multiple of `alignment`. It is empty and has exactly this length
/// of room, so that a read fills no more.
///
/// If it is at least as long as a huge page (2 MiB), it begins at one and asks the kernel for huge pages (madvise(2),
/// MADV_HUGEPAGE). A device then fills it in fewer segments, and the processor has fewer page faults. On a virtual disk,
/// direct reads of 1 MiB into huge pages were 1.6 to 4 times as fast as into small ones.
///
/// # Panics
///
/// If `alignment` is not a power of two. If there is no memory, the process ends.
pub fn room(len: usize, alignment: usize) -> BytesMut {
    assert!(alignment.is_power_of_two(), "an alignment of {alignment}");
    let alignment = if len < HUGE_PAGE_BYTES { alignment } else { alignment.max(HUGE_PAGE_BYTES) };
    let mut room = BytesMut::with_capacity(len + alignment - 1);
    let unaligned = room.as_ptr().align_offset(alignment);
    if unaligned > 0 {
        room = room.split_off(unaligned);
    }
    if room.capacity() > len {
        // A read would fill this too.
        drop(room.split_off(len));
    }
    ask_for_huge_pages(room.spare_capacity_mut());
    room
}

/// Allocates memory as [`room`] does, in parts of [`PART_BYTES`]. Each is empty and has exactly its length of room.
///
/// # Panics
///
/// As [`room`].
pub fn split(len: usize, alignment: usize) -> Vec<BytesMut> {
    let mut first = room(len, alignment);
    let starts = (0..len).step_by(PART_BYTES).skip(1);
    // From the last to the first, since each is split off the rest.
    let mut parts: Vec<_> = starts.rev().map(|start| first.split_off(start)).collect();
    parts.push(first);
    parts.reverse();
    parts
}

/// Puts parts together again that were filled.
pub fn join(parts: Vec<BytesMut>) -> Bytes {
    let mut parts = parts.into_iter();
    let mut whole = parts.next().unwrap_or_default();
    parts.for_each(|part| whole.unsplit(part));
    whole.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_aligned_and_become_the_whole_again_without_a_copy() {
        for len in [1, 63, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES + 7] {
            for alignment in [1, 2, 64, 256, 4096, 64 << 10] {
                let mut parts = split(len, alignment);
                assert_eq!(parts.len(), len.div_ceil(PART_BYTES));
                let start = parts[0].as_ptr();
                assert_eq!(start.addr() % alignment, 0);
                for (number, part) in parts.iter_mut().enumerate() {
                    let capacity = part.capacity();
                    part.resize(capacity, number as u8);
                    assert_eq!(part.capacity(), capacity);
                }
                let whole = join(parts);
                assert_eq!((whole.len(), whole.as_ptr()), (len, start));
                assert_eq!(usize::from(whole[len - 1]), (len - 1) / PART_BYTES);
            }
        }
    }
}
