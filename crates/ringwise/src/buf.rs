//! Buffers that an operation owns while the kernel may touch them.
//!
//! A buffer moves into the operation and comes back with its completion, on failure too; a
//! borrowed buffer could not be kept alive when the caller goes away (invariant 1).
//!
//! There are two families. What is written is any [`OwnedBuffer`], shared and constant bytes among
//! them. What is read into is an [`OwnedBufferMut`]: `vec![0; n]` is filled within its length, which
//! stays, and an empty `Vec::with_capacity(n)` within its capacity, after which its length is what was
//! read. A [`Part`] is a range of either, and [`Spare`] is the capacity behind what is there already.

pub(crate) mod aligned;
mod buffer;
mod custom;
mod gathered;
mod kinds;
mod mapping;
mod owned;
mod part;
#[cfg(feature = "bytes")]
pub mod parts;
mod registered;
mod result;
mod room;
mod stable;

pub use aligned::AlignedBuf;
pub use buffer::Buffer;
pub(crate) use buffer::MOVED_BYTES_MAX;
pub use custom::Custom;
pub(crate) use gathered::gather;
pub(crate) use kinds::from_buffers;
pub(crate) use mapping::MappedPart;
pub use mapping::Mapping;
pub use owned::{OwnedBuffer, OwnedBufferMut};
pub use part::{Part, Spare};
pub(crate) use registered::{
    Memory, Registered, Registrations, Token,
    group::{Entries, Group},
};
pub use registered::{
    group::{BufferGroup, Received},
    pool::{Pool, PoolBuf, Registration},
};
pub use result::BufResult;
pub(crate) use room::RawBuffer;
pub use stable::{StableBytes, StableBytesMut};
