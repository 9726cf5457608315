//! The types that are buffers: of each, how an operation holds it and how it comes back.

use std::sync::Arc;

use super::{
    AlignedBuf, Buffer, Custom, OwnedBuffer, OwnedBufferMut, PoolBuf, Received, buffer::Storage,
};

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
