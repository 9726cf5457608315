//! What a loop was asked to be, what it may do, and what it counts.
//!
//! It decides nothing about the kernel: `backend/uring/setup.rs` tries flags and features.

#[cfg_attr(not(all(target_os = "linux", target_pointer_width = "64")), allow(dead_code))]
pub(crate) mod failure;
#[cfg_attr(not(all(target_os = "linux", target_pointer_width = "64")), allow(dead_code))]
pub(crate) mod restriction;
#[cfg_attr(not(all(target_os = "linux", target_pointer_width = "64")), allow(dead_code))]
pub(crate) mod setup;
pub(crate) mod stats;
