//! Statistics for engines measured side by side.
//!
//! The unit of evidence is a block, not an operation. Operations within a block share its conditions, so an interval
//! over operations would be far too narrow. Each block gives one log ratio of candidate to baseline, and the interval
//! is bootstrapped over the blocks. An A/A control, measured in the same way, gives the difference that identical code
//! shows. This module does not know what was measured.

mod order;
mod quantile;
mod ratio;
mod steadiness;
mod steady_state;

pub use order::BlockOrder;
pub use quantile::{Quartiles, median, quartiles};
pub use ratio::{Comparison, MINIMUM_DIFFERENCE, Ratio, compare, noise_floor, paired_log_ratios};
pub use steadiness::{TREND_SAMPLES_MIN, Trend, trend};
pub use steady_state::{STEADY_STATE_ROUNDS_MAX, SteadyWindow, WINDOW_ROUNDS};

use serde::Serialize;

/// Little's law: operations in flight = throughput x mean latency.
///
/// If it does not hold, the measurement took its timestamps in the wrong place, or did not keep the queue as full as
/// reported.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LittlesLaw {
    /// The operations in flight that follow from throughput and mean latency.
    pub implied_in_flight: f64,
    /// The operations that were kept in flight.
    pub in_flight: f64,
    /// Whether the two agree within the tolerance.
    pub holds: bool,
}

impl LittlesLaw {
    /// Checks a measurement; `tolerance` is a share, such as 0.05.
    ///
    /// The law does not hold if nothing was measured (no throughput, or nothing in flight).
    pub fn check(
        operations_per_second: f64,
        latency_ns_mean: f64,
        in_flight: f64,
        tolerance: f64,
    ) -> Self {
        let implied_in_flight = operations_per_second * latency_ns_mean / 1e9;
        let holds = implied_in_flight > 0.0
            && in_flight > 0.0
            && (implied_in_flight / in_flight - 1.0).abs() <= tolerance;
        LittlesLaw { implied_in_flight, in_flight, holds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn littles_law_holds_and_breaks() {
        // 32 in flight at 320 us each is 100 000 per second.
        assert!(LittlesLaw::check(100_000.0, 320_000.0, 32.0, 0.05).holds);
        assert!(LittlesLaw::check(104_900.0, 320_000.0, 32.0, 0.05).holds);
        // One timestamp per batch halves the measured latency here.
        let batch = LittlesLaw::check(100_000.0, 160_000.0, 32.0, 0.05);
        assert!(!batch.holds && (batch.implied_in_flight - 16.0).abs() < 1e-9);
        // The timestamps are too early: they imply more operations than were ever in flight.
        assert!(!LittlesLaw::check(106_000.0, 320_000.0, 32.0, 0.05).holds);
        assert!(!LittlesLaw::check(0.0, 0.0, 32.0, 0.05).holds);
        assert!(!LittlesLaw::check(1.0, f64::NAN, 32.0, 0.05).holds);
        assert!(!LittlesLaw::check(1.0, 1.0, 0.0, 0.05).holds);
    }
}
