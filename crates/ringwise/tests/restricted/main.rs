//! Rings that may do less than all: restricted ones, sealed ones, and those that fell back to syscalls.

#[path = "../shared/rings.rs"]
mod rings;

mod fallback;
mod names;
mod restrictions;
