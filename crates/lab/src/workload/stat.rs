//! `stat`: the metadata of many files, in random order, with their names in the kernel's cache: what
//! a tree walk, a build or a file server asks for. An operation is one statx(2).

mod calls;
mod plan;
mod tree;

use std::{sync::atomic::Ordering, time::Duration};

use ringwise_measure::device::Storage;

use self::{
    calls::{BlockingStat, RingStat},
    plan::StatPlan,
    tree::Tree,
};
use super::form::{COUNTING, Context, Entry, Keep, Outcome, Workload, remark};
use crate::{
    dataset::DataFile,
    engine::Engine,
    error::LabError,
    plan::Defaults,
    results::{
        row::{Row, RowKind},
        section::Section,
        verdict::{self, Detour},
    },
    sampling::job::{Job, Pattern, Timing},
    workload::form::{
        columns,
        cost::Samples,
        facts::{Facts, Question, Start, Target, start},
    },
};

/// What the rest of the lab knows of this workload.
pub static FACTS: Facts =
    Facts { name: "stat", depth_is: "depth", columns: columns::CALLS_ONLY, question: &QUESTION };

/// What programs that walk a tree do today.
static QUESTION: Question = Question {
    operations: "calls",
    alone: "one call at a time",
    in_flight: "in flight",
    starts: &[
        Start {
            is_single: true,
            ..start("sync", "make one statx call at a time", "blocking calls", "")
        },
        start("threads", "use a thread pool", "a thread pool", ""),
    ],
    targets: &[Target { engine: "uring", name: "io_uring", remedy: "Use ringwise::Local." }],
};

/// Its line in the table.
pub static ENTRY: Entry = Entry {
    facts: &FACTS,
    suite_s: 6,
    has_files: true,
    flags: &["depth", "files", "reads"],
    defaults: Defaults::of,
    plan: |typed| Ok(Box::new(StatPlan::new(typed)?)),
};

/// The time to make an empty file and to remove it.
const EMPTY_FILE: Duration = Duration::from_micros(40);
/// A name and an inode, on a file system that has none in reserve.
const FILE_BYTES: u64 = 1 << 10;

impl Workload for StatPlan {
    fn rows(&self) -> usize {
        rows(self).len()
    }

    fn time(&self, samples: &Samples) -> Duration {
        let files = u32::try_from(self.files).unwrap_or(u32::MAX);
        EMPTY_FILE * files + samples.time() + samples.counting * samples.rows
    }

    fn passing_bytes(&self, _: Timing) -> u64 {
        self.files * FILE_BYTES
    }

    fn run(&self, context: &Context<'_>, keep: &mut Keep<'_>) -> Result<(), LabError> {
        keep(run(context, self))
    }
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
fn run(context: &Context<'_>, plan: &StatPlan) -> Outcome {
    let title = format!("stat of {} files, names cached", plan.files);
    let mut section = Section::new(&FACTS, title, rows(plan));
    section.detour = Detour { what: "look-ups of names", remedy: "make them by calls" };
    let storage = Storage::of(&context.instruments.sources, context.directory().path());
    section.filesystem = storage.mount.known().map(|mount| mount.kind.clone());
    let result = measure(context, plan.files, &mut section);
    let seed = context.plan.seed;
    section.rows.iter_mut().filter(|row| row.is_valid()).for_each(remark);
    for &depth in &plan.depths {
        section.verdicts.push(verdict::of_calls(&section.rows, depth, "stat", seed));
        section.pairings.extend(verdict::pairings(&section.rows, depth, seed));
    }
    section.summarise();
    Outcome { section, result }
}

fn measure(context: &Context<'_>, count: u64, section: &mut Section) -> Result<(), LabError> {
    context.progress.begin(count);
    context.progress.tell("making files for stat".to_owned());
    let tree = Tree::make(context.directory(), count, &mut |files| {
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
