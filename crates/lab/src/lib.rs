//! The benchmark lab: measures engines side by side on this machine, and says which one pays.
//!
//! A run is a plan (`args` -> `plan`), whose workloads make rows, one engine at one depth each.
//! All rows of a section are sampled in interleaved blocks (`schedule`); each sample runs one
//! engine in a thread, while the controller reads clocks and counters at the edges of the measured
//! time (`sample`, `job`). Every operation of every engine passes through a `lane`, which times,
//! verifies and counts it. `gates` void what cannot be right; `verdict` says what is left to say;
//! `report` prints and writes it.
//!
//! Reading order: `suite`, [`plan`], [`dataset`], [`job`], [`lane`], [`engine`], [`sample`],
//! [`schedule`], [`gates`], [`row`], [`verdict`], [`report`], [`workload`]. Beside them: [`heat`],
//! which latencies came when, and `memory_group`, a bound for the page cache.
//!
//! Invariant: engines are compared only within one interleaved run and at equal depth.
//!
//! It judges nothing that it has not measured in the same run, and it does not tune the machine.

// The comparison engines `aio`, `mmap` and the bare ring opt in, each with its contract.
#![deny(unsafe_code)]

mod accesses;
pub mod args;
pub mod dataset;
pub mod engine;
pub mod error;
pub mod gates;
pub mod heat;
pub mod interrupt;
pub mod job;
pub mod lane;
mod memory_group;
mod needs;
pub mod offline;
pub mod plan;
pub mod progress;
pub mod report;
pub mod resumed;
pub mod row;
pub mod sample;
pub mod schedule;
pub mod self_check;
mod suite;
pub mod suspicions;
pub mod verdict;
pub mod workload;

#[cfg(test)]
mod testing;

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use ringwise_measure::{
    Sources, cpu::IdleBaseline, device::Storage, environment::Environment, measurable::Measurable,
    quantity::bytes_text,
};

pub use crate::{args::Args, error::LabError};
use crate::{
    dataset::Directory,
    plan::Plan,
    progress::Progress,
    report::{Report, Section, heatmap, json, page, saved::Saved},
    resumed::Resumed,
    sample::Instruments,
    schedule::Spare,
    workload::{Context, echo},
};

/// How long the idle machine is looked at. Below a second its clock ticks are too coarse.
const IDLE_TIME: Duration = Duration::from_secs(1);

/// Runs the lab as typed, and prints to `out`.
///
/// # Errors
///
/// [`LabError`], one line, with the exit status that belongs to it.
pub fn run(args: Args, out: &mut dyn Write) -> Result<(), LabError> {
    if let Some(action) = args.action {
        return offline::run(action, out);
    }
    if let Some(name) = &args.child_server {
        return echo::serve(name, out);
    }
    let (args, resumed) = match &args.resume {
        Some(path) => Resumed::read(path).map(|(args, resumed)| (args, Some(resumed)))?,
        None => (args.with_config()?, None),
    };
    let plan = Plan::new(&args)?;
    if let Some(path) = &plan.heatmap {
        heatmap::make_directory(path)?;
    }
    let interrupt = interrupt::flag()?;
    let sources = Sources::default();
    let began_unix_s =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let began = Instant::now();
    let needs_files = plan.workloads.iter().any(|workload| workload.has_files());
    let directory = needs_files.then(|| Directory::open(&plan.directory, plan.keep)).transpose()?;
    let storage = Storage::of(&sources, &plan.directory);
    let measurable = Measurable::probe(&sources, &storage.device);
    say(out, &suite::header(&plan, &storage, &measurable))?;
    let instruments = Instruments {
        device_number: storage.device.known().map(|device| device.number.clone()),
        idle: IdleBaseline::measure(&sources, IDLE_TIME).known().copied(),
        sources,
    };
    let mut report = Report {
        plan: &plan,
        flags: &args,
        environment: Environment::read(&instruments.sources),
        storage,
        measurable,
        sections: Vec::new(),
        ended_by: None,
        began_unix_s: resumed.as_ref().map_or(began_unix_s, Resumed::began_unix_s),
        lasted_s: 0.0,
        written_bytes: None,
    };
    if let Some(resumed) = &resumed {
        resumed.check(&report.environment, &report.storage)?;
    }
    // Not the process's own account (/proc/self/io): a page of 4 KiB that is written within a larger
    // folio is the whole folio there (folio_account_dirtied in mm/page-writeback.c, Linux 6.18).
    let device_before = instruments.device();
    let path = plan.json.clone().unwrap_or_else(|| json::default_path(&plan.out, began_unix_s));
    let before_s = resumed.as_ref().map_or(0.0, Resumed::lasted_s);
    let lasted_s = || before_s + began.elapsed().as_secs_f64();
    let progress = Progress::new();
    progress.expect(suite::samples(&plan) as u64);
    // Each workload has its own.
    let timing = suite::timing(&plan, plan.workloads[0]);
    let mut runs = 0..plan.self_check.unwrap_or(1);
    let result = runs.try_for_each(|run| {
        let context = Context {
            plan: &plan,
            instruments: &instruments,
            timing,
            interrupt: &interrupt,
            progress: &progress,
            spare: &Spare::new(plan.spare),
            resumed: resumed.as_ref(),
            run,
        };
        let mut done = |section| {
            report.sections.push(section);
            report.lasted_s = lasted_s();
            // Until it is as far as it was, a run that goes on has nothing to add to its file.
            if resumed.as_ref().is_none_or(|own| report.sections.len() >= own.sections()) {
                checkpoint(&mut report, &path);
            }
        };
        suite::measure(&context, directory.as_ref(), &mut done, out)
    });
    drop(directory);
    progress.clear();
    let ended_by = match result {
        Ok(()) => None,
        // Without a figure there is nothing to keep.
        Err(LabError::Failed(_)) if !report.sections.iter().any(Section::is_measured) => {
            return result;
        }
        Err(error @ (LabError::Interrupted | LabError::Failed(_))) => Some(error),
        Err(error) => return Err(error),
    };
    report.ended_by = ended_by.as_ref().map(|error| match error {
        LabError::Interrupted => "interrupted".to_owned(),
        other => other.to_string(),
    });
    report.lasted_s = lasted_s();
    let device = instruments.device().zip(device_before);
    report.written_bytes = device.map(|(now, before)| now.since(&before).written_bytes);
    say(out, &verdict::overall_text(&report.overall()))?;
    json::write(&path, &json::text(&report))?;
    draw(&plan, &report.sections, timing, out)?;
    let partial = match &ended_by {
        None => "",
        Some(LabError::Interrupted) => " (partial: interrupted)",
        Some(_) => " (partial: a failure ended the run)",
    };
    let shown = |path: &Path| path.strip_prefix(".").unwrap_or(path).display().to_string();
    say(out, &format!("results: {}{partial}\n", shown(&path)))?;
    let page = page_beside(&path);
    json::write(&page, &page::text(&[Saved::read(&path)?]))?;
    say(out, &format!("report: {}\n", shown(&page)))?;
    if let Some(bytes) = report.written_bytes {
        let bytes = bytes_text(bytes);
        say(out, &format!("written to the device meanwhile, by whomever: {bytes}\n"))?;
    }
    if ended_by.is_some() {
        say(out, &format!("go on with: ringwise lab --resume {}\n", shown(&path)))?;
    }
    match ended_by {
        None => {}
        Some(LabError::Failed(text)) => {
            return Err(LabError::Failed(format!("{text}; the results are partial")));
        }
        Some(error) => return Err(error),
    }
    if plan.self_check.is_some() {
        let told = self_check::Told::of(&report.sections);
        say(out, &told.text())?;
        if !told.is_passed() {
            let text = "the lab tells what is the same apart: use a quieter machine or --repeats";
            return Err(LabError::Failed(text.to_owned()));
        }
    }
    match report.sections.iter().map(Section::common_void).collect::<Option<Vec<_>>>() {
        Some(reasons) if !reasons.is_empty() => {
            Err(LabError::Failed(format!("nothing could be measured: {}", reasons[0])))
        }
        _ => Ok(()),
    }
}

/// What a results file says of its run while that is under way: who reads it, reads it because the
/// run was killed.
const UNDER_WAY: &str = "killed: this was kept while it ran";

/// Keeps what is measured so far, so that a run that is killed can go on from there.
fn checkpoint(report: &mut Report<'_>, path: &Path) {
    if !report.sections.iter().any(Section::is_measured) {
        return;
    }
    report.ended_by = Some(UNDER_WAY.to_owned());
    // Where it cannot be written now, the end tells.
    let _ = json::write(path, &json::text(report));
    report.ended_by = None;
}

/// Where the page goes that shows a results file: its name with another ending.
fn page_beside(results: &Path) -> PathBuf {
    let page = results.with_extension("html");
    if page != results { page } else { results.with_extension("report.html") }
}

fn draw(
    plan: &Plan,
    sections: &[Section],
    timing: job::Timing,
    out: &mut dyn Write,
) -> Result<(), LabError> {
    let Some(directory) = &plan.heatmap else { return Ok(()) };
    match heatmap::write(directory, sections, timing)? {
        Some((index, count)) => {
            let shown = index.strip_prefix(".").unwrap_or(&index).display();
            let beside = if count == 1 { "1 row".to_owned() } else { format!("{count} rows") };
            say(out, &format!("heatmaps: {shown}, and a file for each of {beside} beside it\n"))
        }
        None => say(out, "heatmaps: none, since no row has a result that counts\n"),
    }
}

fn say(out: &mut dyn Write, text: &str) -> Result<(), LabError> {
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| LabError::output(&error))
}
