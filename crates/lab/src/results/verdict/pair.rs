//! Two rows of one interleaved run, and what may be said of the first beside the second.
//!
//! Throughput decides. If both are equally fast, CPU time per operation decides. At a fixed rate all that keep it are
//! equally fast; if they take the same CPU time too, the 99th percentile of the latencies decides. The words around
//! a finding are the caller's.

use ringwise_measure::statistics::{Comparison, Ratio, compare};
use serde::{Deserialize, Serialize};

use super::compared::{Finding, control_noise};
use crate::{
    checks::gates::{HARNESS_SHARE_MAX, WARM_DEVICE_SHARE_MAX},
    results::row::{Row, SampleFigures},
};

/// Beyond this noise, that nothing was seen does not say that nothing is there.
pub(crate) const NOISE_MAX: f64 = 0.15;
/// By how much more of the processors a rival must take to be compared per core.
const MORE_CORES: f64 = 1.3;

/// Operations per second, for ratios.
pub(crate) fn throughput(sample: &SampleFigures) -> f64 {
    sample.ops_per_s
}

/// CPU time per operation, for ratios.
pub(crate) fn cpu(sample: &SampleFigures) -> f64 {
    sample.cpu_ns_per_op
}

/// The 99th percentile of the latencies, for ratios.
pub(crate) fn p99(sample: &SampleFigures) -> f64 {
    sample.latency_ns.p99 as f64
}

/// A row beside another.
pub(crate) struct Pair<'a> {
    /// The one that is judged.
    pub(crate) candidate: &'a Row,
    /// The one that it is compared with.
    pub(crate) base: &'a Row,
    /// The candidate's throughput divided by the other's.
    pub(crate) ratio: Ratio,
    /// The candidate's CPU time per operation divided by the other's.
    pub(crate) cpu_ratio: Option<Ratio>,
    /// The candidate's 99th percentile of the latencies divided by the other's.
    pub(crate) p99_ratio: Option<Ratio>,
}

/// What the same engine differed by from itself, as shares.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noise {
    /// By throughput.
    pub(crate) throughput: Option<f64>,
    /// By CPU time per operation.
    pub(crate) cpu: Option<f64>,
    /// By the 99th percentile of the latencies.
    pub(crate) p99: Option<f64>,
}

impl Noise {
    /// At a depth.
    pub(crate) fn at(rows: &[Row], depth: usize, seed: u64) -> Noise {
        Noise {
            throughput: control_noise(rows, depth, throughput, seed),
            cpu: control_noise(rows, depth, cpu, seed),
            p99: control_noise(rows, depth, p99, seed),
        }
    }

    /// The larger of both, for rows of two depths.
    pub(crate) fn or(self, other: Noise) -> Noise {
        let larger =
            |one: Option<f64>, other: Option<f64>| one.into_iter().chain(other).reduce(f64::max);
        Noise {
            throughput: larger(self.throughput, other.throughput),
            cpu: larger(self.cpu, other.cpu),
            p99: larger(self.p99, other.p99),
        }
    }

    /// By the figure that tells rows apart first: throughput, or CPU time at a fixed rate.
    pub(crate) fn floor(self, is_at_rate: bool) -> Option<f64> {
        if is_at_rate { self.cpu } else { self.throughput }
    }
}

/// Which figure decided between two rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decisive {
    /// Operations per second.
    Throughput,
    /// CPU time per operation.
    Cpu,
    /// The 99th percentile of the latencies, at a fixed rate.
    P99,
}

/// Which figures may decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Throughput, then CPU time.
    Throughput,
    /// CPU time.
    PerCore,
    /// Throughput if a row does not keep the rate, then CPU time, then p99.
    FixedRate,
}

/// What may be said of the candidate.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    /// In a word.
    pub(crate) finding: Finding,
    /// By which figure.
    pub(crate) by: Decisive,
    /// What throughput alone says.
    pub(crate) by_throughput: Comparison,
    /// Whether the rows were compared per core.
    pub(crate) is_per_core: bool,
    /// What keeps anything from being said, if it does.
    pub(crate) limits: Vec<String>,
}

impl<'a> Pair<'a> {
    /// None if there are too few samples for an interval.
    pub(crate) fn of(candidate: &'a Row, base: &'a Row, seed: u64) -> Option<Pair<'a>> {
        let ratio = candidate.measured.ratio(&base.measured, throughput, seed)?;
        let cpu_ratio = candidate.measured.ratio(&base.measured, cpu, seed);
        let p99_ratio = candidate.measured.ratio(&base.measured, p99, seed);
        Some(Pair { candidate, base, ratio, cpu_ratio, p99_ratio })
    }

    /// What may be said to one who wants the most operations.
    pub(crate) fn decide(&self, noise: Noise) -> Decision {
        self.decided(noise, Rule::Throughput)
    }

    /// What may be said of two rows that were offered the same number of operations per second.
    pub(crate) fn decide_at_rate(&self, noise: Noise) -> Decision {
        self.decided(noise, Rule::FixedRate)
    }

    /// What may be said of the two interfaces: if memory is the bound, more processors are faster
    /// whatever drives them, so that CPU time decides beside a row that took more of them.
    pub(crate) fn decide_per_core(&self, noise: Noise) -> Decision {
        let Pair { candidate, base, .. } = self;
        let takes_more = cores(base) > MORE_CORES * cores(candidate);
        let is_per_core = is_memory_bound(candidate) && takes_more;
        self.decided(noise, if is_per_core { Rule::PerCore } else { Rule::Throughput })
    }

    fn decided(&self, noise: Noise, rule: Rule) -> Decision {
        let Pair { candidate, base, ratio, cpu_ratio, p99_ratio } = self;
        let by_throughput = compare(ratio, noise.throughput.unwrap_or(0.0));
        let less = |ratio: &Option<Ratio>, noise: Option<f64>| {
            ratio.map(|ratio| compare(&ratio.inverse(), noise.unwrap_or(0.0)))
        };
        // Of two that are equally fast, the one wins that leaves more of the processor to others.
        let by_cpu = less(cpu_ratio, noise.cpu);
        let by_p99 = less(p99_ratio, noise.p99).filter(|_| rule == Rule::FixedRate);
        let (decisive, by) = match (by_throughput, by_cpu, by_p99) {
            (_, Some(by_cpu), _) if rule == Rule::PerCore => (by_cpu, Decisive::Cpu),
            (
                Comparison::NoDifference,
                None | Some(Comparison::NoDifference),
                Some(by_p99 @ (Comparison::Faster | Comparison::Slower)),
            ) => (by_p99, Decisive::P99),
            (Comparison::NoDifference, Some(by_cpu), _) => (by_cpu, Decisive::Cpu),
            (by_throughput, ..) => (by_throughput, Decisive::Throughput),
        };
        // That much noise hides a difference of throughput, so CPU time does not decide either.
        let hides = |noise: Option<f64>| noise.is_some_and(|noise| noise > NOISE_MAX);
        let is_hidden = match rule {
            _ if by_throughput != Comparison::NoDifference => false,
            Rule::PerCore => false,
            Rule::Throughput => hides(noise.throughput),
            Rule::FixedRate => {
                let hides_cpu = decisive == Comparison::NoDifference && hides(noise.cpu);
                hides(noise.throughput) || hides_cpu
            }
        };
        let mut hidden: Vec<&Row> = match (by, by_throughput) {
            (Decisive::Throughput, Comparison::Faster) => vec![base],
            (Decisive::Throughput, Comparison::Slower) => vec![candidate],
            _ => vec![candidate, base],
        };
        if rule == Rule::FixedRate {
            hidden.retain(|row| is_mostly_client_bound(row));
        }
        let mut limits = client_limits(&hidden);
        // The lab's time is the same beside either: it hides a difference and turns none round.
        if decisive == Comparison::NoDifference {
            limits.extend(harness_limits(candidate, base));
        }
        let finding = match decisive {
            _ if is_hidden || !limits.is_empty() => Finding::Inconclusive,
            Comparison::Faster => Finding::UseIt,
            Comparison::Slower => Finding::DoNotUse,
            Comparison::NoDifference => Finding::NoDifference,
        };
        Decision { finding, by, by_throughput, is_per_core: rule == Rule::PerCore, limits }
    }
}

/// Where the load was measured in place of a server, which could have served more. That hides a difference if the row
/// is the slower one or as fast; the faster one would only be faster still.
pub(super) fn client_limits(rows: &[&Row]) -> Vec<String> {
    let bound = |row: &&&Row| row.measured.client_bound() > 0;
    let of = |row: &&Row| {
        let (bound, all) = (row.measured.client_bound(), row.measured.samples.len());
        format!(
            "client-bound: the load was at its limit in {bound} of {all} samples of {}, which could \
             have served more",
            row.label()
        )
    };
    rows.iter().filter(bound).map(of).collect()
}

/// Whether the generator was at its limit in most samples of a row. At a fixed rate a few samples in which something
/// held it up are noise.
fn is_mostly_client_bound(row: &Row) -> bool {
    row.measured.client_bound() * 2 > row.measured.samples.len()
}

/// Where the lab's own time is so much of an operation that it may be what is equal.
fn harness_limits(one: &Row, other: &Row) -> Vec<String> {
    let of = |row: &Row| {
        let share = row.measured.harness_share.filter(|&share| share > HARNESS_SHARE_MAX)?;
        Some(format!(
            "the lab's own time is {:.0} % of an operation of {}, over {:.0} %: try a larger --block",
            share * 100.0,
            row.label(),
            HARNESS_SHARE_MAX * 100.0
        ))
    };
    [one, other].into_iter().filter_map(of).collect()
}

/// How many processors a row kept busy.
pub(super) fn cores(row: &Row) -> f64 {
    row.measured.ops_per_s() * row.measured.cpu_ns_per_op() / 1e9
}

/// Whether its bytes came from memory.
pub(super) fn is_memory_bound(row: &Row) -> bool {
    row.measured.device_share().is_some_and(|share| share <= WARM_DEVICE_SHARE_MAX)
}
