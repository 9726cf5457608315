//! What each switch of a ring costs or saves, in nanoseconds per operation.
//!
//! Switches are tried one at a time. What a row differs in is told by its name: it is compared with
//! the row whose name its own begins with, the longest there is.

use ringwise_measure::{
    quantity::latency_text,
    statistics::{Comparison, Ratio, compare},
};
use serde::{Deserialize, Serialize};

use super::compared::{control_noise, valid};
use crate::results::row::{Row, SampleFigures};

/// Which figure tells what an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// The mean latency.
    Latency,
    /// The time per operation, of many at once.
    Time,
}

impl Figure {
    fn of(self) -> fn(&SampleFigures) -> f64 {
        match self {
            Figure::Latency => |sample| sample.latency_ns.mean,
            Figure::Time => |sample| 1e9 / sample.ops_per_s.max(f64::MIN_POSITIVE),
        }
    }
}

/// A ring beside the same ring without one switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchCost {
    /// Operations in flight, or the batch.
    pub depth: usize,
    /// The ring with the switch changed.
    pub engine: String,
    /// The ring that it is compared with.
    pub baseline: String,
    /// The change, as it is typed behind the baseline's name.
    pub switch: String,
    /// What an operation takes more; less than 0 is saved.
    pub cost_ns: f64,
    /// The lower end of its interval.
    pub cost_ns_low: f64,
    /// The upper end of its interval.
    pub cost_ns_high: f64,
    /// The time of an operation divided by the baseline's.
    pub ratio: Ratio,
    /// Whether it is more than the noise.
    pub is_told: bool,
}

/// The costs of all switches at a depth.
pub fn costs(rows: &[Row], depth: usize, figure: Figure, seed: u64) -> Vec<SwitchCost> {
    let noise = control_noise(rows, depth, figure.of(), seed).unwrap_or(0.0);
    let rings = || valid(rows, depth).filter(|row| row.engine.starts_with("uring"));
    let rings = || rings().filter(|row| row.label() == row.engine);
    let cost = |row: &Row| {
        let baseline = rings()
            .filter(|other| other.engine.len() < row.engine.len())
            .filter(|other| row.engine.starts_with(&other.engine))
            .max_by_key(|other| other.engine.len())?;
        let ratio = row.measured.ratio(&baseline.measured, figure.of(), seed)?;
        let base_ns = baseline.measured.median(|sample| Some(figure.of()(sample)))?;
        let more_ns = |ratio: f64| base_ns * (ratio - 1.0);
        Some(SwitchCost {
            depth,
            engine: row.engine.clone(),
            baseline: baseline.engine.clone(),
            switch: row.engine[baseline.engine.len()..].to_owned(),
            cost_ns: more_ns(ratio.mid),
            cost_ns_low: more_ns(ratio.low),
            cost_ns_high: more_ns(ratio.high),
            ratio,
            is_told: compare(&ratio, noise) != Comparison::NoDifference,
        })
    };
    rings().filter_map(cost).collect()
}

impl SwitchCost {
    /// In words: `uring+sqpoll: 1.20 us more [1.10, 1.30] than uring`.
    pub fn text(&self) -> String {
        let ns = |value: f64| {
            let sign = if value < 0.0 { "-" } else { "+" };
            format!("{sign}{}", latency_text(value.abs()))
        };
        let (low, high) = (ns(self.cost_ns_low), ns(self.cost_ns_high));
        let told = if self.is_told { "" } else { ": no difference" };
        let (engine, baseline, cost) = (&self.engine, &self.baseline, ns(self.cost_ns));
        let both =
            if self.is_two_changes() { " (SQPOLL, which excludes DEFER_TASKRUN)" } else { "" };
        format!("{engine} to {baseline}: {cost} [{low}, {high}] per operation{told}{both}")
    }

    /// Whether it takes DEFER_TASKRUN away too: a ring that was typed so, or of an earlier version.
    fn is_two_changes(&self) -> bool {
        self.switch.contains("+sqpoll") && !self.engine.contains("-defer-taskrun")
    }

    /// What to do about it, where it is worth a change of a program.
    pub fn advice(&self) -> Option<String> {
        let (name, on) = match self.switch.split_at_checked(1)? {
            ("+", name) => (name, true),
            ("-", name) => (name, false),
            _ => return None,
        };
        // Two changes at once say nothing of either.
        if !self.is_told || self.is_two_changes() || name.contains(['+', '-']) && !is_one_name(name)
        {
            return None;
        }
        let (pays, time) = (self.cost_ns < 0.0, latency_text(self.cost_ns.abs()));
        let keep = if on == pays { "on" } else { "off" };
        let percent = (self.ratio.mid - 1.0).abs() * 100.0;
        let depth = self.depth;
        // Of what has a baseline of its own: the default ring is not what it was seen beside.
        let beside = match self.baseline.strip_prefix("uring") {
            Some(changes) if !changes.is_empty() => format!(", beside {}", self.baseline),
            _ => String::new(),
        };
        Some(format!(
            "{name} {keep}: {} {time} per operation at {depth} in flight ({percent:.0} %){beside}",
            if on == pays || !on { "saves" } else { "it costs" }
        ))
    }
}

/// Names of switches have hyphens of their own.
fn is_one_name(name: &str) -> bool {
    crate::engine::uring::Switch::ALL.iter().any(|switch| switch.name() == name)
        || crate::engine::bare_ring::SWITCHES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        results::row::RowKind,
        testing::{Figures, row},
    };

    fn rows() -> Vec<Row> {
        let at = |ops_per_s| Figures { ops_per_s, ..Figures::DIRECT };
        vec![
            row("uring", RowKind::Subject, 8, at(1_000_000.0)),
            row("bare", RowKind::Rival, 8, at(1_100_000.0)),
            row("uring", RowKind::Control, 8, at(1_000_000.0)),
            row("uring-defer-taskrun", RowKind::Variant, 8, at(800_000.0)),
            row("uring-defer-taskrun+coop-taskrun", RowKind::Variant, 8, at(800_000.0)),
            row("uring-defer-taskrun+sqpoll", RowKind::Variant, 8, at(400_000.0)),
            row("uring+sqpoll", RowKind::Variant, 8, at(500_000.0)),
            row("uring+sqpoll", RowKind::Variant, 9, at(500_000.0)),
        ]
    }

    #[test]
    fn each_switch_is_beside_the_ring_without_it() {
        let costs = costs(&rows(), 8, Figure::Time, 1);
        let texts: Vec<String> = costs.iter().map(SwitchCost::text).collect();
        assert_eq!(
            texts,
            [
                "uring-defer-taskrun to uring: +250 ns [+250 ns, +250 ns] per operation",
                "uring-defer-taskrun+coop-taskrun to uring-defer-taskrun: +0 ns [+0 ns, +0 ns] per \
                 operation: no difference",
                "uring-defer-taskrun+sqpoll to uring-defer-taskrun: +1.25 \u{b5}s [+1.25 \u{b5}s, \
                 +1.25 \u{b5}s] per operation",
                "uring+sqpoll to uring: +1.00 \u{b5}s [+1.00 \u{b5}s, +1.00 \u{b5}s] per operation \
                 (SQPOLL, which excludes DEFER_TASKRUN)",
            ]
        );
    }

    #[test]
    fn advice_says_which_way_to_turn_it() {
        let costs = costs(&rows(), 8, Figure::Time, 1);
        let advice: Vec<String> = costs.iter().filter_map(SwitchCost::advice).collect();
        assert_eq!(
            advice,
            [
                "defer-taskrun on: saves 250 ns per operation at 8 in flight (25 %)",
                "sqpoll off: it costs 1.25 \u{b5}s per operation at 8 in flight (100 %), beside \
                 uring-defer-taskrun",
            ]
        );
    }
}
