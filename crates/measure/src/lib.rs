//! Histograms, statistics, CPU accounting and facts about the machine.
//!
//! This crate exists so that every verdict about an engine rests on the same instruments. It does not know the engines
//! that it measures, so it cannot favour one of them. It runs no workload and prints nothing.
//!
//! Reading order: [`fact`] (values that may be unknown), then the instruments ([`histogram`], [`statistics`], [`cpu`],
//! [`counters`], [`process`], [`reclaim`]), then the facts ([`device`], [`filesystem`], [`cgroup`], [`environment`],
//! [`measurable`]), then [`quantity`], [`words`] and [`destination`].
//!
//! Invariant: if a source cannot be read, its fact becomes a [`Fact::Unknown`] with the reason. The other facts are
//! still read.

#![forbid(unsafe_code)]

pub mod cgroup;
pub mod counters;
pub mod cpu;
pub mod destination;
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
pub mod words;

pub use fact::{Fact, Sources, plain, plain_text};
pub use histogram::{Latency, Percentiles};
