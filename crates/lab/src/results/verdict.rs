//! Verdicts: what the rows of a group let be said of the ring at each depth, with the reason
//! counted. `switches` says what each switch of a ring costs, `summary` what to do.

mod compared;
mod fixed_rate;
mod pair;
mod summary;
mod switches;

pub use compared::{Finding, Pairing, Verdict, interval_text};
pub(crate) use fixed_rate::{best, rate_text};
pub use pair::Decisive;
pub(crate) use pair::{Decision, NOISE_MAX, Noise, Pair, cpu, throughput};
pub use summary::{BLOCK, BreakEven, Detour, deeper, workers};
pub use switches::{Figure, SwitchCost, costs};

use ringwise_measure::{
    quantity::latency_text,
    statistics::{Comparison, MINIMUM_DIFFERENCE, Ratio, compare},
};

use self::{
    compared::{control_noise, valid},
    pair::{client_limits, cores, is_memory_bound},
};
use crate::results::row::{Measured, Row, RowKind, SampleFigures};

/// The ring that other programs are compared with.
pub const UNVERIFIED: &str = "uring+unverified";

/// A row's throughput divided by that of `sync` in the same run.
pub fn ratio_to_sync(row: &Row, rows: &[Row], seed: u64) -> Option<Ratio> {
    let sync = rows.iter().find(|row| row.engine == "sync" && row.kind == RowKind::Rival)?;
    if !row.is_valid() || !sync.is_valid() || std::ptr::eq(row, sync) {
        return None;
    }
    row.measured.ratio(&sync.measured, throughput, seed)
}

/// The subject beside every other valid row of its depth; and another program beside the ring that
/// leaves out what that program leaves out, if there is one.
pub fn pairings(rows: &[Row], depth: usize, seed: u64) -> Vec<Pairing> {
    let Some(subject) = valid(rows, depth).find(|row| row.kind == RowKind::Subject) else {
        return Vec::new();
    };
    let unverified = valid(rows, depth).find(|row| row.engine == UNVERIFIED);
    let pair = |candidate: &Row, other: &Row| {
        Some(Pairing {
            depth,
            candidate: candidate.label(),
            baseline: other.label(),
            baseline_kind: other.kind,
            ratio: candidate.measured.ratio(&other.measured, throughput, seed)?,
            cpu_ratio: candidate.measured.ratio(&other.measured, cpu, seed),
        })
    };
    let others = valid(rows, depth).filter(|other| !std::ptr::eq(*other, subject));
    others
        .flat_map(|other| {
            let counterpart = unverified.filter(|_| other.kind == RowKind::Program);
            [counterpart.and_then(|row| pair(row, other)), pair(subject, other)]
        })
        .flatten()
        .collect()
}

/// The verdict at a depth. `operation` is what one operation is, such as `4 KiB`.
pub fn at_depth(rows: &[Row], depth: usize, operation: &str, seed: u64) -> Verdict {
    judged(rows, depth, None, seed, &|subject, rival, cpu_ratio, is_per_core| {
        let sync = rows.iter().find(|row| row.engine == "sync" && row.is_valid());
        vec![
            cause_text(subject, rival, sync, operation, is_per_core),
            cost_text(subject, rival, cpu_ratio, "read"),
        ]
    })
}

/// The verdict on servers at a number of connections, or on stores at a depth. `operation` is what they
/// do, such as `request`, of which they were offered so many per second, if the rate was fixed.
pub fn at_connections(
    rows: &[Row],
    connections: usize,
    operation: &str,
    offered_per_s: Option<u64>,
    seed: u64,
) -> Verdict {
    let offered = offered_per_s.map(|rate| rate_text(rate, &format!("{operation}s")));
    judged(rows, connections, offered.as_deref(), seed, &|subject, rival, cpu_ratio, _| {
        vec![cost_text(subject, rival, cpu_ratio, operation)]
    })
}

/// The verdict on programs that copy `files` files.
pub fn of_copies(rows: &[Row], files: usize, seed: u64) -> Verdict {
    judged(rows, files, None, seed, &|subject, rival, cpu_ratio, _| {
        let mut clauses = vec![cost_text(subject, rival, cpu_ratio, "copy")];
        let gnu = valid(rows, files).find(|row| row.engine == "gnu");
        if let Some(gnu) = gnu.filter(|gnu| !std::ptr::eq(*gnu, rival))
            && let Some(ratio) = subject.measured.ratio(&gnu.measured, cpu, seed)
        {
            clauses.push(format!("all CPU {} times gnu's", interval_text(&ratio)));
        }
        let durable = |sample: &SampleFigures| {
            sample.program.as_ref().map_or(f64::NAN, |times| times.durable_ns as f64)
        };
        let rivals = valid(rows, files).filter(|row| row.kind == RowKind::Rival);
        let until = |row: &Row| row.measured.program().map_or(u64::MAX, |times| times.durable_ns);
        if let Some(first) = rivals.min_by_key(|row| until(row))
            && let Some(ratio) = first.measured.ratio(&subject.measured, durable, seed)
        {
            let times = interval_text(&ratio);
            clauses.push(format!("durable {times} times as fast as {}", first.label()));
        }
        clauses
    })
}

/// The verdict on calls that wait for no device, such as `stat`, at a depth.
pub fn of_calls(rows: &[Row], depth: usize, operation: &str, seed: u64) -> Verdict {
    judged(rows, depth, None, seed, &|subject, rival, cpu_ratio, _| {
        vec![
            difference_text(subject, rival, operation),
            cost_text(subject, rival, cpu_ratio, operation),
        ]
    })
}

/// The verdict on chains at a depth. `barrier` is the ring that waits for whole batches.
pub fn of_chain(rows: &[Row], depth: usize, barrier: &str, seed: u64) -> Verdict {
    judged(rows, depth, None, seed, &|subject, rival, cpu_ratio, _| {
        let mut clauses = Vec::new();
        let times = |row: &Row| {
            let ratio = subject.measured.ratio(&row.measured, throughput, seed)?;
            Some(interval_text(&ratio))
        };
        let serial = valid(rows, 1).find(|row| row.engine == "sync").filter(|_| depth > 1);
        if let Some(times) = serial.and_then(times) {
            clauses.push(format!("{times} times one blocking chain after the other"));
        }
        let barrier = valid(rows, depth).find(|row| row.engine == barrier);
        if let Some(times) = barrier.and_then(times) {
            clauses.push(format!("{times} times the ring that waits for whole batches"));
        }
        clauses.push(cost_text(subject, rival, cpu_ratio, "page"));
        clauses
    })
}

/// What makes up a reason behind the comparison: of the subject, its rival, the ratio of their CPU
/// time, and whether they were compared per core.
type Clauses<'a> = dyn Fn(&Row, &Row, Option<&Ratio>, bool) -> Vec<String> + 'a;

/// `offered` is the rate in words, if it was fixed.
fn judged(
    rows: &[Row],
    depth: usize,
    offered: Option<&str>,
    seed: u64,
    clauses: &Clauses<'_>,
) -> Verdict {
    let cannot = |reason: String| Verdict {
        depth,
        verdict: Finding::Inconclusive,
        winner: None,
        rival: None,
        ratio: None,
        cpu_ratio: None,
        noise_floor: None,
        reason,
    };
    let subject = match rows.iter().find(|row| row.kind == RowKind::Subject && row.depth == depth) {
        None => return cannot("uring was not among the engines".into()),
        Some(row) => row,
    };
    if let Some(reason) = &subject.measured.void {
        return cannot(format!("{}: {reason}", subject.label()));
    }
    let rivals = valid(rows, depth).filter(|row| row.kind == RowKind::Rival);
    let Some(rival) = best(rivals, offered.is_some()) else {
        return cannot("no other engine has a valid result at this depth".into());
    };
    let Some(pair) = Pair::of(subject, rival, seed) else {
        return cannot("too few samples for an interval".into());
    };
    let noise = Noise::at(rows, depth, seed);
    let Decision { finding, by_throughput, is_per_core, limits, .. } = match offered {
        Some(_) => pair.decide_at_rate(noise),
        None => pair.decide_per_core(noise),
    };
    let (ratio, cpu_ratio) = (pair.ratio, pair.cpu_ratio);
    let winner = match finding {
        Finding::UseIt => Some(subject.label()),
        Finding::DoNotUse => Some(rival.label()),
        Finding::NoDifference | Finding::Inconclusive => None,
    };
    let noise_floor = noise.floor(offered.is_some());
    let mut reason = limits;
    reason.push(match offered {
        Some(rate) => fixed_rate::comparison_text(&pair, by_throughput, rate),
        None => comparison_text(rival, &ratio, by_throughput, noise_floor),
    });
    reason.extend(clauses(subject, rival, cpu_ratio.as_ref(), is_per_core));
    if offered.is_some() {
        reason.extend(fixed_rate::tail_texts(&pair, noise));
    }
    Verdict {
        depth,
        verdict: finding,
        winner,
        rival: Some(rival.label()),
        ratio: Some(ratio),
        cpu_ratio,
        noise_floor,
        reason: reason.join("; "),
    }
}

/// Beyond this half of an interval's width, as a share, more blocks may say more.
const WIDTH_MAX: f64 = 0.05;

/// Whether at some depth nothing can be told between the ring and its best rival because the
/// interval is wide.
pub fn is_undecided(rows: &[Row], seed: u64) -> bool {
    let subjects = rows.iter().filter(|row| row.kind == RowKind::Subject && row.is_valid());
    subjects.into_iter().any(|subject| {
        let rivals = valid(rows, subject.depth).filter(|row| row.kind == RowKind::Rival);
        let rate = |row: &&Row| row.measured.ops_per_s();
        let best = rivals.max_by(|a, b| rate(a).total_cmp(&rate(b)));
        // More of what says nothing says nothing.
        let best = best.filter(|rival| client_limits(&[subject, rival]).is_empty());
        let ratio = best.and_then(|row| subject.measured.ratio(&row.measured, throughput, seed));
        let noise = control_noise(rows, subject.depth, throughput, seed).unwrap_or(0.0);
        ratio.is_some_and(|ratio| {
            let half_width = (ratio.high / ratio.low).sqrt() - 1.0;
            half_width > WIDTH_MAX && compare(&ratio, noise) == Comparison::NoDifference
        })
    })
}

fn comparison_text(rival: &Row, ratio: &Ratio, by: Comparison, noise: Option<f64>) -> String {
    let name = rival.label();
    let interval = interval_text(ratio);
    match by {
        Comparison::Faster => format!("{interval} times {name}"),
        Comparison::Slower => format!("only {interval} times {name}"),
        Comparison::NoDifference => {
            let within = noise.unwrap_or(0.0).max(MINIMUM_DIFFERENCE) * 100.0;
            let advice = match noise {
                Some(noise) if noise > NOISE_MAX => ": try more --repeats, or a quieter machine",
                _ => "",
            };
            format!("{interval} times {name}, within the noise of {within:.0} %{advice}")
        }
    }
}

/// Where the difference comes from.
fn cause_text(
    subject: &Row,
    rival: &Row,
    sync: Option<&Row>,
    operation: &str,
    is_per_core: bool,
) -> String {
    let (own, other) = (&subject.measured, &rival.measured);
    if is_memory_bound(subject) {
        let mut text = "memory-bound: 0 device reads".to_owned();
        if is_per_core {
            let (few, many) = (cores(subject), cores(rival));
            text += &format!("; compared per core: {few:.1} busy against {many:.1}");
        } else {
            text += &format!("; {}", difference_text(subject, rival, operation));
            let at_depth = |row: &&Row| row.depth == subject.depth && row.engine != rival.engine;
            if let Some(sync) = sync.filter(at_depth) {
                text += &format!("; {}", difference_text(subject, sync, operation));
            }
        }
        return text;
    }
    let depth = subject.depth;
    let queue = own.device_queue_depth();
    if depth == 1 {
        let queue = queue.map_or_else(String::new, |queue| format!(", device queue {queue:.1}"));
        return format!("one request at a time: the device's latency decides{queue}");
    }
    let mut text = format!("keeps {depth} requests in flight from one thread");
    if let Some((from, to)) = sync.and_then(|sync| sync.measured.device_queue_depth()).zip(queue) {
        text += &format!(": device queue {from:.1} -> {to:.1}");
    }
    if let Some(sync) = sync {
        let times = |row: &Measured| row.ops_per_s() / sync.measured.ops_per_s().max(1.0);
        text += &format!(
            "; {:.1} times sync at depth 1, of which depth alone gives {} {:.1}",
            times(own),
            rival.label(),
            times(other)
        );
    }
    text
}

/// What an operation takes more or less through the ring than by another engine.
fn difference_text(subject: &Row, other: &Row, operation: &str) -> String {
    let time_ns = |row: &Row| 1e9 / row.measured.ops_per_s().max(1.0);
    let more_ns = time_ns(subject) - time_ns(other);
    let verb = if more_ns < 0.0 { "saves" } else { "adds" };
    let copies = if other.engine == "mmap" { ", which copies nothing" } else { "" };
    let time = latency_text(more_ns.abs());
    format!("the ring {verb} {time} per {operation} over {}{copies}", other.label())
}

/// What it costs: CPU time and system calls.
fn cost_text(subject: &Row, rival: &Row, cpu_ratio: Option<&Ratio>, operation: &str) -> String {
    let (own, other) = (&subject.measured, &rival.measured);
    let (cpu, other_cpu) = (latency_text(own.cpu_ns_per_op()), latency_text(other.cpu_ns_per_op()));
    let ratio = cpu_ratio.map_or_else(String::new, |ratio| format!(", {}", interval_text(ratio)));
    let mut text =
        format!("CPU per {operation} {cpu} against {other_cpu} of {}{ratio}", rival.label());
    let calls = |row: &Measured| row.system_calls_per_op().map(|(calls, _)| calls);
    if let Some((own, other)) = calls(own).zip(calls(other)) {
        text += &format!("; system calls per {operation} {own:.2} against {other:.2}");
    }
    if let Some(punts) = own.worker_punts_per_op().filter(|&punts| punts >= 0.005) {
        text += &format!("; {:.0} % done by kernel workers", punts * 100.0);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Figures, row};

    const DIRECT: Figures = Figures::DIRECT;
    const CACHED: Figures = Figures { device_share: 0.0, queue: 0.0, ..DIRECT };

    fn at(rows: &[Row], depth: usize) -> Verdict {
        at_depth(rows, depth, "4 KiB", 1)
    }

    #[test]
    fn faster_is_use_it_with_the_queue_as_the_reason() {
        let sync = Figures { ops_per_s: 15_000.0, queue: 0.9, ..DIRECT };
        let threads = Figures { ops_per_s: 80_000.0, cpu_ns: 7000.0, ..DIRECT };
        let rows = [
            row("sync", RowKind::Rival, 1, sync),
            row("threads", RowKind::Rival, 32, threads),
            row("tokio", RowKind::Rival, 32, Figures { ops_per_s: 50_000.0, ..DIRECT }),
            row("uring", RowKind::Subject, 32, DIRECT),
            row("uring", RowKind::Control, 32, DIRECT),
        ];
        let verdict = at(&rows, 32);
        assert_eq!(verdict.verdict, Finding::UseIt);
        assert_eq!(verdict.winner.as_deref(), Some("uring"));
        assert_eq!(
            verdict.reason,
            "1.25 [1.25, 1.25] times threads; keeps 32 requests in flight from one thread: device \
             queue 0.9 -> 31.0; 6.7 times sync at depth 1, of which depth alone gives threads 5.3; \
             CPU per read 3.00 µs against 7.00 µs of threads, 0.43 [0.43, 0.43]; system calls per \
             read 1.00 against 1.00"
        );
    }

    #[test]
    fn servers_are_judged_by_requests_and_what_limits_them_is_said() {
        let figures = Figures { device_share: 0.0, queue: 0.0, cpu_ns: 4000.0, ..DIRECT };
        let epoll = Figures { ops_per_s: 80_000.0, cpu_ns: 8000.0, calls: 2, ..figures };
        let mut rows = [
            row("uring", RowKind::Subject, 50, figures),
            row("epoll", RowKind::Rival, 50, epoll),
            row("uring", RowKind::Control, 50, figures),
        ];
        for row in &mut rows {
            row.measured.samples.iter_mut().for_each(|sample| sample.device_share = None);
        }
        let verdict = at_connections(&rows, 50, "request", None, 1);
        assert_eq!(verdict.verdict, Finding::UseIt);
        assert_eq!(
            verdict.reason,
            "1.25 [1.25, 1.25] times epoll; CPU per request 4.00 µs against 8.00 µs of epoll, 0.50 \
             [0.50, 0.50]; system calls per request 1.00 against 2.00"
        );
        assert!(verdict.winner.is_some());
        // The faster one could have served even more.
        rows[0].measured.samples[0].client_bound = true;
        assert_eq!(at_connections(&rows, 50, "request", None, 1), verdict);
        rows[1].measured.samples[0].client_bound = true;
        let bound = at_connections(&rows, 50, "request", None, 1);
        assert_eq!((bound.verdict, &bound.winner), (Finding::Inconclusive, &None));
        let said = "client-bound: the load was at its limit in 1 of 6 samples of epoll, ";
        assert!(bound.reason.starts_with(said), "{}", bound.reason);
        assert!(bound.reason.ends_with(&verdict.reason), "{}", bound.reason);
    }

    #[test]
    fn what_is_equal_may_be_the_labs_own_time() {
        let verdict_beside = |ops_per_s: f64, shares: [f64; 2]| {
            let threads = Figures { ops_per_s, ..DIRECT };
            let mut rows = [
                row("threads", RowKind::Rival, 32, threads),
                row("uring", RowKind::Subject, 32, DIRECT),
            ];
            for (row, share) in rows.iter_mut().zip(shares) {
                row.measured.harness_share = Some(share);
            }
            at(&rows, 32)
        };
        let equal = DIRECT.ops_per_s;
        assert_eq!(verdict_beside(equal, [0.10, 0.10]).verdict, Finding::NoDifference);
        for (shares, engine) in [([0.25, 0.05], "threads"), ([0.05, 0.25], "uring")] {
            let verdict = verdict_beside(equal, shares);
            assert_eq!((verdict.verdict, &verdict.winner), (Finding::Inconclusive, &None));
            let told = format!("the lab's own time is 25 % of an operation of {engine}");
            assert!(verdict.reason.starts_with(&told), "{}", verdict.reason);
        }
        // It is in both, and turns no difference round.
        assert_eq!(verdict_beside(equal / 2.0, [0.25; 2]).verdict, Finding::UseIt);
        assert_eq!(verdict_beside(equal * 2.0, [0.25; 2]).verdict, Finding::DoNotUse);
    }

    #[test]
    fn slower_in_memory_is_pure_overhead_in_nanoseconds() {
        let sync = Figures { ops_per_s: 1_250_000.0, cpu_ns: 800.0, ..CACHED };
        let uring = Figures { ops_per_s: 1_000_000.0, cpu_ns: 1000.0, ..CACHED };
        let rows = [row("sync", RowKind::Rival, 1, sync), row("uring", RowKind::Subject, 1, uring)];
        let verdict = at(&rows, 1);
        assert_eq!(verdict.verdict, Finding::DoNotUse);
        assert_eq!(verdict.winner.as_deref(), Some("sync"));
        assert_eq!(
            verdict.reason,
            "only 0.80 [0.80, 0.80] times sync; memory-bound: 0 device reads; the ring adds 200 ns \
             per 4 KiB over sync; CPU per read 1.00 µs against 800 ns of sync, 1.25 [1.25, 1.25]; \
             system calls per read 1.00 against 1.00"
        );
    }

    #[test]
    fn the_same_is_no_difference_and_says_within_what() {
        let rows = [
            row("aio", RowKind::Rival, 32, DIRECT),
            row("uring", RowKind::Subject, 32, Figures { ops_per_s: 101_000.0, ..DIRECT }),
            row("uring", RowKind::Control, 32, Figures { ops_per_s: 96_000.0, ..DIRECT }),
        ];
        let verdict = at(&rows, 32);
        assert_eq!((verdict.verdict, &verdict.winner), (Finding::NoDifference, &None));
        assert!(
            verdict.reason.starts_with("1.01 [1.01, 1.01] times aio, within the noise of 5 %; ")
        );
        assert!((verdict.noise_floor.unwrap() - 5.0 / 96.0).abs() < 1e-3);
    }

    #[test]
    fn too_much_noise_is_no_verdict() {
        for cpu_ns in [3000.0, 1000.0] {
            let uring = Figures { ops_per_s: 101_000.0, cpu_ns, ..DIRECT };
            let rows = [
                row("aio", RowKind::Rival, 32, DIRECT),
                row("uring", RowKind::Subject, 32, uring),
                row("uring", RowKind::Control, 32, Figures { ops_per_s: 80_000.0, ..uring }),
            ];
            let verdict = at(&rows, 32);
            assert_eq!((verdict.verdict, &verdict.winner), (Finding::Inconclusive, &None));
            assert!(verdict.reason.contains("try more --repeats"), "{}", verdict.reason);
        }
    }

    #[test]
    fn equally_fast_is_decided_by_cpu_time() {
        for (cpu_ns, finding) in
            [(1500.0, Finding::UseIt), (3010.0, Finding::NoDifference), (6000.0, Finding::DoNotUse)]
        {
            let rows = [
                row("threads", RowKind::Rival, 32, DIRECT),
                row("uring", RowKind::Subject, 32, Figures { cpu_ns, ..DIRECT }),
            ];
            assert_eq!(at(&rows, 32).verdict, finding, "{cpu_ns}");
        }
    }

    #[test]
    fn more_processors_are_not_a_better_interface() {
        let one_core = Figures { ops_per_s: 1_000_000.0, cpu_ns: 1000.0, ..CACHED };
        for (cpu_ns, finding) in
            [(700.0, Finding::UseIt), (995.0, Finding::NoDifference), (1300.0, Finding::DoNotUse)]
        {
            let rows = [
                row("threads", RowKind::Rival, 32, Figures { ops_per_s: 2_000_000.0, ..one_core }),
                row("uring", RowKind::Subject, 32, Figures { cpu_ns, ..one_core }),
            ];
            let verdict = at(&rows, 32);
            assert_eq!(verdict.verdict, finding, "{cpu_ns}: {}", verdict.reason);
            assert!(verdict.reason.contains("; compared per core: "), "{}", verdict.reason);
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let uring = || row("uring", RowKind::Subject, 32, DIRECT);
        let mut void = uring();
        void.measured.void = Some("forbidden".to_owned());
        let mut bad_rival = row("aio", RowKind::Rival, 32, DIRECT);
        bad_rival.measured.void = Some("x".to_owned());
        let other_depth = row("sync", RowKind::Rival, 1, DIRECT);
        let program = row("fio", RowKind::Program, 32, DIRECT);
        let mut short = row("aio", RowKind::Rival, 32, DIRECT);
        short.measured.samples.truncate(3);
        for (rows, reason) in [
            (vec![row("aio", RowKind::Rival, 32, DIRECT)], "uring was not among the engines"),
            (vec![void, row("aio", RowKind::Rival, 32, DIRECT)], "uring: forbidden"),
            (vec![uring(), bad_rival], "no other engine has a valid result at this depth"),
            (vec![uring(), other_depth], "no other engine has a valid result at this depth"),
            (vec![uring(), program], "no other engine has a valid result at this depth"),
            (vec![uring(), short], "too few samples for an interval"),
        ] {
            let verdict = at(&rows, 32);
            assert_eq!(verdict.verdict, Finding::Inconclusive);
            assert_eq!(verdict.reason, reason);
        }
    }

    #[test]
    fn a_program_is_paired_with_the_ring_that_does_not_look_either() {
        let rows = [
            row("uring", RowKind::Subject, 32, Figures { ops_per_s: 90_000.0, ..DIRECT }),
            row("uring+unverified", RowKind::Variant, 32, DIRECT),
            row("fio", RowKind::Program, 32, DIRECT),
        ];
        let pairs: Vec<(String, String)> =
            pairings(&rows, 32, 1).into_iter().map(|p| (p.candidate, p.baseline)).collect();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            pairs,
            [
                pair("uring", "uring+unverified"),
                pair("uring+unverified", "fio"),
                pair("uring", "fio")
            ]
        );
    }
}
