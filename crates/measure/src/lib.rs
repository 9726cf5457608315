//! Histograms, statistics, CPU accounting and facts about the machine.
//!
//! This crate exists so that a verdict about an engine rests on one set of
//! instruments. It knows nothing of the engines it measures, so that it cannot
//! flatter one of them. It runs no workload and prints nothing.
//!
//! Reading order: [`fact`] (how an answer that cannot be had is said), then the
//! instruments ([`histogram`], [`statistics`], [`cpu`], [`counters`],
//! [`process`], [`reclaim`]), then the facts ([`device`], [`filesystem`], [`cgroup`],
//! [`environment`], [`measurable`]), then [`quantity`].
//!
//! Invariant: a source that cannot be read becomes a [`Fact::Unknown`] with its
//! reason; it never fails the whole.

#![forbid(unsafe_code)]

pub mod cgroup;
pub mod counters;
pub mod cpu;
pub mod device;
pub mod environment;
pub mod fact;
pub mod filesystem;
pub mod histogram;
pub mod measurable;
pub mod process;
pub mod quantity;
pub mod reclaim;
pub mod statistics;

pub use fact::{Fact, Sources, plain};
pub use histogram::{Latency, Percentiles};
