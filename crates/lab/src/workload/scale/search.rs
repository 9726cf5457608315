//! Which rates to offer: the search for the most that is kept, and for the knee below it.
//!
//! The knee is the rate with the most throughput for its latency: the largest quotient of both, which Kleinrock calls
//! power (L. Kleinrock, "Power and deterministic rules of thumb for probabilistic problems in computer communications",
//! 1979). Below it latency grows slower than the rate, and above it faster. The rule needs no limit that somebody chose.

/// How near two rates are beside each other, where it matters. Nearer ones differ by less than a p99 does from sample
/// to sample.
const NEAR: f64 = 1.1;
/// The most rates that are tried.
pub const RATES_MAX: usize = 14;
/// What share of what was due must have had a slot in time for a rate to be kept.
pub const KEPT_SHARE: f64 = 0.99;

/// A rate that was offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// Reads offered per second.
    pub rate_per_s: u64,
    /// The share of what was due that had a slot in time.
    pub kept_share: f64,
    /// The 99th percentile of the latency from the intended start.
    pub p99_ns: f64,
}

impl Tried {
    /// Whether as much was done as was due.
    pub fn is_kept(&self) -> bool {
        self.kept_share >= KEPT_SHARE
    }

    fn power(&self) -> f64 {
        self.rate_per_s as f64 / self.p99_ns.max(1.0)
    }
}

/// What the rates show together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knee {
    /// The rate with the most power among those that are kept.
    pub knee: Tried,
    /// The highest rate that is kept, of those below the lowest that is not.
    pub highest: Tried,
    /// Whether a higher rate was not kept.
    pub is_limit: bool,
}

/// The knee. None where no rate is kept.
pub fn knee(tried: &[Tried]) -> Option<Knee> {
    let kept = kept(tried);
    let knee = kept.iter().max_by(|a, b| a.power().total_cmp(&b.power()))?;
    Some(Knee { knee: *knee, highest: *kept.last()?, is_limit: kept.len() < tried.len() })
}

/// The rates below the lowest that is not kept, in ascending order.
fn kept(tried: &[Tried]) -> Vec<Tried> {
    let mut all = tried.to_vec();
    all.sort_by_key(|one| one.rate_per_s);
    all.into_iter().take_while(Tried::is_kept).collect()
}

/// The rate to offer next; none where nothing more is to be learnt. `first` is where it begins, below what can be kept.
pub fn next(tried: &[Tried], first: u64) -> Option<u64> {
    if tried.is_empty() {
        return Some(first.max(1));
    }
    let held = kept(tried).last().map(|one| one.rate_per_s);
    let missed = tried.iter().filter(|one| !one.is_kept()).map(|one| one.rate_per_s).min();
    let rate = match (held, missed) {
        (None, None) => None,
        (None, Some(missed)) => Some(missed / 4),
        (Some(held), None) => Some(held.saturating_mul(2)),
        (Some(held), Some(missed)) => between(held, missed).or_else(|| beside_knee(tried)),
    };
    let is_new = |rate: &u64| *rate > 0 && tried.iter().all(|one| one.rate_per_s != *rate);
    rate.filter(is_new).filter(|_| tried.len() < RATES_MAX)
}

/// A rate between two that are not near each other, as many times the one as the other is of it.
fn between(low: u64, high: u64) -> Option<u64> {
    let is_wide = high as f64 / low as f64 > NEAR;
    is_wide.then(|| rounded((low as f64 * high as f64).sqrt()))
}

/// The wider gap beside the knee. Below the lowest rate there may be a better one.
fn beside_knee(tried: &[Tried]) -> Option<u64> {
    let knee = knee(tried)?.knee.rate_per_s;
    let rates = || tried.iter().map(|one| one.rate_per_s);
    let below = rates().filter(|&rate| rate < knee).max();
    if below.is_none() {
        return Some(knee / 2);
    }
    let above = rates().filter(|&rate| rate > knee).min();
    let below = below.map(|below| (knee as f64 / below as f64, below, knee));
    let above = above.map(|above| (above as f64 / knee as f64, knee, above));
    let wider = below.into_iter().chain(above).max_by(|a, b| a.0.total_cmp(&b.0))?;
    between(wider.1, wider.2)
}

/// A rate in three digits, which can be read.
pub fn rounded(rate_per_s: f64) -> u64 {
    let unit = 10f64.powf((rate_per_s.max(1.0).log10().floor() - 2.0).max(0.0));
    ((rate_per_s / unit).round() * unit) as u64
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    const CAPACITY_PER_S: f64 = 100_000.0;
    const READS: usize = 20_000;

    /// A queue with one server that takes the same time for each (M/D/1), by Lindley's recursion.
    fn model(rate_per_s: u64) -> Tried {
        let service_ns = 1e9 / CAPACITY_PER_S;
        let (mut random, mut wait_ns, mut now_ns) = (Rng::with_seed(rate_per_s), 0.0f64, 0.0);
        let mut latencies = Vec::with_capacity(READS);
        let mut ends = Vec::with_capacity(READS);
        for _ in 0..READS {
            let gap_ns = -(1.0 - random.f64()).ln() * 1e9 / rate_per_s as f64;
            wait_ns = (wait_ns - gap_ns).max(0.0);
            now_ns += gap_ns;
            latencies.push(wait_ns + service_ns);
            ends.push(now_ns + wait_ns + service_ns);
            wait_ns += service_ns;
        }
        latencies.sort_by(f64::total_cmp);
        let done = ends.iter().filter(|end| **end <= now_ns).count();
        let p99_ns = latencies[READS * 99 / 100];
        Tried { rate_per_s, kept_share: done as f64 / READS as f64, p99_ns }
    }

    fn search(first: u64) -> Vec<Tried> {
        let mut tried = Vec::new();
        while let Some(rate) = next(&tried, first) {
            tried.push(model(rate));
        }
        tried
    }

    #[test]
    fn the_knee_of_a_queue_with_a_known_capacity_is_found() {
        let best = (1..=20).map(|at| model(at * 5000)).filter(Tried::is_kept);
        let best = best.map(|one| one.power()).fold(0.0, f64::max);
        for first in [10_000, 1_000, 777, 400_000] {
            let tried = search(first);
            assert!(tried.len() <= RATES_MAX, "{first}: {} rates", tried.len());
            let Knee { knee, highest, is_limit } = knee(&tried).unwrap();
            assert!(is_limit, "{first}");
            let highest = highest.rate_per_s as f64 / CAPACITY_PER_S;
            assert!((0.88..1.03).contains(&highest), "{first}: {highest} of the capacity");
            assert!(knee.power() > 0.9 * best, "{first}: {knee:?}");
            // Half of the capacity for the mean latency of M/M/1; later where all take the same time.
            assert!((40_000..90_000).contains(&knee.rate_per_s), "{first}: {knee:?}");
        }
    }

    #[test]
    fn a_rate_that_was_missed_is_no_knee_though_its_latency_is_low() {
        let one = |rate_per_s, kept_share| Tried { rate_per_s, kept_share, p99_ns: 1000.0 };
        let found = knee(&[one(100, 1.0), one(400, 0.5), one(200, 1.0), one(800, 1.0)]).unwrap();
        assert_eq!((found.knee.rate_per_s, found.highest.rate_per_s), (200, 200));
        assert!(found.is_limit && !knee(&[one(100, 1.0)]).unwrap().is_limit);
        assert_eq!(knee(&[one(100, 0.9)]), None);
    }

    #[test]
    fn a_target_that_keeps_nothing_or_everything_ends_the_search() {
        for kept_share in [0.0, 1.0] {
            let (mut tried, mut count) = (Vec::new(), 0);
            while let Some(rate_per_s) = next(&tried, 1000) {
                tried.push(Tried { rate_per_s, kept_share, p99_ns: 1000.0 });
                count += 1;
                assert!(count <= RATES_MAX);
            }
        }
    }

    #[test]
    fn rates_have_three_digits() {
        let rates = [7.0, 99.6, 123_456.0, 99_960.0].map(rounded);
        assert_eq!(rates, [7, 100, 123_000, 100_000]);
    }
}
