//! The percentiles of latency that a table may show. The results file always has them all.

use ringwise_measure::Percentiles;

/// A percentile as it is named on the command line and above its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Percentile {
    /// The median.
    P50,
    /// 9 of 10 were no longer.
    P90,
    /// 99 of 100 were no longer.
    P99,
    /// 999 of 1000 were no longer.
    P999,
    /// 9999 of 10000 were no longer.
    P9999,
}

impl Percentile {
    /// All of them, the shortest first.
    pub const ALL: [Percentile; 5] =
        [Percentile::P50, Percentile::P90, Percentile::P99, Percentile::P999, Percentile::P9999];
    /// What a table shows unless others are asked for: as many as fit beside the rest.
    pub const DEFAULT: [Percentile; 3] = [Percentile::P50, Percentile::P99, Percentile::P999];

    /// Reads a name. None where there is no such percentile.
    pub fn parse(text: &str) -> Option<Percentile> {
        Percentile::ALL.into_iter().find(|percentile| percentile.name() == text)
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Percentile::P50 => "p50",
            Percentile::P90 => "p90",
            Percentile::P99 => "p99",
            Percentile::P999 => "p99.9",
            Percentile::P9999 => "p99.99",
        }
    }

    /// Its value in nanoseconds.
    pub fn of(self, latency: &Percentiles) -> u64 {
        match self {
            Percentile::P50 => latency.p50,
            Percentile::P90 => latency.p90,
            Percentile::P99 => latency.p99,
            Percentile::P999 => latency.p99_9,
            Percentile::P9999 => latency.p99_99,
        }
    }
}
