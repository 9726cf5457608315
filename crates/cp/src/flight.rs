//! The files in flight: who copies them, how many there are, and which may not meet.
//!
//! The walk hands jobs in, in order; they end in any order. What is in flight is bounded, and no
//! file is read or written while another job writes it: hard links and copies of copies come out
//! as if one file were copied after the other.

mod ring;
mod threads;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use rustix::process::{Resource, getrlimit};

use crate::{
    bundle::Bundle,
    command::options::{EngineChoice, Options, Reflink, Sparse},
    data::{self, ahead},
    job::{Job, Outcome, plan_text},
    memory::Memory,
    messages::report::{Line, Report},
    names::{
        pair::Landed,
        place::{Identity, kind},
    },
    way::{self, Chosen, Pairs, SMALL_BYTES, Way},
};
use ring::RingEngine;
use threads::Threads;

/// Lines that may wait for one file in flight.
const WAITING_LINES_MAX: usize = 4096;

/// Descriptors that the process keeps for other things than files in flight.
const DESCRIPTORS_KEPT: u64 = 24;

/// With fewer files for each thread names stay with the walk: a thread opens some ahead.
const AHEAD_FILES_MIN: usize = 16;

/// What copies files, and the files that are being copied.
#[derive(Debug)]
pub(crate) struct Flight {
    options: Arc<Options>,
    ring: Option<RingEngine>,
    threads: Option<Threads>,
    files_max: usize,
    pairs: Pairs,
    memory: Memory,
    flying: HashMap<u64, Flying>,
    /// Bundles that came back, for the walk to see to.
    pub(crate) landed: VecDeque<Landed>,
    next_number: u64,
    pub(crate) failed: bool,
    /// Sources whose copy failed: a link to them has to be tried as a copy.
    pub(crate) failed_sources: Vec<Identity>,
}

/// What is in flight, as far as others must not meet it.
#[derive(Clone, Copy, Debug)]
struct Flying {
    /// A file that is read; of a bundle the directory that it is from.
    source: Identity,
    /// A file that is written; of a bundle the directory that it goes into.
    copy: Identity,
    /// The directory that a new file is in, where that is known.
    into: Option<Identity>,
    is_bundle: bool,
}

/// How many files may be in flight, and directories be held open, by the limit on descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    pub(crate) files: usize,
    pub(crate) directories: usize,
}

impl Descriptors {
    pub(crate) fn by_limit() -> Descriptors {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
        let free = limit.saturating_sub(DESCRIPTORS_KEPT);
        Descriptors {
            files: usize::try_from(free / 4).unwrap_or(256).clamp(1, 256),
            directories: usize::try_from(free / 8).unwrap_or(64).clamp(1, 64),
        }
    }

    /// Whether they are for one file at a time, and none for an engine.
    fn are_few(self) -> bool {
        self.files == 1
    }
}

impl Flight {
    /// Opens the engine that was chosen. An error is why a ring that was demanded is not there.
    pub(crate) fn new(options: &Arc<Options>, descriptors: Descriptors) -> Result<Flight, String> {
        let ring = match options.engine {
            EngineChoice::Uring => Some(RingEngine::open(options, descriptors.files)?),
            EngineChoice::Auto | EngineChoice::Sync => None,
        };
        let jobs = options.jobs.unwrap_or_else(|| match options.engine {
            // One file alone gives a thread nothing to do beside it.
            EngineChoice::Auto if !options.is_one_file() => default_jobs(),
            EngineChoice::Auto | EngineChoice::Sync | EngineChoice::Uring => 1,
        });
        let threads =
            (jobs > 1 && !descriptors.are_few()).then(|| Threads::new(jobs, descriptors.files));
        Ok(Flight {
            options: options.clone(),
            ring,
            threads,
            files_max: descriptors.files,
            pairs: Pairs::default(),
            memory: Memory::default(),
            flying: HashMap::new(),
            landed: VecDeque::new(),
            next_number: 1,
            failed: false,
            failed_sources: Vec::new(),
        })
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.numbers(1)
    }

    /// So many numbers in a row, from the one that is given on.
    pub(crate) fn numbers(&mut self, count: usize) -> u64 {
        let first = self.next_number;
        self.next_number += count as u64;
        first
    }

    /// Whether a file is in the way of a job: being written, or being read where it is to be
    /// written.
    pub(crate) fn is_busy(&self, file: Identity, to_write: bool) -> bool {
        !self.flying.is_empty()
            && (self.flying.values())
                .any(|flying| flying.copy == file || (to_write && flying.source == file))
    }

    /// Whether names are with the threads: which files they are nobody knows.
    pub(crate) fn has_bundles(&self) -> bool {
        self.flying.values().any(|flying| flying.is_bundle)
    }

    /// Whether names are being made in a directory, which then is not to be listed yet.
    pub(crate) fn fills(&self, directory: Identity) -> bool {
        self.flying.values().any(|flying| flying.is_bundle && flying.copy == directory)
    }

    /// Whether files of a directory may be read without a look at what each is: all that is
    /// written are new files elsewhere.
    pub(crate) fn leaves_alone(&self, directory: Identity) -> bool {
        let is_elsewhere =
            |flying: &Flying| flying.is_bundle || flying.into.is_some_and(|into| into != directory);
        self.flying.values().all(is_elsewhere)
    }

    /// Whether names may be given to threads, by what there is to copy with.
    pub(crate) fn takes_bundles(&self) -> bool {
        self.ahead_files() >= AHEAD_FILES_MIN
    }

    /// Files that each who copies a bundle may have open.
    pub(crate) fn ahead_files(&self) -> usize {
        let most = self.threads.as_ref().map_or(self.files_max, Threads::most);
        self.files_max / (2 * (most + 1))
    }

    /// Who copies bundles.
    pub(crate) fn copying_threads(&self) -> usize {
        self.threads.as_ref().map_or(1, Threads::most)
    }

    /// Whether files of one file system may share their blocks with those of another. None: nobody tried.
    pub(crate) fn pair_shares(&self, source_device: u64, copy_device: u64) -> Option<bool> {
        let options = &self.options;
        let may = options.reflink == Reflink::Auto && options.sparse == Sparse::Auto;
        if may { self.pairs.share(source_device, copy_device) } else { Some(false) }
    }

    /// Copies names without a thread.
    pub(crate) fn run_bundle(&mut self, bundle: Bundle, report: &mut Report) {
        report.wait_for(bundle.number);
        self.land(vec![bundle.run()], report);
    }

    /// Gives names to a thread.
    pub(crate) fn submit_bundle(&mut self, bundle: Bundle, report: &mut Report) {
        let (source, copy) = (bundle.pair.source_identity, bundle.pair.target_identity);
        let flying = Flying { source, copy, into: None, is_bundle: true };
        self.flying.insert(bundle.number, flying);
        report.wait_for(bundle.number);
        let threads = self.threads.as_mut().expect("they take bundles");
        let ended = threads.start_bundle(bundle);
        self.land(ended, report);
        self.bound(report);
    }

    /// Copies a file, now or in flight. False: it failed already.
    pub(crate) fn submit(&mut self, mut job: Job, report: &mut Report) -> bool {
        if self.threads_share(&job) {
            return self.share_by_thread(job, report);
        }
        if let Err(line) = self.share_blocks(&mut job) {
            let outcome = job.end(Err(line));
            return self.end_now(outcome, report);
        }
        let moves = self.options.data && !job.cloned;
        let is_worth_it = job.size() > SMALL_BYTES || self.threads.is_some();
        if moves && is_worth_it && kind(&job.source_stat).is_file() {
            job.absent_pages = self.memory.absent_pages(&job.source, job.size());
        }
        let (way, reason) = self.choose(&job);
        if job.way.is_empty() {
            job.way = self.way_name(&job, way);
        }
        if self.options.debug {
            let text = plan_text(&job, reason);
            report.say(Line::Out(text));
        }
        if moves && let (Way::Ring, Some(ring)) = (way, &mut self.ring) {
            depart(&mut self.flying, &job, report);
            let ended = ring.start(job);
            self.land(ended, report);
            self.bound(report);
            return true;
        }
        if moves && kind(&job.source_stat).is_file() && self.threads.is_some() {
            self.prepare(&job, way);
            return self.begin_by_thread(job, way, report);
        }
        let moved = data::copy(&job, way);
        let outcome = job.end(moved);
        self.end_now(outcome, report)
    }

    /// Makes ready for a file that a thread will have to wait for: more threads, and reading ahead.
    fn prepare(&mut self, job: &Job, way: Way) {
        let is_past = matches!(way, Way::Past(_));
        let waits = is_past || job.is_cold() || self.options.verify;
        if let (true, Some(threads), None) = (waits, &mut self.threads, self.options.jobs) {
            threads.widen(self.files_max / (2 * AHEAD_FILES_MIN));
        }
        // A thread that copies it at once finds what the kernel reads ahead in larger folios.
        if job.is_cold() && !is_past {
            ahead::begin(&job.source, job.size());
        }
    }

    /// Waits for all files in flight.
    pub(crate) fn drain(&mut self, report: &mut Report) {
        while !self.flying.is_empty() {
            self.wait(report);
        }
    }

    /// Waits for one file.
    pub(crate) fn wait_for(&mut self, number: u64, report: &mut Report) {
        while self.flying.contains_key(&number) {
            self.wait(report);
        }
    }

    /// Waits until something in flight ended.
    pub(crate) fn wait(&mut self, report: &mut Report) {
        let ended = match (&mut self.ring, &mut self.threads) {
            (Some(ring), _) if !ring.is_idle() => ring.wait(),
            (_, Some(threads)) => threads.wait(),
            _ => unreachable!("what flies is on a ring or with a thread"),
        };
        self.land(ended, report);
    }

    fn choose(&mut self, job: &Job) -> Chosen {
        let are_several =
            self.threads.is_some() || (self.options.is_one_file() && self.options.jobs != Some(1));
        way::choose(job, &mut self.pairs, are_several && self.files_max > 1)
    }

    /// Lets no more lines wait than memory has room for.
    pub(crate) fn bound(&mut self, report: &mut Report) {
        while let Some(oldest) = report.oldest_waiting(WAITING_LINES_MAX) {
            if !self.flying.contains_key(&oldest) {
                // The walk comes to it as soon as it may.
                return;
            }
            self.wait_for(oldest, report);
        }
    }

    /// Tells what ended.
    fn land(&mut self, ended: Vec<Outcome>, report: &mut Report) {
        for outcome in ended {
            self.flying.remove(&outcome.number);
            self.note(&outcome);
            report.ended(outcome.number, outcome.said);
            self.landed.extend(outcome.landed);
        }
    }

    fn end_now(&mut self, outcome: Outcome, report: &mut Report) -> bool {
        self.note(&outcome);
        let ok = outcome.ok;
        report.say_all(outcome.said);
        ok
    }

    fn note(&mut self, outcome: &Outcome) {
        if !outcome.ok {
            self.failed = true;
            self.failed_sources.extend(outcome.source);
        }
    }

    /// Whether sharing blocks is the threads' work: that of small files, of which there are many. It
    /// costs more CPU time than by the walk alone, since they wait for each other in the file system.
    fn threads_share(&self, job: &Job) -> bool {
        let options = &self.options;
        let is_optional = options.reflink == Reflink::Auto && options.sparse == Sparse::Auto;
        let is_plain = options.data && !options.verify && !options.durable && !job.cloned;
        let are_files = kind(&job.source_stat).is_file() && kind(&job.copy_stat).is_file();
        let may = is_optional && is_plain && are_files && self.threads.is_some();
        may && job.size() <= SMALL_BYTES && self.pairs.are_known_to_clone(job)
    }

    fn share_by_thread(&mut self, mut job: Job, report: &mut Report) -> bool {
        job.way = Way::Share.name();
        if self.options.debug {
            let text = plan_text(&job, "the file system can");
            report.say(Line::Out(text));
        }
        self.begin_by_thread(job, Way::Share, report)
    }

    /// Hands a file to the threads, where there are some.
    fn begin_by_thread(&mut self, job: Job, way: Way, report: &mut Report) -> bool {
        depart(&mut self.flying, &job, report);
        let threads = self.threads.as_mut().expect("seen just now");
        let ended = threads.start(job, way);
        self.land(ended, report);
        self.bound(report);
        true
    }

    /// Tries to, where that is wanted.
    fn share_blocks(&mut self, job: &mut Job) -> Result<(), Line> {
        let wanted = self.options.data && !job.cloned && self.options.reflink != Reflink::Never;
        let optional = self.options.reflink == Reflink::Auto;
        let may = optional && self.options.sparse == Sparse::Auto;
        if !wanted || (optional && !may) || !kind(&job.source_stat).is_file() && optional {
            return Ok(());
        }
        match self.pairs.clone_content(job) {
            Ok(cloned) => {
                job.cloned = cloned;
                Ok(())
            }
            Err(errno) => {
                let names = [&job.copy_path[..], &job.source_path];
                Err(job.text("failed to clone %s from %s", &names, errno))
            }
        }
    }

    fn way_name(&self, job: &Job, way: Way) -> &'static str {
        match (self.options.data, job.cloned) {
            (false, _) => "attributes only",
            (_, true) => Way::Share.name(),
            _ => way.name(),
        }
    }
}

fn depart(flying: &mut HashMap<u64, Flying>, job: &Job, report: &mut Report) {
    let (source, copy) = (Identity::of(&job.source_stat), Identity::of(&job.copy_stat));
    flying.insert(job.number, Flying { source, copy, into: job.into, is_bundle: false });
    report.wait_for(job.number);
}

/// As many as can run, and no more than keep one disk busy.
fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(4)
}
