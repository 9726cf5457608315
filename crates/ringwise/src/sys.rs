//! The floor: kernel structures and system calls, with all that is unsafe about them.
//!
//! # Safety
//!
//! Files below this one opt in to unsafe code, each under a header that states its contract. Beside them
//! only these do:
//!
//! - memory: `buf/aligned.rs`, `buf/mapping.rs`, `buf/room.rs`, `buf/stable.rs`, and `region.rs`, `pool.rs` and
//!   `group.rs` in `buf/registered/`;
//! - the queues of a ring: `backend/uring.rs` and `buffers.rs`, `entry.rs` and `reaped.rs` below it;
//! - calls handed to threads, and descriptors of waiting calls: `backend/classic/pool.rs`, and
//!   `readiness.rs` and `net.rs` beside it;
//! - descriptors that come out of results: `flight/completion.rs`.

pub(crate) mod address;
pub(crate) mod cache;
pub(crate) mod extent;
pub(crate) mod fork;
pub(crate) mod message;
pub(crate) mod perform;
pub(crate) mod ring;
pub(crate) mod socket;
pub(crate) mod statx;
#[cfg(feature = "standard-streams")]
pub(crate) mod streams;
pub(crate) mod time;
pub(crate) mod vector;
