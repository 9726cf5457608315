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

pub(crate) mod plan;
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
    quantity::{latency_text, size_text},
};

use self::{
    plan::{CopyPlan, CopyProgram, DataSet},
    scene::Scene,
};
use super::form::{Context, Entry, Keep, Outcome, Workload, with_control};
use crate::{
    checks::gates,
    engine::{Engine, ProgramTimes, Tally},
    error::{LabError, plain},
    plan::Defaults,
    results::{
        row::{Row, RowKind},
        section::{Place, Section},
        verdict,
    },
    sampling::{
        job::{Cache, Extent, Failure, Job, NOT_HERE, Start, Timing},
        lane::Counts,
        schedule::Schedule,
    },
    workload::form::{
        columns::{self, Column},
        cost::{Samples, writing},
        facts::{Facts, Question, Target, start},
    },
};

/// What the rest of the lab knows of this workload.
pub static FACTS: Facts =
    Facts { name: "copy", depth_is: "files", columns: COLUMNS, question: &QUESTION };

/// What is used to copy files today.
static QUESTION: Question = Question {
    operations: "copies",
    alone: "one file",
    in_flight: "files",
    starts: &[
        start("gnu", "use GNU cp", "GNU cp", ""),
        start("xcp", "use xcp", "xcp", ""),
        start("fcp", "use fcp", "fcp", ""),
        start("cpz", "use cpz", "cpz", ""),
    ],
    targets: &[Target { engine: "ringwise", name: "ringwise cp", remedy: "Use ringwise cp." }],
};

const COLUMNS: &[Column] = &[
    Column::Of("wall", |row| Some(latency_text(1e9 / row.measured.ops_per_s()))),
    Column::Of("until durable", |row| time(row, |times| times.durable_ns)),
    Column::Of("all CPU", |row| Some(latency_text(row.measured.cpu_ns_per_op()))),
    Column::Of("user", |row| time(row, |times| times.user_ns)),
    Column::Of("system", |row| time(row, |times| times.system_ns)),
    Column::Of("write-back", |row| time(row, |times| times.write_back_ns)),
    columns::MIB_RATE,
];

fn time(row: &Row, pick: fn(&ProgramTimes) -> u64) -> Option<String> {
    Some(latency_text(pick(&row.measured.program()?) as f64))
}

/// From so many files on, copies go where others were removed, however they are spread.
const FILES_THAT_MEET: usize = 10_000;

/// Its line in the table.
pub static ENTRY: Entry = Entry {
    facts: &FACTS,
    // Each of its samples is one copy.
    suite_s: 0,
    has_files: true,
    flags: &["engines", "depth", "block", "cache", "size", "keep", "sets", "study"],
    // Two samples each: eight copies are enough for a median of seven or more.
    defaults: |args| Defaults { repeats: 4, ..Defaults::of(args) },
    plan: |typed| {
        let make = if typed.is_suite() { CopyPlan::of_suite } else { CopyPlan::new };
        Ok(Box::new(make(typed.args)?))
    },
};

/// What a page cache gives of a copy that is compared, a second.
const COMPARED_BYTES_PER_S: f64 = 1e9;
/// The time to copy an empty file, to compare it and to remove it.
const COPIED_FILE: Duration = Duration::from_micros(250);
/// The time to start and end a program.
const PROGRAM: Duration = Duration::from_millis(250);

impl Workload for CopyPlan {
    fn rows(&self) -> usize {
        let each = match self.is_study() {
            true => self.blocks.iter().map(|&block| self.depths_for(block).count()).sum(),
            false => self.sets.len() * (self.programs.len() + 1),
        };
        each * self.caches.len()
    }

    fn time(&self, samples: &Samples) -> Duration {
        let each = samples.count / u32::try_from(self.sets.len().max(1)).unwrap_or(1);
        self.sets.iter().map(|set| copied(set, 1) + copied(set, each)).sum()
    }

    /// The source, and a copy of it.
    fn passing_bytes(&self, _: Timing) -> u64 {
        self.sets.iter().map(|set| 2 * set.bytes()).max().unwrap_or(0)
    }

    fn sample_text(&self) -> Option<&'static str> {
        Some("one copy each")
    }

    fn run(&self, context: &Context<'_>, keep: &mut Keep<'_>) -> Result<(), LabError> {
        self.sets.iter().try_for_each(|set| run_set(context, self, set, keep))
    }
}

/// So many copies of a set, each until it is durable, compared and removed.
fn copied(set: &DataSet, times: u32) -> Duration {
    let files = u32::try_from(set.files()).unwrap_or(u32::MAX);
    let compared = Duration::from_secs_f64(2.0 * set.bytes() as f64 / COMPARED_BYTES_PER_S);
    (PROGRAM + writing(set.bytes()) + compared + COPIED_FILE * files).saturating_mul(times)
}

/// What is run for a row.
#[derive(Clone, Copy, Debug)]
enum What {
    Program(&'static CopyProgram),
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
        let figures = ProgramTimes {
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
            program: Some(figures),
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
        std::io::ErrorKind::NotFound => {
            Failure::Unavailable(format!("{NOT_HERE}{name} is not installed"))
        }
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
fn run_set(
    context: &Context<'_>,
    plan: &CopyPlan,
    set: &DataSet,
    keep: &mut Keep<'_>,
) -> Result<(), LabError> {
    let directory = context.directory().path();
    context.progress.begin(1);
    context.progress.tell(format!("copy: writing {}", set.name));
    let scene = Scene::lay(directory, set, context.plan.seed, context.interrupt);
    context.progress.clear();
    let (scene, _stage) = match scene {
        Ok((scene, stage)) => (Arc::new(scene), stage),
        Err(error) => {
            let section = Section::new(&FACTS, format!("copy {}", set.name), Vec::new());
            return keep(Outcome { section, result: Err(error) });
        }
    };
    let mount = Storage::of(&context.instruments.sources, directory).mount;
    let has_journal = mount.known().and_then(|mount| mount.has_journal);
    let note = note_on_inodes(has_journal, set);
    for &cache in &plan.caches {
        for mut section in sections(plan, set, cache, &scene) {
            section.notes.extend(note.clone());
            if set.is_again {
                section.notes.push("each copy goes to where the last one was removed".to_owned());
            }
            let result = measure(context, &scene, cache, &mut section);
            if !plan.is_study() {
                judge(context.plan.seed, &mut section);
            }
            keep(Outcome { section, result })?;
        }
    }
    Ok(())
}

/// The sections of a data set with one state of the page cache.
fn sections(plan: &CopyPlan, set: &DataSet, cache: Cache, scene: &Arc<Scene>) -> Vec<Section> {
    let row = |name: String, kind, depth, what| {
        let (scene, sources) = (scene.clone(), Sources::default());
        let copying = Copying { what, scene, bytes: set.bytes(), sources };
        Row::new(name, kind, depth, Box::new(copying))
    };
    let section = |title, block_bytes, rows| {
        let mut section = Section::new(&FACTS, title, rows);
        section.short = format!("{}, {}", set.name, cache.short());
        section.place = Place {
            cache: Some(cache),
            block_bytes,
            data_set: Some(set.name.clone()),
            ..Place::default()
        };
        section
    };
    if !plan.is_study() {
        let rows = with_control(plan.programs.iter().copied(), CopyProgram::kind).into_iter().map(
            |(program, kind)| {
                row(program.name.to_owned(), kind, set.files(), What::Program(program))
            },
        );
        let title = format!("copy {}, {}, {cache}", set.name, amount(set));
        return vec![section(title, 0, rows.collect())];
    }
    let of_block = |&block_bytes: &usize| {
        let what = What::Study { block_bytes };
        let depths = plan.depths_for(block_bytes);
        let rows = depths.map(|depth| row("uring".to_owned(), RowKind::Variant, depth, what));
        let block = size_text(block_bytes as u64);
        let title = format!("copy study, {block} blocks, {}, {cache}", amount(set));
        Section { depth_is: "depth", ..section(title, block_bytes, rows.collect()) }
    };
    plan.blocks.iter().map(of_block).collect()
}

fn amount(set: &DataSet) -> String {
    let bytes = size_text(set.bytes());
    match set.files() {
        1 => format!("one file of {bytes}"),
        files => format!("{files} files, {bytes}"),
    }
}

/// That copies of so many files vary for a reason that is nobody's: no inode is given away again within
/// minutes after it was freed, and each that is freed is looked at for each that is wanted
/// (fs/ext4/ialloc.c, find_inode_bit and recently_deleted, Linux 6.18).
fn note_on_inodes(has_journal: Option<bool>, set: &DataSet) -> Option<String> {
    let meets = set.is_again || set.files() >= FILES_THAT_MEET;
    (has_journal == Some(false) && meets).then(|| {
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
    context.take(&schedule, section, &|row| format!("{title}: {}", row.label()))
}

fn judge(seed: u64, section: &mut Section) {
    let files = section.rows.first().map_or(1, |row| row.depth);
    section.pairings.extend(verdict::pairings(&section.rows, files, seed));
    section.verdicts.push(verdict::of_copies(&section.rows, files, seed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_files_are_remarked_upon_where_there_is_no_journal() {
        let set = |files, is_again| DataSet {
            name: "test".to_owned(),
            directories: 1,
            parts: vec![plan::Part { files, bytes: 4096 }],
            is_again,
        };
        for own in [set(100_000, false), set(1000, true)] {
            assert!(note_on_inodes(Some(false), &own).unwrap().contains("without a journal"));
        }
        for (has_journal, files) in [(Some(false), 1000), (Some(true), 100_000), (None, 100_000)] {
            assert_eq!(note_on_inodes(has_journal, &set(files, false)), None);
        }
    }
}
