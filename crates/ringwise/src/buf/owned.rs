//! Buffers as their owners know them: they go in as one type and come back as the same.
//!
//! An operation holds any of them as a [`Buffer`]; these traits take it in and give it back. A type
//! that the library does not know joins by [`Custom`](super::Custom).

use std::{ops::RangeBounds, sync::Arc};

use super::{AlignedBuf, Buffer, Custom, Part, PoolBuf, Received, Spare, Storage};

/// Bytes that an operation can own, write or send, and give back.
///
/// | | |
/// |---|---|
/// | constant | `&'static [u8]`, `&'static str`, `&'static [u8; N]` |
/// | shared | `Arc<[u8]>`, `bytes::Bytes` (feature `bytes`), [`Received`] |
/// | owned | `String`, and every [`OwnedBufferMut`] |
/// | part of one | [`Part`], made by [`part`](Self::part) |
/// | of other types | [`Custom`] |
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use ringwise::{OpenOptions, OwnedBuffer, Ring, fs::File};
///
/// # futures::executor::block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("notes");
/// let ring = Ring::new()?;
/// let file = File::open(&ring, &path, OpenOptions::new().write(true).create(true)).await?;
/// file.write_all_at("constant, ", 0).await.into_result()?;
/// let shared: Arc<[u8]> = Arc::from(*b"shared by many");
/// file.write_all_at(shared.part(..6), 10).await.into_result()?;
/// assert_eq!(std::fs::read(&path)?, b"constant, shared");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub trait OwnedBuffer: AsRef<[u8]> + Sized + Send + 'static {
    /// As an operation holds it, to be written or sent.
    fn into_buffer(self) -> Buffer;

    /// Back from an operation that was given it.
    ///
    /// # Errors
    ///
    /// The buffer itself, when it was made of another type.
    fn try_from_buffer(buffer: Buffer) -> Result<Self, Buffer>;

    /// As [`try_from_buffer`](Self::try_from_buffer), where the type is certain.
    ///
    /// # Panics
    ///
    /// When the buffer was made of another type.
    fn from_buffer(buffer: Buffer) -> Self {
        Self::try_from_buffer(buffer)
            .unwrap_or_else(|buffer| panic!("a buffer of another type came back: {buffer:?}"))
    }

    /// The same buffer, of which an operation moves `range` only.
    ///
    /// # Panics
    ///
    /// When the range does not lie within the bytes, as slicing does.
    fn part(self, range: impl RangeBounds<usize>) -> Part<Self> {
        Part::new(self, range)
    }
}

/// A buffer that can be read into: `Vec<u8>`, `Box<[u8]>`, `[u8; N]`, `bytes::BytesMut` (feature
/// `bytes`), [`AlignedBuf`], [`PoolBuf`], [`Buffer`], [`Custom`], and a [`Part`] or the [`Spare`] capacity of one.
///
/// A read fills a buffer within its length, and the length stays. An empty buffer that has capacity
/// (`Vec::with_capacity`, `BytesMut::with_capacity`) is filled within that, and its length becomes what
/// was read. To read behind what a buffer has, give its [`spare`](Self::spare) capacity.
///
/// # Examples
///
/// ```
/// use ringwise::{BufResult, Ring, fs::File};
///
/// # futures::executor::block_on(async {
/// let ring = Ring::new()?;
/// let file = File::from_std(&ring, std::fs::File::open("/proc/self/comm")?);
/// let BufResult(read, bytes) = file.read_at(Vec::with_capacity(64), 0).await;
/// assert_eq!(bytes.len(), read?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub trait OwnedBufferMut: OwnedBuffer {
    /// As an operation holds it, to be read into.
    fn into_buffer_mut(self) -> Buffer {
        self.into_buffer().opened()
    }

    /// The same buffer, of which an operation fills what capacity there is behind its bytes: they grow
    /// by what was read. A buffer without any is not made longer, and takes nothing.
    fn spare(self) -> Spare<Self> {
        Spare(self)
    }
}

/// Several buffers back from an operation that was given them, as [`OwnedBuffer::from_buffer`].
pub(crate) fn from_buffers<B: OwnedBuffer>(buffers: Vec<Buffer>) -> Vec<B> {
    buffers.into_iter().map(B::from_buffer).collect()
}

/// Gives the storage back as the type that it was made of.
macro_rules! owned {
    ($type:ty, $variant:ident) => {
        impl From<$type> for Buffer {
            fn from(bytes: $type) -> Buffer {
                Buffer::whole(Storage::$variant(bytes))
            }
        }

        impl OwnedBuffer for $type {
            fn into_buffer(self) -> Buffer {
                Buffer::from(self)
            }

            fn try_from_buffer(buffer: Buffer) -> Result<Self, Buffer> {
                match buffer.storage {
                    Storage::$variant(bytes) => Ok(bytes),
                    storage => Err(Buffer { storage, ..buffer }),
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
owned!(Arc<[u8]>, Shared);
#[cfg(feature = "bytes")]
owned!(bytes::Bytes, Bytes);

impl OwnedBufferMut for Vec<u8> {}
impl OwnedBufferMut for Box<[u8]> {}
impl OwnedBufferMut for AlignedBuf {}
impl OwnedBufferMut for PoolBuf {}

/// Of types that another holds for an operation: [`Custom`] knows how.
macro_rules! held_as_custom {
    ($type:ty $(, $count:ident)?) => {
        impl$(<const $count: usize>)? From<$type> for Buffer {
            fn from(bytes: $type) -> Buffer {
                Custom(bytes).into_buffer()
            }
        }

        impl$(<const $count: usize>)? OwnedBuffer for $type {
            fn into_buffer(self) -> Buffer {
                Custom(self).into_buffer()
            }

            fn try_from_buffer(buffer: Buffer) -> Result<Self, Buffer> {
                Custom::try_from_buffer(buffer).map(|Custom(bytes)| bytes)
            }
        }
    };
}

held_as_custom!(String);
held_as_custom!(&'static str);
held_as_custom!(&'static [u8; N], N);
#[cfg(feature = "bytes")]
held_as_custom!(bytes::BytesMut);

#[cfg(feature = "bytes")]
impl OwnedBufferMut for bytes::BytesMut {
    fn into_buffer_mut(self) -> Buffer {
        Custom(self).into_buffer_mut()
    }
}

impl<const N: usize> From<[u8; N]> for Buffer {
    fn from(bytes: [u8; N]) -> Buffer {
        Buffer::from(Box::<[u8]>::from(bytes))
    }
}

/// Boxed meanwhile, since it moves with its owner.
impl<const N: usize> OwnedBuffer for [u8; N] {
    fn into_buffer(self) -> Buffer {
        Buffer::from(self)
    }

    fn try_from_buffer(buffer: Buffer) -> Result<Self, Buffer> {
        match (&buffer.storage, <[u8; N]>::try_from(buffer.as_slice())) {
            (Storage::Boxed(_), Ok(bytes)) => Ok(bytes),
            _ => Err(buffer),
        }
    }
}

impl<const N: usize> OwnedBufferMut for [u8; N] {}

impl OwnedBuffer for Buffer {
    fn into_buffer(self) -> Buffer {
        self
    }

    fn try_from_buffer(buffer: Buffer) -> Result<Buffer, Buffer> {
        Ok(buffer.given_back())
    }
}

impl OwnedBufferMut for Buffer {}

impl Buffer {
    /// The `Vec<u8>` that this buffer was made of; other types by
    /// [`try_from_buffer`](OwnedBuffer::try_from_buffer).
    ///
    /// # Errors
    ///
    /// The buffer itself, when it was made of something else.
    pub fn into_vec(self) -> Result<Vec<u8>, Buffer> {
        Vec::try_from_buffer(self)
    }
}

/// What is leased or aligned is shared by the `bytes` of others without a copy, and goes back or is
/// freed with the last of them.
macro_rules! shared_bytes {
    ($type:ty) => {
        impl AsRef<[u8]> for $type {
            fn as_ref(&self) -> &[u8] {
                self
            }
        }

        #[cfg(feature = "bytes")]
        impl From<$type> for bytes::Bytes {
            /// Without a copy.
            fn from(owner: $type) -> bytes::Bytes {
                bytes::Bytes::from_owner(owner)
            }
        }
    };
}

shared_bytes!(AlignedBuf);
shared_bytes!(PoolBuf);
shared_bytes!(Received);
