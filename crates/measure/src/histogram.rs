//! Latency distributions: recorded with a bounded error, merged, exported.
//!
//! Each is an HdrHistogram with three significant figures, so every percentile is within 0.1 % of the recorded value.
//! It does not correct for coordinated omission: in an open loop the caller measures from the intended start.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{Deserializer, Serializer, V2DeflateSerializer},
};
use serde::{Deserialize, Serialize};

/// The largest distinct latency. Longer latencies are recorded as this one.
pub const LATENCY_NS_MAX: u64 = 1 << 37;

const SIGNIFICANT_FIGURES: u8 = 3;

/// A distribution of latencies in nanoseconds, from 1 ns to 137 s.
#[derive(Clone, Debug)]
pub struct Latency {
    counts: Histogram<u64>,
}

/// The usual figures of a [`Latency`]. Every field is in nanoseconds, and 0 if nothing was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The shortest latency.
    pub min: u64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p99_9: u64,
    /// The 99.99th percentile.
    pub p99_99: u64,
    /// The longest latency.
    pub max: u64,
}

/// A recorded value (within 0.1 %) and its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// Nanoseconds: the highest value of this bin.
    pub latency_ns: u64,
    /// The number of latencies in this bin.
    pub count: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Latency {
    /// Makes an empty distribution. It allocates about 230 KiB once; recording does not allocate.
    pub fn new() -> Self {
        let counts = Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_FIGURES)
            .expect("constant bounds are valid: low >= 1, high >= 2 * low, figures <= 5");
        Latency { counts }
    }

    /// Records one latency. Saturates at [`LATENCY_NS_MAX`].
    #[inline]
    pub fn record_ns(&mut self, latency_ns: u64) {
        self.counts.saturating_record(latency_ns);
    }

    /// Records the same latency `count` times.
    pub fn record_many_ns(&mut self, latency_ns: u64, count: u64) {
        self.counts.saturating_record_n(latency_ns, count);
    }

    /// Adds all latencies of `other`.
    pub fn merge(&mut self, other: &Latency) {
        self.counts.add(&other.counts).expect("all distributions have the same bounds");
    }

    /// Returns the number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Returns the arithmetic mean in nanoseconds, or 0 if nothing was recorded.
    pub fn mean_ns(&self) -> f64 {
        if self.counts.is_empty() { 0.0 } else { self.counts.mean() }
    }

    /// Returns the latency that the share `quantile` (0.0 ..= 1.0) of the operations did not exceed, or 0 if nothing
    /// was recorded.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        // A bin reports its upper edge, which may be above the largest recorded latency.
        self.counts.value_at_quantile(quantile.clamp(0.0, 1.0)).min(self.counts.max())
    }

    /// Computes the usual figures.
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            min: self.counts.min(),
            mean: self.mean_ns(),
            p50: self.quantile_ns(0.5),
            p90: self.quantile_ns(0.9),
            p99: self.quantile_ns(0.99),
            p99_9: self.quantile_ns(0.999),
            p99_99: self.quantile_ns(0.9999),
            max: self.counts.max(),
        }
    }

    /// Lists every bin that is not empty, shortest latency first. This is the whole distribution, for JSON.
    pub fn bins(&self) -> Vec<Bin> {
        self.counts
            .iter_recorded()
            .map(|step| Bin {
                latency_ns: step.value_iterated_to(),
                count: step.count_since_last_iteration(),
            })
            .collect()
    }

    /// Returns the standard deviation in nanoseconds, or 0 if nothing was recorded.
    pub fn stdev_ns(&self) -> f64 {
        if self.counts.is_empty() { 0.0 } else { self.counts.stdev() }
    }

    /// Encodes the whole distribution in HdrHistogram's exchange format (V2, deflated), as base64. Other
    /// implementations of HdrHistogram can read it.
    pub fn to_base64(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.counts, &mut bytes)
            .expect("bounds are constant, and memory takes what is written");
        STANDARD.encode(bytes)
    }

    /// Decodes the text of [`to_base64`](Self::to_base64). Returns `None` for any other text.
    pub fn from_base64(text: &str) -> Option<Latency> {
        let bytes = STANDARD.decode(text).ok()?;
        let counts: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).ok()?;
        let mut latency = Latency::new();
        latency.counts.add(&counts).ok()?;
        Some(latency)
    }

    /// Clears the distribution and keeps its memory.
    pub fn clear(&mut self) {
        self.counts.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_has_no_nan_and_no_panic() {
        let latency = Latency::new();
        assert_eq!(latency.percentiles(), Percentiles::default());
        assert!(latency.bins().is_empty());
    }

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let mut latency = Latency::new();
        (1..=100_000u64).for_each(|value| latency.record_ns(value * 10));
        let p = latency.percentiles();
        for (got, want) in [
            (p.p50, 500_000),
            (p.p90, 900_000),
            (p.p99, 990_000),
            (p.p99_9, 999_000),
            (p.p99_99, 999_900),
            (p.max, 1_000_000),
        ] {
            let error = (got as f64 - want as f64).abs() / want as f64;
            assert!(error <= 0.001, "{got} is not {want}");
        }
        assert!((p.mean - 500_005.0).abs() / 500_005.0 < 0.001, "{}", p.mean);
        assert!(p.min <= 10 && p.p99_99 <= p.max);
    }

    #[test]
    fn as_text_and_back_it_is_the_same() {
        let mut latency = Latency::new();
        (1..20_000u64).for_each(|value| latency.record_many_ns(value * value, value % 7 + 1));
        let text = latency.to_base64();
        let back = Latency::from_base64(&text).unwrap();
        assert_eq!(back.bins(), latency.bins());
        assert_eq!(back.percentiles(), latency.percentiles());
        assert!(text.len() < 16_000, "{} characters", text.len());
        assert!(Latency::from_base64(&Latency::new().to_base64()).unwrap().bins().is_empty());
        for wrong in ["", "?", "AAAA", &text[..text.len() / 2]] {
            assert!(Latency::from_base64(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn range_saturates_at_both_ends() {
        let mut latency = Latency::new();
        latency.record_ns(0);
        latency.record_ns(60_000_000_000);
        latency.record_ns(u64::MAX);
        assert_eq!(latency.count(), 3);
        let p = latency.percentiles();
        assert!(p.max >= LATENCY_NS_MAX - LATENCY_NS_MAX / 1000, "{}", p.max);
        assert!((p.p50 as f64 / 60e9 - 1.0).abs() < 0.001, "{}", p.p50);
    }

    #[test]
    fn merging_equals_recording_together() {
        let (mut left, mut right, mut both) = (Latency::new(), Latency::new(), Latency::new());
        for value in 1..5_000u64 {
            if value % 3 == 0 {
                left.record_ns(value * 97)
            } else {
                right.record_ns(value * 97)
            }
            both.record_ns(value * 97);
        }
        left.merge(&right);
        assert_eq!(left.bins(), both.bins());
        assert_eq!(left.bins().iter().map(|bin| bin.count).sum::<u64>(), 4_999);
    }
}
