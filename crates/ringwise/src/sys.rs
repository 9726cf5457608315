//! The floor: kernel structures and system calls, with all that is unsafe about them.
//!
//! # Safety
//!
//! Files below this one opt in to unsafe code, each under a header that states its contract.
//! Beside them only these do: `buf/aligned.rs` and `buf/pool.rs` (memory), `buf/mapping.rs` (mapped files), `buf/group.rs` (memory
//! that the kernel chooses from), `backend/uring.rs` and `entry.rs` and `buffers.rs` below it (the
//! submission queue, queues of buffers), `backend/classic/pool.rs` (calls handed to threads),
//! `readiness.rs` and `net.rs` beside it (descriptors of waiting calls), `completion.rs`
//! (descriptors that come out of results).

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
