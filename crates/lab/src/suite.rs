//! One workload after the other: how long each may take, what is said before, what cannot run here.

use std::{io::Write, time::Duration};

use ringwise::{BackendChoice, Local};
use ringwise_measure::{
    device::Storage,
    measurable::Measurable,
    quantity::{bytes_text, duration_text},
};

use crate::{
    dataset::Directory,
    error::LabError,
    job::{Extent, Timing},
    needs::Needs,
    plan::{Plan, Workload},
    report::{Section, table},
    say,
    verdict::OverBlocks,
    workload::{self, Context, Outcome, chain, copy, echo, log, nop, read, stat},
};

/// How many samples a workload takes.
pub fn sample_count(plan: &Plan, workload: Workload) -> usize {
    let groups = |groups: &[crate::plan::Group]| -> usize {
        groups.iter().map(|group| read::rows(group).len()).sum()
    };
    let rows = match workload {
        Workload::Read => groups(&plan.groups),
        Workload::Latency => groups(&plan.latency),
        Workload::Nop => plan.batches.len() * nop::ROWS_PER_BATCH,
        Workload::Chain => plan.chain.iter().map(chain::row_count).sum(),
        Workload::Stat => stat::row_count(&plan.stat),
        Workload::Copy => copy::rows(&plan.copy),
        Workload::Log => {
            let rows = |&group| log::rows_per_count(&plan.log, group);
            plan.log.connections.len() * plan.log.groups.iter().map(rows).sum::<usize>()
        }
        Workload::Echo => {
            let counts = plan.echo.connections.len() * plan.echo.lengths.len();
            counts * echo::rows_per_count(&plan.echo)
        }
    };
    rows * 2 * plan.repeats
}

/// How many samples all workloads take, in all runs.
pub fn samples(plan: &Plan) -> usize {
    let once: usize = plan.workloads.iter().map(|&workload| sample_count(plan, workload)).sum();
    once * plan.self_check.unwrap_or(1)
}

/// The time of a workload's samples.
pub fn timing(plan: &Plan, workload: Workload) -> Timing {
    workload::timing(plan.extent_of(workload), sample_count(plan, workload))
}

/// What is said before anything is measured.
pub fn header(plan: &Plan, storage: &Storage, measurable: &Measurable) -> String {
    let mut text = String::new();
    let has_files = plan.workloads.iter().any(|workload| workload.has_files());
    if has_files {
        text += &format!("test files in {}\n", read::storage_note(storage));
    }
    for &workload in &plan.workloads {
        let (samples, timing) = (sample_count(plan, workload), timing(plan, workload));
        let each = match timing.extent {
            _ if workload == Workload::Copy => "one copy each".to_owned(),
            Extent::Time(time) => {
                let whole = Duration::from_millis(time.as_millis() as u64);
                format!("{} each after warm-up", duration_text(whole))
            }
            Extent::Operations(count) => format!("{count} operations each after warm-up"),
        };
        let name = if plan.is_suite { format!("{}: ", workload.name()) } else { String::new() };
        text += &format!(
            "{name}{samples} samples in {} interleaved blocks, {each}, seed {}\n",
            plan.repeats, plan.seed
        );
    }
    if let Some(runs) = plan.self_check {
        text += &format!(
            "a check of the lab with itself: every row of a depth is the same engine; runs: {runs}\n"
        );
    }
    measurable.missing().iter().for_each(|line| text += &format!("{line}\n"));
    let needs = Needs::of(plan);
    text += &format!(
        "about {} in all, and up to {} more where intervals are wide",
        needs.time_text(),
        duration_text(plan.spare)
    );
    if needs.space_bytes > 0 {
        let free = storage.filesystem.known().map(|found| found.free_bytes);
        let are = free
            .map_or("not known how much is".to_owned(), |free| format!("{} are", bytes_text(free)));
        text += &format!("; up to {} of test files, {are} free", bytes_text(needs.space_bytes));
        if let Some(lack) = free.and_then(|free| needs.lack(free)) {
            text += &format!("\nnot enough, unless they are there from an earlier run: {lack}");
        }
    }
    text += "\n";
    text + "\n"
}

/// Why a workload cannot run here at all, if so.
fn missing(workload: Workload) -> Option<String> {
    if workload != Workload::Nop {
        return None;
    }
    let refused = Local::builder().backend(BackendChoice::Uring).build().err()?;
    Some(refused.to_string())
}

/// Measures every workload, and hands each section that is over to `done`. What cannot run here is
/// an error, or within the suite said and left out.
///
/// # Errors
///
/// What ended the run.
pub fn measure(
    context: &Context<'_>,
    directory: Option<&Directory>,
    done: &mut dyn FnMut(Section),
    out: &mut dyn Write,
) -> Result<(), LabError> {
    let workloads = &context.plan.workloads;
    for (index, &workload) in workloads.iter().enumerate() {
        let next = workloads.get(index + 1).map(|next| next.name().to_owned());
        context.progress.then(next);
        if let Some(reason) = missing(workload) {
            let name = workload.name();
            if !context.plan.is_suite {
                return Err(LabError::Failed(format!("{name} cannot run here: {reason}")));
            }
            say(out, &format!("{name}: left out: {reason}\n\n"))?;
            continue;
        }
        let context = &Context { timing: timing(context.plan, workload), ..*context };
        let mut keep = |outcome: Outcome| keep(context, done, out, outcome);
        run(context, workload, directory, &mut keep)?;
    }
    Ok(())
}

fn run(
    context: &Context<'_>,
    workload: Workload,
    directory: Option<&Directory>,
    keep: &mut dyn FnMut(Outcome) -> Result<(), LabError>,
) -> Result<(), LabError> {
    match (workload, directory) {
        (Workload::Nop, _) => keep(nop::run(context)),
        (Workload::Echo, _) => {
            let mut lengths = context.plan.echo.lengths.iter();
            lengths.try_for_each(|&length_bytes| keep(echo::run(context, length_bytes)))
        }
        (Workload::Log, _) => {
            let mut groups = context.plan.log.groups.iter();
            groups.try_for_each(|&group| keep(log::run(context, group)))
        }
        (Workload::Read, Some(directory)) => {
            let (groups, mut over) = (&context.plan.groups, OverBlocks::default());
            groups.iter().try_for_each(|group| {
                let mut outcome = read::run(context, workload, group, directory);
                over.add(group, groups, &mut outcome.section);
                keep(outcome)
            })
        }
        (Workload::Latency, Some(directory)) => {
            let mut groups = context.plan.latency.iter();
            groups.try_for_each(|group| keep(read::run(context, workload, group, directory)))
        }
        (Workload::Chain, Some(directory)) => chain::run(context, directory, keep),
        (Workload::Stat, Some(directory)) => keep(stat::run(context, directory)),
        (Workload::Copy, Some(directory)) => {
            let mut sets = context.plan.copy.sets.iter();
            sets.try_for_each(|set| {
                copy::run_set(context, set, directory).into_iter().try_for_each(&mut *keep)
            })
        }
        (_, None) => unreachable!("opened above for workloads with files"),
    }
}

/// Prints a section, and hands it to `done` if there is anything in it.
fn keep(
    context: &Context<'_>,
    done: &mut dyn FnMut(Section),
    out: &mut dyn Write,
    mut outcome: Outcome,
) -> Result<(), LabError> {
    let is_told = match &outcome.result {
        Ok(()) | Err(LabError::Interrupted) => true,
        Err(LabError::Failed(_)) => outcome.section.is_measured(),
        Err(_) => false,
    };
    if is_told {
        let samples = outcome.section.rows.iter().flat_map(|row| &row.measured.samples);
        let blocks = samples.map(|sample| sample.block + 1).max().unwrap_or(0);
        let more = blocks.saturating_sub(context.plan.repeats);
        if more > 0 {
            let note = format!("{blocks} blocks, {more} more than planned: intervals were wide");
            outcome.section.notes.push(note);
        }
        let (percentiles, seed) = (&context.plan.percentiles, context.plan.seed);
        say(out, &format!("{}\n", table::text(&outcome.section, percentiles, seed)))?;
        done(outcome.section);
    }
    outcome.result
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use ringwise_measure::Sources;
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

    use super::*;
    use crate::{args::Args, progress::Progress, sample::Instruments, schedule::Spare};

    /// Measures no-ops where there is no ring, as part of the suite or by name: what is said, and how it
    /// ends.
    fn without_a_ring(is_suite: bool) -> (String, Result<(), LabError>) {
        // The filter is this thread's.
        let rules = BTreeMap::from([(libc::SYS_io_uring_setup, Vec::new())]);
        let refuse = SeccompAction::Errno(libc::EPERM as u32);
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
        apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
        let args =
            Args { reads: Some("1000".into()), workload: Some("nop".into()), ..Args::default() };
        let plan = Plan { is_suite, ..Plan::new(&args).unwrap() };
        let sources = Sources::below("/nonexistent");
        let context = Context {
            plan: &plan,
            instruments: &Instruments { sources, device_number: None, idle: None },
            timing: timing(&plan, Workload::Nop),
            interrupt: &Arc::default(),
            progress: &Progress::new(),
            spare: &Spare::default(),
            resumed: None,
            run: 0,
        };
        let mut out = Vec::new();
        let result = measure(&context, None, &mut |_| panic!("nothing was measured"), &mut out);
        (String::from_utf8(out).unwrap(), result)
    }

    #[test]
    fn what_cannot_run_here_is_left_out_of_the_suite_and_an_error_by_name() {
        let (told, result) = std::thread::spawn(|| without_a_ring(true)).join().unwrap();
        assert!(told.starts_with("nop: left out: no io_uring: io_uring_setup: "), "{told}");
        assert!(result.is_ok(), "{result:?}");
        let (told, result) = std::thread::spawn(|| without_a_ring(false)).join().unwrap();
        assert_eq!(told, "");
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with("nop cannot run here: no io_uring: "), "{error}");
    }
}
