//! A range of a buffer, and what capacity it has behind its bytes.
//!
//! Both go into an operation in place of the buffer itself, and come back around it.

use std::ops::{Range, RangeBounds};

use super::{Buffer, OwnedBuffer, OwnedBufferMut, buffer::range_of};

/// A buffer of which an operation moves a range. Made by [`OwnedBuffer::part`].
///
/// # Examples
///
/// ```
/// use ringwise::{OwnedBuffer, Ring, fs::File};
///
/// # futures::executor::block_on(async {
/// let ring = Ring::new()?;
/// let file = File::from_std(&ring, std::fs::File::open("/dev/zero")?);
/// let (count, part) = file.read_at(vec![1; 8].part(2..5), 0).await.into_result()?;
/// assert_eq!((count, part.into_inner()), (3, vec![1, 1, 0, 0, 0, 1, 1, 1]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Part<B> {
    buffer: B,
    range: Range<usize>,
}

impl<B: OwnedBuffer> Part<B> {
    pub(super) fn new(buffer: B, range: impl RangeBounds<usize>) -> Part<B> {
        let range = range_of(range, buffer.as_ref().len());
        Part { buffer, range }
    }

    /// The whole buffer.
    pub fn into_inner(self) -> B {
        self.buffer
    }

    /// The range, counted from the start of the buffer.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

impl<B: OwnedBuffer> AsRef<[u8]> for Part<B> {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.as_ref()[self.range.clone()]
    }
}

impl<B: OwnedBuffer> OwnedBuffer for Part<B> {
    fn into_buffer(self) -> Buffer {
        // A part of a part is counted from where that begins.
        self.buffer.into_buffer().narrowed(self.range)
    }

    fn try_from_buffer(buffer: Buffer) -> Result<Part<B>, Buffer> {
        let (range, total) = (buffer.range(), buffer.as_slice().len());
        let buffer = B::try_from_buffer(buffer)?;
        // What is itself a part comes back as this part of it.
        let seen = buffer.as_ref().len();
        let range = if seen == total { range } else { 0..range.len().min(seen) };
        Ok(Part { buffer, range })
    }
}

impl<B: OwnedBufferMut> OwnedBufferMut for Part<B> {
    fn into_buffer_mut(self) -> Buffer {
        self.buffer.into_buffer_mut().narrowed(self.range)
    }
}

/// A buffer of which an operation fills the capacity behind its bytes. Made by
/// [`OwnedBufferMut::spare`].
///
/// # Examples
///
/// ```
/// use ringwise::{OwnedBufferMut, Ring, fs::File};
///
/// # futures::executor::block_on(async {
/// let ring = Ring::new()?;
/// let file = File::from_std(&ring, std::fs::File::open("/proc/self/comm")?);
/// let mut bytes = b"I am ".to_vec();
/// bytes.reserve(64);
/// let (count, spare) = file.read_at(bytes.spare(), 0).await.into_result()?;
/// assert_eq!(spare.0.len(), 5 + count);
/// assert!(spare.0.ends_with(b"\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Spare<B>(pub B);

impl<B: OwnedBuffer> AsRef<[u8]> for Spare<B> {
    /// Spare capacity has no bytes; those of the buffer are in `.0`.
    fn as_ref(&self) -> &[u8] {
        &[]
    }
}

impl<B: OwnedBufferMut> OwnedBuffer for Spare<B> {
    /// Nothing is written of capacity that has no bytes.
    fn into_buffer(self) -> Buffer {
        let buffer = self.0.into_buffer();
        let end = buffer.range().end;
        buffer.selecting(end..end)
    }

    fn try_from_buffer(buffer: Buffer) -> Result<Spare<B>, Buffer> {
        B::try_from_buffer(buffer).map(Spare)
    }
}

impl<B: OwnedBufferMut> OwnedBufferMut for Spare<B> {
    fn into_buffer_mut(self) -> Buffer {
        self.0.into_buffer_mut().open_spare()
    }
}
