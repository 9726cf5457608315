//! What a gain consists of: a starting point, what it is compared with, and what may be said of the change.

use ringwise_measure::statistics::Ratio;
use serde::{Deserialize, Serialize};

use crate::results::verdict::Decisive;

/// What a starting point is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// The ring at the same depth.
    Ring,
    /// The ring at the greatest depth, for a start that does one thing after another.
    DeepestRing,
    /// The fastest other row.
    Best,
}

/// What may be said of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// It is faster, or as fast with less CPU time. At a fixed rate also: with the same CPU time and a lower p99.
    #[serde(rename = "gain")]
    Gain,
    /// It is slower, or as fast with more CPU time. At a fixed rate also: with the same CPU time and a higher p99.
    #[serde(rename = "loss")]
    Loss,
    /// Neither, within the noise.
    #[serde(rename = "no difference")]
    NoDifference,
    /// The noise is too large, or the load was the limit.
    #[serde(rename = "inconclusive")]
    Inconclusive,
    /// One of both has no result that counts.
    #[serde(rename = "excluded")]
    Excluded,
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Told::Gain => "gain",
            Told::Loss => "loss",
            Told::NoDifference => "no difference",
            Told::Inconclusive => "inconclusive",
            Told::Excluded => "excluded",
        })
    }
}

/// What a program would have from a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The engine that does what the program does today.
    pub from: String,
    /// What that is, after "you": "use spawn_blocking".
    pub today: String,
    /// Its depth.
    pub depth: usize,
    /// What it is compared with.
    pub column: Column,
    /// The engine of that row.
    pub to: String,
    /// The depth of that row.
    pub to_depth: usize,
    /// What may be said.
    pub finding: Told,
    /// Which figure decided; none where nothing was compared.
    pub decided_by: Option<Decisive>,
    /// The throughput after the change divided by that of today.
    pub ratio: Option<Ratio>,
    /// The 99th percentile of the latencies, in the same way.
    pub p99_ratio: Option<Ratio>,
    /// The CPU time per operation, in the same way.
    pub cpu_ratio: Option<Ratio>,
    /// The difference that the same engine showed to itself, as a share: of throughput, or of CPU time at a fixed rate.
    pub noise_floor: Option<f64>,
    /// Why nothing may be said, where that is so.
    pub reason: Option<String>,
}
