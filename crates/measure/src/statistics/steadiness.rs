//! Whether a measurement had settled: the trend of its intervals.
//!
//! The Mann-Kendall test decides whether there is a trend, and the Theil-Sen estimator computes its size. Unlike least
//! squares, neither is affected by a single slow second.

use serde::Serialize;

use super::quantile::median;

/// The fewest samples for which a trend is computed. Below, the normal approximation of Mann-Kendall is poor.
pub const TREND_SAMPLES_MIN: usize = 8;

const SIGNIFICANT_Z: f64 = 1.96;

/// How a figure changed during the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trend {
    /// The change from the first sample to the last as a share of the median, by
    /// the Theil-Sen slope.
    pub change: f64,
    /// Whether the trend is significant at 5 % by the Mann-Kendall test.
    pub significant: bool,
}

impl Trend {
    /// Returns whether the figure was steady: it had no significant trend, or changed by at most `bound` (a share, such
    /// as 0.05).
    pub fn is_steady(&self, bound: f64) -> bool {
        !self.significant || self.change.abs() <= bound
    }
}

/// Computes the trend of samples taken at equal intervals. Returns `None` if there are fewer than [`TREND_SAMPLES_MIN`]
/// samples, if one is not finite, or if their median is 0.
pub fn trend(samples: &[f64]) -> Option<Trend> {
    let count = samples.len();
    if count < TREND_SAMPLES_MIN || samples.iter().any(|sample| !sample.is_finite()) {
        return None;
    }
    let mut slopes = Vec::with_capacity(count * (count - 1) / 2);
    let mut score = 0i64;
    for (i, earlier) in samples.iter().enumerate() {
        for (distance, later) in samples[i + 1..].iter().enumerate() {
            slopes.push((later - earlier) / (distance + 1) as f64);
            score += i64::from(later > earlier) - i64::from(later < earlier);
        }
    }
    let middle = median(samples).filter(|&middle| middle != 0.0)?;
    let change = median(&slopes)? * (count - 1) as f64 / middle.abs();
    let n = count as f64;
    // The correction for ties is left out. Without it the test finds fewer trends.
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let z = (score.unsigned_abs().saturating_sub(1)) as f64 / deviation;
    Some(Trend { change, significant: z > SIGNIFICANT_Z })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_noise_is_steady() {
        let mut random = fastrand::Rng::with_seed(4);
        let drifting = (0..200)
            .filter(|_| {
                let samples: Vec<f64> = (0..20).map(|_| 1000.0 + 20.0 * random.f64()).collect();
                !trend(&samples).unwrap().is_steady(0.01)
            })
            .count();
        assert!(drifting < 20, "{drifting} of 200");
    }

    #[test]
    fn a_warming_cache_is_not_steady() {
        let samples: Vec<f64> = (0..20).map(|i| 1000.0 + 10.0 * f64::from(i)).collect();
        let trend = trend(&samples).unwrap();
        assert!(trend.significant && (trend.change - 190.0 / 1095.0).abs() < 1e-9, "{trend:?}");
        assert!(!trend.is_steady(0.05) && trend.is_steady(0.20));
    }

    #[test]
    fn one_slow_second_is_no_trend() {
        let mut samples = vec![1000.0; 20];
        samples[19] = 10.0;
        assert!(trend(&samples).unwrap().is_steady(0.01));
    }

    #[test]
    fn too_few_or_no_numbers_have_no_trend() {
        assert_eq!(trend(&[1.0; TREND_SAMPLES_MIN - 1]), None);
        assert_eq!(trend(&[f64::NAN; 20]), None);
        assert_eq!(trend(&[0.0; 20]), None);
    }
}
