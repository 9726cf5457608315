//! Whether a device has reached its steady state, by the rule of SNIA's Solid State Storage Performance Test
//! Specification (PTS 2.0.2, "Steady State").
//!
//! A flash device is fast as long as it has erased blocks. A measurement of such a device counts only when further
//! writing no longer changes its speed. This module judges figures; it writes nothing.

use serde::Serialize;

/// Rounds of the measurement window.
pub const WINDOW_ROUNDS: usize = 5;
/// After so many rounds the specification gives up.
pub const STEADY_STATE_ROUNDS_MAX: usize = 25;

/// The range of the window may be at most this share of its average.
const RANGE_MAX: f64 = 0.20;
/// The line through the window may rise or fall by at most this share of the average.
const EXCURSION_MAX: f64 = 0.10;

/// The figures of the last [`WINDOW_ROUNDS`] rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SteadyWindow {
    /// Their average.
    pub mean: f64,
    /// Maximum minus minimum, as a share of the average.
    pub range: f64,
    /// By how much the least-squares line through the rounds rises (or falls, if negative) from the first round to the
    /// last, as a share of the average.
    pub excursion: f64,
}

impl SteadyWindow {
    /// Computes the window at the end of `rounds`. Returns `None` if there are fewer than [`WINDOW_ROUNDS`], if one of
    /// the window is not finite, or if their average is not positive.
    pub fn last(rounds: &[f64]) -> Option<SteadyWindow> {
        let window = rounds.get(rounds.len().checked_sub(WINDOW_ROUNDS)?..)?;
        let count = WINDOW_ROUNDS as f64;
        let mean = window.iter().sum::<f64>() / count;
        if !mean.is_finite() || mean <= 0.0 {
            return None;
        }
        let greatest = window.iter().copied().fold(f64::MIN, f64::max);
        let least = window.iter().copied().fold(f64::MAX, f64::min);
        let middle = (count - 1.0) / 2.0;
        let (mut product, mut square) = (0.0, 0.0);
        for (round, figure) in window.iter().enumerate() {
            let distance = round as f64 - middle;
            product += distance * (figure - mean);
            square += distance * distance;
        }
        let rise = product / square * (count - 1.0);
        Some(SteadyWindow { mean, range: (greatest - least) / mean, excursion: rise / mean })
    }

    /// Returns whether the device is in its steady state.
    pub fn is_steady(&self) -> bool {
        self.range <= RANGE_MAX && self.excursion.abs() <= EXCURSION_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(rounds: &[f64]) -> SteadyWindow {
        SteadyWindow::last(rounds).unwrap()
    }

    #[test]
    fn a_window_as_computed_by_hand() {
        // Average 100. Slope: (-2*-4 + -1*3 + 0 + 1*-2 + 2*5) / 10 = 1.3 a round, 5.2 over four.
        let found = window(&[900.0, 96.0, 103.0, 98.0, 98.0, 105.0]);
        assert!((found.mean - 100.0).abs() < 1e-9, "only the last five count: {found:?}");
        assert!((found.range - 0.09).abs() < 1e-9, "{found:?}");
        assert!((found.excursion - 0.052).abs() < 1e-9, "{found:?}");
        assert!(found.is_steady());
    }

    #[test]
    fn a_range_above_a_fifth_is_not_steady() {
        // Slope: (1*10 - 1*10 + 2*10) / 10 = 2 a round, 8 over four.
        let at_bound = window(&[100.0, 90.0, 110.0, 90.0, 110.0]);
        assert!((at_bound.excursion - 0.08).abs() < 1e-9 && at_bound.is_steady(), "{at_bound:?}");
        // No slope: the figures are symmetric.
        let beyond = window(&[105.0, 89.0, 112.0, 89.0, 105.0]);
        assert!(beyond.excursion.abs() < 1e-9 && beyond.range > 0.2, "{beyond:?}");
        assert!(!beyond.is_steady());
    }

    #[test]
    fn a_slope_above_a_tenth_is_not_steady() {
        // 3 a round around 100 are 12 % over four rounds, though the range is 12 % too.
        for rounds in [[94.0, 97.0, 100.0, 103.0, 106.0], [106.0, 103.0, 100.0, 97.0, 94.0]] {
            let sloping = window(&rounds);
            assert!((sloping.excursion.abs() - 0.12).abs() < 1e-9, "{sloping:?}");
            assert!(sloping.range <= 0.2 && !sloping.is_steady());
        }
        assert!(window(&[96.0, 98.0, 100.0, 102.0, 104.0]).is_steady());
    }

    #[test]
    fn too_few_rounds_and_no_numbers_have_no_window() {
        assert_eq!(SteadyWindow::last(&[]), None);
        assert_eq!(SteadyWindow::last(&[100.0; WINDOW_ROUNDS - 1]), None);
        assert_eq!(SteadyWindow::last(&[0.0; WINDOW_ROUNDS]), None);
        assert_eq!(SteadyWindow::last(&[1.0, 1.0, f64::NAN, 1.0, 1.0]), None);
    }
}
