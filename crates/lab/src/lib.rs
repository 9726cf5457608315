//! The benchmark lab: measures engines side by side on this machine, and says which one pays.
//!
//! A run is a plan (`args` -> `plan`), whose workloads make rows, one engine at one depth each.
//! All rows of a section are sampled in interleaved blocks (`schedule`); each sample runs one
//! engine in a thread, while the controller reads clocks and counters at the edges of the measured
//! time (`sample`, `job`). Every operation of every engine passes through a `lane`, which times,
//! verifies and counts it. `gates` void what cannot be right; `verdict` says what is left to say;
//! `report` prints and writes it.
//!
//! Reading order: [`plan`], [`dataset`], [`job`], [`lane`], [`engine`], [`sample`], [`schedule`],
//! [`gates`], [`row`], [`verdict`], [`report`], [`workload`]. Beside them: [`heat`], which latencies
//! came when, and `memory_group`, a bound for the page cache.
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
pub mod offline;
pub mod plan;
pub mod progress;
pub mod report;
pub mod row;
pub mod sample;
pub mod schedule;
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
    Sources, cpu::IdleBaseline, device::Storage, environment::Environment, quantity::duration_text,
};

pub use crate::{args::Args, error::LabError};
use crate::{
    dataset::Directory,
    job::Extent,
    plan::{Plan, Workload},
    progress::Progress,
    report::{Report, Section, heatmap, json, page, saved::Saved, table},
    sample::Instruments,
    workload::{Context, Outcome, copy, echo, log, nop, read},
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
    let args = args.with_config()?;
    let plan = Plan::new(&args)?;
    if let Some(path) = &plan.heatmap {
        heatmap::make_directory(path)?;
    }
    let interrupt = interrupt::flag()?;
    let sources = Sources::default();
    let began_unix_s =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let began = Instant::now();
    let needs_files =
        plan.workloads.iter().any(|workload| matches!(workload, Workload::Read | Workload::Copy));
    let directory = needs_files.then(|| Directory::open(&plan.directory, plan.keep)).transpose()?;
    let storage = Storage::of(&sources, &plan.directory);
    let samples = sample_count(&plan);
    let timing = workload::timing(plan.extent, samples);
    say(out, &header(&plan, &storage, timing, samples))?;
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
        sections: Vec::new(),
        ended_by: None,
        began_unix_s,
        lasted_s: 0.0,
    };
    let progress = Progress::new();
    let context = Context {
        plan: &plan,
        instruments: &instruments,
        timing,
        interrupt: &interrupt,
        progress: &progress,
    };
    let result = measure(&context, directory.as_ref(), &mut report.sections, out);
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
    report.lasted_s = began.elapsed().as_secs_f64();
    let path = plan.json.clone().unwrap_or_else(|| json::default_path(&plan.out, began_unix_s));
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
    match ended_by {
        None => {}
        Some(LabError::Failed(text)) => {
            return Err(LabError::Failed(format!("{text}; the results are partial")));
        }
        Some(error) => return Err(error),
    }
    match report.sections.iter().map(Section::common_void).collect::<Option<Vec<_>>>() {
        Some(reasons) if !reasons.is_empty() => {
            Err(LabError::Failed(format!("nothing could be measured: {}", reasons[0])))
        }
        _ => Ok(()),
    }
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

fn measure(
    context: &Context<'_>,
    directory: Option<&Directory>,
    sections: &mut Vec<Section>,
    out: &mut dyn Write,
) -> Result<(), LabError> {
    let mut keep = |outcome: Outcome| {
        let is_told = match &outcome.result {
            Ok(()) | Err(LabError::Interrupted) => true,
            Err(LabError::Failed(_)) => outcome.section.is_measured(),
            Err(_) => false,
        };
        if is_told {
            say(
                out,
                &format!(
                    "{}\n",
                    table::text(&outcome.section, &context.plan.percentiles, context.plan.seed)
                ),
            )?;
            sections.push(outcome.section);
        }
        outcome.result
    };
    for workload in &context.plan.workloads {
        match (workload, directory) {
            (Workload::Read, Some(directory)) => {
                for group in &context.plan.groups {
                    keep(read::run(context, group, directory))?;
                }
            }
            (Workload::Nop, _) => keep(nop::run(context))?,
            (Workload::Echo, _) => {
                for &length_bytes in &context.plan.echo.lengths {
                    keep(echo::run(context, length_bytes))?;
                }
            }
            (Workload::Copy, Some(directory)) => {
                for set in &context.plan.copy.sets {
                    for outcome in copy::run_set(context, set, directory) {
                        keep(outcome)?;
                    }
                }
            }
            (Workload::Log, _) => {
                for &group in &context.plan.log.groups {
                    keep(log::run(context, group))?;
                }
            }
            (Workload::Read | Workload::Copy, None) => {
                unreachable!("opened above for these workloads")
            }
        }
    }
    Ok(())
}

fn sample_count(plan: &Plan) -> usize {
    let rows = |workload: &Workload| match workload {
        Workload::Read => plan.groups.iter().map(|group| read::rows(group).len()).sum(),
        Workload::Nop => plan.batches.len() * nop::ROWS_PER_BATCH,
        Workload::Echo => {
            let counts = plan.echo.connections.len() * plan.echo.lengths.len();
            counts * echo::rows_per_count(&plan.echo)
        }
        Workload::Log => {
            let rows = |&group| log::rows_per_count(&plan.log, group);
            plan.log.connections.len() * plan.log.groups.iter().map(rows).sum::<usize>()
        }
        Workload::Copy => copy::rows(&plan.copy),
    };
    plan.workloads.iter().map(rows).sum::<usize>() * 2 * plan.repeats
}

fn header(plan: &Plan, storage: &Storage, timing: job::Timing, samples: usize) -> String {
    let each = match timing.extent {
        Extent::Time(time) => {
            let whole = Duration::from_millis(time.as_millis() as u64);
            format!("{} each", duration_text(whole))
        }
        Extent::Operations(count) => format!("{count} operations each"),
    };
    let is_copy = plan.workloads == [Workload::Copy];
    let each = if is_copy { "one copy each".to_owned() } else { format!("{each} after warm-up") };
    let place = match is_copy || plan.workloads.contains(&Workload::Read) {
        true => format!("test files in {}\n", read::storage_note(storage)),
        false => String::new(),
    };
    format!(
        "{place}{samples} samples in {} interleaved blocks, {each}, seed {}\n\n",
        plan.repeats, plan.seed
    )
}

fn say(out: &mut dyn Write, text: &str) -> Result<(), LabError> {
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| LabError::output(&error))
}
