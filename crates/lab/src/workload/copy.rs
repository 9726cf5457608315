//! `copy`: programs that copy files and trees, each run as a user runs it, interleaved.
//!
//! An operation is one copy of the whole data set. Three figures each: the time until the program
//! returns, the time until a syncfs(2) after it has put everything on the device, and all CPU time
//! of both: of the program and its kernel workers (wait4(2) counts them), of the sync, and of the
//! kernel's threads meanwhile (write-back, journal, loop device). Every copy is compared with its
//! source. With `--study`, block size and depth of `ringwise cp --engine=uring` are varied.
//!
//! What it does not see: interrupts, which are in nobody's account. And what others make the
//! kernel's threads do is in the account: it wants a machine of its own.

mod scene;

use std::{
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use ringwise_measure::{
    Latency, Sources,
    cpu::{CpuSplit, KernelThreads},
    device::Storage,
    quantity::size_text,
};
use serde::{Deserialize, Serialize};

use self::scene::Scene;
use super::{Context, Outcome, with_control};
use crate::{
    dataset::Directory,
    engine::{Engine, Tally},
    error::{LabError, plain},
    gates,
    job::{Cache, Extent, Failure, Job, Start, Timing},
    lane::Counts,
    plan::{CopyPlan, CopyProgram, DataSet, Workload},
    report::Section,
    row::{Row, RowKind},
    schedule::Schedule,
    verdict,
};

/// From so many files on, copies go where others were removed, however they are spread.
const FILES_THAT_MEET: usize = 10_000;

/// What a copy took beside the time until it returned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopyFigures {
    /// From its start until all of it was on the device.
    pub durable_ns: u64,
    /// CPU time of the program in user mode.
    pub user_ns: u64,
    /// CPU time of the program in the kernel, its workers included.
    pub system_ns: u64,
    /// CPU time of the sync after it, and of the kernel's threads during both.
    pub write_back_ns: u64,
}

/// Sections of a run.
pub fn sections(plan: &CopyPlan) -> usize {
    match plan.is_study() {
        true => plan.blocks.len() * plan.caches.len(),
        false => plan.sets.len() * plan.caches.len(),
    }
}

/// Rows of all sections.
pub fn rows(plan: &CopyPlan) -> usize {
    match plan.is_study() {
        true => {
            let depths = plan.blocks.iter().map(|&block| plan.depths_for(block).count());
            depths.sum::<usize>() * plan.caches.len()
        }
        false => sections(plan) * (plan.programs.len() + 1),
    }
}

/// What is run for a row.
#[derive(Clone, Copy, Debug)]
enum What {
    Program(CopyProgram),
    Study { block_bytes: usize },
}

/// A program, as the lab's engines are.
#[derive(Debug)]
struct Copying {
    what: What,
    scene: Arc<Scene>,
    bytes: u64,
    sources: Sources,
}

impl Engine for Copying {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let command = match self.what {
            What::Program(program) => self.scene.command(program),
            What::Study { block_bytes } => self.scene.study_command(block_bytes, job.depth),
        };
        let mut command = command.map_err(Failure::Unavailable)?;
        start.ready()?;
        let kernel = KernelThreads::read(&self.sources);
        let children = CpuSplit::children();
        let began = Instant::now();
        run(&mut command)?;
        let wall = began.elapsed();
        let used = CpuSplit::children().since(&children);
        let before_sync = CpuSplit::own();
        self.scene.sync().map_err(|error| Failure::Io(error.to_string()))?;
        let durable = began.elapsed();
        let sync = CpuSplit::own().since(&before_sync);
        let kernel = KernelThreads::read(&self.sources)
            .zip(&kernel)
            .map(|(after, before)| after.since_ns(before));
        let detail =
            kernel.reason().map(|reason| format!("without the kernel's threads: {reason}"));
        let figures = CopyFigures {
            durable_ns: nanoseconds(durable),
            user_ns: used.user_ns,
            system_ns: used.system_ns,
            write_back_ns: sync.total_ns() + kernel.known().copied().unwrap_or(0),
        };
        let counts = Counts {
            operations: 1,
            bytes: self.bytes,
            issued: 1,
            completed: 1,
            end_ns: nanoseconds(wall),
            in_flight_ns: nanoseconds(wall),
            ..Counts::default()
        };
        let mut latency = Latency::new();
        latency.record_many_ns(nanoseconds(wall), 1);
        Ok(Tally {
            counts,
            latency,
            elapsed_ns: nanoseconds(wall),
            foreign_cpu_ns: Some(used.total_ns() + figures.write_back_ns),
            copy: Some(figures),
            detail,
            ..Tally::default()
        })
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Runs a program to its end. The first line that it complains with is the reason of a failure.
fn run(command: &mut Command) -> Result<(), Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::piped()).output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::Unavailable(format!("{name} is not installed")),
        _ => Failure::Unavailable(format!("{name}: {}", plain(&error))),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().next().unwrap_or("it said nothing");
    Err(Failure::Unavailable(format!("{name} failed ({}): {line}", output.status)))
}

/// Measures everything of a data set, in sections by cache and, for the study, by block.
pub fn run_set(context: &Context<'_>, set: &DataSet, directory: &Directory) -> Vec<Outcome> {
    let plan = &context.plan.copy;
    context.progress.begin(1);
    context.progress.tell(format!("copy: writing {}", set.name));
    let scene = Scene::lay(directory.path(), set, context.plan.seed, context.interrupt);
    context.progress.clear();
    let (scene, _stage) = match scene {
        Ok((scene, stage)) => (Arc::new(scene), stage),
        Err(error) => {
            let title = format!("copy {}", set.name);
            let section = Section::new(Workload::Copy, None, title, Vec::new());
            return vec![Outcome { section, result: Err(error) }];
        }
    };
    let mount = Storage::of(&context.instruments.sources, directory.path()).mount;
    let has_journal = mount.known().and_then(|mount| mount.has_journal);
    let note = note_on_inodes(has_journal, set.files());
    let mut outcomes = Vec::new();
    for &cache in &plan.caches {
        let mut sections = Vec::new();
        if plan.is_study() {
            for &block_bytes in &plan.blocks {
                let depths: Vec<usize> = plan.depths_for(block_bytes).collect();
                let rows = depths.into_iter().map(|depth| {
                    let what = What::Study { block_bytes };
                    row("uring".to_owned(), RowKind::Variant, depth, what, &scene, set)
                });
                let block = size_text(block_bytes as u64);
                let title = format!("copy study, {block} blocks, {}, {cache}", amount(set));
                sections.push((title, block_bytes, rows.collect()));
            }
        } else {
            let rows = programs(plan).into_iter().map(|(program, kind)| {
                let what = What::Program(program);
                row(program.to_string(), kind, set.files(), what, &scene, set)
            });
            let title = format!("copy {}, {}, {cache}", set.name, amount(set));
            sections.push((title, 0, rows.collect()));
        }
        for (title, block_bytes, rows) in sections {
            let mut section = Section::new(Workload::Copy, None, title, rows);
            section.data_set = Some((set.name.clone(), cache));
            section.message_bytes = block_bytes;
            section.notes.extend(note.clone());
            let result = measure(context, &scene, cache, &mut section);
            let is_over = result.is_err();
            outcomes.push(Outcome { section, result });
            if is_over {
                return outcomes;
            }
        }
    }
    outcomes
}

fn amount(set: &DataSet) -> String {
    let bytes = size_text(set.bytes());
    match set.files() {
        1 => format!("one file of {bytes}"),
        files => format!("{files} files, {bytes}"),
    }
}

fn row(
    name: String,
    kind: RowKind,
    depth: usize,
    what: What,
    scene: &Arc<Scene>,
    set: &DataSet,
) -> Row {
    let sources = Sources::default();
    let copying = Copying { what, scene: scene.clone(), bytes: set.bytes(), sources };
    Row::new(name, kind, depth, Box::new(copying))
}

/// All programs, and what each is for.
fn programs(plan: &CopyPlan) -> Vec<(CopyProgram, RowKind)> {
    with_control(plan.programs.iter().copied(), |program| match program {
        CopyProgram::Ringwise => RowKind::Subject,
        _ if program.is_own() => RowKind::Variant,
        _ => RowKind::Rival,
    })
}

/// That copies of so many files vary for a reason that is nobody's: no inode is given away again within
/// minutes after it was freed, and each that is freed is looked at for each that is wanted
/// (fs/ext4/ialloc.c, find_inode_bit and recently_deleted, Linux 6.18).
fn note_on_inodes(has_journal: Option<bool>, files: usize) -> Option<String> {
    (has_journal == Some(false) && files >= FILES_THAT_MEET).then(|| {
        "ext4 without a journal: who copies to where a copy was removed looks for inodes for up to \
         tens of seconds; measure with --dir on one with a journal"
            .to_owned()
    })
}

fn measure(
    context: &Context<'_>,
    scene: &Scene,
    cache: Cache,
    section: &mut Section,
) -> Result<(), LabError> {
    section.notes.push("every copy compared with its source; an operation is a copy of all".into());
    if cache == Cache::Cold {
        section.notes.push("cold: content is not in memory, names and inodes may be".into());
    }
    let is_study = context.plan.copy.is_study();
    let job = |row: &Row, _| Job { cache, ..context.job(row.depth, 0) };
    let schedule = Schedule {
        timing: Timing { warm_up: Duration::ZERO, extent: Extent::Operations(1) },
        prepare: &|_| {
            scene.prepare(cache)?;
            Ok(gates::page_cache(cache, scene.cached_share()))
        },
        inspect: &|_, _| Ok(scene.difference()),
        ..context.schedule(&job)
    };
    let title = section.title.clone();
    let result = context.take(&schedule, section, &|row| format!("{title}: {}", row.label()));
    if !is_study {
        let (seed, files) = (context.plan.seed, section.rows.first().map_or(1, |row| row.depth));
        section.pairings.extend(verdict::pairings(&section.rows, files, seed));
        section.verdicts.push(verdict::of_copies(&section.rows, files, seed));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_files_are_remarked_upon_where_there_is_no_journal() {
        assert!(note_on_inodes(Some(false), 100_000).unwrap().contains("without a journal"));
        for (has_journal, files) in [(Some(false), 1000), (Some(true), 100_000), (None, 100_000)] {
            assert_eq!(note_on_inodes(has_journal, files), None);
        }
    }
}
