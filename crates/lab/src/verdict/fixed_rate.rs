//! Rows that were offered a fixed number of operations per second: the best of them, and the words of a comparison.
//!
//! All rows that keep the rate have the same throughput. CPU time per operation and the tail of the latencies tell
//! them apart. A row that does not keep the rate is the slower one.

use ringwise_measure::{
    quantity::latency_text,
    statistics::{Comparison, MINIMUM_DIFFERENCE},
};

use super::{
    compared::interval_text,
    pair::{NOISE_MAX, Noise, Pair},
};
use crate::{row::Row, workload::columns::grouped};

/// The rate in a sentence: `60 000 requests/s`.
pub(crate) fn rate_text(rate_per_s: u64, operations: &str) -> String {
    format!("{} {operations}/s", grouped(rate_per_s as f64))
}

/// The row that others are compared with. In a closed loop it is the fastest. At a fixed rate it is the one that takes
/// the least CPU time of those that are as fast as the fastest.
pub(crate) fn best<'a>(
    rows: impl Iterator<Item = &'a Row>,
    is_at_rate: bool,
) -> Option<&'a Row> {
    let rate = |row: &Row| row.measured.ops_per_s();
    let rows: Vec<&Row> = rows.collect();
    let fastest = rows.iter().copied().max_by(|one, other| rate(one).total_cmp(&rate(other)))?;
    if !is_at_rate {
        return Some(fastest);
    }
    let least = rate(fastest) * (1.0 - MINIMUM_DIFFERENCE);
    let as_fast = rows.into_iter().filter(|row| rate(row) >= least);
    // A time that is not known is not a number, which comes after all numbers.
    let cpu = |row: &Row| row.measured.cpu_ns_per_op();
    as_fast.min_by(|one, other| cpu(one).total_cmp(&cpu(other)))
}

/// Whether the candidate and its rival keep the rate.
pub(super) fn comparison_text(pair: &Pair<'_>, by: Comparison, rate: &str) -> String {
    let Pair { candidate, base, ratio, .. } = pair;
    let (rival, times) = (base.label(), interval_text(ratio));
    match by {
        Comparison::NoDifference => format!("{rate} offered to both"),
        Comparison::Faster => format!("{rival} does not keep {rate}: {times} times {rival}"),
        Comparison::Slower => {
            format!("{} does not keep {rate}: only {times} times {rival}", candidate.label())
        }
    }
}

/// The tail of both, and the noise if it hides a difference of CPU time.
pub(super) fn tail_texts(pair: &Pair<'_>, noise: Noise) -> Vec<String> {
    let p99 = |row: &Row| {
        row.measured.median(|sample| Some(sample.latency_ns.p99 as f64)).unwrap_or(0.0)
    };
    let Pair { candidate, base, p99_ratio, .. } = pair;
    let (own, other) = (latency_text(p99(candidate)), latency_text(p99(base)));
    let ratio = p99_ratio.as_ref().map_or_else(String::new, |it| format!(", {}", interval_text(it)));
    let mut texts = vec![format!("p99 {own} against {other} of {}{ratio}", base.label())];
    if let Some(share) = noise.cpu.filter(|&share| share > NOISE_MAX) {
        texts.push(format!(
            "the noise of CPU time is {:.0} %: try more --repeats, or a quieter machine",
            share * 100.0
        ));
    }
    texts
}
