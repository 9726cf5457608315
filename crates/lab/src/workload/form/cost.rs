//! How long a workload takes: what follows from the number of its samples, and what a device takes.

use std::time::Duration;

use crate::{
    sampling::job::{Extent, Timing},
    workload::form::{COUNTING, SAMPLE_OVERHEAD},
};

/// What a device takes of test files, a second.
const WRITTEN_BYTES_PER_S: f64 = 200e6;

/// The samples of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    /// How many there are.
    pub count: u32,
    /// How many rows they belong to.
    pub rows: u32,
    /// Samples of a row.
    pub per_row: u32,
    /// How long one takes.
    pub each: Duration,
    /// How long the pass takes in which events of a row are counted.
    pub counting: Duration,
}

impl Samples {
    /// The samples of `rows` rows.
    pub fn new(rows: usize, repeats: usize, timing: Timing) -> Samples {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let lasting = |timing: Timing| match timing.extent {
            Extent::Time(time) => timing.warm_up + time + SAMPLE_OVERHEAD,
            // How long so many operations take is what is asked.
            Extent::Operations(_) => timing.warm_up + SAMPLE_OVERHEAD,
        };
        Samples {
            count: number(rows * 2 * repeats),
            rows: number(rows),
            per_row: number(2 * repeats),
            each: lasting(timing),
            counting: lasting(COUNTING),
        }
    }

    /// The time of all samples.
    pub fn time(&self) -> Duration {
        self.each * self.count
    }
}

/// The time in which a device takes so many bytes.
pub fn writing(bytes: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / WRITTEN_BYTES_PER_S)
}
