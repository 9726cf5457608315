//! The form that every workload fills in: its entry in the table, and what it does when it runs.
//!
//! A workload is a file or a directory with its flags and sizes (`plan`), its engines, and what it verifies
//! and counts. The rest of the lab knows no workload by name.

pub mod columns;
pub mod cost;
pub mod facts;

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use crate::{
    args::Args,
    checks::{self_check, warmth::Warmth},
    dataset::Directory,
    error::LabError,
    plan::{Defaults, ExtentChoice, Plan, typed::Typed},
    results::{
        resumed::Resumed,
        row::{Row, RowKind},
        section::Section,
    },
    sampling::{
        job::{Cache, Extent, Job, Pattern, Timing},
        lane::Record,
        sample::Instruments,
        schedule::{Schedule, Spare},
    },
    session::progress::Progress,
    workload::form::{cost::Samples, facts::Facts},
};

/// A workload as the command line knows it.
pub struct Entry {
    /// Its name, and the words of its tables.
    pub facts: &'static Facts,
    /// Its share of the suite's time, in seconds of the quick suite.
    pub suite_s: u64,
    /// Whether it has test files.
    pub has_files: bool,
    /// The flags that it reads and that not every workload reads.
    pub flags: &'static [&'static str],
    /// How much is measured unless something else is typed, if it runs alone.
    pub defaults: fn(&Args) -> Defaults,
    /// Checks what was typed.
    pub plan: fn(&Typed<'_>) -> Result<Box<dyn Workload>, LabError>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.facts.name).finish()
    }
}

/// Takes what was measured of a section.
pub type Keep<'a> = dyn FnMut(Outcome) -> Result<(), LabError> + 'a;

/// A workload whose flags were checked.
pub trait Workload: fmt::Debug {
    /// How many rows it has in all sections.
    fn rows(&self) -> usize;

    /// How long it takes.
    fn time(&self, samples: &Samples) -> Duration;

    /// Bytes of test files in each directory that stay until the run ends. `least`: if room is short.
    fn kept_bytes(&self, least: bool) -> u64 {
        let _ = least;
        0
    }

    /// Bytes of files that are gone when the workload is over.
    fn passing_bytes(&self, timing: Timing) -> u64 {
        let _ = timing;
        0
    }

    /// What a sample is, if it is not measured for a time.
    fn sample_text(&self) -> Option<&'static str> {
        None
    }

    /// The directories of its test files, if `--dir` is a list of them.
    fn directories(&self) -> &[PathBuf] {
        &[]
    }

    /// Why it cannot run here at all, if so.
    fn missing(&self) -> Option<String> {
        None
    }

    /// Measures all sections, and hands each to `keep`.
    ///
    /// # Errors
    ///
    /// What ended the run, or what `keep` reports.
    fn run(&self, context: &Context<'_>, keep: &mut Keep<'_>) -> Result<(), LabError>;
}

/// What a sample costs beside its time: threads, rings, files opened and closed.
pub(crate) const SAMPLE_OVERHEAD: Duration = Duration::from_millis(12);
const SAMPLE_TIME_MIN: Duration = Duration::from_millis(30);
const SAMPLE_TIME_MAX: Duration = Duration::from_secs(3);
/// What share of a sample is warm-up.
const WARM_UP_PARTS: u32 = 8;

/// The pass in which kernel events are counted.
pub(crate) const COUNTING: Timing =
    Timing { warm_up: Duration::from_millis(15), extent: Extent::Time(Duration::from_millis(100)) };

/// What every workload is given.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// What is to be measured.
    pub plan: &'a Plan,
    /// What is read around each sample.
    pub instruments: &'a Instruments,
    /// How hot the machine was when the run began.
    pub warmth: &'a Warmth,
    /// How long each sample takes.
    pub timing: Timing,
    /// Set by a signal.
    pub interrupt: &'a Arc<AtomicBool>,
    /// What is being done.
    pub progress: &'a Progress,
    /// Time for further blocks where intervals are wide.
    pub spare: &'a Spare,
    /// What was measured before an interruption, when a run goes on.
    pub resumed: Option<&'a Resumed>,
    /// The directory of the test files, if a workload of the run has any.
    pub directory: Option<&'a Directory>,
    /// Which run it is, where the lab is checked with itself in several; from 0.
    pub run: usize,
}

impl Context<'_> {
    /// The directory of the test files. An entry says whether its workload needs it.
    pub(super) fn directory(&self) -> &Directory {
        self.directory.expect("an entry with `has_files` gets a directory")
    }

    /// A sample at a depth, of no file: what has files, blocks or an order of its own says so by
    /// struct update.
    pub(super) fn job(&self, depth: usize, order_seed: u64) -> Job {
        Job {
            files: [].into(),
            seed: self.plan.seed,
            block_bytes: 1,
            depth,
            pattern: Pattern::Sequential,
            cache: Cache::Warm,
            order_seed,
            heatmap: false,
            interrupt: self.interrupt.clone(),
            failed: false.into(),
            latency: Record::default(),
        }
    }

    /// As many samples of these jobs as the plan says, with nothing to prepare or to inspect: what
    /// has a page cache or a copy to look at says so by struct update.
    pub(super) fn schedule<'s>(&'s self, job: &'s dyn Fn(&Row, u64) -> Job) -> Schedule<'s> {
        Schedule {
            blocks: self.plan.repeats,
            seed: self.plan.seed.wrapping_add(self.run as u64),
            timing: self.timing,
            instruments: self.instruments,
            job,
            prepare: &|_| Ok(None),
            inspect: &|_, _| Ok(None),
            spare: self.spare,
        }
    }

    /// Takes the samples of a section, but those that it had before an interruption. `tell` says
    /// on the bar what a row measures.
    pub(super) fn take(
        &self,
        schedule: &Schedule<'_>,
        section: &mut Section,
        tell: &dyn Fn(&Row) -> String,
    ) -> Result<(), LabError> {
        if self.plan.self_check.is_some() {
            self_check::level(section, self.run + 1);
        }
        if let Some(resumed) = self.resumed {
            resumed.restore(section);
        }
        self.progress.begin((section.rows.len() * 2 * schedule.blocks) as u64);
        let result =
            schedule.run(&mut section.rows, &mut |row| self.progress.sample(&tell(row), row));
        self.progress.clear();
        result
    }
}

/// What a workload measured, and what ended it early, if anything did.
#[derive(Debug)]
pub struct Outcome {
    /// The rows and verdicts, as far as it came.
    pub section: Section,
    /// What ended it.
    pub result: Result<(), LabError>,
}

/// Says of a valid row what is to be known of any.
pub(super) fn remark(row: &mut Row) {
    let measured = &mut row.measured;
    let (outliers, samples) = (measured.outliers(), measured.samples.len());
    if outliers > 0 {
        measured.remarks.push(format!("{outliers} of {samples} samples far off"));
    }
    if let Some(drift) = measured.drift() {
        measured.remarks.push(format!("drifts {:+.0} %", drift.change * 100.0));
    }
    let reclaimed = measured.samples.iter().filter_map(|sample| sample.kswapd_pages);
    let busy: Vec<u64> = reclaimed.filter(|&pages| pages > 0).collect();
    if !busy.is_empty() {
        let pages = busy.iter().sum::<u64>();
        measured.remarks.push(format!(
            "memory was short: kswapd looked through {pages} pages in {} of {samples} samples",
            busy.len()
        ));
    }
    if let Some(punts) = measured.worker_punts_per_op().filter(|&punts| punts >= 0.005) {
        measured.remarks.push(format!("{:.0} % by kernel workers", punts * 100.0));
    }
}

/// The time of each of `samples` samples.
pub fn timing(choice: ExtentChoice, samples: usize) -> Timing {
    let timed = |time: Duration| Timing {
        warm_up: time / WARM_UP_PARTS,
        extent: Extent::Time(time - time / WARM_UP_PARTS),
    };
    match choice {
        ExtentChoice::Budget(budget) => {
            let each = budget / u32::try_from(samples.max(1)).unwrap_or(u32::MAX);
            timed(each.saturating_sub(SAMPLE_OVERHEAD).clamp(SAMPLE_TIME_MIN, SAMPLE_TIME_MAX))
        }
        ExtentChoice::Time(time) => {
            Timing { warm_up: time / WARM_UP_PARTS, extent: Extent::Time(time) }
        }
        ExtentChoice::Reads(count) => {
            Timing { warm_up: SAMPLE_TIME_MIN, extent: Extent::Operations(count) }
        }
    }
}

/// All contestants, and what each is for: the first that is ours, or else the first, is there again.
pub(super) fn with_control<T: Copy>(
    contestants: impl Iterator<Item = T> + Clone,
    kind: impl Fn(T) -> RowKind,
) -> Vec<(T, RowKind)> {
    let subject = contestants.clone().find(|&one| kind(one) == RowKind::Subject);
    let again = subject.or(contestants.clone().next()).map(|one| (one, RowKind::Control));
    contestants.map(|one| (one, kind(one))).chain(again).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::Tally,
        testing::{Figures, Mock, row},
    };

    /// A page cache that fills up is fast until kswapd begins: a sample in which it did says so.
    #[test]
    fn a_sample_in_which_kswapd_was_at_work_is_marked() {
        let root = tempfile::tempdir().unwrap();
        let vmstat = root.path().join("proc/vmstat");
        std::fs::create_dir(root.path().join("proc")).unwrap();
        std::fs::write(&vmstat, "pgscan_kswapd 100\n").unwrap();
        let instruments = Instruments {
            sources: ringwise_measure::Sources::below(root.path()),
            device_number: None,
            idle: None,
        };
        let engine = Mock(move |_: &Arc<Job>, _| {
            std::fs::write(&vmstat, "pgscan_kswapd 1100\n").unwrap();
            Ok(Tally::default())
        });
        let timing = Timing { warm_up: Duration::ZERO, extent: Extent::Operations(1) };
        let job = Arc::new(crate::testing::job());
        let sample = crate::sampling::sample::take(&engine, &job, timing, &instruments).unwrap();
        assert_eq!(sample.kswapd_pages, Some(1000));
        let mut row = row("sync", RowKind::Rival, 1, Figures::DIRECT);
        remark(&mut row);
        assert_eq!(row.measured.remarks, Vec::<String>::new());
        row.measured.add(3, &sample, None);
        remark(&mut row);
        let told = "memory was short: kswapd looked through 1000 pages in 1 of 7 samples";
        assert!(row.measured.remarks.iter().any(|own| own == told), "{:?}", row.measured.remarks);
    }

    #[test]
    fn a_budget_is_shared_by_all_samples() {
        let each = |samples| match timing(ExtentChoice::Budget(Duration::from_secs(88)), samples) {
            Timing { warm_up, extent: Extent::Time(time) } => warm_up + time,
            other => panic!("{other:?}"),
        };
        let total = (each(220) + SAMPLE_OVERHEAD) * 220;
        assert!((87..=89).contains(&total.as_secs()), "{total:?}");
        assert_eq!(each(100_000), SAMPLE_TIME_MIN);
        assert_eq!(each(1), SAMPLE_TIME_MAX);
    }
}
