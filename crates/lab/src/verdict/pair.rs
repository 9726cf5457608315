//! Two rows of one interleaved run, and what may be said of the first beside the second.
//!
//! Throughput decides. If both are equally fast, CPU time per operation decides. The words around a
//! finding are the caller's.

use ringwise_measure::statistics::{Comparison, Ratio, compare};
use serde::{Deserialize, Serialize};

use super::compared::{Finding, control_noise};
use crate::{
    gates::{HARNESS_SHARE_MAX, WARM_DEVICE_SHARE_MAX},
    row::{Row, SampleFigures},
};

/// Beyond this noise, that nothing was seen does not say that nothing is there.
pub(super) const NOISE_MAX: f64 = 0.15;
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
}

/// What the same engine differed by from itself, as shares.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noise {
    /// By throughput.
    pub(crate) throughput: Option<f64>,
    /// By CPU time per operation.
    pub(crate) cpu: Option<f64>,
}

impl Noise {
    /// At a depth.
    pub(crate) fn at(rows: &[Row], depth: usize, seed: u64) -> Noise {
        Noise {
            throughput: control_noise(rows, depth, throughput, seed),
            cpu: control_noise(rows, depth, cpu, seed),
        }
    }

    /// The larger of both, for rows of two depths.
    pub(crate) fn or(self, other: Noise) -> Noise {
        let larger =
            |one: Option<f64>, other: Option<f64>| one.into_iter().chain(other).reduce(f64::max);
        Noise {
            throughput: larger(self.throughput, other.throughput),
            cpu: larger(self.cpu, other.cpu),
        }
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
        Some(Pair { candidate, base, ratio, cpu_ratio })
    }

    /// What may be said to one who wants the most operations.
    pub(crate) fn decide(&self, noise: Noise) -> Decision {
        self.decided(noise, false)
    }

    /// What may be said of the two interfaces: if memory is the bound, more processors are faster
    /// whatever drives them, so that CPU time decides beside a row that took more of them.
    pub(crate) fn decide_per_core(&self, noise: Noise) -> Decision {
        let Pair { candidate, base, .. } = self;
        let takes_more = cores(base) > MORE_CORES * cores(candidate);
        self.decided(noise, is_memory_bound(candidate) && takes_more)
    }

    fn decided(&self, noise: Noise, is_per_core: bool) -> Decision {
        let Pair { candidate, base, ratio, cpu_ratio } = self;
        let by_throughput = compare(ratio, noise.throughput.unwrap_or(0.0));
        // Of two that are equally fast, the one wins that leaves more of the processor to others.
        let by_cpu = cpu_ratio.map(|ratio| compare(&ratio.inverse(), noise.cpu.unwrap_or(0.0)));
        let (decisive, by) = match (by_throughput, by_cpu) {
            (_, Some(by_cpu)) if is_per_core => (by_cpu, Decisive::Cpu),
            (Comparison::NoDifference, Some(by_cpu)) => (by_cpu, Decisive::Cpu),
            (by_throughput, _) => (by_throughput, Decisive::Throughput),
        };
        // That much noise hides a difference of throughput, so CPU time does not decide either.
        let is_hidden = by_throughput == Comparison::NoDifference
            && noise.throughput.is_some_and(|noise| noise > NOISE_MAX)
            && !is_per_core;
        let mut limits = match (by, by_throughput) {
            (Decisive::Throughput, Comparison::Faster) => client_limits(&[base]),
            (Decisive::Throughput, Comparison::Slower) => client_limits(&[candidate]),
            _ => client_limits(&[candidate, base]),
        };
        // The lab's time is the same beside either: it hides a difference and turns none round.
        if decisive == Comparison::NoDifference {
            limits.extend(harness_limits(candidate, base));
        }
        let finding = match decisive {
            _ if is_hidden || !limits.is_empty() => Finding::Inconclusive,
            Comparison::Faster => Finding::UseIt,
            Comparison::Slower => Finding::PureOverhead,
            Comparison::NoDifference => Finding::NoDifference,
        };
        Decision { finding, by, by_throughput, is_per_core, limits }
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
