//! One workload after the other: which ones, how long each may take, and what is said before.

use std::{collections::BTreeMap, io::Write, path::PathBuf, time::Duration};

use clap::{Command, Subcommand};
use ringwise_measure::{
    device::Storage,
    measurable::Measurable,
    quantity::{bytes_text, duration_text},
    words::nearest,
};
use serde_json::Value;

use crate::{
    args::{Action, Args},
    error::LabError,
    plan::{
        Defaults, ExtentChoice, Plan,
        typed::{Typed, usage},
    },
    results::{
        gain,
        report::{LeftOut, lines::all_wrapped, table},
        section::Section,
    },
    sampling::job::{Extent, Timing},
    session::{needs::Needs, output::say},
    workload::{
        self,
        form::{self, Context, Entry, Outcome, Workload, cost::Samples},
        read::storage_note,
    },
};

/// What is to be measured: the command line, checked and with every default filled in.
#[derive(Debug)]
pub struct Suite {
    /// What holds for every workload.
    pub plan: Plan,
    /// The workloads, in order.
    pub workloads: Vec<Planned>,
}

/// A workload that is to be measured.
#[derive(Debug)]
pub struct Planned {
    entry: &'static Entry,
    /// What it does.
    pub work: Box<dyn Workload>,
}

impl Planned {
    fn name(&self) -> &'static str {
        self.entry.facts.name
    }
}

impl Suite {
    /// Checks what was typed.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`], which names the value and what is accepted.
    pub fn new(args: &Args) -> Result<Suite, LabError> {
        let named = args.workload.as_deref().map(named).transpose()?;
        check_flags(args, named)?;
        let typed = Typed::of(args)?;
        let chosen = match named {
            Some(entry) => vec![entry],
            None => workload::ALL[..workload::SUITE].to_vec(),
        };
        let planned = |entry: &'static Entry| Ok(Planned { entry, work: (entry.plan)(&typed)? });
        let workloads: Vec<Planned> =
            chosen.into_iter().map(planned).collect::<Result<_, LabError>>()?;
        let defaults = named.map_or_else(|| Defaults::of(args), |entry| (entry.defaults)(args));
        let mut plan = Plan::new(args, defaults)?;
        let listed = workloads.iter().find_map(|planned| planned.work.directories().first());
        if let Some(first) = listed {
            plan.directory.clone_from(first);
        }
        Ok(Suite { plan, workloads })
    }

    /// Where test files are: the directories that a workload lists, or the plan's.
    pub fn directories(&self) -> &[PathBuf] {
        let mut listed = self.workloads.iter().map(|planned| planned.work.directories());
        let own = std::slice::from_ref(&self.plan.directory);
        listed.find(|listed| !listed.is_empty()).unwrap_or(own)
    }

    /// The workloads of a suite that cannot run here.
    pub fn left_out(&self) -> Vec<LeftOut> {
        let left_out = |planned: &Planned| {
            let reason = planned.work.missing()?;
            Some(LeftOut { workload: planned.name().to_owned(), reason })
        };
        self.workloads.iter().filter(|_| self.plan.is_suite).filter_map(left_out).collect()
    }

    /// Whether a workload has test files.
    pub fn has_files(&self) -> bool {
        self.workloads.iter().any(|planned| planned.entry.has_files)
    }

    /// How many samples all workloads take, in all runs.
    pub fn sample_counts(&self) -> usize {
        let once: usize = self.workloads.iter().map(|planned| self.sample_count(planned)).sum();
        once * self.plan.self_check.unwrap_or(1)
    }

    /// How many samples a workload takes.
    fn sample_count(&self, planned: &Planned) -> usize {
        planned.work.rows() * 2 * self.plan.repeats
    }

    /// The samples of a workload, and how long they take.
    pub fn samples_of(&self, planned: &Planned) -> Samples {
        Samples::new(planned.work.rows(), self.plan.repeats, self.timing(planned))
    }

    /// The time of a workload's samples.
    pub fn timing(&self, planned: &Planned) -> Timing {
        form::timing(self.extent_of(planned), self.sample_count(planned))
    }

    /// How much each sample of a workload measures.
    fn extent_of(&self, planned: &Planned) -> ExtentChoice {
        match self.plan.extent {
            ExtentChoice::Budget(_) if self.plan.is_suite => {
                ExtentChoice::Budget(Duration::from_secs(planned.entry.suite_s))
            }
            extent => extent,
        }
    }
}

fn named(name: &str) -> Result<&'static Entry, LabError> {
    let names = workload::ALL.map(|entry| entry.facts.name);
    let found = workload::ALL.into_iter().find(|entry| entry.facts.name == name);
    found.ok_or_else(|| {
        let commands = Action::augment_subcommands(Command::new("lab"));
        let commands = commands.get_subcommands().filter(|command| !command.is_hide_set());
        let commands: Vec<&str> = commands.map(Command::get_name).collect();
        let near = nearest(name, names.into_iter().chain(commands.iter().copied()));
        let advice = near.map_or_else(
            || format!("expected {}, or {}", names.join(", "), commands.join(", ")),
            |near| format!("did you mean '{near}'?"),
        );
        LabError::Usage(format!("unknown workload or command '{name}': {advice}"))
    })
}

/// Refuses a flag that the workload does not read. The suite takes only what all workloads read.
fn check_flags(args: &Args, named: Option<&Entry>) -> Result<(), LabError> {
    for flag in args.given() {
        let reads = |entry: &&Entry| entry.flags.contains(&flag.as_str());
        let readers: Vec<&str> =
            workload::ALL.into_iter().filter(reads).map(|entry| entry.facts.name).collect();
        let is_read = match named {
            Some(entry) => reads(&entry),
            None => flag == "keep",
        };
        if !readers.is_empty() && !is_read {
            let noun = if readers.len() > 1 { "workloads" } else { "workload" };
            let (names, first, option) = (readers.join(", "), readers[0], typed(args, &flag));
            let advice = format!("name one, as in: ringwise lab {first} {option}");
            let text = format!("is for the {noun} {names}; {advice}");
            return Err(usage(&format!("--{flag}"), text));
        }
    }
    Ok(())
}

/// A flag with its value, as it could be typed.
fn typed(args: &Args, flag: &str) -> String {
    let value = match &args.as_config()[flag] {
        Value::Array(values) => values.first().cloned().unwrap_or_default(),
        value => value.clone(),
    };
    let value = value.as_str().unwrap_or_default();
    format!("--{flag} {value}").trim_end().to_owned()
}

/// What is said before anything is measured. There is a storage for each directory of test files.
pub fn header(suite: &Suite, storages: &[Storage], measurable: &Measurable) -> String {
    let (mut text, plan) = (String::new(), &suite.plan);
    if suite.has_files() {
        let each = |storage| format!("test files in {}\n", storage_note(storage));
        text.extend(storages.iter().map(each));
    }
    for planned in &suite.workloads {
        let samples = suite.sample_count(planned);
        let each = match (planned.work.sample_text(), suite.timing(planned).extent) {
            (Some(each), _) => each.to_owned(),
            (None, Extent::Time(time)) => {
                let whole = Duration::from_millis(time.as_millis() as u64);
                format!("{} each after warm-up", duration_text(whole))
            }
            (None, Extent::Operations(count)) => format!("{count} operations each after warm-up"),
        };
        let name = if plan.is_suite { format!("{}: ", planned.name()) } else { String::new() };
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
    text += &needs_text(&Needs::of(suite), plan, storages);
    all_wrapped(&text, "  ") + "\n"
}

/// How long it takes, and the space that it needs on each file system.
fn needs_text(needs: &Needs, plan: &Plan, storages: &[Storage]) -> String {
    let mut text = format!(
        "about {} in all, and up to {} more where intervals are wide\n",
        needs.time_text(),
        duration_text(plan.spare)
    );
    let number = |storage: &Storage| storage.mount.known().map(|own| own.device_number.clone());
    let mut file_systems: BTreeMap<Option<String>, Vec<&Storage>> = BTreeMap::new();
    for storage in storages {
        file_systems.entry(number(storage)).or_default().push(storage);
    }
    for storages in file_systems.values().filter(|_| needs.space_bytes > 0) {
        let needs = needs.times(storages.len() as u64);
        let place = match file_systems.len() {
            1 => String::new(),
            _ => format!(" in {}", storages[0].path.display()),
        };
        let free = storages[0].filesystem.known().map(|found| found.free_bytes);
        let are = free
            .map_or("not known how much is".to_owned(), |free| format!("{} are", bytes_text(free)));
        let most = bytes_text(needs.space_bytes);
        text += &format!("up to {most} of test files{place}, {are} free\n");
        if let Some(lack) = free.and_then(|free| needs.lack(free)) {
            text += &format!("not enough, unless they are there from an earlier run: {lack}\n");
        }
    }
    text
}

/// Measures every workload, and hands each section that is over to `done`. What cannot run here is
/// an error, or left out of the suite.
///
/// # Errors
///
/// What ended the run.
pub fn measure(
    suite: &Suite,
    context: &Context<'_>,
    done: &mut dyn FnMut(Section),
    out: &mut dyn Write,
) -> Result<(), LabError> {
    for (index, planned) in suite.workloads.iter().enumerate() {
        let next = suite.workloads.get(index + 1).map(|next| next.name().to_owned());
        context.progress.then(next);
        if let Some(reason) = planned.work.missing() {
            let name = planned.name();
            if !suite.plan.is_suite {
                return Err(LabError::Failed(format!("{name} cannot run here: {reason}")));
            }
            if suite.plan.is_verbose {
                say(out, &format!("{name}: left out: {reason}\n\n"))?;
            }
            continue;
        }
        let context = &Context { timing: suite.timing(planned), ..*context };
        planned.work.run(context, &mut |outcome| keep(context, done, out, outcome))?;
    }
    Ok(())
}

/// Derives the gains of a section, prints it if that was asked for, and hands it to `done` if there is
/// anything in it.
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
        outcome.section.notes.extend(context.warmth.notes(&context.instruments.warmth()));
        let (percentiles, seed) = (&context.plan.percentiles, context.plan.seed);
        outcome.section.gains = gain::of(&outcome.section, seed);
        if context.plan.is_verbose {
            say(out, &format!("{}\n", table::text(&outcome.section, percentiles, seed)))?;
        }
        done(outcome.section);
    }
    outcome.result
}

#[cfg(test)]
mod tests;
