//! A run: the test file, the rows, and their samples in interleaved blocks as the lab takes them: a
//! random order of all rows and then its mirror, so that drift of the machine meets all alike.
//!
//! The lab's own schedule is not used, because it runs engines within its process and ends a run at the first failure.
//! Around each sample this module does the same as the lab: it brings the page cache into its state, and the lab's
//! gates exclude wrong results.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use ringwise_lab::{
    LabError,
    checks::gates,
    dataset::{DataFile, Directory, Layout, Size, block::BLOCK_BYTES},
    results::row::Measured,
    sampling::job::{Cache, Job, Pattern, Profile},
    sampling::lane::Record,
    session::interrupt,
    session::progress::Progress,
    workload::read::page_cache,
};
use ringwise_measure::{
    Sources, device::Storage, environment::Environment, statistics::BlockOrder,
};

use crate::{
    args::{Args, Plan, profile_name},
    child::{NoSample, Order},
    peer::Choice,
    report::{self, Report, Section},
};

/// One engine at one depth.
#[derive(Debug)]
pub struct Row {
    /// Which engine.
    pub engine: Choice,
    /// Whether it is the first engine once more, to show what identical code differs by.
    pub is_control: bool,
    /// Reads in flight.
    pub depth: usize,
    /// What was measured.
    pub measured: Measured,
    /// Whether a block was wrong, a read failed or the engine crashed.
    pub has_failed: bool,
}

impl Row {
    /// What the table calls it.
    pub fn label(&self) -> String {
        format!("{}{}", self.engine, if self.is_control { " (again)" } else { "" })
    }
}

/// Runs as typed, and prints to `out`.
///
/// # Errors
///
/// [`LabError`], one line, with the exit status that belongs to it.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), LabError> {
    let plan = Plan::new(args)?;
    let interrupt = interrupt::flag()?;
    let sources = Sources::default();
    let began_unix_s =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let directory = Directory::open(&plan.directory, plan.keep)?;
    let mut report = Report {
        plan: &plan,
        began_unix_s,
        environment: Environment::read(&sources),
        storage: Storage::of(&sources, directory.path()),
        sections: Vec::new(),
    };
    let progress = Progress::new();
    let run = Run { plan: &plan, interrupt: &interrupt, progress: &progress };
    let files = run.lay(&directory)?;
    for &profile in &plan.profiles {
        let mut rows = rows(&plan);
        let of_storage =
            if profile == Cache::Bypassed { Profile::Direct } else { Profile::Buffered };
        match gates::storage(of_storage, &report.storage) {
            Some(reason) => {
                rows.iter_mut().for_each(|row| row.measured.void = Some(reason.clone()))
            }
            None => run.sample_all(profile, &files, &report.storage, &mut rows)?,
        }
        report.sections.push(Section { profile, rows });
    }
    drop(progress);
    drop(directory);
    let text = report::table::markdown(&report);
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| LabError::output(&error))?;
    report::write(&report, &text)?;
    match report.failures() {
        failures if failures.is_empty() => Ok(()),
        failures => Err(LabError::Failed(failures.join("; "))),
    }
}

/// Every engine at every depth that it can have, and the first of each depth once more.
fn rows(plan: &Plan) -> Vec<Row> {
    let mut rows = Vec::new();
    for &depth in &plan.depths {
        let row = |engine, is_control| Row {
            engine,
            is_control,
            depth,
            measured: Measured::default(),
            has_failed: false,
        };
        let mut engines = plan.engines.iter().filter(|engine| engine.has_depth(depth)).peekable();
        let first = engines.peek().copied();
        rows.extend(engines.map(|&engine| row(engine, false)));
        rows.extend(first.map(|&engine| row(engine, true)));
    }
    rows
}

struct Run<'a> {
    plan: &'a Plan,
    interrupt: &'a Arc<AtomicBool>,
    progress: &'a Progress,
}

impl Run<'_> {
    fn lay(&self, directory: &Directory) -> Result<Vec<DataFile>, LabError> {
        let (size, seed) = (Size::exactly(self.plan.bytes), self.plan.seed);
        self.progress.begin(self.plan.bytes);
        self.progress.tell("laying the test file out".to_owned());
        let files = Layout { set: "peers", files: 1, size, seed }.lay(directory, &mut |bytes| {
            self.progress.advance(bytes);
            !self.interrupt.load(Ordering::Relaxed)
        });
        self.progress.clear();
        files
    }

    fn sample_all(
        &self,
        profile: Cache,
        files: &[DataFile],
        storage: &Storage,
        rows: &mut [Row],
    ) -> Result<(), LabError> {
        if profile == Cache::Bypassed {
            // Pages in the cache would have to be looked for by every direct read.
            files.iter().try_for_each(page_cache::forget)?;
        }
        let device = storage.device.known().map(|device| device.number.as_str());
        let orders = BlockOrder::new(rows.len(), self.plan.seed).take(self.plan.repeats);
        self.progress.begin((rows.len() * 2 * self.plan.repeats) as u64);
        for (block, order) in orders.enumerate() {
            for (position, &index) in order.iter().enumerate() {
                let row = &mut rows[index];
                self.progress.tell(format!(
                    "{}: {} at depth {}",
                    profile_name(profile),
                    row.label(),
                    row.depth
                ));
                self.progress.advance(1);
                if row.measured.void.is_none() {
                    // Other offsets in each sample.
                    let seed = self.plan.seed ^ ((block as u64) << 32) ^ ((position as u64) << 16);
                    self.sample(row, block, &self.job(profile, files, row.depth, seed), device)?;
                }
            }
        }
        self.progress.clear();
        Ok(())
    }

    fn job(&self, profile: Cache, files: &[DataFile], depth: usize, order_seed: u64) -> Job {
        Job {
            files: files.into(),
            seed: self.plan.seed,
            block_bytes: BLOCK_BYTES,
            depth,
            pattern: Pattern::Random,
            cache: profile,
            order_seed,
            heatmap: false,
            interrupt: self.interrupt.clone(),
            failed: false.into(),
            latency: Record::default(),
        }
    }

    fn sample(
        &self,
        row: &mut Row,
        block: usize,
        job: &Job,
        device: Option<&str>,
    ) -> Result<(), LabError> {
        let unready = page_cache::prepare(job)?;
        let taken =
            Order::new(row.engine, job, self.plan.timing(job.cache), device).run(self.interrupt);
        // The signal may have reached the child as well: what it said is not to be believed.
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(LabError::Failed("interrupted: nothing was written".to_owned()));
        }
        match taken {
            Ok(sample) => {
                let void = unready.or_else(|| gates::sample(job.cache, &sample));
                row.measured.add(block, &sample, void);
            }
            Err(NoSample::Unavailable(reason)) => row.measured.void = Some(reason),
            Err(NoSample::Failed(reason)) => {
                row.measured.void = Some(reason);
                row.has_failed = true;
            }
        }
        Ok(())
    }
}
