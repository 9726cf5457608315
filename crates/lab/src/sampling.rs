//! Samples: the job of an engine, its lanes, clocks and counters, and the order of samples.

pub(crate) mod accesses;
pub mod heat;
pub mod job;
pub mod lane;
pub(crate) mod memory_group;
pub(crate) mod record;
pub mod sample;
pub mod schedule;
