//! What a programmer can do with a section: from where on the ring wins, and advice with the number
//! that it rests on.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use ringwise_measure::quantity::size_text;

use super::{Finding, SwitchCost, Verdict};
use crate::{
    plan::{Group, Profile},
    report::Section,
    row::{Row, RowKind},
};

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
            verdicts.iter().filter(|verdict| verdict.verdict != Finding::CannotBeTold).collect();
        told.sort_by_key(|verdict| verdict.depth);
        let (first, last) = (told.first()?.depth, told.last()?.depth);
        let lost = told.iter().rposition(|verdict| verdict.verdict == Finding::PureOverhead);
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
const BLOCK: &str = "block";

/// Sections that differ in nothing but the block: from which one on the ring wins, at the greatest
/// depth. It is told with the last of them.
#[derive(Debug, Default)]
pub struct OverBlocks(Vec<(Profile, Verdict)>);

impl OverBlocks {
    /// Takes a section in. `groups` are all that there will be.
    pub fn add(&mut self, group: &Group, groups: &[Group], section: &mut Section) {
        let kin = || groups.iter().filter(|own| own.profile == group.profile);
        let blocks = kin().count();
        // The greatest depth that all of them have.
        let shared = |depth: &&usize| kin().all(|own| own.depths.contains(depth));
        let Some(&deepest) = group.depths.iter().filter(shared).max() else { return };
        let verdict = section.verdicts.iter().find(|verdict| verdict.depth == deepest);
        let of_block = verdict.map(|own| Verdict { depth: group.block_bytes, ..own.clone() });
        self.0.extend(of_block.map(|own| (group.profile, own)));
        let own = self.0.iter().filter(|(profile, _)| *profile == group.profile);
        let own: Vec<Verdict> = own.map(|(_, verdict)| verdict.clone()).collect();
        if let Some(found) = BreakEven::of(BLOCK, &own).filter(|_| own.len() == blocks) {
            section.advice.push(format!("{}, at depth {deepest}", found.text()));
        }
    }
}

/// How much of the best throughput is enough.
const ENOUGH: f64 = 0.8;
/// By how much the best has to be above the least for depth to be worth words.
const WORTH: f64 = 1.25;
/// From how many operations by kernel workers on a program should do something about it.
const PUNTS: f64 = 0.5;

/// What goes to the kernel's workers in a section, and what a program can do in place of it.
#[derive(Clone, Debug, Default)]
pub struct Detour {
    /// The operations.
    pub what: &'static str,
    /// What to do, beside asking another engine.
    pub remedy: &'static str,
    /// The file system, which decides it, where it is known.
    pub filesystem: Option<String>,
}

/// What to do, from what was measured.
pub fn advice(
    noun: &str,
    rows: &[Row],
    verdicts: &[Verdict],
    switches: &[SwitchCost],
    detour: &Detour,
) -> Vec<String> {
    // How many clients there are is not a program's to choose.
    let is_chosen = matches!(noun, "depth" | "batch");
    let deeper = is_chosen.then(|| depth(noun, rows)).flatten();
    let mut advice: Vec<String> = deeper.into_iter().collect();
    advice.extend(verdicts.iter().rev().find_map(|verdict| workers(rows, verdict, detour)));
    let deepest = switches.iter().map(|cost| cost.depth).max();
    let shown = switches.iter().filter(|cost| Some(cost.depth) == deepest);
    advice.extend(shown.filter_map(SwitchCost::advice));
    advice
}

/// The smallest depth that gives most of what the ring gives at all.
fn depth(noun: &str, rows: &[Row]) -> Option<String> {
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

/// Operations that the kernel hands to its workers, where the ring loses by that.
fn workers(rows: &[Row], verdict: &Verdict, detour: &Detour) -> Option<String> {
    let winner = verdict.winner.as_ref()?;
    let own = |row: &&Row| row.kind == RowKind::Subject && row.depth == verdict.depth;
    let punts = rows.iter().find(own)?.measured.worker_punts_per_op()?;
    (verdict.verdict == Finding::PureOverhead && punts >= PUNTS).then(|| {
        let Detour { what, remedy, filesystem } = detour;
        let on = filesystem.as_ref().map_or_else(String::new, |name| format!(" on {name}"));
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
        args::Args,
        engine::chain::SyncKind,
        plan::{Plan, Workload},
        sample::Counted,
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
        use Finding::{CannotBeTold, NoDifference, PureOverhead, UseIt};
        for (findings, from) in [
            (vec![PureOverhead, NoDifference, UseIt, UseIt], Some(4)),
            (vec![UseIt, PureOverhead, NoDifference, UseIt], Some(8)),
            (vec![UseIt, NoDifference, CannotBeTold, UseIt], Some(1)),
            (vec![UseIt, UseIt, PureOverhead], None),
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
    fn the_block_from_which_the_ring_wins_is_told_with_the_last() {
        let plan = Plan::new(&Args {
            workload: Some("read".to_owned()),
            block: Some("512,4k,64k".to_owned()),
            profile: Some("direct".to_owned()),
            depth: Some("1,32".to_owned()),
            ..Args::default()
        });
        let (groups, mut over) = (plan.unwrap().groups, OverBlocks::default());
        let findings = [Finding::PureOverhead, Finding::UseIt, Finding::UseIt];
        let told: Vec<Vec<String>> = groups
            .iter()
            .zip(findings)
            .map(|(group, finding)| {
                let mut section = crate::testing::section();
                section.advice.clear();
                section.verdicts = vec![verdict(1, Finding::PureOverhead), verdict(32, finding)];
                over.add(group, &groups, &mut section);
                section.advice
            })
            .collect();
        let expected = "break-even: the ring wins from block 4k on, at depth 32".to_owned();
        assert_eq!(told, [vec![], vec![], vec![expected.clone()]]);
        // At the greatest depth that all of them have, though one has a greater one.
        let mut deeper = groups.clone();
        deeper[0].depths.push(256);
        let mut over = OverBlocks::default();
        for (group, finding) in deeper.iter().zip(findings) {
            let mut section = crate::testing::section();
            section.advice.clear();
            section.verdicts = vec![verdict(32, finding), verdict(256, Finding::UseIt)];
            over.add(group, &deeper, &mut section);
            let told = Some(&expected).filter(|_| group.block_bytes == 64 << 10);
            assert_eq!(section.advice.first(), told);
        }
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
        (section.workload, section.sync) = (Workload::Chain, Some(SyncKind::Fsync));
        section.filesystem = Some("ext4".to_owned());
        section.rows = rows.into_iter().collect();
        section.verdicts = vec![with(Finding::PureOverhead, "threads")];
        section.summarise();
        assert_eq!(
            section.advice,
            [
                "buffered writes and syncs on ext4 go to a kernel worker (1.0 steps of each operation), \
              and threads without that detour is faster: use O_DIRECT with O_DSYNC, or threads"
            ]
        );
        let verdicts = [with(Finding::UseIt, "uring")];
        let won = advice("depth", &section.rows, &verdicts, &[], &Detour::default());
        assert_eq!(won, Vec::<String>::new());
    }

    #[test]
    fn enough_depth_is_said_with_what_it_gives() {
        let at = |depth, ops_per_s| {
            row("uring", RowKind::Subject, depth, Figures { ops_per_s, ..Figures::DIRECT })
        };
        let none = Detour::default();
        let rows = [at(1, 10_000.0), at(16, 85_000.0), at(128, 100_000.0)];
        assert_eq!(
            advice("depth", &rows, &[], &[], &none),
            ["raise the depth to 16: 85 % of what depth 128 gives, 8.5 times depth 1"]
        );
        assert_eq!(advice("connections", &rows, &[], &[], &none), Vec::<String>::new());
        let flat = [at(1, 100.0), at(16, 101.0)];
        assert_eq!(advice("depth", &flat, &[], &[], &none), Vec::<String>::new());
    }
}
