//! What a programmer can do with a section: from where on the ring wins, and advice with the number
//! that it rests on.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use ringwise_measure::quantity::size_text;

use super::compared::{Finding, Verdict};
use crate::results::row::{Row, RowKind};

/// The smallest depth or batch at which the ring wins, and does not lose beyond.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BreakEven {
    /// What was varied: depth, batch, connections.
    pub dimension: Cow<'static, str>,
    /// From where on; none where it wins nowhere.
    pub from: Option<usize>,
    /// The smallest and the largest that were measured and told.
    pub measured: [usize; 2],
}

impl BreakEven {
    /// None where fewer than two depths have a verdict.
    pub fn of(dimension: &'static str, verdicts: &[Verdict]) -> Option<BreakEven> {
        let mut told: Vec<&Verdict> =
            verdicts.iter().filter(|verdict| verdict.verdict != Finding::Inconclusive).collect();
        told.sort_by_key(|verdict| verdict.depth);
        let (first, last) = (told.first()?.depth, told.last()?.depth);
        let lost = told.iter().rposition(|verdict| verdict.verdict == Finding::DoNotUse);
        let beyond = &told[lost.map_or(0, |at| at + 1)..];
        let wins = beyond.iter().find(|verdict| verdict.verdict == Finding::UseIt);
        let from = wins.map(|verdict| verdict.depth);
        (first < last).then_some(BreakEven {
            dimension: dimension.into(),
            from,
            measured: [first, last],
        })
    }

    /// In words.
    pub fn text(&self) -> String {
        let BreakEven { dimension, from, measured: [first, last] } = self;
        let words = |at: &usize| match &**dimension {
            BLOCK => size_text(*at as u64),
            _ => at.to_string(),
        };
        let wins = "break-even: the ring wins";
        match from {
            Some(from) if from == first => {
                format!("{wins} from {dimension} {} on, the smallest measured", words(from))
            }
            Some(from) => format!("{wins} from {dimension} {} on", words(from)),
            None => format!(
                "break-even: none, the ring wins at no {dimension} from {} to {}",
                words(first),
                words(last)
            ),
        }
    }
}

/// The dimension that is bytes.
pub const BLOCK: &str = "block";

/// How much of the best throughput is enough.
const ENOUGH: f64 = 0.8;
/// By how much the best has to be above the least for depth to be worth words.
const WORTH: f64 = 1.25;
/// From how many operations by kernel workers on a program should do something about it.
const PUNTS: f64 = 0.5;

/// What the kernel gives to its workers in a section, and what a program can do instead.
#[derive(Clone, Copy, Debug)]
pub struct Detour {
    /// The operations.
    pub what: &'static str,
    /// What to do, beside choosing another engine.
    pub remedy: &'static str,
}

/// The smallest depth that gives most of what the ring gives at all.
pub fn deeper(noun: &str, rows: &[Row]) -> Option<String> {
    let own = |row: &&Row| row.kind == RowKind::Subject && row.is_valid();
    let mut points: Vec<(usize, f64)> =
        rows.iter().filter(own).map(|row| (row.depth, row.measured.ops_per_s())).collect();
    points.sort_unstable_by_key(|point| point.0);
    let &(first, least) = points.first()?;
    let &(at, best) = points.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let &(enough, rate) = points.iter().find(|point| point.1 >= ENOUGH * best)?;
    (best >= WORTH * least && enough > first).then(|| {
        let part = match enough == at {
            true => String::new(),
            false => format!("{:.0} % of what {noun} {at} gives, ", rate / best * 100.0),
        };
        format!("raise the {noun} to {enough}: {part}{:.1} times {noun} {first}", rate / least)
    })
}

/// What to do about operations that the kernel hands to its workers, if the ring loses by that.
pub fn workers(
    rows: &[Row],
    verdict: &Verdict,
    detour: &Detour,
    filesystem: Option<&str>,
) -> Option<String> {
    let winner = verdict.winner.as_ref()?;
    let own = |row: &&Row| row.kind == RowKind::Subject && row.depth == verdict.depth;
    let punts = rows.iter().find(own)?.measured.worker_punts_per_op()?;
    (verdict.verdict == Finding::DoNotUse && punts >= PUNTS).then(|| {
        let Detour { what, remedy } = detour;
        let on = filesystem.map_or_else(String::new, |name| format!(" on {name}"));
        format!(
            "{what}{on} go to a kernel worker ({punts:.1} steps of each operation), and {winner} \
             without that detour is faster: {remedy}, or {winner}"
        )
    })
}

#[cfg(test)]
mod tests {
    use ringwise_measure::Fact;

    use super::*;
    use crate::{
        sampling::sample::Counted,
        testing::{Figures, row},
    };

    fn verdict(depth: usize, verdict: Finding) -> Verdict {
        Verdict {
            depth,
            verdict,
            winner: None,
            rival: None,
            ratio: None,
            cpu_ratio: None,
            noise_floor: None,
            reason: String::new(),
        }
    }

    #[test]
    fn the_break_even_is_where_it_wins_for_good() {
        use Finding::{DoNotUse, Inconclusive, NoDifference, UseIt};
        for (findings, from) in [
            (vec![DoNotUse, NoDifference, UseIt, UseIt], Some(4)),
            (vec![UseIt, DoNotUse, NoDifference, UseIt], Some(8)),
            (vec![UseIt, NoDifference, Inconclusive, UseIt], Some(1)),
            (vec![UseIt, UseIt, DoNotUse], None),
            (vec![NoDifference, NoDifference], None),
        ] {
            let verdicts: Vec<Verdict> =
                findings.iter().enumerate().map(|(at, &f)| verdict(1 << at, f)).collect();
            assert_eq!(BreakEven::of("depth", &verdicts).unwrap().from, from, "{findings:?}");
        }
        assert_eq!(BreakEven::of("depth", &[verdict(1, UseIt)]), None);
        let told = [verdict(1, NoDifference), verdict(32, UseIt)];
        let text = BreakEven::of("depth", &told).unwrap().text();
        assert_eq!(text, "break-even: the ring wins from depth 32 on");
    }

    #[test]
    fn workers_are_only_blamed_where_the_ring_loses() {
        let mut ring = row("uring", RowKind::Subject, 8, Figures::DIRECT);
        ring.measured.counted = Some(Counted {
            shares: None,
            system_calls: Fact::Unknown("not asked".to_owned()),
            worker_punts: Fact::Known(1.0),
        });
        let rows = [ring];
        let with = |finding, winner: &str| Verdict {
            winner: Some(winner.to_owned()),
            ..verdict(8, finding)
        };
        let mut section = crate::testing::section();
        section.detour = Detour { what: "buffered writes and syncs", remedy: "use O_DIRECT" };
        section.filesystem = Some("ext4".to_owned());
        section.rows = rows.into_iter().collect();
        section.verdicts = vec![with(Finding::DoNotUse, "threads")];
        section.summarise();
        assert_eq!(
            section.advice,
            [
                "buffered writes and syncs on ext4 go to a kernel worker (1.0 steps of each operation), \
              and threads without that detour is faster: use O_DIRECT, or threads"
            ]
        );
        section.verdicts = vec![with(Finding::UseIt, "uring")];
        section.summarise();
        assert_eq!(section.advice, Vec::<String>::new());
    }

    #[test]
    fn enough_depth_is_said_with_what_it_gives() {
        let at = |depth, ops_per_s| {
            row("uring", RowKind::Subject, depth, Figures { ops_per_s, ..Figures::DIRECT })
        };
        let mut section = crate::testing::section();
        let mut told = |noun, rows: &[(usize, f64)]| {
            section.verdicts.clear();
            section.depth_is = noun;
            section.rows = rows.iter().map(|&(depth, rate)| at(depth, rate)).collect();
            section.summarise();
            section.advice.clone()
        };
        let rows = [(1, 10_000.0), (16, 85_000.0), (128, 100_000.0)];
        assert_eq!(
            told("depth", &rows),
            ["raise the depth to 16: 85 % of what depth 128 gives, 8.5 times depth 1"]
        );
        assert_eq!(told("connections", &rows), Vec::<String>::new());
        assert_eq!(told("depth", &[(1, 100.0), (16, 101.0)]), Vec::<String>::new());
    }
}
