//! `nop`: what an operation costs that does nothing, through the library and through a bare ring
//! with the same flags. The difference is the library. And through the library's ring with one
//! switch changed: what each gives.
//!
//! The clock is read once for some batches, since at a batch of one it would be a tenth of what is
//! measured; latencies are therefore averages over that many batches.

use std::{sync::Arc, time::Duration};

use ringwise::{BackendChoice, Builder, Effect, Local, Operation, Setup};
use ringwise_measure::{
    quantity::latency_text,
    statistics::{Comparison, compare},
};

use super::form::{Context, Entry, Keep, Outcome, Workload, remark};
use crate::{
    engine::{Engine, Tally, bare_ring::BareRing, beside_the_ring, uring::ENTRIES_MIN},
    error::{LabError, plain},
    plan::{Defaults, scale::Scale},
    results::{
        row::{Row, RowKind},
        section::Section,
        verdict::{self, Figure, Finding, Verdict, interval_text},
    },
    sampling::{
        job::{Failure, Job, Start, Until, Window},
        lane::{Counts, SLICES},
    },
    workload::form::{
        columns,
        cost::Samples,
        facts::{Facts, Question, Target, start},
    },
};

/// What the rest of the lab knows of this workload.
pub static FACTS: Facts =
    Facts { name: "nop", depth_is: "batch", columns: columns::CALLS_ONLY, question: &QUESTION };

/// What a program with a ring of its own does today.
static QUESTION: Question = Question {
    operations: "no-ops",
    alone: "one no-op a batch",
    in_flight: "no-ops a batch",
    starts: &[start("bare", "drive a bare ring", "the bare ring", "")],
    targets: &[Target { engine: "uring", name: "the library", remedy: "Use ringwise::Local." }],
};

/// Its line in the table.
pub static ENTRY: Entry = Entry {
    facts: &FACTS,
    suite_s: 10,
    has_files: false,
    flags: &["depth", "reads"],
    defaults: Defaults::of,
    plan: |typed| {
        let batches = typed.depths.clone().unwrap_or_else(|| match typed.scale {
            Scale::Quick => vec![1, 32, 256],
            Scale::Standard | Scale::Full => (0..=10).map(|power| 1 << power).collect(),
        });
        Ok(Box::new(Nop { batches }))
    },
};

/// What is measured: no-ops in batches of these sizes.
#[derive(Debug)]
struct Nop {
    batches: Vec<usize>,
}

impl Workload for Nop {
    fn rows(&self) -> usize {
        self.batches.len() * ROWS_PER_BATCH
    }

    fn time(&self, samples: &Samples) -> Duration {
        samples.time()
    }

    fn missing(&self) -> Option<String> {
        let refused = Local::builder().backend(BackendChoice::Uring).build().err()?;
        Some(refused.to_string())
    }

    fn run(&self, context: &Context<'_>, keep: &mut Keep<'_>) -> Result<(), LabError> {
        keep(run(context, &self.batches))
    }
}

/// Operations between two readings of the clock, at least.
const OPERATIONS_PER_READING: usize = 256;

/// Rows per batch: the library, the bare ring, the library again, and with each switch changed.
const ROWS_PER_BATCH: usize = 3 + CHANGES.len();

/// How long the kernel's submission thread spins without work before it sleeps.
const SQPOLL_IDLE: Duration = Duration::from_millis(10);

/// Makes a ring another one.
type Change = fn(Builder) -> Builder;

/// What is changed of the library's ring, one thing each. Three of them make sense only without
/// DEFER_TASKRUN, which SQPOLL excludes, and are compared with the ring without it.
const CHANGES: [(&str, Change); 5] = [
    ("-defer-taskrun", |ring| ring.defer_taskrun(false)),
    ("-defer-taskrun+coop-taskrun", |ring| ring.defer_taskrun(false).coop_taskrun(true)),
    ("-defer-taskrun-single-issuer", |ring| ring.defer_taskrun(false).single_issuer(false)),
    ("-registered-ring", |ring| ring.registered_ring(false)),
    ("-defer-taskrun+sqpoll", |ring| ring.defer_taskrun(false).sqpoll(Some(SQPOLL_IDLE))),
];

/// Measures all batches.
fn run(context: &Context<'_>, batches: &[usize]) -> Outcome {
    let mut rows = Vec::new();
    for &batch in batches {
        let row = |engine: &str, kind, runner| Row::new(engine.to_owned(), kind, batch, runner);
        let library = |change, base| Box::new(ThroughLibrary { change, base });
        rows.push(row("uring", RowKind::Subject, library(as_it_comes, None)));
        rows.push(row("bare", RowKind::Rival, Box::new(ThroughBareRing)));
        rows.push(row("uring", RowKind::Control, library(as_it_comes, None)));
        for (name, change) in CHANGES {
            let runner = library(change, Some(change_of(base_of(name))));
            rows.push(row(&format!("uring{name}"), RowKind::Variant, runner));
        }
    }
    let title = "nop, one thread, one ring, one system call per batch".to_owned();
    let mut section = Section::new(&FACTS, title, rows);
    let job = |row: &Row, order_seed| Job { block_bytes: 0, ..context.job(row.depth, order_seed) };
    let result = context.take(&context.schedule(&job), &mut section, &|row| {
        format!("nop: {}, batch {}", row.label(), row.depth)
    });
    let seed = context.plan.seed;
    for &batch in batches {
        section.pairings.extend(verdict::pairings(&section.rows, batch, seed));
        section.switches.extend(verdict::costs(&section.rows, batch, Figure::Time, seed));
        let verdict = verdict_at(&section, batch);
        section.verdicts.push(verdict);
    }
    section.rows.iter_mut().filter(|row| row.is_valid()).for_each(remark);
    section.summarise();
    // What it is compared with is a ring too.
    section.break_even = None;
    Outcome { section, result }
}

fn verdict_at(section: &Section, batch: usize) -> Verdict {
    let of = |kind| section.rows.iter().find(|row| row.depth == batch && row.kind == kind);
    let pairing = |kind| {
        section.pairings.iter().find(|pair| pair.depth == batch && pair.baseline_kind == kind)
    };
    let time = |row: &Row| latency_text(1e9 / row.measured.ops_per_s().max(1.0));
    let noise = pairing(RowKind::Control)
        .map(|pair| ringwise_measure::statistics::noise_floor(&pair.ratio));
    let (verdict, ratio, reason) = match (
        of(RowKind::Subject),
        of(RowKind::Rival),
        pairing(RowKind::Rival),
    ) {
        (Some(own), Some(bare), Some(pair)) => {
            let finding = match compare(&pair.ratio, noise.unwrap_or(0.0)) {
                Comparison::Slower => Finding::DoNotUse,
                _ => Finding::NoDifference,
            };
            let reason = format!(
                "a no-op through the library takes {} times the bare ring's time: {} against {}",
                interval_text(&pair.ratio.inverse()),
                time(own),
                time(bare)
            );
            (finding, Some(pair.ratio), reason)
        }
        (own, bare, _) => {
            let voids = [own, bare].into_iter().flatten().find_map(|row| row.measured.void.clone());
            let reason = voids.unwrap_or_else(|| "too few samples for an interval".to_owned());
            (Finding::Inconclusive, None, reason)
        }
    };
    Verdict {
        depth: batch,
        verdict,
        winner: None,
        rival: Some("bare".to_owned()),
        ratio,
        cpu_ratio: pairing(RowKind::Rival).and_then(|pair| pair.cpu_ratio),
        noise_floor: noise,
        reason,
    }
}

/// The name of what a changed ring is compared with: the longest that its own begins with.
fn base_of(name: &str) -> &'static str {
    let names = CHANGES.iter().map(|(other, _)| *other);
    let shorter = names.filter(|other| *other != name && name.starts_with(other));
    shorter.max_by_key(|other| other.len()).unwrap_or_default()
}

/// What makes a ring the one of a name.
fn change_of(name: &str) -> Change {
    let found = CHANGES.iter().find(|(other, _)| *other == name);
    found.map_or(as_it_comes as Change, |(_, change)| *change)
}

/// Why a ring is not another one than its baseline, where the kernel made the same of both.
fn same_as(own: &Setup, base: &Setup) -> Option<String> {
    let is_same =
        own.granted() == base.granted() && own.is_ring_registered() == base.is_ring_registered();
    is_same.then(|| format!("what it switches was not granted: {} either way", setup_text(own)))
}

fn as_it_comes(ring: Builder) -> Builder {
    ring
}

fn library(batch: usize, change: Change) -> Result<Local, Failure> {
    let entries = u32::try_from(batch.max(ENTRIES_MIN)).unwrap_or(u32::MAX);
    let builder = Local::builder().backend(BackendChoice::Uring).entries(entries);
    let local = change(builder).build().map_err(|error| Failure::Unavailable(error.to_string()))?;
    match local.setup().sqpoll() {
        Effect::Ineffective(reason) => {
            Err(Failure::Unavailable(format!("SQPOLL is not effective: {reason}")))
        }
        _ => Ok(local),
    }
}

#[derive(Debug)]
struct ThroughLibrary {
    change: Change,
    /// What the ring with a switch changed is compared with.
    base: Option<Change>,
}

impl Engine for ThroughLibrary {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let mut local = library(job.depth, self.change)?;
        let base = self.base.map(|base| library(job.depth, base)).transpose()?;
        let same = base.and_then(|base| same_as(local.setup(), base.setup()));
        let window = start.ready()?;
        let before = local.stats();
        let tally = repeat(job, window, |batch| through_library(&mut local, batch))?;
        let after = local.stats();
        Ok(Tally {
            submitted: Some(after.submitted - before.submitted),
            system_calls: Some(after.enters - before.enters),
            lacks: same.or_else(|| {
                beside_the_ring(after.fallback_operations - before.fallback_operations)
            }),
            detail: Some(setup_text(local.setup())),
            ..tally
        })
    }
}

#[inline]
fn through_library(local: &mut Local, batch: usize) -> Result<(), String> {
    for number in 0..batch {
        local.push(Operation::nop(), number as u64).map_err(|error| error.to_string())?;
    }
    local.submit_and_wait(batch).map_err(|error| error.to_string())?;
    let mut taken = 0;
    while let Some(completion) = local.next_completion() {
        if completion.raw_result() < 0 {
            completion.result().map_err(|error| error.to_string())?;
        }
        taken += 1;
    }
    if taken == batch { Ok(()) } else { Err(format!("{taken} of {batch} no-ops completed")) }
}

#[derive(Debug)]
struct ThroughBareRing;

impl Engine for ThroughBareRing {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let unavailable = |error: std::io::Error| Failure::Unavailable(plain(&error));
        // What the library is granted, the bare ring gets.
        let setup = library(job.depth, as_it_comes)?.setup().clone();
        let mut ring = BareRing::like(&setup).map_err(unavailable)?;
        let mut entered = ring.enter().map_err(unavailable)?;
        let window = start.ready()?;
        let mut batches = 0;
        let tally = repeat(job, window, |batch| {
            batches += 1;
            entered.batch(batch).map_err(|error| plain(&error))
        })?;
        let detail = Some(setup_text(&setup));
        Ok(Tally { system_calls: Some(batches), detail, ..tally })
    }
}

fn setup_text(setup: &Setup) -> String {
    let ring = if setup.is_ring_registered() { ", ring registered" } else { "" };
    format!("{}{ring}", setup.granted())
}

/// Repeats batches until the window is over.
fn repeat(
    job: &Job,
    window: Window,
    mut batch: impl FnMut(usize) -> Result<(), String>,
) -> Result<Tally, Failure> {
    let size = job.depth;
    let batches = OPERATIONS_PER_READING.div_ceil(size);
    let operations = (batches * size) as u64;
    let (until_ns, quota, slices) = match window.until {
        Until::Time { ns } => (ns, u64::MAX, vec![0; SLICES]),
        Until::Operations { count } => (u64::MAX, count, Vec::new()),
    };
    let mut counts = Counts { slices, ..Counts::default() };
    let mut began_ns = window.now_ns();
    while began_ns < until_ns && counts.operations < quota && !job.is_stopped() {
        for _ in 0..batches {
            batch(size).map_err(Failure::Io)?;
        }
        let ended_ns = window.now_ns();
        counts.issued += operations;
        counts.completed += operations;
        if began_ns >= window.from_ns && ended_ns < until_ns {
            let latency_ns = (ended_ns - began_ns) / batches as u64;
            counts.operations += operations;
            job.latency.record_many_ns(latency_ns, operations);
            counts.in_flight_ns += (ended_ns - began_ns) * size as u64;
            counts.end_ns = ended_ns;
            if let Some(last) = counts.slices.len().checked_sub(1) {
                let measured_ns = until_ns - window.from_ns;
                let slice = (ended_ns - window.from_ns) * SLICES as u64 / measured_ns;
                counts.slices[(slice as usize).min(last)] += operations;
            }
        }
        began_ns = ended_ns;
    }
    Ok(Tally::of(job, &window, [counts]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is sold as one switch has to be one: by what the kernel granted, each ring differs from the
    /// one that it is compared with in the flag that its name adds. TASKRUN_FLAG goes with those that
    /// make it mean something.
    #[test]
    fn each_ring_differs_from_its_baseline_in_one_flag() {
        let granted = |name: &str| {
            let local = library(8, change_of(name)).ok()?;
            Some(local.setup().granted().iter().collect::<Vec<_>>())
        };
        for (name, _) in CHANGES {
            let (Some(own), Some(base)) = (granted(name), granted(base_of(name))) else {
                println!("skipped: {name} cannot be had here");
                continue;
            };
            let differs = |flag: &&&str| {
                **flag != "TASKRUN_FLAG" && own.contains(*flag) != base.contains(*flag)
            };
            let differing: Vec<_> =
                own.iter().filter(differs).chain(base.iter().filter(differs)).collect();
            let expected = usize::from(name != "-registered-ring");
            assert_eq!(differing.len(), expected, "{name}: {differing:?}");
        }
    }

    #[test]
    fn a_switch_that_changes_nothing_is_told_from_one_that_does() {
        let setup = |change: Change| library(8, change).ok().map(|local| local.setup().clone());
        let Some(own) = setup(as_it_comes) else { return println!("skipped: no io_uring here") };
        let reason = same_as(&own, &own).unwrap();
        assert!(reason.starts_with("what it switches was not granted: "), "{reason}");
        if own.granted().has("DEFER_TASKRUN") {
            let without = setup(change_of("-defer-taskrun")).unwrap();
            assert_eq!(same_as(&without, &own), None);
        }
    }
}
