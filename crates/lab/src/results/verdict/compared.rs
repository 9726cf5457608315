//! What a verdict consists of, and how two rows are compared.

use ringwise_measure::statistics::{Ratio, noise_floor};
use serde::Serialize;

use crate::results::row::{Row, RowKind, SampleFigures};

/// What may be said of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Finding {
    /// It is faster, or as fast with less CPU time.
    #[serde(rename = "use it")]
    UseIt,
    /// It is slower, or as fast with more CPU time.
    #[serde(rename = "do not use it")]
    DoNotUse,
    /// Neither, within the noise.
    #[serde(rename = "no difference")]
    NoDifference,
    /// Something that a verdict needs is missing.
    #[serde(rename = "inconclusive")]
    Inconclusive,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Finding::UseIt => "use it",
            Finding::DoNotUse => "do not use it",
            Finding::NoDifference => "no difference",
            Finding::Inconclusive => "inconclusive",
        })
    }
}

/// A verdict at one depth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Reads in flight.
    pub depth: usize,
    /// What may be said.
    pub verdict: Finding,
    /// The engine to use, where one is better.
    pub winner: Option<String>,
    /// What the ring was compared with: the fastest other engine at this depth.
    pub rival: Option<String>,
    /// The ring's throughput divided by the rival's.
    pub ratio: Option<Ratio>,
    /// The ring's CPU time per operation divided by the rival's.
    pub cpu_ratio: Option<Ratio>,
    /// The difference that the same engine showed to itself.
    pub noise_floor: Option<f64>,
    /// Why, in numbers.
    pub reason: String,
}

/// The ring at one depth beside another row of the same depth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pairing {
    /// Reads in flight, or the batch.
    pub depth: usize,
    /// The library's row.
    pub candidate: String,
    /// The other.
    pub baseline: String,
    /// What the other is.
    pub baseline_kind: RowKind,
    /// The candidate's throughput divided by the other's.
    pub ratio: Ratio,
    /// The candidate's CPU time per operation divided by the other's.
    pub cpu_ratio: Option<Ratio>,
}

/// A ratio with its interval: `1.32 [1.28, 1.36]`.
pub fn interval_text(ratio: &Ratio) -> String {
    format!("{:.2} [{:.2}, {:.2}]", ratio.mid, ratio.low, ratio.high)
}

/// The rows of a depth that count.
pub(super) fn valid(rows: &[Row], depth: usize) -> impl Iterator<Item = &Row> {
    rows.iter().filter(move |row| row.depth == depth && row.is_valid())
}

/// What a row and its control differ by.
pub(super) fn control_noise(
    rows: &[Row],
    depth: usize,
    figure: fn(&SampleFigures) -> f64,
    seed: u64,
) -> Option<f64> {
    let control = valid(rows, depth).find(|row| row.kind == RowKind::Control)?;
    let same = |row: &&Row| row.engine == control.engine && row.kind != RowKind::Control;
    let original = valid(rows, depth).find(same)?;
    let ratio = control.measured.ratio(&original.measured, figure, seed)?;
    Some(noise_floor(&ratio))
}
