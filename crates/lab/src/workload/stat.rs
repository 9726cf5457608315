//! `stat`: the metadata of many files, in random order, with their names in the kernel's cache: what
//! a tree walk, a build or a file server asks for. An operation is one statx(2).

use std::sync::atomic::Ordering;

use ringwise_measure::device::Storage;

use super::{COUNTING, Context, Outcome, remark};
use crate::{
    dataset::{DataFile, Directory, tree::Tree},
    engine::{
        Engine,
        stat::{BlockingStat, RingStat},
    },
    error::LabError,
    job::{Job, Pattern},
    plan::{StatPlan, Workload},
    report::Section,
    row::{Row, RowKind},
    verdict,
};

/// How many rows there are.
pub fn row_count(plan: &StatPlan) -> usize {
    rows(plan).len()
}

fn rows(plan: &StatPlan) -> Vec<Row> {
    let row = |engine: &str, kind, depth, runner| Row::new(engine.to_owned(), kind, depth, runner);
    let blocking = || -> Box<dyn Engine> { Box::new(BlockingStat) };
    let ring = || -> Box<dyn Engine> { Box::new(RingStat) };
    let mut rows = vec![row("sync", RowKind::Rival, 1, blocking())];
    for &depth in &plan.depths {
        if depth > 1 {
            rows.push(row("threads", RowKind::Rival, depth, blocking()));
        }
        rows.push(row("uring", RowKind::Subject, depth, ring()));
        rows.push(row("uring", RowKind::Control, depth, ring()));
    }
    rows
}

/// Measures all rows over one tree.
pub fn run(context: &Context<'_>, directory: &Directory) -> Outcome {
    let plan = &context.plan.stat;
    let title = format!("stat of {} files, names cached", plan.files);
    let mut section = Section::new(Workload::Stat, None, title, rows(plan));
    let storage = Storage::of(&context.instruments.sources, directory.path());
    section.filesystem = storage.mount.known().map(|mount| mount.kind.clone());
    let result = measure(context, directory, &mut section);
    let seed = context.plan.seed;
    section.rows.iter_mut().filter(|row| row.is_valid()).for_each(remark);
    for &depth in &plan.depths {
        section.verdicts.push(verdict::of_calls(&section.rows, depth, "stat", seed));
        section.pairings.extend(verdict::pairings(&section.rows, depth, seed));
    }
    section.summarise();
    Outcome { section, result }
}

fn measure(
    context: &Context<'_>,
    directory: &Directory,
    section: &mut Section,
) -> Result<(), LabError> {
    let count = context.plan.stat.files;
    context.progress.begin(count);
    context.progress.tell("making files for stat".to_owned());
    let tree = Tree::make(directory, count, &mut |files| {
        context.progress.advance(files);
        !context.interrupt.load(Ordering::Relaxed)
    });
    context.progress.clear();
    let tree = tree?;
    section.notes.push("the length of every file is compared with what it was made with".into());
    let files: std::sync::Arc<[DataFile]> = tree.files.clone().into();
    let job = |row: &Row, order_seed| Job {
        files: files.clone(),
        pattern: Pattern::Random,
        ..context.job(row.depth, order_seed)
    };
    let schedule = context.schedule(&job);
    context
        .take(&schedule, section, &|row| format!("stat: {} at depth {}", row.label(), row.depth))?;
    schedule.count(&mut section.rows, COUNTING, false)
}
