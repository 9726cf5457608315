//! The files in flight: who copies them, how many there are, and which may not meet.
//!
//! The walk hands jobs in, in order; they end in any order. What is in flight is bounded, and no
//! file is read or written while another job writes it: hard links and copies of copies come out
//! as if one file were copied after the other.

mod cold;
mod mapped;
mod memory;
mod pace;
mod ring;
mod split;
mod threads;
mod writers;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use rustix::process::{Resource, getrlimit};

use crate::{
    bundle::{Bundle, Landed},
    data::{self, ahead},
    job::{Job, Outcome, plan_text},
    options::{EngineChoice, Options, Reflink, Sparse},
    place::{Identity, kind},
    report::{Line, Report},
    way::{
        self, COLD_BYTES_MIN, COLD_FROM_BYTES, COLD_FROM_BYTES_DURABLE, Chosen, MAPPED_BYTES_MIN,
        Means, Pairs, SMALL_BYTES, Way,
    },
};
use cold::ColdEngine;
use mapped::MappedEngine;
pub(crate) use memory::Memory;
use ring::RingEngine;
use threads::Threads;

/// Lines that may wait for one file in flight.
const WAITING_LINES_MAX: usize = 4096;

/// Descriptors that the process keeps for other things than files in flight.
const DESCRIPTORS_KEPT: u64 = 24;

/// With fewer files for each thread names stay with the walk: a thread opens some ahead.
const AHEAD_FILES_MIN: usize = 16;

/// Bytes that a run gives its threads before the device gets some beside them: a shorter run would
/// return sooner than the device is done with its part (docs/copying.md).
const BESIDE_FROM_BYTES: u64 = 128 << 20;

/// What copies files, and the files that are being copied.
#[derive(Debug)]
pub(crate) struct Flight {
    options: Arc<Options>,
    ring: Lazy<RingEngine>,
    mapped: Lazy<MappedEngine>,
    cold: Lazy<ColdEngine>,
    threads: Option<Threads>,
    files_max: usize,
    pairs: Pairs,
    memory: Memory,
    /// Bytes of all files that were to be moved.
    given_bytes: u64,
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

/// An engine that is opened when it is first wanted.
#[derive(Debug)]
enum Lazy<T> {
    Missing,
    Untried,
    Open(T),
}

impl<T> Lazy<T> {
    /// Whether it is open, after opening it where nobody tried.
    fn open(&mut self, make: impl FnOnce() -> Option<T>) -> bool {
        if matches!(self, Lazy::Untried) {
            *self = make().map_or(Lazy::Missing, Lazy::Open);
        }
        matches!(self, Lazy::Open(_))
    }
}

impl Flight {
    /// Opens the engine that was chosen. An error is why a ring that was demanded is not there.
    pub(crate) fn new(options: &Arc<Options>, descriptors: Descriptors) -> Result<Flight, String> {
        let ring = match options.engine {
            EngineChoice::Sync => Lazy::Missing,
            EngineChoice::Uring => Lazy::Open(RingEngine::open(options, descriptors.files, true)?),
            EngineChoice::Auto if descriptors.are_few() => Lazy::Missing,
            EngineChoice::Auto => Lazy::Untried,
        };
        let mapped = match options.engine {
            EngineChoice::Auto if !descriptors.are_few() => Lazy::Untried,
            EngineChoice::Auto | EngineChoice::Sync | EngineChoice::Uring => Lazy::Missing,
        };
        let cold = match (&mapped, options.jobs) {
            (Lazy::Missing, _) | (_, Some(1)) => Lazy::Missing,
            _ => Lazy::Untried,
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
            mapped,
            cold,
            threads,
            files_max: descriptors.files,
            pairs: Pairs::default(),
            memory: Memory::default(),
            given_bytes: 0,
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
        if moves && !job.is_cold() && job.size() >= MAPPED_BYTES_MIN {
            self.wait_for_room(report);
        }
        let (way, reason) = self.choose(&job);
        self.given_bytes += if moves { job.size() } else { 0 };
        if job.way.is_empty() {
            job.way = self.way_name(&job, way);
        }
        if self.options.debug {
            let text = plan_text(&job, reason);
            report.say(Line::Out(text));
        }
        if moves && let (Way::Ring, Lazy::Open(ring)) = (way, &mut self.ring) {
            depart(&mut self.flying, &job, report);
            let ended = ring.start(job);
            self.land(ended, report);
            self.bound(report);
            return true;
        }
        if moves && let (Way::Mapped, Lazy::Open(mapped)) = (way, &mut self.mapped) {
            depart(&mut self.flying, &job, report);
            let (refused, ended) = mapped.start(job);
            self.land_or_range(refused, ended, report);
            return true;
        }
        if moves && let (Way::Direct, Lazy::Open(cold)) = (way, &mut self.cold) {
            depart(&mut self.flying, &job, report);
            let takes_direct = self.pairs.takes_direct(&job);
            let (refused, ended) = cold.start(job, takes_direct);
            self.land_or_range(refused, ended, report);
            return true;
        }
        if moves && let (Way::Split, Lazy::Open(mapped)) = (way, &mut self.mapped) {
            let moved = mapped.split(&job);
            let outcome = job.end(moved);
            return self.end_now(outcome, report);
        }
        // Who copies it at once finds what the kernel reads ahead in larger folios.
        if moves && job.is_cold() && self.threads.is_some() {
            self.widen();
            if way != Way::Piped {
                ahead::begin(&job.source, job.size());
            }
        }
        if moves && kind(&job.source_stat).is_file() && self.threads.is_some() {
            return self.begin_by_thread(job, way, report);
        }
        let moved = data::copy(&job, way);
        let outcome = job.end(moved);
        self.end_now(outcome, report)
    }

    /// What an engine would not take is copied by calls.
    fn land_or_range(&mut self, refused: Option<Job>, ended: Vec<Outcome>, report: &mut Report) {
        self.land(ended, report);
        if let Some(job) = refused {
            let moved = data::copy(&job, Way::Range);
            self.land(vec![job.end(moved)], report);
        }
        self.bound(report);
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

    fn wait(&mut self, report: &mut Report) {
        let ended = match (&mut self.ring, &mut self.mapped, &mut self.cold, &mut self.threads) {
            (Lazy::Open(ring), ..) if !ring.is_idle() => ring.wait(),
            (_, Lazy::Open(mapped), ..) if !mapped.is_idle() => mapped.wait(),
            (_, _, Lazy::Open(cold), _) if !cold.is_idle() => cold.wait(),
            (.., Some(threads)) => threads.wait(),
            _ => unreachable!("what flies is on a ring or with a thread"),
        };
        self.land(ended, report);
    }

    /// Chooses a way, and opens what it needs when it is first wanted: a ring costs more than a
    /// small file.
    fn choose(&mut self, job: &Job) -> Chosen {
        let (options, files_max) = (&self.options, self.files_max);
        let mut means = Means {
            ring: !matches!(self.ring, Lazy::Missing),
            direct: self.options.data && !job.cloned && self.may_map(job),
            past: self.may_read_past(job),
            piped: self.may_pipe(job),
            pipes: options.durable
                && !options.verify
                && (self.threads.is_some() || options.is_one_file()),
            split: self.options.data && !job.cloned && self.may_split(job),
        };
        loop {
            let chosen = way::choose(job, options, means);
            match chosen.0 {
                Way::Spliced => {
                    means.direct = self.pairs.takes_direct(job);
                    if means.direct {
                        return chosen;
                    }
                }
                Way::Mapped => {
                    means.direct = self.pairs.takes_direct(job)
                        && self.mapped.open(|| MappedEngine::open(options, files_max));
                    if means.direct {
                        return chosen;
                    }
                }
                Way::Direct => {
                    let threads = self.threads.as_ref().map_or(1, Threads::most);
                    let open = || ColdEngine::open(options, threads, files_max);
                    means.past = self.pairs.gives_direct(job)
                        && (!options.durable || self.pairs.takes_direct(job))
                        && self.cold.open(open);
                    if means.past {
                        return chosen;
                    }
                }
                Way::Piped => {
                    means.piped = self.pairs.gives_direct(job);
                    if means.piped {
                        return chosen;
                    }
                }
                Way::Split => {
                    means.split = self.pairs.takes_direct(job)
                        && self.mapped.open(|| MappedEngine::open(options, files_max));
                    if means.split {
                        return chosen;
                    }
                }
                Way::Ring => {
                    means.ring =
                        self.ring.open(|| RingEngine::open(options, files_max, false).ok());
                    if means.ring {
                        return chosen;
                    }
                }
                _ => return chosen,
            }
        }
    }

    /// Waits while both the threads and the device have enough to do.
    fn wait_for_room(&mut self, report: &mut Report) {
        while let (Lazy::Open(mapped), Some(threads)) = (&mut self.mapped, &mut self.threads) {
            let mut ended = threads.take();
            let is_full = threads.have_enough() || threads.have_plenty();
            if is_full && !mapped.is_idle() && !mapped.wants_more() {
                ended.extend(mapped.wait());
                self.land(ended, report);
            } else {
                return self.land(ended, report);
            }
        }
    }

    /// Whether a file may go straight to the device. The page cache takes it sooner, unless the run
    /// waits for the device anyway, the content would be copied twice, it has no room for the file,
    /// or the run is a long one, all threads are busy and the device is not.
    fn may_map(&self, job: &Job) -> bool {
        let waits = self.options.durable
            || !way::may_range(job, &self.options)
            || memory::would_be_throttled(job.size());
        let is_long = self.given_bytes >= BESIDE_FROM_BYTES;
        let are_busy = || self.threads.as_ref().is_some_and(Threads::are_busy);
        let is_free = |wants_more: bool| waits || (is_long && wants_more && are_busy());
        match &self.mapped {
            Lazy::Missing => false,
            Lazy::Untried => is_free(true),
            Lazy::Open(mapped) => !mapped.is_slow() && is_free(mapped.wants_more()),
        }
    }

    /// The device has to be waited for: more threads, where nobody said how many and each can read
    /// ahead.
    fn widen(&mut self) {
        if let (Some(threads), None) = (&mut self.threads, self.options.jobs) {
            threads.widen(self.files_max / (2 * AHEAD_FILES_MIN));
        }
    }

    /// Whether a file may be read past the page cache, if it is not in it: a ring, buffers and threads
    /// of their own cost more than a short run gains by them.
    fn may_read_past(&self, job: &Job) -> bool {
        let (bytes_min, from_bytes) = match self.options.durable {
            true => (MAPPED_BYTES_MIN, COLD_FROM_BYTES_DURABLE),
            false => (COLD_BYTES_MIN, COLD_FROM_BYTES),
        };
        let is_there = !self.options.verify && !matches!(self.cold, Lazy::Missing);
        is_there && job.size() >= bytes_min && self.given_bytes + job.size() >= from_bytes
    }

    /// Whether a file may be read past the page cache without a ring, if it is not in it: by several
    /// threads, which wait for the device in turn.
    fn may_pipe(&self, job: &Job) -> bool {
        let options = &self.options;
        let are_several =
            self.threads.is_some() || (options.is_one_file() && options.jobs != Some(1));
        let is_free = options.engine == EngineChoice::Auto && !options.verify;
        is_free && are_several && self.files_max > 1 && job.size() > SMALL_BYTES
    }

    /// Whether the device may have a part of a file that a thread copies in memory: of one that is
    /// alone, where more than one thread may run and the kernel tells what is in memory.
    fn may_split(&self, job: &Job) -> bool {
        let is_alone = self.options.is_one_file() && self.options.jobs != Some(1);
        let is_there = !matches!(self.mapped, Lazy::Missing);
        is_alone && is_there && ringwise::page_cache(&job.source, 0, 1).is_ok()
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

    /// What the device has and is to be checked goes on to the threads; what ended is told.
    fn land(&mut self, mut ended: Vec<Outcome>, report: &mut Report) {
        let written = match &mut self.mapped {
            Lazy::Open(mapped) => mapped.take_written(),
            _ => Vec::new(),
        };
        if !written.is_empty() {
            self.widen();
        }
        for job in written {
            ended.extend(match &mut self.threads {
                Some(threads) => threads.start(job, Way::Mapped),
                None => {
                    let checked = data::copy(&job, Way::Mapped);
                    vec![job.end(checked)]
                }
            });
        }
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
