//! One buffer in parts that lie behind each other, so that several reads fill it at the same time.
//!
//! Taking it apart and putting it together again copies nothing. The module does no I/O.

use bytes::{Bytes, BytesMut};

/// The length of a part; the last one may be shorter. Longer reads through the page cache are made by threads.
pub(crate) const PART_BYTES: usize = 1 << 20;

/// Allocates memory for so many bytes, at least one.
pub(crate) fn split(len: usize) -> Vec<BytesMut> {
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

/// Puts parts together again that were filled.
pub(crate) fn join(parts: Vec<BytesMut>) -> Bytes {
    let mut parts = parts.into_iter();
    let mut whole = parts.next().unwrap_or_default();
    parts.for_each(|part| whole.unsplit(part));
    whole.freeze()
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
            let whole = join(parts);
            assert_eq!((whole.len(), whole.as_ptr()), (len, start));
            assert_eq!(usize::from(whole[len - 1]), (len - 1) / PART_BYTES);
        }
    }
}
