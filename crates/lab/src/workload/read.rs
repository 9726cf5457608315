//! `read`: engines that read files, through the page cache or past it.

mod agreement;
mod bounded;
mod calibration;
pub mod group;
mod over_blocks;
pub mod page_cache;
pub mod plan;
mod remarks;
mod rows;
mod steady_state;

pub use rows::rows;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ringwise::{BackendChoice, Local, Metadata, Operation};
use ringwise_measure::{
    Fact,
    device::{Mount, Storage},
    environment::Environment,
    quantity::{bytes_text, size_text},
};

use self::{bounded::Bounded, group::Group, over_blocks::OverBlocks, rows::RowPlan};
use super::form::{COUNTING, Context, Entry, Keep, Outcome, Workload};
use crate::{
    checks::{gates, suspicions},
    dataset::{DataFile, Layout, block::BLOCK_BYTES},
    error::LabError,
    plan::{Defaults, Plan, typed::invalid},
    results::{
        row::Row,
        section::{Place, Section},
        verdict::{self, Detour},
    },
    sampling::{
        job::{Cache, Job, NOT_HERE, Profile, Timing},
        schedule::Schedule,
    },
    workload::form::{
        columns::{self, Column, grouped},
        cost::{Samples, writing},
        facts::{Facts, Question, Start, Target, start},
    },
};

/// What the rest of the lab knows of this workload.
pub static FACTS: Facts =
    Facts { name: "read", depth_is: "depth", columns: columns::FILES, question: &QUESTION };

/// What programs that read files do today.
pub static QUESTION: Question = Question {
    operations: "reads",
    alone: "one read at a time",
    in_flight: "reads in flight",
    starts: &[
        start("tokio", "use spawn_blocking", "spawn_blocking", "ringwise"),
        start("threads", "use a thread pool", "a thread pool", ""),
        Start {
            is_single: true,
            ..start("sync", "make one blocking call at a time", "blocking I/O", "")
        },
        start("aio", "use Linux AIO", "Linux AIO", ""),
        start("mmap", "use a memory map", "the memory map", ""),
    ],
    targets: &[
        Target { engine: "uring", name: "io_uring", remedy: "Use ringwise::Local." },
        Target { engine: "ringwise", name: "io_uring", remedy: "Use ringwise::fs." },
    ],
};

/// Its line in the table.
pub static ENTRY: Entry = Entry {
    facts: &FACTS,
    suite_s: 25,
    has_files: true,
    flags: &[
        "engines", "ablate", "depth", "block", "profile", "pattern", "cache", "size", "files",
        "threads", "heatmap", "keep", "reads",
    ],
    defaults: Defaults::of,
    plan: |typed| Ok(Box::new(Read { groups: plan::groups(typed.args, typed.depths.as_deref())? })),
};

/// The lab's own time is calibrated so long for each depth.
const CALIBRATION: Duration = Duration::from_millis(130);

/// What is measured: a group for each profile and block.
#[derive(Debug)]
struct Read {
    groups: Vec<Group>,
}

impl Workload for Read {
    fn rows(&self) -> usize {
        self.groups.iter().map(|group| rows(group).len()).sum()
    }

    fn time(&self, samples: &Samples) -> Duration {
        time(&self.groups, self.kept_bytes(false), samples)
    }

    /// Groups of one profile share their files.
    fn kept_bytes(&self, least: bool) -> u64 {
        let first = |profile| self.groups.iter().find(|group| group.profile == profile);
        let groups = [Profile::Buffered, Profile::Direct].into_iter().filter_map(first);
        groups.map(|group| group.size.of(least)).sum()
    }

    fn run(&self, context: &Context<'_>, keep: &mut Keep<'_>) -> Result<(), LabError> {
        let mut over = OverBlocks::default();
        // All direct groups have the same files.
        let first = self.groups.iter().position(|group| group.profile == Profile::Direct);
        let first = first.filter(|_| context.plan.is_full && context.run == 0);
        self.groups.iter().enumerate().try_for_each(|(index, group)| {
            let note = match first == Some(index) {
                true => precondition(context, group)?,
                false => None,
            };
            let mut outcome = run(context, &FACTS, group);
            outcome.section.notes.extend(note);
            over.add(group, &self.groups, &mut outcome.section);
            keep(outcome)
        })
    }
}

/// Brings the device below a group's files into its steady state if that can be done, and says what was done or why
/// nothing was.
fn precondition(context: &Context<'_>, group: &Group) -> Result<Option<String>, LabError> {
    let sources = &context.instruments.sources;
    let storage = Storage::of(sources, context.directory().path());
    if gates::storage(group.profile, &storage).is_some() {
        // The section says why nothing is measured at all.
        return Ok(None);
    }
    if let Some(reason) = steady_state::unsuited(&Environment::read(sources), &storage.device) {
        return Ok(Some(format!("nothing was preconditioned: {reason}")));
    }
    let files = lay(context, group.cache, layout(context, group))?;
    if unfit(group, &files)?.is_some() {
        return Ok(None);
    }
    context.progress.begin(1);
    context.progress.tell("preconditioning the device".to_owned());
    let (seed, interrupt) = (context.plan.seed, context.interrupt);
    let writer = steady_state::Writer { files: &files, seed, interrupt };
    let result = writer.precondition(group.block_bytes, steady_state::ROUND_TIME);
    context.progress.clear();
    result.map(Some)
}

/// The test files of a group.
fn layout(context: &Context<'_>, group: &Group) -> Layout<'static> {
    Layout { set: group.set, files: group.files, size: group.size, seed: context.plan.seed }
}

/// How long reads of these groups take.
pub fn time(groups: &[Group], files_bytes: u64, samples: &Samples) -> Duration {
    let depths: usize = groups.iter().map(|group| group.depths.len()).sum();
    let calibration = CALIBRATION * u32::try_from(depths).unwrap_or(u32::MAX);
    writing(files_bytes) + samples.time() + samples.counting * samples.rows + calibration
}

/// The columns with a bounded page cache.
const BOUNDED: &[Column] = &[
    columns::RATE,
    columns::MIB_RATE,
    Column::Latencies,
    columns::CPU,
    columns::CPU_KINDS,
    columns::OTHER_CPU,
    columns::CALLS,
    columns::QUEUE,
    columns::DEVICE,
    Column::Of("device ops/s", |row| row.measured.device_ops_per_s().map(grouped)),
];

/// Measures a group. Lays its files out first.
pub fn run(context: &Context<'_>, facts: &'static Facts, group: &Group) -> Outcome {
    let timing = timing(context, group);
    let rows = rows(group).into_iter().map(|row| make(row, group, timing)).collect();
    let block = size_text(group.block_bytes as u64);
    let cache = match (group.profile, group.cache) {
        (Profile::Direct, Cache::Bounded) => "O_DIRECT, mmap through a bounded cache".to_owned(),
        (_, cache) => cache.to_string(),
    };
    let title =
        format!("{} {} {}, {block} blocks, {cache}", facts.name, group.profile, group.pattern);
    let mut section = Section::new(facts, title, rows);
    section.place = Place {
        profile: Some(group.profile),
        pattern: Some(group.pattern),
        cache: Some(group.cache),
        block_bytes: group.block_bytes,
        ..Place::default()
    };
    let cache = if group.profile == Profile::Direct { Cache::Bypassed } else { group.cache };
    section.short = format!("{} {block}", cache.short());
    section.detour = detour(group.profile);
    let result = measure(context, group, &mut section);
    let depths = group.depths.iter().copied();
    let operation = bytes_text(group.block_bytes as u64).replace(".0 ", " ");
    let seed = context.plan.seed;
    for depth in depths {
        section.verdicts.push(verdict::at_depth(&section.rows, depth, &operation, seed));
        section.pairings.extend(verdict::pairings(&section.rows, depth, seed));
    }
    section.summarise();
    Outcome { section, result }
}

/// A cold cache is warm after the warm-up: there is none.
fn timing(context: &Context<'_>, group: &Group) -> Timing {
    match (group.cache, context.timing) {
        (Cache::Cold, Timing { extent, .. }) => Timing { warm_up: Duration::ZERO, extent },
        (_, timing) => timing,
    }
}

fn make(plan: RowPlan, group: &Group, timing: Timing) -> Row {
    let name = plan.engine.to_string();
    let cache = Some(group.cache_of(&name)).filter(|cache| *cache != group.cache);
    Row { cache, ..Row::new(name, plan.kind, plan.depth, plan.engine.engine(timing)) }
}

/// What a program can do if the kernel gives reads to its workers.
fn detour(profile: Profile) -> Detour {
    let (what, remedy) = match profile {
        Profile::Direct => {
            ("direct reads of this size", "use blocks that the device takes at once")
        }
        Profile::Buffered => {
            ("reads through the page cache", "use O_DIRECT, or read what is cached by calls")
        }
    };
    Detour { what, remedy }
}

fn measure(context: &Context<'_>, group: &Group, section: &mut Section) -> Result<(), LabError> {
    let directory = context.directory();
    let storage = Storage::of(&context.instruments.sources, directory.path());
    section.filesystem = storage.mount.known().map(|mount| mount.kind.clone());
    if let Some(reason) = gates::storage(group.profile, &storage) {
        section.void_all(&reason);
        return Ok(());
    }
    let memory = Bounded::make(context, group)?;
    let files = lay(context, group.cache, layout(context, group))?;
    section.notes.push(files_note(&files, group));
    if let Some(reason) = unfit(group, &files)? {
        section.void_all(&reason);
        return Ok(());
    }
    void_impossible(group, &mut section.rows);
    if let (Profile::Direct, Some(device)) = (group.profile, storage.device.known()) {
        section.notes.extend(suspicions::split(group.block_bytes, device));
    }
    let shared: Arc<[DataFile]> = files.clone().into();
    let job = |engine: &str, depth, order_seed| Job {
        files: shared.clone(),
        block_bytes: group.block_bytes,
        pattern: group.pattern,
        cache: group.cache_of(engine),
        heatmap: is_drawn(context.plan, group, depth),
        ..context.job(depth, order_seed)
    };
    if group.cache == Cache::Bypassed {
        section.notes.extend(host_cache(context, &storage, &job("", 1, 0))?);
    }
    calibration::calibrate(context, &|depth, seed| job("", depth, seed), section)?;
    let bounded = memory.map(|memory| Bounded::enter(memory, group, &files)).transpose()?;
    if let Some(bounded) = &bounded {
        section.notes.push(bounded.note());
        section.bound_bytes = Some(bounded.bytes());
        section.columns = BOUNDED;
    }
    let of_row = |row: &Row, seed| job(&row.engine, row.depth, seed);
    let schedule = Schedule {
        timing: timing(context, group),
        prepare: &|job| match &bounded {
            Some(bounded) => bounded.prepare(job),
            None => page_cache::prepare(job),
        },
        inspect: &|job, sample| match &bounded {
            Some(bounded) => bounded.inspect(job, sample),
            None => Ok(None),
        },
        ..context.schedule(&of_row)
    };
    if group.cache == Cache::Bypassed {
        // Pages in the cache would have to be looked for by every direct read.
        files.iter().try_for_each(page_cache::forget)?;
    }
    take_and_count(context, group, &schedule, section)
}

/// Takes the samples, and counts system calls where another pass over the files is possible.
fn take_and_count(
    context: &Context<'_>,
    group: &Group,
    schedule: &Schedule<'_>,
    section: &mut Section,
) -> Result<(), LabError> {
    let title = section.title.clone();
    let tell = |row: &Row| format!("{title}: {} at depth {}", row.label(), row.depth);
    let result = context.take(schedule, section, &tell);
    // Counting is another pass over files that must be cold again; the engines count too.
    let is_counted = group.cache != Cache::Cold;
    let result = result.and_then(|()| match is_counted {
        true => schedule.count(&mut section.rows, COUNTING, false),
        false => Ok(()),
    });
    remarks::remark(group, &mut section.rows);
    section.notes.extend(agreement::notes(&section.rows, context.plan.seed));
    result
}

/// Whether a host below a virtual device remembers what was read.
fn host_cache(
    context: &Context<'_>,
    storage: &Storage,
    job: &Job,
) -> Result<Option<String>, LabError> {
    let Some(device) = storage.device.known() else { return Ok(None) };
    let environment = Environment::read(&context.instruments.sources);
    let [first, again] = suspicions::read_twice(job)?;
    let is_virtual = suspicions::is_virtual(&environment, device);
    Ok(suspicions::host_cache(is_virtual, &first, &again))
}

/// Whether latencies over time are recorded: where that was asked for, and for the page of a suite of
/// the direct reads of which most are in flight, where a device's pauses show.
fn is_drawn(plan: &Plan, group: &Group, depth: usize) -> bool {
    let is_shown = plan.is_suite
        && group.profile == Profile::Direct
        && !group.is_swept
        && group.depths.iter().max() == Some(&depth);
    plan.heatmap.is_some() || is_shown
}

/// Lays test files out, not more of them than a warm cache can hold.
///
/// # Errors
///
/// As for [`Layout::lay`], and an interrupt.
pub(super) fn lay(
    context: &Context<'_>,
    cache: Cache,
    layout: Layout<'_>,
) -> Result<Vec<DataFile>, LabError> {
    let mut size = layout.size;
    if cache == Cache::Warm && size.least < size.most {
        // A warm cache must hold it, and leave room for others.
        let memory = Environment::read(&Default::default()).memory_available_bytes;
        let fitting = memory.known().map_or(size.most, |bytes| bytes / 4);
        size.most = size.most.min(fitting).max(size.least);
    }
    let layout = Layout { size, ..layout };
    context.progress.begin(size.most);
    context.progress.tell(format!("laying {} test files out", layout.set));
    let files = layout.lay(context.directory(), &mut |bytes| {
        context.progress.advance(bytes);
        !context.interrupt.load(Ordering::Relaxed)
    });
    context.progress.clear();
    files
}

fn files_note(files: &[DataFile], group: &Group) -> String {
    let total: u64 = files.iter().map(|file| file.bytes).sum();
    // Rounding to whole blocks is no lack.
    let is_less = total + files.len() as u64 * BLOCK_BYTES as u64 <= group.size.most;
    let less = match is_less {
        true => format!(
            " (wanted {}; free space, memory or time are short)",
            bytes_text(group.size.most)
        ),
        false => String::new(),
    };
    let count = match files.len() {
        1 => "1 file".to_owned(),
        n => format!("{n} files"),
    };
    format!("{count} of {}{less}, every block read is verified", bytes_text(files[0].bytes))
}

/// Why the files cannot be read as the group says.
fn unfit(group: &Group, files: &[DataFile]) -> Result<Option<String>, LabError> {
    if files[0].bytes < group.block_bytes as u64 {
        let file = bytes_text(files[0].bytes);
        return cannot(group, &format!("larger than a test file of {file}; raise --size"));
    }
    if group.profile != Profile::Direct {
        return Ok(None);
    }
    let found = metadata(&files[0])?;
    if found.refuses_direct() {
        return Ok(Some("the file system has no O_DIRECT; point --dir to another".to_owned()));
    }
    match found.direct_alignment() {
        Some(needed) if !(group.block_bytes as u64).is_multiple_of(needed.offset.into()) => {
            cannot(group, &format!("direct reads here take a multiple of {}", needed.offset))
        }
        _ => Ok(None),
    }
}

/// Looks whether blocks of a file can be read past the page cache.
///
/// # Errors
///
/// Why not.
pub(super) fn check_direct(file: &DataFile, blocks_bytes: &[usize]) -> Result<(), LabError> {
    let directory = file.path.parent().unwrap_or(&file.path).display().to_string();
    let found = metadata(file)?;
    if found.refuses_direct() {
        let text = format!("{directory}: the file system has no O_DIRECT; point --dir to another");
        return Err(LabError::Failed(text));
    }
    let needed = found.direct_alignment().map_or(1, |needed| u64::from(needed.offset));
    let odd = blocks_bytes.iter().find(|&&block| !(block as u64).is_multiple_of(needed));
    odd.map_or(Ok(()), |block| {
        let why = format!("direct reads in {directory} take a multiple of {needed}");
        Err(invalid("--block", &block.to_string(), why))
    })
}

/// Refuses a block that was typed. A block of a sweep is not measurable here.
fn cannot(group: &Group, why: &str) -> Result<Option<String>, LabError> {
    let block = group.block_bytes;
    match group.is_swept {
        true => Ok(Some(format!("not measurable here: --block {block}: {why}"))),
        false => Err(invalid("--block", &block.to_string(), why)),
    }
}

fn metadata(file: &DataFile) -> Result<Metadata, LabError> {
    let failed = |text: String| LabError::Failed(format!("{}: {text}", file.path.display()));
    let local = Local::builder().backend(BackendChoice::Classic).build();
    let mut local = local.map_err(|error| failed(error.to_string()))?;
    let done = local.run(Operation::statx(&file.path)).and_then(|done| done.metadata());
    done.map_err(|error| LabError::Failed(error.to_string()))
}

fn void_impossible(group: &Group, rows: &mut [Row]) {
    for row in rows {
        if row.engine == "mmap" && group.cache_of("mmap") == Cache::Bypassed {
            row.measured.void =
                Some(format!("{NOT_HERE}a mapping always goes through the page cache"));
        }
    }
}

/// Where files lie, for the results.
pub fn storage_note(storage: &Storage) -> String {
    let device = match &storage.device {
        Fact::Known(device) => device.name.clone(),
        Fact::Unknown(_) => "no device of its own".to_owned(),
    };
    let unknown = || "unknown file system".to_owned();
    let kind = storage.mount.known().map_or_else(unknown, Mount::kind_text);
    format!("{} ({kind} on {device})", storage.path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::Args, session::suite::Suite};

    #[test]
    fn a_suite_records_the_direct_reads_of_which_most_are_in_flight() {
        let drawn = |args: Args| {
            let plan = Suite::new(&args).unwrap().plan;
            let of = |group: &Group| {
                let depths = group.depths.iter().filter(|depth| is_drawn(&plan, group, **depth));
                let profile = group.profile;
                depths.map(move |depth| (profile, group.block_bytes, *depth)).collect::<Vec<_>>()
            };
            plan::groups(&args, None).unwrap().iter().flat_map(of).collect::<Vec<_>>()
        };
        assert_eq!(drawn(Args::default()), [(Profile::Direct, 4096, 32)]);
        let full = Args { full: true, ..Args::default() };
        assert_eq!(drawn(full), [(Profile::Direct, 4096, 256)]);
        let named = Args { workload: Some("read".into()), ..Args::default() };
        assert_eq!(drawn(named), []);
    }

    #[test]
    fn a_block_of_the_sweep_that_does_not_fit_is_said_and_one_that_was_typed_is_an_error() {
        let args = Args { workload: Some("read".into()), standard: true, ..Args::default() };
        let groups = plan::groups(&args, None).unwrap();
        let swept = groups.iter().rfind(|group| group.profile == Profile::Buffered).unwrap();
        assert_eq!(swept.block_bytes, 4 << 20);
        let small = [DataFile { path: "/x".into(), number: 0, bytes: 1 << 20 }];
        let reason = unfit(swept, &small).unwrap().unwrap();
        assert!(reason.starts_with("not measurable here: --block 4194304: "), "{reason}");
        let typed = Group { is_swept: false, ..swept.clone() };
        assert!(matches!(unfit(&typed, &small), Err(LabError::Usage(_))));
    }
}
