//! The bytes of an operation, of whatever type, and the part of them that it moves.

use std::{
    ops::{Bound, Range, RangeBounds},
    sync::Arc,
};

use super::{AlignedBuf, PoolBuf, Received, stable::CustomBytes};

/// The most that the kernel moves in one call (`MAX_RW_COUNT`, include/linux/fs.h).
pub(crate) const MOVED_BYTES_MAX: usize = 0x7fff_f000;

/// Bytes owned by an operation, with the part of them that the operation may move.
///
/// [`OwnedBuffer::into_buffer`](crate::OwnedBuffer::into_buffer) makes one of any buffer type, and
/// [`OwnedBuffer::from_buffer`](crate::OwnedBuffer::from_buffer) gives that type back.
///
/// # Examples
///
/// ```
/// use ringwise::{Buffer, OwnedBuffer};
///
/// let buffer = Buffer::from(vec![0_u8; 8]).slice(2..6);
/// assert_eq!(buffer.selected().len(), 4);
/// assert_eq!(Vec::from_buffer(buffer).len(), 8);
/// ```
#[derive(Debug)]
pub struct Buffer {
    pub(super) storage: Storage,
    pub(super) start: usize,
    pub(super) len: usize,
    /// The part is spare capacity, which a read makes part of the bytes.
    pub(super) is_spare: bool,
}

#[derive(Debug)]
pub(super) enum Storage {
    Vec(Vec<u8>),
    Boxed(Box<[u8]>),
    Aligned(AlignedBuf),
    Pooled(PoolBuf),
    Received(Received),
    // None of these is read into: see `Buffer::is_writable`.
    Static(&'static [u8]),
    Shared(Arc<[u8]>),
    #[cfg(feature = "bytes")]
    Bytes(bytes::Bytes),
    /// It says itself.
    Custom(CustomBytes),
}

impl Storage {
    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Storage::Vec(bytes) => bytes,
            Storage::Boxed(bytes) => bytes,
            Storage::Aligned(bytes) => bytes,
            Storage::Pooled(bytes) => bytes,
            Storage::Received(bytes) => bytes,
            Storage::Static(bytes) => bytes,
            Storage::Shared(bytes) => bytes,
            #[cfg(feature = "bytes")]
            Storage::Bytes(bytes) => bytes,
            Storage::Custom(bytes) => bytes.as_slice(),
        }
    }
}

impl Buffer {
    #[inline]
    pub(super) fn whole(storage: Storage) -> Buffer {
        let len = storage.as_slice().len();
        Buffer { storage, start: 0, len, is_spare: false }
    }

    /// Limits the operation to `range` of the bytes, counted from the start of the buffer.
    ///
    /// # Panics
    ///
    /// When the range does not lie within the buffer, as slicing does.
    #[must_use]
    pub fn slice(self, range: impl RangeBounds<usize>) -> Buffer {
        let range = range_of(range, self.as_slice().len());
        Buffer { is_spare: false, ..self.selecting(range) }
    }

    /// The same of a range that came from [`range`](Self::range), which may be spare capacity.
    #[inline]
    pub(crate) fn selecting(mut self, range: Range<usize>) -> Buffer {
        self.select(range);
        self
    }

    /// A range of what is selected.
    pub(super) fn narrowed(self, range: Range<usize>) -> Buffer {
        assert!(range.end <= self.len, "a part lies within its buffer");
        let start = self.start;
        self.selecting(start + range.start..start + range.end)
    }

    /// As [`selecting`](Self::selecting), where the buffer is.
    #[inline]
    pub(crate) fn select(&mut self, range: Range<usize>) {
        (self.start, self.len) = (range.start, range.len());
    }

    /// As its owner gets it back: of spare capacity, what was read is part of the bytes.
    #[inline]
    pub(crate) fn given_back(self) -> Buffer {
        if self.is_spare { Buffer::whole(self.storage) } else { self }
    }

    /// All bytes, whatever part was selected.
    pub fn as_slice(&self) -> &[u8] {
        self.storage.as_slice()
    }

    /// The part that operations move.
    pub fn selected(&self) -> &[u8] {
        let bytes = self.as_slice();
        // Spare capacity has no bytes yet.
        let end = bytes.len().min(self.start + self.len);
        &bytes[self.start.min(end)..end]
    }

    /// How many bytes operations move.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The selected part, as a range of all bytes.
    #[inline]
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }
}

impl AsRef<[u8]> for Buffer {
    /// The part that operations move.
    fn as_ref(&self) -> &[u8] {
        self.selected()
    }
}

/// A range of so many bytes.
///
/// # Panics
///
/// When it does not lie within them.
pub(super) fn range_of(range: impl RangeBounds<usize>, total: usize) -> Range<usize> {
    let after = |at: usize| at.checked_add(1).expect("a range beyond every buffer");
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => after(before),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => after(last),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => total,
    };
    assert!(start <= end && end <= total, "range {start}..{end} of a buffer of {total} bytes");
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::OwnedBuffer;

    #[test]
    fn a_slice_is_what_the_kernel_sees() {
        let mut buffer = Buffer::from((0..10).collect::<Vec<u8>>()).slice(3..=5);
        assert_eq!(buffer.selected(), [3, 4, 5]);
        let raw = buffer.raw(0);
        assert_eq!(raw.len, 3);
        assert_eq!(raw.pointer.cast_const(), buffer.as_slice()[3..].as_ptr());
    }

    #[test]
    #[should_panic(expected = "range 3..11 of a buffer of 10 bytes")]
    fn a_slice_outside_is_refused() {
        let _ = Buffer::from(vec![0; 10]).slice(3..11);
    }

    #[test]
    fn a_buffer_comes_back_as_what_it_was() {
        let buffer = Buffer::from(vec![1, 2].into_boxed_slice());
        assert_eq!(&*<Box<[u8]>>::from_buffer(buffer), [1, 2]);
    }

    #[test]
    #[should_panic(expected = "beyond every buffer")]
    fn a_range_to_the_end_of_the_address_space_is_not_empty() {
        let _ = Buffer::from(vec![0; 4]).slice(..=usize::MAX);
    }
}
