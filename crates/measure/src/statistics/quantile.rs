//! Median, quartiles and other quantiles of samples.

use serde::Serialize;

/// The lower quartile, the median and the upper quartile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quartiles {
    /// A quarter of the samples are below it.
    pub lower: f64,
    /// Half of the samples are below it.
    pub median: f64,
    /// Three quarters of the samples are below it.
    pub upper: f64,
}

impl Quartiles {
    /// Returns the distance between the quartiles as a share of the median, or 0 if the median is 0.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.upper - self.lower) / self.median.abs() }
    }
}

/// Computes the median. Returns `None` if there are no samples or one is not a number.
pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(&sorted(samples)?, 0.5)
}

/// Computes the quartiles. Returns `None` if there are no samples or one is not a number.
pub fn quartiles(samples: &[f64]) -> Option<Quartiles> {
    let sorted = sorted(samples)?;
    Some(Quartiles {
        lower: quantile(&sorted, 0.25)?,
        median: quantile(&sorted, 0.5)?,
        upper: quantile(&sorted, 0.75)?,
    })
}

fn sorted(samples: &[f64]) -> Option<Vec<f64>> {
    if samples.iter().any(|sample| sample.is_nan()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(sorted)
}

/// Computes a quantile of sorted samples by interpolation between neighbours.
pub(super) fn quantile(sorted: &[f64], quantile: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = quantile.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    let share = position - below as f64;
    Some(sorted[below] + (sorted[above] - sorted[below]) * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_interpolate() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        let q = quartiles(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((q.lower, q.median, q.upper), (2.0, 3.0, 4.0));
        assert!((q.spread() - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(quartiles(&[0.0]).unwrap().spread(), 0.0);
    }
}
