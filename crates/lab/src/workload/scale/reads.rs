//! The reads of `scale`: a section for each block and depth, with a row for each engine and number of threads.

use std::sync::Arc;

use ringwise_measure::quantity::{latency_text, size_text};

use super::{
    facts::FACTS,
    ground::{Ground, Shape},
    own_cost::Costs,
    scaling,
    shares::{shares, used},
};
use crate::{
    checks::gates,
    engine::{Engine, crew::Crew, sync::Sync, threads::Threads, uring::Uring},
    results::{
        row::{Row, RowKind},
        section::Section,
        verdict::{self, Detour},
    },
    sampling::job::Cache,
    workload::form::{COUNTING, Context, Outcome, remark},
};

/// The most threads of a row: one for each read in flight may be many.
const THREADS_MAX: usize = 1024;

/// How a thread reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// pread(2), one after the other.
    Sync,
    /// pread(2) in a thread for each read in flight.
    Threads,
    /// A ring.
    Ring,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Sync => "sync",
            Way::Threads => "threads",
            Way::Ring => "uring",
        }
    }

    fn engine(self) -> Arc<dyn Engine> {
        match self {
            Way::Sync => Arc::new(Sync),
            Way::Threads => Arc::new(Threads),
            Way::Ring => Arc::new(Uring::default()),
        }
    }
}

/// A row to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowPlan {
    way: Way,
    kind: RowKind,
    threads: usize,
}

/// The rows at a depth: every way with every number of threads, and the ring again.
pub(super) fn plans(threads: &[usize], depth: usize) -> Vec<RowPlan> {
    let of_count = |&threads: &usize| {
        let row = move |way, kind| RowPlan { way, kind, threads };
        // One read at a time is what `sync` does.
        let has_threads = depth > 1 && threads * depth <= THREADS_MAX;
        [
            Some(row(Way::Sync, RowKind::Rival)),
            has_threads.then(|| row(Way::Threads, RowKind::Rival)),
            Some(row(Way::Ring, RowKind::Subject)),
            Some(row(Way::Ring, RowKind::Control)),
        ]
    };
    threads.iter().flat_map(of_count).flatten().collect()
}

fn rows(threads: &[usize], shape: Shape, ground: &Ground) -> Vec<Row> {
    let make = |plan: RowPlan| {
        let shares = shares(&ground.places, plan.threads, &ground.processors);
        let crew = Crew::new(plan.way.engine(), shares);
        Row::new(plan.way.name().to_owned(), plan.kind, plan.threads, Box::new(crew))
    };
    plans(threads, shape.depth).into_iter().map(make).collect()
}

/// Measures all rows of a depth.
pub(super) fn run(
    context: &Context<'_>,
    threads: &[usize],
    shape: Shape,
    ground: &Ground,
    costs: &Costs,
) -> Outcome {
    let title = format!("scale direct random, {}", shape.text());
    let mut section = Section::new(&FACTS, title.clone(), rows(threads, shape, ground));
    section.place = shape.place(Some(Cache::Bypassed));
    let block = size_text(shape.block_bytes as u64);
    section.short = format!("O_DIRECT {block}, {} in flight each", shape.depth);
    section.filesystem.clone_from(&ground.filesystem);
    section.notes.clone_from(&ground.notes);
    section.detour = Detour {
        what: "direct reads of this size",
        remedy: "use blocks that the device takes at once",
    };
    let of_row = |row: &Row, seed| {
        let files = used(&shares(&ground.places, row.depth, &ground.processors));
        shape.job(context, files, seed)
    };
    let schedule = context.schedule(&of_row);
    let tell = |row: &Row| format!("{title}: {} on {} threads", row.label(), row.depth);
    let result = context.take(&schedule, &mut section, &tell);
    let result = result.and_then(|()| schedule.count(&mut section.rows, COUNTING, false));
    conclude(context, &mut section, costs, ground.processors.len());
    Outcome { section, result }
}

/// Says what the rows show.
fn conclude(context: &Context<'_>, section: &mut Section, costs: &Costs, processors: usize) {
    let seed = context.plan.seed;
    scaling::add_figures(&mut section.rows);
    for row in section.rows.iter_mut().filter(|row| row.is_valid()) {
        add_own_cost(row, costs, processors);
        remark(row);
    }
    section.notes.extend(own_share(&section.rows, costs));
    let mut counts: Vec<usize> = section.rows.iter().map(|row| row.depth).collect();
    counts.dedup();
    for count in counts {
        let mut verdict = verdict::at_connections(&section.rows, count, "read", None, seed);
        if let Some(clause) = scaling::clause(&section.rows, count, seed) {
            verdict.reason = format!("{clause}; {}", verdict.reason);
        }
        section.verdicts.push(verdict);
        section.pairings.extend(verdict::pairings(&section.rows, count, seed));
    }
    section.summarise();
    section.findings.extend(scaling::finding(&section.rows, seed));
}

/// Says of a row what part of it is the lab's own.
fn add_own_cost(row: &mut Row, costs: &Costs, processors: usize) {
    let Some(cost_ns) = costs.at(row.depth) else { return };
    let measured = &mut row.measured;
    let busy = row.depth.min(processors).max(1) as f64;
    let share = (cost_ns * measured.ops_per_s() / 1e9 / busy).min(1.0);
    (measured.harness_ns, measured.harness_share) = (Some(cost_ns), Some(share));
    if share > gates::HARNESS_SHARE_MAX {
        measured.remarks.push(format!("lab's own time {:.0} %", share * 100.0));
    }
}

/// What share of the fastest row's CPU time is the lab's own.
fn own_share(rows: &[Row], costs: &Costs) -> Option<String> {
    let valid = rows.iter().filter(|row| row.is_valid());
    let rate = |row: &&Row| row.measured.ops_per_s();
    let fastest = valid.max_by(|one, other| rate(one).total_cmp(&rate(other)))?;
    let (own_ns, all_ns) = (costs.at(fastest.depth)?, fastest.measured.cpu_ns_per_op());
    (all_ns > 0.0).then(|| {
        format!(
            "the lab's own CPU time per read is {}, measured over memory: {:.0} % of the {} of the fastest row, {} \
             with {} threads",
            latency_text(own_ns),
            own_ns / all_ns * 100.0,
            latency_text(all_ns),
            fastest.engine,
            fastest.depth
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Figures, row};

    #[test]
    fn every_way_has_every_number_of_threads() {
        let names = |threads: &[usize], depth| {
            let name =
                |plan: RowPlan| format!("{}@{} {:?}", plan.way.name(), plan.threads, plan.kind);
            plans(threads, depth).into_iter().map(name).collect::<Vec<_>>()
        };
        let one = ["sync@1 Rival", "uring@1 Subject", "uring@1 Control"];
        assert_eq!(names(&[1], 1), one, "a thread for each read is `sync`");
        let deep = names(&[1, 64], 32);
        assert_eq!(
            deep[..4],
            ["sync@1 Rival", "threads@1 Rival", "uring@1 Subject", "uring@1 Control"]
        );
        assert_eq!(deep[4..], ["sync@64 Rival", "uring@64 Subject", "uring@64 Control"]);
    }

    #[test]
    fn the_labs_own_share_is_said_of_the_fastest_row_and_of_each() {
        let null = |threads, cpu_ns| {
            row("null", RowKind::Subject, threads, Figures { cpu_ns, ..Figures::DIRECT })
        };
        let costs = Costs::of(&[null(1, 400.0), null(2, 600.0)]);
        let fast = Figures { ops_per_s: 1_000_000.0, cpu_ns: 3000.0, ..Figures::DIRECT };
        let mut rows = [
            row("sync", RowKind::Rival, 1, Figures::DIRECT),
            row("uring", RowKind::Subject, 2, fast),
        ];
        let told = own_share(&rows, &costs).unwrap();
        assert!(told.contains("is 600 ns, measured over memory: 20 % of the 3.00 µs"), "{told}");
        rows.iter_mut().for_each(|row| add_own_cost(row, &costs, 2));
        // A million reads of 600 ns by two processors.
        assert_eq!(rows[1].measured.harness_share, Some(0.3));
        assert_eq!(rows[1].measured.remarks, ["lab's own time 30 %"]);
        assert_eq!((rows[0].measured.harness_ns, rows[0].measured.remarks.len()), (Some(400.0), 0));
    }
}
