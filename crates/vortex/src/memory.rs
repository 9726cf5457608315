//! Memory for a read: with the alignment that Vortex asks for, and in parts that are in flight together.
//!
//! The parts become one piece again without a copy. This module reads nothing.

use bytes::{Bytes, BytesMut};

/// A longer range is read in parts of this length.
pub(crate) const PART_BYTES: usize = 1 << 20;

/// Allocates memory for `len` bytes, at least one, at a multiple of `alignment`, a power of two. It is given
/// in parts of [`PART_BYTES`] that lie behind each other.
pub(crate) fn split(len: usize, alignment: usize) -> Vec<BytesMut> {
    let mut first = BytesMut::with_capacity(len + alignment - 1);
    let unaligned = first.as_ptr().align_offset(alignment);
    if unaligned > 0 {
        first = first.split_off(unaligned);
    }
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
pub(crate) fn joined(parts: Vec<BytesMut>) -> Bytes {
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
                let whole = joined(parts);
                assert_eq!((whole.len(), whole.as_ptr()), (len, start));
                assert_eq!(usize::from(whole[len - 1]), (len - 1) / PART_BYTES);
            }
        }
    }
}
