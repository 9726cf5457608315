//! `replay`: the I/O of a recorded program again, by several engines in interleaved blocks.
//!
//! A trace becomes a script (`script`): for each recorded thread its steps, with their order and think time. Files of the
//! same shape are laid out (`place`), and each engine (`engine`, `rings`, `tasks`) makes all steps in each sample, at the recorded
//! pace, at the recorded times or without think time (`pace`). The lab's schedule takes the samples, its gates look at them, and its statistics
//! compare them. The first line says how near the replay is to the program: the I/O time of the recorded engine, divided by
//! that of the trace. With `--recorder` both have the recorder's cost and clock (`observer`).
//!
//! It replays no sockets, pipes or copies inside the kernel: they are counted and said.

mod done;
mod engine;
mod lives;
mod observer;
mod pace;
mod place;
mod queue;
mod ranges;
mod script;
mod tasks;
mod told;

use std::{
    collections::HashMap,
    io::Write,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use ringwise_measure::{
    Sources,
    device::Storage,
    quantity::{bytes_text, latency_text, parse_size},
};

use self::{
    engine::{Replay, Runs, Way},
    observer::{Observed, Observer},
    pace::Pace,
    place::Place,
    script::{CacheChoice, Script},
    tasks::By,
};
use crate::{
    args::{ReplayArgs, ReplayCache, ReplayPace},
    error::LabError,
    plan::typed::invalid,
    program::traced::Traced,
    results::{
        report::lines::all_wrapped,
        row::{Row, RowKind},
    },
    sampling::{
        job::{Cache, Extent, Job, Pattern, Timing},
        lane::Record,
        sample::Instruments,
        schedule::{Schedule, Spare},
    },
    session::{interrupt, output::say, progress::Progress},
    workload::form::columns::counted,
};

/// Samples of a row in a block.
const SAMPLES_PER_BLOCK: u32 = 2;

/// Replays a trace, and prints how near it is and what the engines differ by.
///
/// # Errors
///
/// [`LabError`]: a trace that cannot be read or has nothing to replay, no room for its files, or a failed call.
pub(crate) fn run(args: &ReplayArgs, out: &mut dyn Write) -> Result<(), LabError> {
    let bytes_max = parse_size(&args.size_max)
        .map_err(|error| invalid("replay: --size-max", &args.size_max, error))?;
    let traced = Traced::read(&args.trace)?;
    if args.recorder && traced.end.as_ref().is_none_or(|end| end.added_ns_in_duration.is_none()) {
        let path = args.trace.display();
        let why = "it is no whole trace of `ringwise lab record` by perf";
        return Err(LabError::Usage(format!("replay: --recorder: {path}: {why}")));
    }
    let script = Arc::new(Script::of(&traced, cache_choice(args.cache), args.recorder));
    if script.steps() == 0 {
        let why = script.left_out.words().join(", ");
        let path = args.trace.display();
        return Err(LabError::Failed(format!(
            "replay: {path}: no operation can be replayed: {why}"
        )));
    }
    let engines = engines(&script, args.engines.as_deref())?;
    let interrupt = interrupt::flag()?;
    let parent = args.dir.clone().unwrap_or_else(|| PathBuf::from("."));
    let pace = match args.pace {
        ReplayPace::Recorded => Pace::Recorded,
        ReplayPace::Asap => Pace::Asap,
        ReplayPace::Open => Pace::Open,
    };
    let mut said = introduction(&traced, &script, args);
    if pace != Pace::Asap {
        let samples = engines.len() as u32 * args.repeats * SAMPLES_PER_BLOCK;
        let time = latency_text(script.span_ns as f64 * f64::from(samples));
        said.push(format!(
            "{samples} replays take about {time}; fewer --engines or --repeats take less"
        ));
    }
    say(out, &all_wrapped(&said.join("\n"), "  "))?;
    let place = Arc::new(Place::lay(&script, &parent, bytes_max)?);
    let runs = Arc::default();
    let mut rows = rows(engines, (&script, &place), (pace, &runs));
    let observer = args.recorder.then(|| Observer::start(place.root())).transpose()?;
    measure(args, (&script, &place), (&mut rows, interrupt))?;
    if let Some(observer) = observer {
        note(&observer.finish()?, &runs, script.steps(), &mut rows);
    }
    say(out, &told::text(&script, &rows, pace, args.seed))
}

/// Takes all samples of the rows.
fn measure(
    args: &ReplayArgs,
    (script, place): (&Script, &Place),
    (rows, interrupt): (&mut [Row], Arc<AtomicBool>),
) -> Result<(), LabError> {
    let sources = Sources::default();
    let storage = Storage::of(&sources, place.root());
    let instruments = Instruments {
        device_number: storage.device.known().map(|device| device.number.clone()),
        idle: None,
        sources,
    };
    let files: Arc<[_]> = place.data_files().into();
    let mean_bytes = script.moved_bytes() as usize / script.steps();
    let job = |row: &Row, order_seed| Job {
        files: files.clone(),
        seed: args.seed,
        block_bytes: mean_bytes.max(1),
        depth: row.depth,
        pattern: Pattern::Sequential,
        // What comes from the device is the trace's to say.
        cache: Cache::Bounded,
        order_seed,
        heatmap: false,
        interrupt: interrupt.clone(),
        failed: false.into(),
        latency: Record::default(),
    };
    let extent = Extent::Operations(script.steps() as u64);
    let schedule = Schedule {
        blocks: args.repeats as usize,
        seed: args.seed,
        timing: Timing { warm_up: Duration::ZERO, extent },
        instruments: &instruments,
        job: &job,
        prepare: &|_| place.prepare().map(|()| None),
        inspect: &|_, _| Ok(None),
        spare: &Spare::default(),
    };
    let progress = Progress::new();
    let samples = rows.len() as u64 * u64::from(args.repeats * SAMPLES_PER_BLOCK);
    progress.expect(samples);
    progress.begin(samples);
    let mut tell = |row: &Row| progress.sample(&format!("replay: {}", row.label()), row);
    let result = schedule.run(rows, &mut tell);
    progress.clear();
    result
}

/// Notes in each sample how long its operations took by the recorder, if that saw all of them.
fn note(observed: &HashMap<u32, Observed>, runs: &Runs, steps: usize, rows: &mut [Row]) {
    for sample in rows.iter_mut().flat_map(|row| &mut row.measured.samples) {
        let threads = runs.threads(&sample.figures);
        let own = threads.iter().filter_map(|thread| observed.get(thread));
        if let Some(io_ns) = observer::io_ns(own, steps as u64) {
            sample.figures.insert(told::OBSERVED_NS, io_ns as f64);
        }
    }
}

fn cache_choice(choice: ReplayCache) -> CacheChoice {
    match choice {
        ReplayCache::Recorded => CacheChoice::Recorded,
        ReplayCache::Warm => CacheChoice::Warm,
        ReplayCache::Cold => CacheChoice::Cold,
    }
}

/// An engine of the replay: its name, what it is compared as, and how it makes the threads.
type Engine = (&'static str, RowKind, Way);

/// The engines that are wanted. What the program did is the rival of the ring, and is there again to show the noise.
///
/// # Errors
///
/// A name that is no engine, or one that the trace cannot have.
fn engines(script: &Script, wanted: Option<&str>) -> Result<Vec<Engine>, LabError> {
    let mut engines = vec![
        (told::RECORDED, RowKind::Rival, Way::Recorded),
        (told::RECORDED, RowKind::Control, Way::Recorded),
        ("uring", RowKind::Subject, Way::Rings),
    ];
    if script.threads.len() > 1 {
        engines.push(("uring+one-ring", RowKind::Variant, Way::OneRing));
    }
    if script.is_asynchronous() {
        engines.push(("sync", RowKind::Rival, Way::Calls));
    }
    engines.push(("tokio", RowKind::Rival, Way::Tasks(By::Pool)));
    engines.push(("ringwise", RowKind::Variant, Way::Tasks(By::Files)));
    let Some(wanted) = wanted else { return Ok(engines) };
    let wanted: Vec<&str> = wanted.split(',').map(str::trim).collect();
    if let Some(other) = wanted.iter().find(|name| engines.iter().all(|(own, ..)| own != *name)) {
        let names: Vec<&str> = engines.iter().skip(1).map(|(name, ..)| *name).collect();
        let why = format!("expected one that this trace can have: {}", names.join(", "));
        return Err(invalid("replay: --engines", other, why));
    }
    engines.retain(|(name, ..)| *name == told::RECORDED || wanted.contains(name));
    Ok(engines)
}

fn rows(
    engines: Vec<Engine>,
    (script, place): (&Arc<Script>, &Arc<Place>),
    (pace, runs): (Pace, &Arc<Runs>),
) -> Vec<Row> {
    let row = |(name, kind, way): Engine| {
        let (script, place, runs) = (script.clone(), place.clone(), runs.clone());
        let runner = Replay { script, place, way, pace, runs };
        Row::new(name.to_owned(), kind, runner.script.depth.max(1), Box::new(runner))
    };
    engines.into_iter().map(row).collect()
}

/// What is replayed, what is not, and how long it takes.
fn introduction(traced: &Traced, script: &Script, args: &ReplayArgs) -> Vec<String> {
    let missing = traced.missing().into_iter();
    let mut said: Vec<String> = missing.map(|what| format!("missing: {what}")).collect();
    let left_out = script.left_out.words();
    if !left_out.is_empty() {
        said.push(format!("left out: {}", left_out.join(", ")));
    }
    if script.has_unknown_sources && args.cache == ReplayCache::Recorded {
        said.push(
            "unknown: whether reads came from the page cache; they are replayed from it, unless --cache cold"
                .to_owned(),
        );
    }
    said.push(format!(
        "replaying {} of {} on {}, {} moved, {} of I/O time in {}",
        counted(script.steps() as u64, "operation"),
        counted(script.threads.len() as u64, "thread"),
        counted(script.bodies.len() as u64, "file"),
        bytes_text(script.moved_bytes()),
        latency_text(script.recorded_ns() as f64),
        latency_text(script.span_ns as f64)
    ));
    said
}
