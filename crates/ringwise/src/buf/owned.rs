//! Buffers as their owners know them: they go in as one type and come back as the same.
//!
//! An operation holds any of them as a [`Buffer`]; these traits take it in and give it back. A type
//! that the library does not know joins by [`StableBytes`].
//!
//! # Safety
//!
//! [`StableBytes`] is unsafe to implement: its bytes are reached by their address, which was asked for
//! once, as long as their owner is in a buffer (invariant 1).
#![allow(unsafe_code)]

use std::{any::Any, fmt, ptr::NonNull, slice};

use super::{AlignedBuf, Buffer, PoolBuf, Received, Storage};

/// A buffer that an operation can own and give back: `Vec<u8>`, `Box<[u8]>`, `&'static [u8]` (for
/// writing only), [`AlignedBuf`], [`PoolBuf`], [`Buffer`] itself for a part of any of them, and
/// [`Custom`] for other types.
pub trait OwnedBuffer: Sized + Send + 'static {
    /// As an operation holds it.
    fn into_buffer(self) -> Buffer;

    /// Back from an operation that was given it.
    ///
    /// # Panics
    ///
    /// When the buffer was made of another type.
    fn from_buffer(buffer: Buffer) -> Self;
}

/// A buffer that can be read into.
///
/// A read fills a buffer within its length, and the length stays. An empty buffer that has capacity
/// (`Vec::with_capacity`, `BytesMut::with_capacity`) is filled within that, and its length becomes what
/// was read.
///
/// # Examples
///
/// ```
/// use ringwise::{Ring, fs::File};
///
/// # futures::executor::block_on(async {
/// let ring = Ring::new()?;
/// let file = File::from_std(&ring, std::fs::File::open("/proc/self/comm")?);
/// let (read, bytes) = file.read_at(Vec::with_capacity(64), 0).await;
/// assert_eq!(bytes.len(), read?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub trait OwnedBufferMut: OwnedBuffer {}

/// A buffer on its way through a read, for its owner's type to be found again.
pub(crate) struct Reading {
    was_empty: bool,
}

impl Reading {
    /// Takes a buffer in.
    pub(crate) fn begin<B: OwnedBufferMut>(buffer: B) -> (Reading, Buffer) {
        let mut buffer = buffer.into_buffer().opened();
        (Reading { was_empty: buffer.take_filling() }, buffer)
    }

    /// Gives it back after so many bytes were read.
    pub(crate) fn end<B: OwnedBufferMut>(self, buffer: Buffer, count: usize) -> B {
        B::from_buffer(if self.was_empty { buffer.cut(count) } else { buffer })
    }

    /// As [`begin`](Self::begin), of several.
    pub(crate) fn begin_all<B: OwnedBufferMut>(buffers: Vec<B>) -> (Vec<Reading>, Vec<Buffer>) {
        buffers.into_iter().map(Reading::begin).unzip()
    }

    /// As [`end`](Self::end), of several that were filled in turn.
    pub(crate) fn end_all<B: OwnedBufferMut>(
        all: Vec<Reading>,
        buffers: Vec<Buffer>,
        count: usize,
    ) -> Vec<B> {
        let mut left = count;
        let end = |(reading, buffer): (Reading, Buffer)| {
            let part = left.min(buffer.len());
            left -= part;
            reading.end(buffer, part)
        };
        all.into_iter().zip(buffers).map(end).collect()
    }
}

/// Gives the storage back as the type that it was made of.
macro_rules! owned {
    ($type:ty, $variant:ident) => {
        impl OwnedBuffer for $type {
            fn into_buffer(self) -> Buffer {
                Buffer::from(self)
            }

            fn from_buffer(buffer: Buffer) -> Self {
                match buffer.storage {
                    Storage::$variant(bytes) => bytes,
                    other => panic!("a buffer of another type came back: {other:?}"),
                }
            }
        }
    };
}

owned!(Vec<u8>, Vec);
owned!(Box<[u8]>, Boxed);
owned!(AlignedBuf, Aligned);
owned!(PoolBuf, Pooled);
owned!(Received, Received);
owned!(&'static [u8], Static);

impl OwnedBuffer for Buffer {
    fn into_buffer(self) -> Buffer {
        self
    }

    fn from_buffer(buffer: Buffer) -> Buffer {
        buffer
    }
}

impl OwnedBufferMut for Vec<u8> {}
impl OwnedBufferMut for Box<[u8]> {}
impl OwnedBufferMut for AlignedBuf {}
impl OwnedBufferMut for PoolBuf {}
impl OwnedBufferMut for Buffer {}
impl<T: StableBytes> OwnedBufferMut for Custom<T> {}

/// Bytes that stay where they are while their owner moves.
///
/// # Safety
///
/// `bytes` and `bytes_mut` give the same bytes every time, initialised, at an address and of a
/// length that do not change while the value is moved and nobody else uses it, until it is dropped
/// or used as what it is again. The kernel reads and writes them in between.
pub unsafe trait StableBytes: Send + 'static {
    /// The bytes.
    fn bytes(&self) -> &[u8];
    /// The same bytes.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Makes all of the capacity part of the bytes, as zeros. Called of an empty buffer that is about to
    /// be read into, before its address is taken. Does nothing unless it is implemented.
    fn fill_capacity(&mut self) {}

    /// Keeps so many bytes of a buffer whose capacity was filled. Does nothing unless it is implemented.
    fn truncate(&mut self, _len: usize) {}
}

/// A buffer of a type that the library does not know.
///
/// # Examples
///
/// ```
/// use ringwise::{Custom, OwnedBuffer, StableBytes};
///
/// struct Page(Box<[u8; 4096]>);
///
/// // SAFETY: a box stays where it is when it is moved.
/// unsafe impl StableBytes for Page {
///     fn bytes(&self) -> &[u8] {
///         &self.0[..]
///     }
///     fn bytes_mut(&mut self) -> &mut [u8] {
///         &mut self.0[..]
///     }
/// }
///
/// let buffer = Custom(Page(Box::new([0; 4096]))).into_buffer();
/// let Custom(page) = Custom::<Page>::from_buffer(buffer);
/// assert_eq!(page.0.len(), 4096);
/// ```
#[derive(Debug)]
pub struct Custom<T>(pub T);

impl<T: StableBytes> OwnedBuffer for Custom<T> {
    fn into_buffer(self) -> Buffer {
        Buffer::whole(Storage::Custom(CustomBytes::new(Box::new(self.0))))
    }

    fn from_buffer(buffer: Buffer) -> Custom<T> {
        match buffer.storage {
            Storage::Custom(bytes) => {
                let bytes =
                    bytes.into_any().downcast().expect("a buffer of another type came back");
                Custom(*bytes)
            }
            other => panic!("a buffer of another type came back: {other:?}"),
        }
    }
}

#[cfg(feature = "bytes")]
// SAFETY: its bytes are on the heap, and moved by none of the calls that only look at them.
unsafe impl StableBytes for bytes::BytesMut {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }

    fn fill_capacity(&mut self) {
        let capacity = self.capacity();
        self.resize(capacity, 0);
    }

    fn truncate(&mut self, len: usize) {
        bytes::BytesMut::truncate(self, len);
    }
}

#[cfg(feature = "bytes")]
impl OwnedBuffer for bytes::BytesMut {
    fn into_buffer(self) -> Buffer {
        Custom(self).into_buffer()
    }

    fn from_buffer(buffer: Buffer) -> bytes::BytesMut {
        Custom::from_buffer(buffer).0
    }
}

#[cfg(feature = "bytes")]
impl OwnedBufferMut for bytes::BytesMut {}

/// A buffer of a user's type, and where its bytes are. That is asked once, on the thread that makes the
/// buffer: a loop's driver, which works for others too, calls nothing of the user's.
pub(super) struct CustomBytes {
    owner: Box<dyn AnyBytes>,
    pointer: NonNull<u8>,
    len: usize,
}

// SAFETY: the bytes are the owner's, which is `Send`, and are reached through this only.
unsafe impl Send for CustomBytes {}

impl CustomBytes {
    fn new(mut owner: Box<dyn AnyBytes>) -> CustomBytes {
        let bytes = owner.bytes_mut();
        let (pointer, len) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        CustomBytes { owner, pointer, len }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: the bytes stay where they are and initialised as long as their owner is here
        // (`StableBytes`), and nobody else uses that.
        unsafe { slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; the borrow of the owner is exclusive.
        unsafe { slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len) }
    }

    pub(super) fn fill_capacity(&mut self) {
        self.owner.fill_capacity();
        self.find();
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.owner.truncate(len);
        self.find();
    }

    fn find(&mut self) {
        let bytes = self.owner.bytes_mut();
        (self.pointer, self.len) = (NonNull::from(&mut *bytes).cast(), bytes.len());
    }

    fn into_any(self) -> Box<dyn Any> {
        self.owner.into_any()
    }
}

impl fmt::Debug for CustomBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of a custom type", self.len)
    }
}

/// [`StableBytes`] of a type that is not known any more.
pub(super) trait AnyBytes: Send {
    fn bytes_mut(&mut self) -> &mut [u8];
    fn fill_capacity(&mut self);
    fn truncate(&mut self, len: usize);
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: StableBytes> AnyBytes for T {
    fn bytes_mut(&mut self) -> &mut [u8] {
        StableBytes::bytes_mut(self)
    }

    fn fill_capacity(&mut self) {
        StableBytes::fill_capacity(self);
    }

    fn truncate(&mut self, len: usize) {
        StableBytes::truncate(self, len);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
