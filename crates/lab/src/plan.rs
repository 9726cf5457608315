//! What holds for every workload of a run: the general flags, checked and with their defaults.

pub mod percentile;
pub mod rate;
pub mod scale;
pub mod typed;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use ringwise_measure::{destination, quantity::parse_duration};

use self::{
    percentile::Percentile,
    scale::Scale,
    typed::{invalid, list, number, usage},
};
use crate::{args::Args, error::LabError};

/// The most runs of a check of the lab with itself: enough for any share.
const SELF_CHECKS_MAX: u64 = 100;

/// What holds for every workload of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Whether the whole suite runs, which leaves out what cannot run here.
    pub is_suite: bool,
    /// Whether it is as large as published studies, which measure drives in their steady state.
    pub is_full: bool,
    /// Whether every table is printed.
    pub is_verbose: bool,
    /// Time for further blocks where intervals are wide.
    pub spare: Duration,
    /// Where test files go.
    pub directory: PathBuf,
    /// Whether they stay.
    pub keep: bool,
    /// Where the results file goes, if it was named.
    pub json: Option<PathBuf>,
    /// Where it goes otherwise.
    pub out: PathBuf,
    /// The seed of everything that is random.
    pub seed: u64,
    /// Interleaved blocks.
    pub repeats: usize,
    /// Runs with the same engine in all rows of a depth, if the lab itself is checked.
    pub self_check: Option<usize>,
    /// How much each sample measures.
    pub extent: ExtentChoice,
    /// What the table shows of the latencies, beside the longest.
    pub percentiles: Vec<Percentile>,
    /// Where drawings of the latencies over time go, if they are wanted.
    pub heatmap: Option<PathBuf>,
}

/// How much a sample measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentChoice {
    /// All samples together take about this long.
    Budget(Duration),
    /// Each sample.
    Time(Duration),
    /// Each sample.
    Reads(u64),
}

/// What a run takes unless something else is typed.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Interleaved blocks.
    pub repeats: u64,
    /// How much each sample measures.
    pub extent: ExtentChoice,
}

impl Defaults {
    /// Five blocks. The time of a sample depends on the scale.
    pub fn of(args: &Args) -> Defaults {
        let extent = match Scale::of(args) {
            Scale::Full => ExtentChoice::Time(Duration::from_secs(2)),
            Scale::Standard => ExtentChoice::Time(Duration::from_millis(500)),
            Scale::Quick => ExtentChoice::Budget(Duration::from_secs(88)),
        };
        Defaults { repeats: 5, extent }
    }
}

impl Plan {
    /// Checks the general flags.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`], which names the value and what is accepted, or [`LabError::Failed`] for a place that results
    /// cannot be written to.
    pub fn new(args: &Args, defaults: Defaults) -> Result<Plan, LabError> {
        let repeats = number("--repeats", args.repeats.as_deref(), 1, 1000)?;
        let self_check = number("--self-check", args.self_check.as_deref(), 1, SELF_CHECKS_MAX)?;
        let here = || PathBuf::from(".");
        let plan = Plan {
            is_suite: args.workload.is_none(),
            is_full: Scale::of(args) == Scale::Full,
            is_verbose: args.verbose,
            spare: spare(args),
            directory: args.dir.clone().unwrap_or_else(here),
            keep: args.keep,
            json: args.json.clone(),
            out: args.out.clone().unwrap_or_else(here),
            seed: number("--seed", args.seed.as_deref(), 0, u64::MAX)?.unwrap_or(1),
            repeats: repeats.unwrap_or(defaults.repeats) as usize,
            self_check: self_check.map(|runs| runs as usize),
            extent: extent(args, defaults.extent)?,
            percentiles: percentiles(args)?,
            heatmap: args.heatmap.clone(),
        };
        if plan.heatmap.is_some() && matches!(plan.extent, ExtentChoice::Reads(_)) {
            return Err(usage("--heatmap", "needs a time: use --duration in place of --reads"));
        }
        check_destinations(&plan)?;
        Ok(plan)
    }
}

/// Refuses a place that results cannot be written to, before anything is measured.
fn check_destinations(plan: &Plan) -> Result<(), LabError> {
    let check = |flag: &str, path: &Path, check: fn(&Path) -> Result<(), String>| {
        let failed = |why| LabError::Failed(format!("{flag} {}: {why}", path.display()));
        check(path).map_err(failed)
    };
    check("--out", &plan.out, destination::check_directory)?;
    if let Some(path) = &plan.json {
        check("--json", path, destination::check_file)?;
    }
    let Some(path) = &plan.heatmap else { return Ok(()) };
    check("--heatmap", path, destination::check_new_directory)
}

fn percentiles(args: &Args) -> Result<Vec<Percentile>, LabError> {
    let Some(text) = args.percentiles.as_deref() else {
        return Ok(Percentile::DEFAULT.to_vec());
    };
    list(text, |name| {
        let accepted = Percentile::ALL.map(Percentile::name).join(", ");
        Percentile::parse(name)
            .ok_or_else(|| invalid("--percentiles", name, format_args!("expected {accepted}")))
    })
}

fn extent(args: &Args, default: ExtentChoice) -> Result<ExtentChoice, LabError> {
    if let Some(reads) = number("--reads", args.reads.as_deref(), 1, u64::MAX)? {
        return Ok(ExtentChoice::Reads(reads));
    }
    let Some(text) = args.duration.as_deref() else { return Ok(default) };
    let time = parse_duration(text).map_err(|error| invalid("--duration", text, error))?;
    if !(Duration::from_millis(10)..=Duration::from_secs(3600)).contains(&time) {
        return Err(invalid("--duration", text, "expected 10ms to 60m"));
    }
    Ok(ExtentChoice::Time(time))
}

/// Time for further blocks: none where their number was typed.
fn spare(args: &Args) -> Duration {
    match Scale::of(args) {
        _ if args.repeats.is_some() => Duration::ZERO,
        Scale::Quick => Duration::from_secs(12),
        Scale::Standard => Duration::from_secs(300),
        Scale::Full => Duration::from_secs(3600),
    }
}
