//! `Ring` and its futures: the handle, linked operations, statistics, setups, waits, and who owns what.

#[path = "../shared/rings.rs"]
mod rings;

mod handle;
mod linked;
mod ownership;
mod setup;
mod stats;
mod waiting;
mod wakers;
