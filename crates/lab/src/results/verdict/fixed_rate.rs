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
use crate::{results::row::Row, workload::form::columns::grouped};

/// The rate in a sentence: `60 000 requests/s`.
pub(crate) fn rate_text(rate_per_s: u64, operations: &str) -> String {
    format!("{} {operations}/s", grouped(rate_per_s as f64))
}

/// The row that others are compared with. In a closed loop it is the fastest. At a fixed rate it is the one that takes
/// the least CPU time of those that are as fast as the fastest.
pub(crate) fn best<'a>(rows: impl Iterator<Item = &'a Row>, is_at_rate: bool) -> Option<&'a Row> {
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
    let p99 =
        |row: &Row| row.measured.median(|sample| Some(sample.latency_ns.p99 as f64)).unwrap_or(0.0);
    let Pair { candidate, base, p99_ratio, .. } = pair;
    let (own, other) = (latency_text(p99(candidate)), latency_text(p99(base)));
    let ratio =
        p99_ratio.as_ref().map_or_else(String::new, |it| format!(", {}", interval_text(it)));
    let mut texts = vec![format!("p99 {own} against {other} of {}{ratio}", base.label())];
    if let Some(share) = noise.cpu.filter(|&share| share > NOISE_MAX) {
        texts.push(format!(
            "the noise of CPU time is {:.0} %: try more --repeats, or a quieter machine",
            share * 100.0
        ));
    }
    texts
}

#[cfg(test)]
mod tests {
    use crate::{
        results::{
            row::{Row, RowKind},
            verdict::{Finding, Verdict, at_connections},
        },
        testing::{Figures, row},
    };

    const KEPT: Figures =
        Figures { ops_per_s: 60_000.0, cpu_ns: 10_000.0, latency_ns: 200_000, ..Figures::DIRECT };

    fn rows(uring: Figures, epoll: Figures) -> Vec<Row> {
        vec![
            row("uring", RowKind::Subject, 50, uring),
            row("epoll", RowKind::Rival, 50, epoll),
            row("uring", RowKind::Control, 50, uring),
        ]
    }

    fn at_rate(rows: &[Row]) -> Verdict {
        at_connections(rows, 50, "request", Some(60_000), 1)
    }

    #[test]
    fn cpu_time_decides_and_the_tail_is_said() {
        let uring = Figures { cpu_ns: 7000.0, latency_ns: 300_000, ..KEPT };
        let verdict = at_rate(&rows(uring, KEPT));
        assert_eq!((verdict.verdict, verdict.winner.as_deref()), (Finding::UseIt, Some("uring")));
        assert_eq!(
            verdict.reason,
            "60 000 requests/s offered to both; CPU per request 7.00 µs against 10.0 µs of epoll, 0.70 \
             [0.70, 0.70]; system calls per request 1.00 against 1.00; p99 300 µs against 200 µs of \
             epoll, 1.50 [1.50, 1.50]"
        );
        assert_eq!(at_rate(&rows(KEPT, uring)).verdict, Finding::DoNotUse);
    }

    #[test]
    fn the_tail_decides_between_equal_costs_only_at_a_fixed_rate() {
        let short = Figures { latency_ns: 100_000, ..KEPT };
        assert_eq!(at_rate(&rows(short, KEPT)).verdict, Finding::UseIt);
        assert_eq!(at_rate(&rows(KEPT, short)).verdict, Finding::DoNotUse);
        assert_eq!(at_rate(&rows(KEPT, KEPT)).verdict, Finding::NoDifference);
        let closed_loop = at_connections(&rows(short, KEPT), 50, "request", None, 1);
        assert_eq!(closed_loop.verdict, Finding::NoDifference);
    }

    #[test]
    fn a_server_that_does_not_keep_the_rate_loses_whatever_it_costs() {
        let slow = Figures { ops_per_s: 48_000.0, cpu_ns: 1000.0, ..KEPT };
        let verdict = at_rate(&rows(slow, KEPT));
        assert_eq!(verdict.verdict, Finding::DoNotUse);
        let start = "uring does not keep 60 000 requests/s: only 0.80 [0.80, 0.80] times epoll; ";
        assert!(verdict.reason.starts_with(start), "{}", verdict.reason);
        let verdict = at_rate(&rows(KEPT, slow));
        assert_eq!(verdict.verdict, Finding::UseIt);
        let start = "epoll does not keep 60 000 requests/s: 1.25 [1.25, 1.25] times epoll; ";
        assert!(verdict.reason.starts_with(start), "{}", verdict.reason);
    }

    #[test]
    fn the_rival_is_the_cheapest_of_those_that_keep_the_rate() {
        let mut rows = rows(KEPT, Figures { cpu_ns: 9000.0, ..KEPT });
        let unseen = Figures { cpu_ns: f64::NAN, ops_per_s: 60_010.0, ..KEPT };
        rows.push(row("unseen", RowKind::Rival, 50, unseen));
        rows.push(row("tokio", RowKind::Rival, 50, Figures { ops_per_s: 59_900.0, ..KEPT }));
        let slow = Figures { ops_per_s: 50_000.0, cpu_ns: 1000.0, ..KEPT };
        rows.push(row("slow", RowKind::Rival, 50, slow));
        assert_eq!(at_rate(&rows).rival.as_deref(), Some("epoll"));
        let closed_loop = at_connections(&rows, 50, "request", None, 1);
        assert_eq!(closed_loop.rival.as_deref(), Some("unseen"));
    }

    #[test]
    fn a_generator_at_its_limit_at_the_fixed_rate_too_leaves_no_verdict() {
        let mut rows = rows(Figures { cpu_ns: 5000.0, ..KEPT }, KEPT);
        let mut bind = |count| {
            rows[1].measured.samples.iter_mut().take(count).for_each(|own| own.client_bound = true);
            at_rate(&rows)
        };
        assert_eq!(bind(3).verdict, Finding::UseIt, "half of the samples are noise");
        let verdict = bind(4);
        assert_eq!((verdict.verdict, verdict.winner), (Finding::Inconclusive, None));
        assert!(verdict.reason.starts_with("client-bound: "), "{}", verdict.reason);
    }

    #[test]
    fn noise_of_cpu_time_hides_that_nothing_differs() {
        let mut rows = rows(KEPT, KEPT);
        rows[2] = row("uring", RowKind::Control, 50, Figures { cpu_ns: 13_000.0, ..KEPT });
        let verdict = at_rate(&rows);
        assert_eq!(verdict.verdict, Finding::Inconclusive);
        let end = "; the noise of CPU time is 30 %: try more --repeats, or a quieter machine";
        assert!(verdict.reason.ends_with(end), "{}", verdict.reason);
        assert_eq!(verdict.noise_floor.map(|noise| (noise * 100.0).round()), Some(30.0));
        // A larger difference shows.
        rows[1] = row("epoll", RowKind::Rival, 50, Figures { cpu_ns: 20_000.0, ..KEPT });
        assert_eq!(at_rate(&rows).verdict, Finding::UseIt);
    }
}
