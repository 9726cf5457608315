//! One run: from its plan over its samples to the results file and the page.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant, SystemTime},
};

use ringwise_measure::{
    Sources, cpu::IdleBaseline, destination, device::Storage, environment::Environment,
    measurable::Measurable, quantity::bytes_text,
};

use crate::{
    args::Args,
    checks::self_check,
    dataset::Directory,
    error::LabError,
    plan::Plan,
    results::{
        report::{
            Report, heatmap, json,
            lines::{WIDTH, with_path},
            page,
            saved::Saved,
            screen,
        },
        resumed::Resumed,
        section::Section,
    },
    sampling::{job::Timing, sample::Instruments, schedule::Spare},
    session::{
        interrupt,
        output::say,
        progress::Progress,
        suite::{self, Suite},
    },
    workload::form::Context,
};

/// How long the idle machine is looked at. Below a second its clock ticks are too coarse.
const IDLE_TIME: Duration = Duration::from_secs(1);

/// What a results file says of its run until the run ends. A reader finds it if the run was killed.
const UNDER_WAY: &str = "killed: this was kept while it ran";

/// A run that has begun.
pub struct Run<'a> {
    suite: &'a Suite,
    resumed: Option<&'a Resumed>,
    /// Removes the test files when it is dropped.
    directory: Option<Directory>,
    interrupt: Arc<AtomicBool>,
    instruments: Instruments,
    report: Report<'a>,
    /// Where the results file goes.
    path: PathBuf,
    began: Instant,
}

impl<'a> Run<'a> {
    /// Opens what a run needs, and says what it will do.
    ///
    /// # Errors
    ///
    /// The directory cannot be used, or the run that goes on began on another machine.
    pub fn begin(
        suite: &'a Suite,
        args: &'a Args,
        resumed: Option<&'a Resumed>,
        out: &mut dyn Write,
    ) -> Result<Run<'a>, LabError> {
        let plan = &suite.plan;
        if let Some(path) = &plan.heatmap {
            heatmap::make_directory(path)?;
        }
        let interrupt = interrupt::flag()?;
        let sources = Sources::default();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let began_unix_s = now.map_or(0, |since| since.as_secs());
        let began = Instant::now();
        let open = || Directory::open(&plan.directory, plan.keep);
        let directory = suite.has_files().then(open).transpose()?;
        let storage = |path: &PathBuf| Storage::of(&sources, path);
        let mut storages: Vec<Storage> = suite.directories().iter().map(storage).collect();
        let measurable = Measurable::probe(&sources, &storages[0].device);
        say(out, &suite::header(suite, &storages, &measurable))?;
        let storage = storages.swap_remove(0);
        let instruments = Instruments {
            device_number: storage.device.known().map(|device| device.number.clone()),
            idle: IdleBaseline::measure(&sources, IDLE_TIME).known().copied(),
            sources,
        };
        let report = Report {
            plan,
            flags: args,
            environment: Environment::read(&instruments.sources),
            storage,
            measurable,
            sections: Vec::new(),
            left_out: suite.left_out(),
            ended_by: None,
            began_unix_s: resumed.map_or(began_unix_s, Resumed::began_unix_s),
            lasted_s: 0.0,
            written_bytes: None,
        };
        if let Some(resumed) = resumed {
            resumed.check(&report.environment, &report.storage)?;
        }
        let path = plan.json.clone().unwrap_or_else(|| json::default_path(&plan.out, began_unix_s));
        Ok(Run { suite, resumed, directory, interrupt, instruments, report, path, began })
    }

    /// Takes all samples, and removes the test files. After each section it keeps what is measured,
    /// so that a run that is killed can go on from there.
    ///
    /// # Errors
    ///
    /// What ended the run.
    pub fn measure(&mut self, out: &mut dyn Write) -> Result<(), LabError> {
        // Not the process's own account (/proc/self/io): a page of 4 KiB that is written within a
        // larger folio is the whole folio there (folio_account_dirtied, Linux 6.18).
        let device_before = self.instruments.device();
        let warmth = self.instruments.warmth();
        let (suite, plan, resumed) = (self.suite, &self.suite.plan, self.resumed);
        let before_s = resumed.map_or(0.0, Resumed::lasted_s);
        let lasted_s = |began: Instant| before_s + began.elapsed().as_secs_f64();
        let progress = Progress::new();
        progress.expect(suite.sample_counts() as u64);
        let (began, path, report) = (self.began, &self.path, &mut self.report);
        let result = (0..plan.self_check.unwrap_or(1)).try_for_each(|run| {
            let context = Context {
                plan,
                instruments: &self.instruments,
                warmth: &warmth,
                // Each workload has its own.
                timing: suite.timing(&suite.workloads[0]),
                interrupt: &self.interrupt,
                progress: &progress,
                spare: &Spare::new(plan.spare),
                resumed,
                directory: self.directory.as_ref(),
                run,
            };
            let mut done = |section| {
                report.sections.push(section);
                report.lasted_s = lasted_s(began);
                // Until it is as far as it was, a run that goes on has nothing to add to its file.
                if resumed.is_none_or(|own| report.sections.len() >= own.sections()) {
                    checkpoint(report, path);
                }
            };
            suite::measure(suite, &context, &mut done, out)
        });
        self.directory = None;
        progress.clear();
        self.report.lasted_s = lasted_s(began);
        let device = self.instruments.device().zip(device_before);
        self.report.written_bytes = device.map(|(now, before)| now.since(&before).written_bytes);
        result
    }

    /// Writes the results, and says where they are and what they show. `result` is how the
    /// measurement ended.
    ///
    /// # Errors
    ///
    /// What ended the run early, what kept every row from being measured, or a check of the lab
    /// with itself that failed.
    pub fn end(
        mut self,
        result: Result<(), LabError>,
        out: &mut dyn Write,
    ) -> Result<(), LabError> {
        let is_measured = self.report.sections.iter().any(Section::is_measured);
        match &result {
            // Without a figure there is nothing to keep.
            Err(LabError::Failed(_)) if !is_measured => return result,
            Ok(()) | Err(LabError::Interrupted | LabError::Failed(_)) => {}
            Err(_) => return result,
        }
        self.report.ended_by = result.as_ref().err().map(|error| match error {
            LabError::Interrupted => "interrupted".to_owned(),
            other => other.to_string(),
        });
        self.write(out)?;
        match result {
            Ok(()) => self.conclude(out),
            Err(LabError::Failed(text)) => {
                Err(LabError::Failed(format!("{text}; the results are partial")))
            }
            error => error,
        }
    }

    fn write(&self, out: &mut dyn Write) -> Result<(), LabError> {
        let (report, path, suite) = (&self.report, &self.path, self.suite);
        let text = json::text(report);
        json::write(path, &text)?;
        let saved = Saved::of(path, &text)?;
        // A page beside /dev/stdout would be in /dev.
        let page = (!destination::is_stream(path)).then(|| page_beside(path));
        let written = page
            .as_deref()
            .map_or(Ok(()), |page| json::write(page, &page::text(std::slice::from_ref(&saved))));
        let timing = suite.timing(&suite.workloads[0]);
        let mut places: Vec<String> =
            draw(&suite.plan, &report.sections, timing)?.into_iter().collect();
        places.extend(self.places(page.as_deref()));
        say(out, &screen::text(&saved, &places))?;
        written?;
        if let Some(bytes) = report.written_bytes.filter(|_| suite.plan.is_verbose) {
            let bytes = bytes_text(bytes);
            say(out, &format!("written to the device meanwhile, by whomever: {bytes}\n"))?;
        }
        Ok(())
    }

    /// Where the results and the page are, and how to go on, a line each.
    fn places(&self, page: Option<&Path>) -> Vec<String> {
        let partial = match self.report.ended_by.as_deref() {
            None => "",
            Some("interrupted") => " (partial: interrupted)",
            Some(_) => " (partial: a failure ended the run)",
        };
        let results = shown(&self.path);
        let mut places = vec![with_path("results: ", &results, partial)];
        places.extend(page.map(|page| with_path("report: ", &shown(page), "")));
        if !partial.is_empty() && page.is_some() {
            let whole = format!("go on with: ringwise lab --resume {results}");
            let is_short = whole.chars().count() <= WIDTH;
            let other = "go on with: ringwise lab --resume FILE, the results above".to_owned();
            places.push(if is_short { whole } else { other });
        }
        places
    }

    /// The exit status of a run that came to its end.
    fn conclude(&self, out: &mut dyn Write) -> Result<(), LabError> {
        let sections = &self.report.sections;
        if self.suite.plan.self_check.is_some() {
            let told = self_check::Told::of(sections);
            say(out, &told.text())?;
            if !told.is_passed() {
                let text =
                    "the lab tells what is the same apart: use a quieter machine or --repeats";
                return Err(LabError::Failed(text.to_owned()));
            }
        }
        match sections.iter().map(Section::common_void).collect::<Option<Vec<_>>>() {
            Some(reasons) if !reasons.is_empty() => {
                Err(LabError::Failed(format!("nothing could be measured: {}", reasons[0])))
            }
            _ => Ok(()),
        }
    }
}

/// Keeps what is measured so far.
fn checkpoint(report: &mut Report<'_>, path: &Path) {
    // What a stream was given cannot be replaced later.
    if !report.sections.iter().any(Section::is_measured) || destination::is_stream(path) {
        return;
    }
    report.ended_by = Some(UNDER_WAY.to_owned());
    // If it cannot be written now, the end of the run says so.
    let _ = json::write(path, &json::text(report));
    report.ended_by = None;
}

/// Where the page goes that shows a results file: its name with another ending.
fn page_beside(results: &Path) -> PathBuf {
    let page = results.with_extension("html");
    if page != results { page } else { results.with_extension("report.html") }
}

/// A path as its user would type it.
fn shown(path: &Path) -> String {
    path.strip_prefix(".").unwrap_or(path).display().to_string()
}

/// Draws latencies over time if they are wanted, and says where they are.
fn draw(plan: &Plan, sections: &[Section], timing: Timing) -> Result<Option<String>, LabError> {
    let Some(directory) = &plan.heatmap else { return Ok(None) };
    Ok(Some(match heatmap::write(directory, sections, timing)? {
        Some((index, count)) => {
            let beside = if count == 1 { "1 row".to_owned() } else { format!("{count} rows") };
            let beside = format!(", and a file for each of {beside} beside it");
            with_path("heatmaps: ", &shown(&index), &beside)
        }
        None => "heatmaps: none, since no row has a result that counts".to_owned(),
    }))
}
