//! The ratio of two engines with its interval, and the verdict that follows from it.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::quantile::quantile;

/// The smallest difference worth a verdict, as a share, even on a quiet machine.
pub const MINIMUM_DIFFERENCE: f64 = 0.02;

const RESAMPLES: usize = 10_000;

/// Candidate divided by baseline, with its 95 % interval. Above 1 the candidate's figure is larger.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The lower end of the interval.
    pub low: f64,
    /// The geometric mean over the blocks.
    pub mid: f64,
    /// The upper end of the interval.
    pub high: f64,
}

/// The verdict about the candidate from a ratio of throughputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// The whole interval is above the threshold.
    Faster,
    /// The whole interval is below the threshold.
    Slower,
    /// The interval is not clear of the threshold: the difference is within the noise, or too small to matter.
    NoDifference,
}

/// Computes the natural logarithm of candidate / baseline for each pair.
///
/// Returns `None` if the lengths differ, or if a sample is not a positive number.
pub fn paired_log_ratios(candidate: &[f64], baseline: &[f64]) -> Option<Vec<f64>> {
    if candidate.len() != baseline.len() {
        return None;
    }
    let positive = |value: f64| value.is_finite() && value > 0.0;
    candidate
        .iter()
        .zip(baseline)
        .map(|(&candidate, &baseline)| {
            (positive(candidate) && positive(baseline)).then(|| (candidate / baseline).ln())
        })
        .collect()
}

impl Ratio {
    /// Computes the ratio and its 95 % interval from one log ratio per block, bootstrapped over the blocks. The same
    /// input and seed give the same interval.
    ///
    /// A percentile interval over few blocks is too narrow. It is therefore stretched by `sqrt(n / (n - 1)) * t / z`,
    /// which makes it as wide as Student's t for n blocks (Hesterberg, "What Teachers Should Know About the Bootstrap",
    /// 2015, expanded percentile interval).
    ///
    /// Returns `None` for fewer than two blocks, because one block has no spread.
    pub fn bootstrap(log_ratios: &[f64], seed: u64) -> Option<Ratio> {
        let blocks = log_ratios.len();
        if blocks < 2 || log_ratios.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut random = Rng::with_seed(seed);
        let means = (0..RESAMPLES).map(|_| resampled_mean(log_ratios, &mut random)).collect();
        Some(expanded(mean(log_ratios), means, blocks))
    }

    /// Computes the ratio of two engines that were measured separately, and its 95 % interval. The arguments are the
    /// logarithms of each engine's figures, one per block. The blocks of each engine are resampled independently. The
    /// width of the interval follows from the smaller number of blocks.
    ///
    /// Returns `None` if either has fewer than two blocks, or if a figure is not finite.
    pub fn between(candidate: &[f64], baseline: &[f64], seed: u64) -> Option<Ratio> {
        let blocks = candidate.len().min(baseline.len());
        if blocks < 2 || candidate.iter().chain(baseline).any(|value| !value.is_finite()) {
            return None;
        }
        let mut random = Rng::with_seed(seed);
        let mut difference =
            || resampled_mean(candidate, &mut random) - resampled_mean(baseline, &mut random);
        let differences = (0..RESAMPLES).map(|_| difference()).collect();
        Some(expanded(mean(candidate) - mean(baseline), differences, blocks))
    }

    /// Returns the ratio of baseline to candidate.
    pub fn inverse(&self) -> Ratio {
        Ratio { low: 1.0 / self.high, mid: 1.0 / self.mid, high: 1.0 / self.low }
    }
}

/// Returns the largest difference that identical code showed, as a share: the distance from 1 of the farther end of an
/// A/A control's interval.
pub fn noise_floor(control: &Ratio) -> f64 {
    (control.high - 1.0).max(1.0 / control.low - 1.0).max(0.0)
}

/// Decides whether the candidate is faster, from a ratio of throughputs. It is faster or slower only if the whole
/// interval is beyond the larger of `noise_floor` and [`MINIMUM_DIFFERENCE`]. For latency or CPU time, where less is
/// better, pass [`Ratio::inverse`].
pub fn compare(ratio: &Ratio, noise_floor: f64) -> Comparison {
    // No interval is beyond a noise floor that is not a number.
    if noise_floor.is_nan() {
        return Comparison::NoDifference;
    }
    let threshold = 1.0 + noise_floor.max(MINIMUM_DIFFERENCE);
    if ratio.low > threshold {
        Comparison::Faster
    } else if ratio.high < 1.0 / threshold {
        Comparison::Slower
    } else {
        Comparison::NoDifference
    }
}

fn resampled_mean(samples: &[f64], random: &mut Rng) -> f64 {
    let count = samples.len();
    (0..count).map(|_| samples[random.usize(..count)]).sum::<f64>() / count as f64
}

/// Computes the expanded percentile interval around a mean of logarithms.
fn expanded(center: f64, mut means: Vec<f64>, blocks: usize) -> Ratio {
    means.sort_unstable_by(f64::total_cmp);
    let stretch = (blocks as f64 / (blocks - 1) as f64).sqrt() * student_t(blocks - 1) / NORMAL;
    let end = |share| {
        let edge = quantile(&means, share).unwrap_or(center);
        (center + (edge - center) * stretch).exp()
    };
    Ratio { low: end(0.025), mid: center.exp(), high: end(0.975) }
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// The 97.5 % point of the normal distribution.
const NORMAL: f64 = 1.959_964;

/// The 97.5 % point of Student's t distribution.
fn student_t(degrees_of_freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    // Beyond the table, z + (z^3 + z) / 4 n is accurate to 0.001.
    let n = degrees_of_freedom as f64;
    let far = || NORMAL + (NORMAL.powi(3) + NORMAL) / (4.0 * n);
    degrees_of_freedom.checked_sub(1).and_then(|i| TABLE.get(i).copied()).unwrap_or_else(far)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Approximates a normal distribution by the sum of twelve uniform numbers, which is accurate enough to test
    /// coverage.
    fn normal(random: &mut Rng) -> f64 {
        (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
    }

    #[test]
    fn pairs_must_match_and_be_positive() {
        assert_eq!(paired_log_ratios(&[2.0], &[1.0, 1.0]), None);
        assert_eq!(paired_log_ratios(&[2.0, 0.0], &[1.0, 1.0]), None);
        assert_eq!(paired_log_ratios(&[2.0, 1.0], &[1.0, f64::NAN]), None);
        let ratios = paired_log_ratios(&[2.0, 1.0], &[1.0, 2.0]).unwrap();
        assert!((ratios[0] - 2f64.ln()).abs() < 1e-12 && (ratios[0] + ratios[1]).abs() < 1e-12);
    }

    #[test]
    fn interval_is_seeded_and_ordered() {
        let blocks = [0.09, 0.11, 0.10, 0.12, 0.08];
        let ratio = Ratio::bootstrap(&blocks, 7).unwrap();
        assert_eq!(Some(ratio), Ratio::bootstrap(&blocks, 7));
        assert!((ratio.mid - 0.1f64.exp()).abs() < 1e-9);
        assert!(ratio.low < ratio.mid && ratio.mid < ratio.high);
        assert_eq!(Ratio::bootstrap(&[0.1], 7), None);
        assert_eq!(Ratio::bootstrap(&[0.1, f64::INFINITY], 7), None);
    }

    /// The lab runs at least five blocks, and a 95 % interval must cover about 95 % there too. Without the stretch it
    /// covers about 83 %.
    #[test]
    fn interval_covers_the_truth_with_few_blocks() {
        let mut random = Rng::with_seed(1);
        let (trials, truth) = (400, 0.05);
        let covered = (0..trials)
            .filter(|&trial| {
                let blocks: Vec<f64> = (0..5).map(|_| truth + 0.03 * normal(&mut random)).collect();
                let ratio = Ratio::bootstrap(&blocks, trial).unwrap();
                ratio.low <= f64::exp(truth) && f64::exp(truth) <= ratio.high
            })
            .count();
        let share = covered as f64 / trials as f64;
        assert!((0.92..=0.99).contains(&share), "covered {share}");
    }

    /// Two separate runs of five blocks each.
    #[test]
    fn an_interval_between_runs_covers_the_truth_too() {
        let mut random = Rng::with_seed(3);
        let (trials, truth) = (400, -0.1);
        let covered = (0..trials)
            .filter(|&trial| {
                let mut run = |center: f64| -> Vec<f64> {
                    (0..5).map(|_| center + 0.03 * normal(&mut random)).collect()
                };
                let (new, old) = (run(9.0 + truth), run(9.0));
                let ratio = Ratio::between(&new, &old, trial).unwrap();
                ratio.low <= f64::exp(truth) && f64::exp(truth) <= ratio.high
            })
            .count();
        let share = covered as f64 / trials as f64;
        assert!((0.93..=1.0).contains(&share), "covered {share}");
        assert_eq!(Ratio::between(&[0.1], &[0.1, 0.2], 1), None);
        assert_eq!(Ratio::between(&[0.1, 0.2], &[0.1, f64::NEG_INFINITY], 1), None);
    }

    #[test]
    fn identical_engines_make_no_difference() {
        let mut random = Rng::with_seed(2);
        let mut blocks = || -> Vec<f64> { (0..7).map(|_| 0.04 * normal(&mut random)).collect() };
        let wrong = (0..200)
            .filter(|&seed| {
                let control = Ratio::bootstrap(&blocks(), seed).unwrap();
                let ratio = Ratio::bootstrap(&blocks(), seed + 1000).unwrap();
                compare(&ratio, noise_floor(&control)) != Comparison::NoDifference
            })
            .count();
        assert!(wrong <= 2, "{wrong} of 200 verdicts from identical code");
    }

    #[test]
    fn a_difference_must_clear_noise_and_two_percent() {
        let ratio = |low, high| Ratio { low, mid: (low + high) / 2.0, high };
        assert_eq!(compare(&ratio(1.05, 1.07), 0.01), Comparison::Faster);
        assert_eq!(compare(&ratio(1.05, 1.07), 0.06), Comparison::NoDifference);
        assert_eq!(compare(&ratio(1.005, 1.015), 0.0), Comparison::NoDifference);
        assert_eq!(compare(&ratio(0.90, 0.95), 0.01), Comparison::Slower);
        assert_eq!(compare(&ratio(0.90, 1.20), 0.01), Comparison::NoDifference);
        assert_eq!(compare(&ratio(2.0, 3.0), f64::NAN), Comparison::NoDifference);
        assert_eq!(compare(&ratio(1.05, 1.07).inverse(), 0.01), Comparison::Slower);
        assert!((noise_floor(&ratio(0.96, 1.01)) - (1.0 / 0.96 - 1.0)).abs() < 1e-12);
    }
}
