//! The highest rate that a target holds: doubled until it does not, then halved in between.
//!
//! A rate is held when every line that was due was sent and taken in time: the 99th percentile,
//! from the intended moment, is under the limit. What ends the search may be the generator; then
//! the result is its own and says so.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{outcome::Outcome, plan::Plan, run::run};
use crate::error::LoadError;

/// Where it begins unless it is told.
const FIRST_RATE: u64 = 10_000;
/// How near the highest rate that is held is to the lowest that is not.
const NEAR: f64 = 1.05;
const STEPS_MAX: usize = 24;
/// How much of what was due has to be done in the measured time.
const DONE_SHARE: f64 = 0.98;

/// A rate that was tried.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Step {
    /// Lines per second that were offered.
    pub rate_per_s: u64,
    /// Lines per second that were done.
    pub ops_per_s: f64,
    /// The 99th percentile of their latency.
    pub p99_ns: u64,
    /// Whether it was held.
    pub held: bool,
    /// Why it was not held, if it was not.
    pub miss: Option<String>,
    /// Whether the generator was the limit.
    pub client_bound: bool,
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// What the 99th percentile had to stay under.
    pub limit: Duration,
    /// What was tried, in order.
    pub steps: Vec<Step>,
    /// The highest rate that was held; none, where not even the first was.
    pub best: Option<(u64, Outcome)>,
}

impl Found {
    /// Whether what was not held was so for the generator's sake.
    pub fn is_client_bound(&self) -> bool {
        let lowest_miss = self.steps.iter().filter(|step| step.miss.is_some());
        lowest_miss.min_by_key(|step| step.rate_per_s).is_some_and(|step| step.client_bound)
    }
}

/// Tries rates.
///
/// # Errors
///
/// [`LoadError`]: nothing could be measured, or lines were lost, rejected or not answered for other
/// reasons than a rate that is too high.
pub fn search(
    plan: &Plan,
    limit: Duration,
    interrupted: &Arc<AtomicBool>,
) -> Result<Found, LoadError> {
    let mut found = Found { limit, steps: Vec::new(), best: None };
    let (mut held, mut missed) = (0, None);
    let mut rate_per_s = plan.rate_per_s.unwrap_or(FIRST_RATE);
    while found.steps.len() < STEPS_MAX && !interrupted.load(Ordering::Relaxed) {
        let outcome = run(&Plan { rate_per_s: Some(rate_per_s), ..plan.clone() }, interrupted)?;
        if outcome.totals.is_partial {
            break;
        }
        if let Some(failure) = outcome.fault() {
            return Err(LoadError::Failed(format!("at {rate_per_s} lines per second: {failure}")));
        }
        let step = step(rate_per_s, &outcome, limit);
        if step.miss.is_none() {
            held = rate_per_s;
            found.best = Some((rate_per_s, outcome));
        } else {
            missed = Some(rate_per_s);
        }
        found.steps.push(step);
        rate_per_s = match next(held, missed) {
            Some(rate) => rate,
            None => break,
        };
    }
    if found.steps.is_empty() { Err(LoadError::Interrupted) } else { Ok(found) }
}

/// The rate to try next; none where it is near enough.
fn next(held: u64, missed: Option<u64>) -> Option<u64> {
    match (held, missed) {
        (held, None) => Some((held * 2).min(100_000_000)).filter(|&rate| rate > held),
        // Not even the first was held.
        (0, Some(missed)) => Some(missed / 4).filter(|&rate| rate > 0),
        (held, Some(missed)) if missed as f64 / held as f64 <= NEAR => None,
        (held, Some(missed)) => {
            let between = (held as f64 * missed as f64).sqrt() as u64;
            Some(between).filter(|&rate| rate > held)
        }
    }
}

fn step(rate_per_s: u64, outcome: &Outcome, limit: Duration) -> Step {
    let totals = &outcome.totals;
    let (ops_per_s, p99_ns) = (totals.operations_per_second(), totals.latency.percentiles().p99);
    let limit_ns = limit.as_nanos() as u64;
    let miss = if totals.unsent > 0 {
        Some(format!("{} lines were due and never sent", totals.unsent))
    } else if totals.operations == 0 {
        Some("no line was done in the measured time".to_owned())
    } else if p99_ns > limit_ns {
        Some("p99 over the limit".to_owned())
    } else if ops_per_s < rate_per_s as f64 * DONE_SHARE {
        Some("less was done than was due".to_owned())
    } else {
        None
    };
    let (held, client_bound) = (miss.is_none(), totals.client.is_bound());
    Step { rate_per_s, ops_per_s, p99_ns, held, miss, client_bound }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate that is found for a target that holds `most`.
    fn find(first: u64, most: u64) -> (u64, usize) {
        let (mut held, mut missed, mut rate, mut steps) = (0, None, first, 0);
        loop {
            steps += 1;
            if rate <= most {
                held = rate
            } else {
                missed = Some(rate)
            }
            match next(held, missed) {
                Some(next) => rate = next,
                None => return (held, steps),
            }
        }
    }

    #[test]
    fn the_highest_rate_is_found_from_below_and_from_above() {
        for (first, most) in
            [(1000, 999_999), (10_000, 2_345_678), (1_000_000, 777), (5, 5), (1000, 100_000_000)]
        {
            let (found, steps) = find(first, most);
            assert!(found <= most && found as f64 * 1.06 + 1.0 >= most as f64, "{found} {most}");
            assert!(steps <= STEPS_MAX, "{steps}");
        }
        assert_eq!(find(100, 0), (0, 4));
    }
}
