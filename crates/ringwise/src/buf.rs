//! Buffers that an operation owns while the kernel may touch them.
//!
//! A buffer moves into the operation and comes back with its completion, on failure too; a
//! borrowed buffer could not be kept alive when the caller goes away (invariant 1).
//!
//! A read fills what the buffer has: `vec![0; n]` within its length, which stays, and an empty
//! `Vec::with_capacity(n)` within its capacity, after which its length is what was read. No buffer is
//! ever made longer than its capacity.

mod aligned;
mod group;
mod mapping;
mod owned;
mod pool;
mod registered;

use std::ops::{Bound, RangeBounds};

pub use aligned::AlignedBuf;
pub use group::{BufferGroup, Received};
pub(crate) use group::{Entries, Group};
pub(crate) use mapping::MappedPart;
pub use mapping::Mapping;
use owned::CustomBytes;
pub(crate) use owned::Reading;
pub use owned::{Custom, OwnedBuffer, OwnedBufferMut, StableBytes};
pub use pool::{Pool, PoolBuf, Registration};
pub(crate) use registered::{Memory, Registered, Registrations, Token};

/// The most that the kernel moves in one call (`MAX_RW_COUNT`, include/linux/fs.h).
pub(crate) const MOVED_BYTES_MAX: usize = 0x7fff_f000;

/// Bytes owned by an operation, with the part of them that the operation may move.
///
/// Every accepted type converts with `Into<Buffer>`: `Vec<u8>`, `Box<[u8]>`, [`AlignedBuf`] and
/// [`PoolBuf`].
///
/// # Examples
///
/// ```
/// use ringwise::Buffer;
///
/// let buffer = Buffer::from(vec![0_u8; 8]).slice(2..6);
/// assert_eq!(buffer.selected().len(), 4);
/// assert_eq!(buffer.into_vec().unwrap().len(), 8);
/// ```
#[derive(Debug)]
pub struct Buffer {
    storage: Storage,
    start: usize,
    len: usize,
    /// It was empty, and a read fills its capacity: its length is to become what was read.
    is_filling: bool,
}

#[derive(Debug)]
enum Storage {
    Vec(Vec<u8>),
    Boxed(Box<[u8]>),
    Aligned(AlignedBuf),
    Pooled(PoolBuf),
    Received(Received),
    /// Never read into: see [`Buffer::is_writable`].
    Static(&'static [u8]),
    Custom(CustomBytes),
}

impl Storage {
    fn as_slice(&self) -> &[u8] {
        match self {
            Storage::Vec(bytes) => bytes,
            Storage::Boxed(bytes) => bytes,
            Storage::Aligned(bytes) => bytes,
            Storage::Pooled(bytes) => bytes,
            Storage::Received(bytes) => bytes,
            Storage::Static(bytes) => bytes,
            Storage::Custom(bytes) => bytes.as_slice(),
        }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            Storage::Vec(bytes) => bytes,
            Storage::Boxed(bytes) => bytes,
            Storage::Aligned(bytes) => bytes,
            Storage::Pooled(bytes) => bytes,
            Storage::Received(bytes) => bytes,
            Storage::Static(_) => &mut [],
            Storage::Custom(bytes) => bytes.as_mut_slice(),
        }
    }
}

impl Buffer {
    fn whole(storage: Storage) -> Buffer {
        let len = storage.as_slice().len();
        Buffer { storage, start: 0, len, is_filling: false }
    }

    /// As a read is given it: what is empty has its capacity, of zeros until it is filled.
    pub(crate) fn opened(mut self) -> Buffer {
        if !self.storage.as_slice().is_empty() {
            return self;
        }
        match &mut self.storage {
            Storage::Vec(bytes) => bytes.resize(bytes.capacity(), 0),
            Storage::Custom(bytes) => bytes.fill_capacity(),
            Storage::Boxed(_)
            | Storage::Aligned(_)
            | Storage::Pooled(_)
            | Storage::Received(_)
            | Storage::Static(_) => {}
        }
        self.len = self.storage.as_slice().len();
        self.is_filling = self.len > 0;
        self
    }

    /// Whether it was [opened](Self::opened) and is to be cut at what was read; from now on that is the
    /// caller's to do, by [`cut`](Self::cut).
    pub(crate) fn take_filling(&mut self) -> bool {
        std::mem::take(&mut self.is_filling)
    }

    /// As its owner gets it back after a read of so many bytes.
    pub(crate) fn filled(mut self, count: usize) -> Buffer {
        if self.take_filling() { self.cut(count) } else { self }
    }

    /// With so many bytes.
    pub(crate) fn cut(mut self, count: usize) -> Buffer {
        match &mut self.storage {
            Storage::Vec(bytes) => bytes.truncate(count),
            Storage::Custom(bytes) => bytes.truncate(count),
            _ => {}
        }
        (self.start, self.len) = (0, self.storage.as_slice().len());
        self
    }

    /// Limits the operation to `range` of the bytes, counted from the start of the buffer.
    ///
    /// # Panics
    ///
    /// When the range does not lie within the buffer, as slicing does.
    #[must_use]
    pub fn slice(mut self, range: impl RangeBounds<usize>) -> Buffer {
        let total = self.storage.as_slice().len();
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
        self.start = start;
        self.len = end - start;
        self
    }

    /// All bytes, whatever part was selected.
    pub fn as_slice(&self) -> &[u8] {
        self.storage.as_slice()
    }

    /// All bytes, whatever part was selected; none of a static buffer.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.storage.as_mut_slice()
    }

    /// The part that operations move.
    pub fn selected(&self) -> &[u8] {
        &self.storage.as_slice()[self.start..self.start + self.len]
    }

    /// The part that operations move; none of a static buffer.
    pub(crate) fn selected_mut(&mut self) -> &mut [u8] {
        if !self.is_writable() {
            return &mut [];
        }
        let (start, len) = (self.start, self.len);
        &mut self.storage.as_mut_slice()[start..start + len]
    }

    /// As [`slice`](Self::slice), of a range that came from [`range`](Self::range).
    pub(crate) fn select(&mut self, range: std::ops::Range<usize>) {
        (self.start, self.len) = (range.start, range.len());
    }

    /// How many bytes operations move.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether an operation may read into it.
    pub(crate) fn is_writable(&self) -> bool {
        !matches!(self.storage, Storage::Static(_))
    }

    /// The selected part, as a range of all bytes.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.len
    }

    /// Where the kernel reads or writes: the selected part, and its registered region if any.
    /// Lengths are cut at what the kernel moves at a time: asked for more than a result can tell,
    /// a ring refuses a send (io_uring/net.c).
    pub(crate) fn raw(&mut self, ring: u32) -> RawBuffer {
        let registered = match &self.storage {
            Storage::Pooled(lease) => lease.registered_with(ring),
            _ => None,
        };
        let len = self.len.min(MOVED_BYTES_MAX) as u32;
        let pointer = match self.storage {
            // The loop refuses to read into it; a write only looks at it.
            Storage::Static(bytes) => bytes[self.start..].as_ptr().cast_mut(),
            _ => self.selected_mut().as_mut_ptr(),
        };
        RawBuffer { pointer, len, registered }
    }

    /// The `Vec<u8>` that this buffer was made of.
    ///
    /// # Errors
    ///
    /// The buffer itself, when it was made of something else.
    pub fn into_vec(self) -> Result<Vec<u8>, Buffer> {
        match self.storage {
            Storage::Vec(bytes) => Ok(bytes),
            storage => Err(Buffer { storage, ..self }),
        }
    }

    /// The `Box<[u8]>` that this buffer was made of.
    ///
    /// # Errors
    ///
    /// The buffer itself, when it was made of something else.
    pub fn into_boxed(self) -> Result<Box<[u8]>, Buffer> {
        match self.storage {
            Storage::Boxed(bytes) => Ok(bytes),
            storage => Err(Buffer { storage, ..self }),
        }
    }

    /// The [`AlignedBuf`] that this buffer was made of.
    ///
    /// # Errors
    ///
    /// The buffer itself, when it was made of something else.
    pub fn into_aligned(self) -> Result<AlignedBuf, Buffer> {
        match self.storage {
            Storage::Aligned(bytes) => Ok(bytes),
            storage => Err(Buffer { storage, ..self }),
        }
    }

    /// The [`PoolBuf`] that this buffer was made of.
    ///
    /// # Errors
    ///
    /// The buffer itself, when it was made of something else.
    pub fn into_pooled(self) -> Result<PoolBuf, Buffer> {
        match self.storage {
            Storage::Pooled(lease) => Ok(lease),
            storage => Err(Buffer { storage, ..self }),
        }
    }
}

impl From<Received> for Buffer {
    fn from(received: Received) -> Buffer {
        Buffer::whole(Storage::Received(received))
    }
}

impl From<&'static [u8]> for Buffer {
    /// For writing only: a loop refuses to read into it.
    fn from(bytes: &'static [u8]) -> Buffer {
        Buffer::whole(Storage::Static(bytes))
    }
}

/// Where the kernel reads or writes. Valid as long as the [`Buffer`] it came from stays in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawBuffer {
    pub(crate) pointer: *mut u8,
    pub(crate) len: u32,
    pub(crate) registered: Option<u16>,
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer::whole(Storage::Vec(bytes))
    }
}

impl From<Box<[u8]>> for Buffer {
    fn from(bytes: Box<[u8]>) -> Buffer {
        Buffer::whole(Storage::Boxed(bytes))
    }
}

impl From<AlignedBuf> for Buffer {
    fn from(bytes: AlignedBuf) -> Buffer {
        Buffer::whole(Storage::Aligned(bytes))
    }
}

impl From<PoolBuf> for Buffer {
    fn from(lease: PoolBuf) -> Buffer {
        Buffer::whole(Storage::Pooled(lease))
    }
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
        let buffer = buffer.into_vec().unwrap_err();
        assert_eq!(&*buffer.into_boxed().unwrap(), [1, 2]);
    }

    #[test]
    #[should_panic(expected = "beyond every buffer")]
    fn a_range_to_the_end_of_the_address_space_is_not_empty() {
        let _ = Buffer::from(vec![0; 4]).slice(..=usize::MAX);
    }
}
