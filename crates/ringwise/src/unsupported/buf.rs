//! Buffers: the types that go into operations, which take none here.

use std::sync::Arc;

#[path = "../buf/gathered.rs"]
mod gathered;
#[path = "../buf/result.rs"]
mod result;

pub(crate) use gathered::gather;
pub use result::BufResult;

/// Bytes that an operation can own.
pub trait OwnedBuffer: AsRef<[u8]> + Sized + Send + 'static {}

/// A buffer that can be read into.
pub trait OwnedBufferMut: OwnedBuffer {}

/// The bytes of an operation.
#[derive(Debug)]
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<B: Into<Vec<u8>>> From<B> for Buffer {
    fn from(bytes: B) -> Buffer {
        Buffer(bytes.into())
    }
}

impl OwnedBuffer for &'static [u8] {}
impl OwnedBuffer for &'static str {}
impl<const N: usize> OwnedBuffer for &'static [u8; N] {}
impl OwnedBuffer for Arc<[u8]> {}
impl OwnedBuffer for String {}
#[cfg(feature = "bytes")]
impl OwnedBuffer for bytes::Bytes {}

/// What can be read into can be written.
macro_rules! readable {
    ($($type:ty)*) => { $(
        impl OwnedBuffer for $type {}
        impl OwnedBufferMut for $type {}
    )* };
}

readable!(Vec<u8> Box<[u8]> Buffer);
#[cfg(feature = "bytes")]
readable!(bytes::BytesMut);
impl<const N: usize> OwnedBuffer for [u8; N] {}
impl<const N: usize> OwnedBufferMut for [u8; N] {}

absent! {
    BufferGroup [Clone] {
        self [fn buffer_bytes(&self) -> usize]
        self [fn count(&self) -> usize]
        self [fn available(&self) -> usize]
    }
    Pool [Clone] {}
}
