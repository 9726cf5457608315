//! `read`: engines that read files, through the page cache or past it.

use std::{fs::File, io::Read, sync::Arc, time::Duration};

use ringwise::{BackendChoice, Descriptor, Local, Metadata, Operation};
use ringwise_measure::{
    Fact,
    device::Storage,
    environment::Environment,
    quantity::{bytes_text, latency_text, size_text},
    statistics::median,
};

use super::{Context, Outcome};
use crate::{
    dataset::{DataFile, Directory, Layout, block::BLOCK_BYTES},
    engine::{
        Engine,
        aio::Aio,
        fio::Fio,
        mmap::Mapped,
        null::Null,
        sync::Sync,
        threads::Threads,
        tokio::Tokio,
        uring::{Switch, Switches, Uring},
    },
    error::LabError,
    gates,
    job::{Cache, Extent, Job, Timing},
    plan::{EngineName, Group, Profile, Workload},
    report::Section,
    row::{Row, RowKind},
    sample,
    schedule::Schedule,
    verdict,
};

const COUNTING: Timing =
    Timing { warm_up: Duration::from_millis(15), extent: Extent::Time(Duration::from_millis(100)) };
const CALIBRATION: Timing =
    Timing { warm_up: Duration::from_millis(10), extent: Extent::Time(Duration::from_millis(30)) };
const CALIBRATIONS: usize = 3;
/// More than any processor's own cache: what a device has just written is not in there.
const OUTSIDE_CACHE_BYTES: usize = 64 << 20;
/// Below this share of the depth in flight, the lab's own time left out, a row is marked.
const FULL_SHARE_MIN: f64 = 0.85;
/// Processors up to which SQPOLL takes a core that the rest needs.
const SQPOLL_PROCESSORS: usize = 2;

/// A row to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPlan {
    engine: EngineName,
    kind: RowKind,
    depth: usize,
}

/// The rows of a group: every engine at every depth that it can have, and a control for each depth.
pub fn rows(group: &Group) -> Vec<RowPlan> {
    let subject = subject(&group.engines);
    let kind = |engine: EngineName| match engine {
        EngineName::Fio { .. } => RowKind::Program,
        _ if Some(engine) == subject => RowKind::Subject,
        _ if engine.is_uring() => RowKind::Variant,
        _ => RowKind::Rival,
    };
    let row = |engine, depth| RowPlan { engine, kind: kind(engine), depth };
    let single = group.engines.iter().filter(|engine| engine.is_single());
    let mut rows: Vec<RowPlan> = single.map(|&engine| row(engine, 1)).collect();
    let mut depths = group.depths.clone();
    depths.sort_unstable();
    for &depth in &depths {
        let many = group.engines.iter().filter(|engine| !engine.is_single());
        // One thread is what `sync` is.
        let many = many.filter(|engine| depth > 1 || **engine != EngineName::Threads);
        rows.extend(many.map(|&engine| row(engine, depth)));
        let twin = |row: &&RowPlan| row.depth == depth && row.kind != RowKind::Program;
        let original = rows.iter().find(|row| row.depth == depth && row.kind == RowKind::Subject);
        if let Some(original) = original.or_else(|| rows.iter().find(twin)) {
            rows.push(RowPlan { kind: RowKind::Control, ..*original });
        }
    }
    let threads = EngineName::Threads;
    if group.engines.contains(&threads) && group.threads > 1 && !depths.contains(&group.threads) {
        rows.push(row(threads, group.threads));
    }
    rows.sort_by_key(|row| row.depth);
    rows
}

/// The ring that verdicts are about: as it comes, or else the first one named.
fn subject(engines: &[EngineName]) -> Option<EngineName> {
    let default = EngineName::Uring(Switches::DEFAULT);
    let first = || engines.iter().copied().find(|engine| engine.is_uring());
    engines.contains(&default).then_some(default).or_else(first)
}

/// Measures a group. Lays its files out first.
pub fn run(context: &Context<'_>, group: &Group, directory: &Directory) -> Outcome {
    let rows = rows(group).into_iter().map(|row| make(row, context.timing)).collect();
    let title = format!(
        "read {} {}, {} blocks, {}",
        group.profile,
        group.pattern,
        size_text(group.block_bytes as u64),
        group.cache
    );
    let mut section = Section::new(Workload::Read, Some(group.clone()), title, rows);
    let result = measure(context, group, directory, &mut section);
    let depths = group.depths.iter().copied();
    let operation = bytes_text(group.block_bytes as u64).replace(".0 ", " ");
    let seed = context.plan.seed;
    for depth in depths {
        section.verdicts.push(verdict::at_depth(&section.rows, depth, &operation, seed));
        section.pairings.extend(verdict::pairings(&section.rows, depth, seed));
    }
    Outcome { section, result }
}

fn make(plan: RowPlan, timing: Timing) -> Row {
    let runner: Box<dyn Engine> = match plan.engine {
        EngineName::Sync => Box::new(Sync),
        EngineName::Threads => Box::new(Threads),
        EngineName::Mmap => Box::new(Mapped),
        EngineName::Tokio => Box::new(Tokio),
        EngineName::Aio => Box::new(Aio),
        EngineName::Uring(switches) => Box::new(Uring { switches }),
        EngineName::Fio { fixed } => Box::new(Fio { fixed, timing }),
    };
    Row::new(plan.engine.to_string(), plan.kind, plan.depth, runner)
}

fn measure(
    context: &Context<'_>,
    group: &Group,
    directory: &Directory,
    section: &mut Section,
) -> Result<(), LabError> {
    let storage = Storage::of(&context.instruments.sources, directory.path());
    if let Some(reason) = gates::storage(group.profile, &storage) {
        section.void_all(&reason);
        return Ok(());
    }
    let files = lay(context, group, directory)?;
    section.notes.push(files_note(&files));
    if let Some(reason) = unfit(group, &files)? {
        section.void_all(&reason);
        return Ok(());
    }
    void_impossible(group, &mut section.rows);
    let job = |depth, order_seed| Job {
        files: files.clone(),
        seed: context.plan.seed,
        block_bytes: group.block_bytes,
        depth,
        pattern: group.pattern,
        cache: group.cache,
        order_seed,
        interrupt: context.interrupt.clone(),
        failed: false.into(),
    };
    calibrate(context, &job, section)?;
    let schedule = Schedule {
        blocks: context.plan.repeats,
        seed: context.plan.seed,
        timing: context.timing,
        instruments: context.instruments,
        job: &job,
        prepare: &prepare,
    };
    if group.cache == Cache::Bypassed {
        // Pages in the cache would have to be looked for by every direct read.
        files.iter().try_for_each(forget)?;
    }
    context.progress.begin((section.rows.len() * 2 * context.plan.repeats) as u64);
    let title = section.title.clone();
    let result = schedule.run(&mut section.rows, &mut |row| {
        context.progress.tell(format!("{title}: {} at depth {}", row.label(), row.depth));
        context.progress.advance(1);
    });
    context.progress.clear();
    let result = result.and_then(|()| match group.cache {
        // Counting is another pass over files that must be cold again; the engines count too.
        Cache::Cold => Ok(()),
        Cache::Warm | Cache::Bypassed => schedule.count(&mut section.rows, COUNTING),
    });
    remark(group, &mut section.rows);
    result
}

fn lay(
    context: &Context<'_>,
    group: &Group,
    directory: &Directory,
) -> Result<Vec<DataFile>, LabError> {
    let mut size = group.size;
    if group.cache == Cache::Warm && size.least < size.most {
        // A warm cache must hold it, and leave room for others.
        let memory = Environment::read(&Default::default()).memory_available_bytes;
        let fitting = memory.known().map_or(size.most, |bytes| bytes / 4);
        size.most = size.most.min(fitting).max(size.least);
    }
    let set = group.profile.to_string();
    let layout = Layout { set: &set, files: group.files, size, seed: context.plan.seed };
    context.progress.begin(size.most);
    context.progress.tell(format!("laying {set} test files out"));
    let files = layout.lay(directory, &mut |bytes| {
        context.progress.advance(bytes);
        !context.interrupt.load(std::sync::atomic::Ordering::Relaxed)
    });
    context.progress.clear();
    files
}

fn files_note(files: &[DataFile]) -> String {
    let count = match files.len() {
        1 => "1 file".to_owned(),
        n => format!("{n} files"),
    };
    format!("{count} of {}, every block read is verified", bytes_text(files[0].bytes))
}

/// Why the files cannot be read as the group says.
fn unfit(group: &Group, files: &[DataFile]) -> Result<Option<String>, LabError> {
    if files[0].bytes < group.block_bytes as u64 {
        let text = format!(
            "--block {}: larger than a test file of {}; raise --size",
            group.block_bytes,
            bytes_text(files[0].bytes)
        );
        return Err(LabError::Usage(text));
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
            let text = format!(
                "--block {}: direct reads here take a multiple of {}",
                group.block_bytes, needed.offset
            );
            Err(LabError::Usage(text))
        }
        _ => Ok(None),
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
        if row.engine == "mmap" && group.profile == Profile::Direct {
            row.measured.void =
                Some("n/a: a mapping always goes through the page cache".to_owned());
        }
    }
}

/// Brings the page cache into the job's state; the answer is why a sample would be void.
fn prepare(job: &Job) -> Result<Option<String>, LabError> {
    match job.cache {
        Cache::Bypassed => return Ok(None),
        Cache::Warm if cached_share(&job.files)?.is_none_or(|share| share < 1.0) => {
            job.files.iter().try_for_each(read_through)?;
        }
        Cache::Warm => {}
        Cache::Cold => job.files.iter().try_for_each(forget)?,
    }
    Ok(gates::page_cache(job.cache, cached_share(&job.files)?))
}

fn open(file: &DataFile) -> Result<File, LabError> {
    File::open(&file.path).map_err(|error| LabError::on("opening", &file.path, &error))
}

fn read_through(file: &DataFile) -> Result<(), LabError> {
    let mut bytes = vec![0; 1 << 20];
    let mut opened = open(file)?;
    loop {
        match opened.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(LabError::on("reading", &file.path, &error)),
        }
    }
}

fn forget(file: &DataFile) -> Result<(), LabError> {
    ringwise::drop_page_cache(&Descriptor::from(open(file)?), 0, 0)
        .map_err(|error| LabError::on("dropping from the page cache", &file.path, &error))
}

/// The share of the files' pages that is in the page cache. None where the kernel cannot tell
/// (before Linux 6.5).
fn cached_share(files: &[DataFile]) -> Result<Option<f64>, LabError> {
    let (mut cached, mut total) = (0, 0);
    for file in files {
        match ringwise::page_cache(&Descriptor::from(open(file)?), 0, 0) {
            Ok(state) => cached += state.cached_pages,
            Err(_) => return Ok(None),
        }
        total += file.bytes.div_ceil(rustix::param::page_size() as u64);
    }
    Ok(Some(cached as f64 / total.max(1) as f64))
}

/// Measures the lab's own time per operation with the null engine, as each row has it.
fn calibrate(
    context: &Context<'_>,
    job: &dyn Fn(usize, u64) -> Job,
    section: &mut Section,
) -> Result<(), LabError> {
    let sample_job = job(1, 0);
    let is_cached = sample_job.cache == Cache::Warm;
    let mut known: Vec<(usize, f64)> = Vec::new();
    for row in &mut section.rows {
        // Engines without a queue read the clock for each operation, as a queue of one does.
        let is_queue = row.engine.starts_with("uring") || row.engine == "aio";
        let depth = if is_queue { row.depth } else { 1 };
        if row.kind == RowKind::Program {
            continue;
        }
        let ns = match known.iter().find(|(at, _)| *at == depth) {
            Some((_, ns)) => *ns,
            None => {
                let buffers = (depth * sample_job.block_bytes).next_multiple_of(BLOCK_BYTES);
                let bytes = if is_cached { buffers } else { buffers.max(OUTSIDE_CACHE_BYTES) };
                let null = Null::new(bytes, sample_job.seed);
                let ns = harness_ns(context, &null, || Job {
                    files: vec![null.file()],
                    cache: Cache::Warm,
                    ..job(depth, 1)
                })?;
                known.push((depth, ns));
                ns
            }
        };
        row.measured.harness_ns = Some(ns);
    }
    known.sort_unstable_by_key(|(depth, _)| *depth);
    let parts = known.iter().map(|(depth, ns)| format!("{} at depth {depth}", latency_text(*ns)));
    let parts: Vec<String> = parts.collect();
    section.notes.push(format!("the lab's own time per read: {}", parts.join(", ")));
    Ok(())
}

fn harness_ns(context: &Context<'_>, null: &Null, job: impl Fn() -> Job) -> Result<f64, LabError> {
    let mut times = Vec::with_capacity(CALIBRATIONS);
    for _ in 0..CALIBRATIONS {
        let job = Arc::new(job());
        let taken = sample::take(null, &job, CALIBRATION, context.instruments);
        let taken = taken.map_err(|failure| LabError::Failed(format!("calibrating: {failure}")))?;
        times.push(1e9 / taken.operations_per_second().max(1.0));
    }
    if context.interrupt.load(std::sync::atomic::Ordering::Relaxed) {
        return Err(LabError::Interrupted);
    }
    Ok(median(&times).unwrap_or(0.0))
}

/// Says of each valid row what is to be known.
fn remark(group: &Group, rows: &mut [Row]) {
    let processors = ringwise_measure::cpu::allowed_cpus().map_or(1, |cpus| cpus.len());
    for row in rows.iter_mut().filter(|row| row.is_valid()) {
        let lanes = match row.engine.as_str() {
            "threads" | "tokio" => row.depth.min(processors),
            _ => 1,
        };
        let measured = &mut row.measured;
        if let Some(harness_ns) = measured.harness_ns {
            let share = (harness_ns * measured.ops_per_s() / 1e9 / lanes as f64).min(1.0);
            measured.harness_share = Some(share);
            if share > gates::HARNESS_SHARE_MAX {
                measured.remarks.push(format!("lab's own time {:.0} %", share * 100.0));
            }
        }
        let busy_share = 1.0 - measured.harness_share.unwrap_or(0.0);
        let in_flight = measured.median(|sample| Some(sample.in_flight)).unwrap_or(0.0);
        let is_queued = row.depth > 1 && row.kind != RowKind::Program;
        if is_queued && in_flight < FULL_SHARE_MIN * busy_share * row.depth as f64 {
            measured.remarks.push(format!("kept {in_flight:.1} of {} in flight", row.depth));
        }
        if let Some(drift) = measured.drift() {
            measured.remarks.push(format!("drifts {:+.0} %", drift.change * 100.0));
        }
        if let Some(punts) = measured.worker_punts_per_op().filter(|&punts| punts >= 0.005) {
            measured.remarks.push(format!("{:.0} % by kernel workers", punts * 100.0));
        }
    }
    mark(group, rows, Switch::Unverified, "not verified, as fio");
    if processors <= SQPOLL_PROCESSORS {
        mark(group, rows, Switch::Sqpoll, &format!("SQPOLL on {processors} processors"));
    }
}

/// Remarks on the rings that have a switch on.
fn mark(group: &Group, rows: &mut [Row], switch: Switch, remark: &str) {
    for row in rows.iter_mut().filter(|row| row.is_valid()) {
        let is_named = |name: &&EngineName| name.to_string() == row.engine;
        if group.engines.iter().find(is_named).is_some_and(|name| name.has(switch)) {
            row.measured.remarks.push(remark.to_owned());
        }
    }
}

/// Where files lie, for the results.
pub fn storage_note(storage: &Storage) -> String {
    let device = match &storage.device {
        Fact::Known(device) => device.name.clone(),
        Fact::Unknown(_) => "no device of its own".to_owned(),
    };
    let kind = storage.mount.known().map_or("unknown file system", |mount| mount.kind.as_str());
    format!("{} ({kind} on {device})", storage.path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::Args, plan::Plan};

    fn planned(change: impl FnOnce(&mut Args)) -> Vec<String> {
        let mut args = Args { threads: Some("2".into()), ..Args::default() };
        change(&mut args);
        let plan = Plan::new(&args).unwrap();
        let name = |row: RowPlan| format!("{}@{} {:?}", row.engine, row.depth, row.kind);
        rows(&plan.groups[0]).into_iter().map(name).collect()
    }

    #[test]
    fn every_depth_has_its_threads_and_its_control() {
        assert_eq!(
            planned(|args| args.depth = Some("1,32".into())),
            [
                "sync@1 Rival",
                "mmap@1 Rival",
                "tokio@1 Rival",
                "aio@1 Rival",
                "uring@1 Subject",
                "uring@1 Control",
                "threads@2 Rival",
                "threads@32 Rival",
                "tokio@32 Rival",
                "aio@32 Rival",
                "uring@32 Subject",
                "uring@32 Control",
            ]
        );
    }

    #[test]
    fn without_a_ring_another_engine_is_the_control() {
        let rows = planned(|args| {
            args.depth = Some("2".into());
            args.engines = Some("fio,threads".into());
        });
        assert_eq!(rows, ["fio@2 Program", "threads@2 Rival", "threads@2 Control"]);
    }

    #[test]
    fn variants_are_not_the_subject() {
        let rows = planned(|args| {
            args.depth = Some("4".into());
            args.engines = Some("uring+sqpoll,uring".into());
        });
        assert_eq!(rows, ["uring+sqpoll@4 Variant", "uring@4 Subject", "uring@4 Control"]);
    }
}
