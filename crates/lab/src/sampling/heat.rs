//! Which latencies came when: counts of operations by slice of the measured time and by latency.
//!
//! A histogram tells how long the slowest reads took, not whether they came together. This keeps
//! both, in a table of fixed size that a lane writes to while it measures; `report::heatmap` draws
//! it.

/// Equal parts of the measured time.
pub const SLICES: usize = 120;
/// Classes of latency: four to an octave, from 1 us to 1 s.
pub const BUCKETS: usize = (OCTAVE_END - OCTAVE_START) << PARTS_BITS;

/// 2^10 ns and 2^30 ns stand for 1 us and 1 s, which they are within 7 %.
const OCTAVE_START: usize = 10;
const OCTAVE_END: usize = 30;
const PARTS_BITS: usize = 2;

/// Counts of operations by the time when they ended and by their latency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heat {
    /// A row of buckets for each slice.
    cells: Vec<u32>,
}

impl Default for Heat {
    fn default() -> Heat {
        Heat::new()
    }
}

impl Heat {
    /// Nothing counted. Takes 38 KiB.
    pub fn new() -> Heat {
        Heat { cells: vec![0; SLICES * BUCKETS] }
    }

    /// Counts an operation that ended `at_ns` after the start of a measured time of `measured_ns`.
    #[inline]
    pub fn record(&mut self, at_ns: u64, measured_ns: u64, latency_ns: u64) {
        // An hour in nanoseconds times the slices is far from the end of the type.
        let slice = (at_ns * SLICES as u64 / measured_ns.max(1)) as usize;
        let cell = &mut self.cells[slice.min(SLICES - 1) * BUCKETS + bucket(latency_ns)];
        *cell = cell.saturating_add(1);
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Heat) {
        for (sum, more) in self.cells.iter_mut().zip(&other.cells) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// How many operations of a bucket ended in some slices.
    pub fn count(&self, slices: std::ops::Range<usize>, bucket: usize) -> u64 {
        slices.map(|slice| u64::from(self.cells[slice * BUCKETS + bucket])).sum()
    }

    /// What was counted: the slice, the bucket and how many, where there are any.
    pub fn cells(&self) -> impl Iterator<Item = (usize, usize, u32)> {
        let counts = self.cells.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(cell, &count)| (cell / BUCKETS, cell % BUCKETS, count))
    }

    /// Adds what [`cells`](Self::cells) gave. False where there is no such cell.
    pub fn add(&mut self, slice: usize, bucket: usize, count: u32) -> bool {
        if slice >= SLICES || bucket >= BUCKETS {
            return false;
        }
        let cell = &mut self.cells[slice * BUCKETS + bucket];
        *cell = cell.saturating_add(count);
        true
    }

    /// How many operations were counted.
    pub fn total(&self) -> u64 {
        self.cells.iter().map(|&count| u64::from(count)).sum()
    }
}

/// The bucket of a latency. What is shorter than the first or longer than the last is in that.
#[inline]
pub fn bucket(latency_ns: u64) -> usize {
    let octave = latency_ns.max(1).ilog2() as usize;
    if octave < OCTAVE_START {
        return 0;
    }
    let part = (latency_ns >> (octave - PARTS_BITS)) as usize & ((1 << PARTS_BITS) - 1);
    (((octave - OCTAVE_START) << PARTS_BITS) + part).min(BUCKETS - 1)
}

/// Where a latency lies among the buckets, as a fraction of them all.
pub fn position(latency_ns: f64) -> f64 {
    let octave = latency_ns.max(1.0).log2().floor();
    let within = latency_ns.max(1.0) / octave.exp2() - 1.0;
    let octaves = octave + within - OCTAVE_START as f64;
    (octaves / (OCTAVE_END - OCTAVE_START) as f64).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_series_lands_in_its_cells() {
        let mut heat = Heat::new();
        // 120 us of measured time: a slice is a microsecond.
        for (at_ns, latency_ns) in
            [(0, 1024), (999, 1279), (1000, 1280), (60_500, 100_000), (119_999, 1 << 29)]
        {
            heat.record(at_ns, 120_000, latency_ns);
        }
        assert_eq!(heat.count(0..1, 0), 2, "1.024 to 1.28 us in the first slice");
        assert_eq!(heat.count(1..2, 1), 1);
        // 100 us is in the octave from 65.5 us, in its third quarter.
        assert_eq!(heat.count(60..61, 6 * 4 + 2), 1);
        assert_eq!(heat.count(119..120, 19 * 4), 1);
        assert_eq!((heat.total(), heat.count(0..SLICES, 0)), (5, 2));
    }

    #[test]
    fn nothing_is_lost_at_the_edges() {
        let mut heat = Heat::new();
        for (at_ns, latency_ns) in [(0, 0), (0, 1), (5, 1023), (10, 1 << 30), (99, u64::MAX)] {
            heat.record(at_ns, 10, latency_ns);
        }
        assert_eq!(heat.total(), 5);
        assert_eq!(heat.count(0..SLICES, 0), 3);
        assert_eq!(heat.count(0..SLICES, BUCKETS - 1), 2);
        assert_eq!(heat.count(SLICES - 1..SLICES, BUCKETS - 1), 2);
    }

    #[test]
    fn positions_are_where_the_buckets_are() {
        for latency_ns in [1024, 1300, 5000, 100_000, 1_000_000, 77_000_000, 999_000_000] {
            let place = (position(latency_ns as f64) * BUCKETS as f64) as usize;
            assert_eq!(place, bucket(latency_ns), "{latency_ns}");
        }
        assert_eq!((position(1.0), position(1e12)), (0.0, 1.0));
    }

    #[test]
    fn merging_adds() {
        let (mut one, mut two) = (Heat::new(), Heat::new());
        one.record(0, 10, 2000);
        two.record(0, 10, 2000);
        two.record(9, 10, 4000);
        one.merge(&two);
        assert_eq!((one.count(0..1, bucket(2000)), one.total()), (2, 3));
    }
}
