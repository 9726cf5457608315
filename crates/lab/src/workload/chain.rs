//! `chain`: write a page of 4 KiB, make it durable, read it back and compare it, again and again
//! over a file of written extents. An operation is a whole chain.
//!
//! What a log or a database does for each commit: blocking calls one after the other, the same in
//! many threads, and linked operations of a ring, with a barrier behind each full batch and with a
//! rolling window. Pages follow each other, so that no two chains in flight have the same one.

pub(crate) mod plan;

use std::{sync::atomic::Ordering, time::Duration};

use ringwise_measure::{device::Storage, quantity::bytes_text};

use self::plan::ChainGroup;
use super::{
    form::{COUNTING, Context, Entry, Keep, Outcome, Workload, remark},
    read::page_cache,
};
use crate::{
    checks::gates,
    dataset::{DataFile, Layout},
    engine::{
        Engine,
        chain::{BlockingChain, Flow, RingChain, SyncKind},
    },
    error::LabError,
    plan::Defaults,
    results::{
        row::{Row, RowKind},
        section::{Place, Section},
        verdict::{self, Detour},
    },
    sampling::{
        job::{Cache, Job, Profile},
        schedule::Schedule,
    },
    workload::form::{
        columns,
        cost::{Samples, writing},
        facts::{Facts, Question, Start, Target, start},
    },
};

/// What the rest of the lab knows of this workload.
pub static FACTS: Facts =
    Facts { name: "chain", depth_is: "depth", columns: columns::FILES, question: &QUESTION };

/// What programs that make pages durable do today.
static QUESTION: Question = Question {
    operations: "pages",
    alone: "one page at a time",
    in_flight: "in flight",
    starts: &[
        Start {
            is_single: true,
            ..start("sync", "write and sync one page at a time", "blocking I/O", "")
        },
        start("threads", "use a thread pool", "a thread pool", ""),
    ],
    targets: &[Target { engine: "uring", name: "io_uring", remedy: "Use ringwise::Local." }],
};

/// Its line in the table.
pub static ENTRY: Entry = Entry {
    facts: &FACTS,
    // Every millisecond of it is written to the device, most of what the suite writes.
    suite_s: 4,
    has_files: true,
    flags: &["depth", "profile", "size", "sync", "keep", "reads"],
    defaults: Defaults::of,
    plan: |typed| Ok(Box::new(Chain { groups: plan::groups(typed)? })),
};

/// What is measured: a group for each profile and each kind of sync.
#[derive(Debug)]
struct Chain {
    groups: Vec<ChainGroup>,
}

impl Workload for Chain {
    fn rows(&self) -> usize {
        self.groups.iter().map(row_count).sum()
    }

    /// System calls are counted in a pass, and threads are looked at in another.
    fn time(&self, samples: &Samples) -> Duration {
        let counting = samples.counting * 2 * samples.rows;
        writing(self.kept_bytes(false)) + samples.time() + counting
    }

    fn kept_bytes(&self, least: bool) -> u64 {
        self.groups.first().map_or(0, |own| own.group.size.of(least))
    }

    fn run(&self, context: &Context<'_>, keep: &mut Keep<'_>) -> Result<(), LabError> {
        run(context, &self.groups, keep)
    }
}

/// The name of the ring that waits for a whole batch.
const BARRIER: &str = "uring+barrier";

/// Rows of a group: the serial loop, and for each depth threads, both rings and the control.
fn row_count(group: &ChainGroup) -> usize {
    1 + group.group.depths.iter().map(|&depth| if depth > 1 { 4 } else { 2 }).sum::<usize>()
}

fn rows(group: &ChainGroup) -> Vec<Row> {
    let sync = group.sync;
    let blocking = || -> Box<dyn Engine> { Box::new(BlockingChain { sync }) };
    let ring = |flow| -> Box<dyn Engine> { Box::new(RingChain { sync, flow }) };
    let row = |engine: &str, kind, depth, runner| Row::new(engine.to_owned(), kind, depth, runner);
    let mut rows = vec![row("sync", RowKind::Rival, 1, blocking())];
    for &depth in &group.group.depths {
        if depth > 1 {
            rows.push(row("threads", RowKind::Rival, depth, blocking()));
            rows.push(row(BARRIER, RowKind::Variant, depth, ring(Flow::Barrier)));
        }
        rows.push(row("uring", RowKind::Subject, depth, ring(Flow::Rolling)));
        rows.push(row("uring", RowKind::Control, depth, ring(Flow::Rolling)));
    }
    rows
}

/// Measures all groups, over one file. `keep` is told each outcome.
///
/// # Errors
///
/// What laying the file out reports, or what `keep` does.
fn run(context: &Context<'_>, groups: &[ChainGroup], keep: &mut Keep<'_>) -> Result<(), LabError> {
    let mut file = None;
    for group in groups {
        let ChainGroup { group: place, sync } = group;
        let title = format!("chain {}, {sync} per page of 4k, read back", place.profile);
        let mut section = Section::new(&FACTS, title, rows(group));
        section.place = Place {
            profile: Some(place.profile),
            pattern: Some(place.pattern),
            cache: Some(place.cache),
            block_bytes: place.block_bytes,
            sync: Some(sync.name()),
            ..Place::default()
        };
        section.short = format!("{}, {sync}", place.profile);
        section.detour = detour(*sync, place.profile);
        let storage = Storage::of(&context.instruments.sources, context.directory().path());
        section.filesystem = storage.mount.known().map(|mount| mount.kind.clone());
        let result = match gates::storage(place.profile, &storage) {
            Some(reason) => {
                section.void_all(&reason);
                Ok(())
            }
            None => match &file {
                Some(file) => measure(context, group, file, &mut section),
                None => lay(context, group)
                    .and_then(|laid| measure(context, group, file.insert(laid), &mut section)),
            },
        };
        judge(context, group, &mut section);
        keep(Outcome { section, result })?;
    }
    Ok(())
}

/// What a program can do if the kernel gives the steps of a chain to its workers.
fn detour(sync: SyncKind, profile: Profile) -> Detour {
    let (what, remedy) = match (sync, profile) {
        (SyncKind::Dsync, Profile::Buffered) => ("buffered writes with O_DSYNC", "use O_DIRECT"),
        (_, Profile::Buffered) => ("buffered writes and syncs", "use O_DIRECT with O_DSYNC"),
        (SyncKind::Dsync, Profile::Direct) => {
            ("direct writes with O_DSYNC", "write to blocks that are allocated and written")
        }
        (_, Profile::Direct) => ("syncs", "use O_DSYNC in place of a sync"),
    };
    Detour { what, remedy }
}

fn lay(context: &Context<'_>, group: &ChainGroup) -> Result<DataFile, LabError> {
    let layout = Layout { set: "chain", files: 1, size: group.group.size, seed: context.plan.seed };
    context.progress.begin(group.group.size.most);
    context.progress.tell("laying the file of chain out".to_owned());
    let laid = layout.lay(context.directory(), &mut |bytes| {
        context.progress.advance(bytes);
        !context.interrupt.load(Ordering::Relaxed)
    });
    context.progress.clear();
    Ok(laid?.remove(0))
}

fn measure(
    context: &Context<'_>,
    group: &ChainGroup,
    file: &DataFile,
    section: &mut Section,
) -> Result<(), LabError> {
    let place = &group.group;
    section.notes.push(format!(
        "1 file of {}, every page is compared with what was written",
        bytes_text(file.bytes)
    ));
    let storage = Storage::of(&context.instruments.sources, &file.path);
    let device = storage.device.known();
    let has_volatile_cache = device.and_then(|device| device.queue.has_volatile_cache());
    if has_volatile_cache == Some(false) {
        let note = "the device says that it has no volatile cache: a sync has nothing to flush";
        section.notes.push(note.to_owned());
    }
    let job = |row: &Row, order_seed| Job {
        files: [file.clone()].into(),
        // Other content in each sample: what an earlier one wrote is not what this one did.
        seed: order_seed,
        block_bytes: place.block_bytes,
        pattern: place.pattern,
        cache: place.cache,
        ..context.job(row.depth, order_seed)
    };
    let schedule = Schedule {
        prepare: &page_cache::prepare,
        inspect: &|job, sample| {
            let lost = gates::durable(job.block_bytes, sample);
            Ok(lost.or_else(|| gates::flushed(has_volatile_cache, sample)))
        },
        ..context.schedule(&job)
    };
    if place.profile == Profile::Direct {
        page_cache::forget(file)?;
    }
    let title = section.title.clone();
    context.take(&schedule, section, &|row| {
        format!("{title}: {} at depth {}", row.label(), row.depth)
    })?;
    schedule.count(&mut section.rows, COUNTING, true)
}

fn judge(context: &Context<'_>, group: &ChainGroup, section: &mut Section) {
    let seed = context.plan.seed;
    for row in section.rows.iter_mut().filter(|row| row.is_valid()) {
        remark(row);
        if group.group.cache == Cache::Warm {
            // Of the bytes read back; it says nothing of what a chain waits for.
            row.measured.samples.iter_mut().for_each(|sample| sample.device_share = None);
        }
    }
    for &depth in &group.group.depths {
        section.verdicts.push(verdict::of_chain(&section.rows, depth, BARRIER, seed));
        section.pairings.extend(verdict::pairings(&section.rows, depth, seed));
    }
    section.summarise();
}
