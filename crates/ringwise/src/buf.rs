//! Buffers that an operation owns while the kernel may touch them.
//!
//! A buffer moves into the operation and comes back with its completion, on failure too; a
//! borrowed buffer could not be kept alive when the caller goes away (invariant 1).
//!
//! There are two families. What is written is any [`OwnedBuffer`], shared and constant bytes among
//! them. What is read into is an [`OwnedBufferMut`]: `vec![0; n]` is filled within its length, which
//! stays, and an empty `Vec::with_capacity(n)` within its capacity, after which its length is what was
//! read. A [`Part`] is a range of either, and [`Spare`] is the capacity behind what is there already.

mod aligned;
mod custom;
mod group;
mod mapping;
mod owned;
mod part;
mod pool;
mod registered;
mod result;
mod room;

use std::{
    ops::{Bound, Range, RangeBounds},
    sync::Arc,
};

pub use aligned::AlignedBuf;
use custom::CustomBytes;
pub use custom::{Custom, StableBytes, StableBytesMut};
pub use group::{BufferGroup, Received};
pub(crate) use group::{Entries, Group};
pub(crate) use mapping::MappedPart;
pub use mapping::Mapping;
pub(crate) use owned::from_buffers;
pub use owned::{OwnedBuffer, OwnedBufferMut};
pub use part::{Part, Spare};
pub use pool::{Pool, PoolBuf, Registration};
pub(crate) use registered::{Memory, Registered, Registrations, Token};
pub use result::BufResult;
pub(crate) use room::RawBuffer;

/// The most that the kernel moves in one call (`MAX_RW_COUNT`, include/linux/fs.h).
pub(crate) const MOVED_BYTES_MAX: usize = 0x7fff_f000;

/// Bytes owned by an operation, with the part of them that the operation may move.
///
/// Every [`OwnedBuffer`] becomes one by [`into_buffer`](OwnedBuffer::into_buffer), and is found in it
/// again by [`from_buffer`](OwnedBuffer::from_buffer).
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
    storage: Storage,
    start: usize,
    len: usize,
    /// The part is spare capacity, which a read makes part of the bytes.
    is_spare: bool,
}

#[derive(Debug)]
enum Storage {
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
    fn as_slice(&self) -> &[u8] {
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
    fn whole(storage: Storage) -> Buffer {
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
    fn narrowed(self, range: Range<usize>) -> Buffer {
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
fn range_of(range: impl RangeBounds<usize>, total: usize) -> Range<usize> {
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
