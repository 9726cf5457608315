//! Engines: ways to read, behind one trait.
//!
//! An engine opens what it needs, says that it is ready, and drives its lanes until they are over.
//! It neither times nor verifies by itself, and knows nothing of the table that it will stand in.

pub mod aio;
pub mod bare_ring;
pub mod chain;
pub mod crew;
pub mod fio;
pub mod handle;
pub mod mmap;
pub mod name;
pub mod null;
pub mod open_loop;

pub(crate) mod rolling;
pub mod sync;
pub mod threads;
pub mod tokio;
pub mod uring;

use std::{collections::BTreeMap, fmt, sync::Arc};

use ringwise::AlignedBuf;
use ringwise_measure::{Latency, cpu::CpuSplit};
use serde::{Deserialize, Serialize};

use crate::sampling::{
    job::{Failure, Job, Start, Timing, Until, Window},
    lane::Counts,
};

/// What direct reads want of an address; enough for every block device there is.
pub(crate) const BUFFER_ALIGNMENT: usize = 4096;

/// A way to read.
pub trait Engine: Send + Sync {
    /// Does the job from the moment it is told until the lanes are over.
    ///
    /// # Errors
    ///
    /// [`Failure`]: the engine is not to be had here, or something went wrong in it.
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure>;
}

/// What the name of an engine says after the family's name: its switches, which most have not.
pub trait Named: Copy {
    /// What the family's name alone means.
    const DEFAULT: Self;

    /// Whether it can have no more than one read in flight.
    const IS_SINGLE: bool = false;

    /// Reads what follows the family's name. None where that is not understood.
    fn parse(text: &str) -> Option<Self> {
        text.is_empty().then_some(Self::DEFAULT)
    }

    /// Writes what differs from the default, as it is typed.
    ///
    /// # Errors
    ///
    /// Those of the formatter.
    fn write(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }

    /// The engine. `timing` is for those that keep their own time.
    fn engine(self, timing: Timing) -> Box<dyn Engine>;
}

/// What a program that was run to its end took, beside the time until it returned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramTimes {
    /// From its start until all that it wrote was on the device.
    pub durable_ns: u64,
    /// CPU time of the program in user mode.
    pub user_ns: u64,
    /// CPU time of the program in the kernel, io-wq workers included.
    pub system_ns: u64,
    /// CPU time of the sync after it, and of the kernel's threads during both.
    pub write_back_ns: u64,
}

/// CPU time of another process, told apart.
#[derive(Clone, Copy, Debug)]
pub struct ForeignSplit {
    /// In user mode and in the kernel, its workers and pollers included.
    pub process: CpuSplit,
    /// Interrupts and soft interrupts of the processor that it has for itself, where the kernel
    /// tells them apart.
    pub interrupt_ns: u64,
}

/// What an engine did.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// What its lanes counted.
    pub counts: Counts,
    /// Latencies of the operations that count.
    pub latency: Latency,
    /// The measured time.
    pub elapsed_ns: u64,
    /// Operations that the engine itself says it submitted, for those that count.
    pub submitted: Option<u64>,
    /// System calls by the engine's own count, warm-up included, for those that count.
    pub system_calls: Option<u64>,
    /// What the kernel granted, or what else is to be known.
    pub detail: Option<String>,
    /// CPU time of the measured time where it was spent in another process.
    pub foreign_cpu_ns: Option<u64>,
    /// The same told apart, where the process could be looked at.
    pub foreign_split: Option<ForeignSplit>,
    /// Why the engine was not what its name says, where it was not: a switch that was not granted,
    /// operations that it left to another.
    pub lacks: Option<String>,
    /// Whether the generator of the load was at its limit: then it was what was measured.
    pub client_bound: bool,
    /// What a workload counts of its own, by names that say what they are.
    pub figures: BTreeMap<&'static str, f64>,
    /// The times of a program that was run to its end.
    pub program: Option<ProgramTimes>,
}

impl Tally {
    /// The sum of all lanes.
    pub fn of(job: &Job, window: &Window, lanes: impl IntoIterator<Item = Counts>) -> Tally {
        let mut counts = Counts::default();
        for lane in lanes {
            counts.merge(&lane);
        }
        let until_ns = match window.until {
            Until::Time { ns } if !counts.exhausted => ns,
            _ => counts.end_ns,
        };
        let elapsed_ns = until_ns.saturating_sub(window.from_ns);
        Tally { counts, latency: job.latency.take(), elapsed_ns, ..Tally::default() }
    }

    /// Operations per second.
    pub fn operations_per_second(&self) -> f64 {
        self.counts.operations as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Operations in flight on average, those that count and no others.
    pub fn counted_in_flight_mean(&self) -> f64 {
        let in_flight_ns = self.counts.in_flight_ns.saturating_add_signed(self.counts.edge_ns);
        in_flight_ns as f64 / self.elapsed_ns.max(1) as f64
    }

    /// Operations in flight on average.
    pub fn in_flight_mean(&self) -> f64 {
        self.counts.in_flight_ns as f64 / self.elapsed_ns.max(1) as f64
    }
}

/// Why a ring did not do the work by itself, where there were such operations.
pub(crate) fn beside_the_ring(fallbacks: u64) -> Option<String> {
    (fallbacks > 0).then(|| {
        format!("{fallbacks} operations were not made by the ring: it has no such call here, or no thread for it")
    })
}

/// The engine is not to be had here, for a reason.
pub(crate) fn unavailable(reason: impl fmt::Display) -> Failure {
    Failure::Unavailable(reason.to_string())
}

/// A buffer for one read, good for direct I/O.
fn buffer(job: &Job) -> AlignedBuf {
    AlignedBuf::zeroed(job.block_bytes, BUFFER_ALIGNMENT)
}
