//! Buffers as their owners know them: they go in as one type and come back as the same.
//!
//! An operation holds any of them as a [`Buffer`]; these traits take it in and give it back. A type
//! that the library does not know joins by [`Custom`](super::Custom).

use std::ops::RangeBounds;

use super::{Buffer, Part, Spare};

/// Bytes that an operation can own, write or send, and give back.
///
/// | | |
/// |---|---|
/// | constant | `&'static [u8]`, `&'static str`, `&'static [u8; N]` |
/// | shared | `Arc<[u8]>`, `bytes::Bytes` (feature `bytes`), [`Received`](super::Received) |
/// | owned | `String`, and every [`OwnedBufferMut`] |
/// | part of one | [`Part`], made by [`part`](Self::part) |
/// | of other types | [`Custom`](super::Custom) |
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
/// `bytes`), [`AlignedBuf`](super::AlignedBuf), [`PoolBuf`](super::PoolBuf), [`Buffer`], [`Custom`](super::Custom), and a [`Part`] or the [`Spare`] capacity of one.
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

    /// Lets a read fill the capacity behind the bytes that the buffer has; its length grows by what was read.
    /// Reserve capacity first: if there is none, the read moves nothing and gives 0, as at the end of a file.
    fn spare(self) -> Spare<Self> {
        Spare(self)
    }
}
