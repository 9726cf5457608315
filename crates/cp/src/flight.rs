//! The files in flight: who copies them, how many there are, and which may not meet.
//!
//! The walk hands jobs in, in order; they end in any order. What is in flight is bounded, and no
//! file is read or written while another job writes it: hard links and copies of copies come out
//! as if one file were copied after the other.

mod ring;
mod threads;

use std::{collections::HashMap, sync::Arc};

use rustix::process::{Resource, getrlimit};

use crate::{
    data,
    job::{Job, Outcome},
    options::{EngineChoice, Options},
    place::{Identity, kind},
    report::{Line, Report},
    way::{self, Pairs, SMALL_BYTES, Way},
};
use ring::RingEngine;
use threads::Threads;

/// Lines that may wait for one file in flight.
const WAITING_LINES_MAX: usize = 4096;

/// Descriptors that the process keeps for other things than files in flight.
const DESCRIPTORS_KEPT: u64 = 24;

/// What copies files, and the files that are being copied.
#[derive(Debug)]
pub(crate) struct Flight {
    options: Arc<Options>,
    ring: Option<RingEngine>,
    threads: Option<Threads>,
    pairs: Pairs,
    /// Source and copy of each job.
    flying: HashMap<u64, (Identity, Identity)>,
    next_number: u64,
    pub(crate) failed: bool,
    /// Sources whose copy failed: a link to them has to be tried as a copy.
    pub(crate) failed_sources: Vec<Identity>,
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
            directories: usize::try_from(free / 8).unwrap_or(64).clamp(2, 64),
        }
    }
}

impl Flight {
    /// Opens the engine that was chosen. An error is why a ring that was demanded is not there.
    pub(crate) fn new(options: &Arc<Options>, descriptors: Descriptors) -> Result<Flight, String> {
        let ring = match options.engine {
            EngineChoice::Sync => None,
            EngineChoice::Uring => Some(RingEngine::open(options, descriptors.files, true)?),
            EngineChoice::Auto => RingEngine::open(options, descriptors.files, false).ok(),
        };
        let jobs = options.jobs.unwrap_or(match options.engine {
            EngineChoice::Auto => default_jobs(),
            EngineChoice::Sync | EngineChoice::Uring => 1,
        });
        let threads = (jobs > 1).then(|| Threads::new(jobs.min(descriptors.files)));
        Ok(Flight {
            options: options.clone(),
            ring,
            threads,
            pairs: Pairs::default(),
            flying: HashMap::new(),
            next_number: 1,
            failed: false,
            failed_sources: Vec::new(),
        })
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Whether a file is in the way of a job: being written, or being read where it is to be
    /// written.
    pub(crate) fn is_busy(&self, file: Identity, to_write: bool) -> bool {
        !self.flying.is_empty()
            && (self.flying.values())
                .any(|(source, copy)| *copy == file || (to_write && *source == file))
    }

    /// Copies a file, now or in flight. False: it failed already.
    pub(crate) fn submit(&mut self, mut job: Job, report: &mut Report) -> bool {
        if let Err(line) = self.share_blocks(&mut job) {
            let outcome = job.end(Err(line));
            return self.end_now(outcome, report);
        }
        let (way, reason) = way::choose(&job, &self.options, self.ring.is_some());
        if self.options.debug {
            let text = self.plan_text(&job, way, reason);
            report.say(Line::Out(text));
        }
        let moves = self.options.data && !job.cloned;
        if moves && way == Way::Ring {
            self.depart(&job, report);
            let ring = self.ring.as_mut().expect("chosen only where there is one");
            let ended = ring.start(job);
            self.land(ended, report);
            self.bound(report);
            return true;
        }
        let is_worth_it = job.source_stat.st_size as u64 > SMALL_BYTES
            || self.options.jobs.is_some()
            || self.options.verify;
        if is_worth_it && moves && kind(&job.source_stat).is_file() && self.threads.is_some() {
            self.depart(&job, report);
            let threads = self.threads.as_mut().expect("seen just now");
            let ended = threads.start(job, way);
            self.land(ended, report);
            self.bound(report);
            return true;
        }
        let moved = data::copy(&job, way);
        let outcome = job.end(moved);
        self.end_now(outcome, report)
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
        let by_ring = self.ring.as_ref().is_some_and(|ring| !ring.is_idle());
        let ended = match (&mut self.ring, &mut self.threads) {
            (Some(ring), _) if by_ring => ring.wait(),
            (_, Some(threads)) => threads.wait(),
            _ => unreachable!("what flies is on the ring or with a thread"),
        };
        self.land(ended, report);
    }

    fn depart(&mut self, job: &Job, report: &mut Report) {
        let files = (Identity::of(&job.source_stat), Identity::of(&job.copy_stat));
        self.flying.insert(job.number, files);
        report.wait_for(job.number);
    }

    /// Lets no more lines wait than memory has room for.
    fn bound(&mut self, report: &mut Report) {
        while let Some(oldest) = report.oldest_waiting(WAITING_LINES_MAX) {
            self.wait_for(oldest, report);
        }
    }

    fn land(&mut self, ended: Vec<Outcome>, report: &mut Report) {
        for outcome in ended {
            self.flying.remove(&outcome.number);
            self.note(&outcome);
            report.ended(outcome.number, outcome.lines);
        }
    }

    fn end_now(&mut self, outcome: Outcome, report: &mut Report) -> bool {
        self.note(&outcome);
        let ok = outcome.ok;
        outcome.lines.into_iter().for_each(|line| report.say(line));
        ok
    }

    fn note(&mut self, outcome: &Outcome) {
        if !outcome.ok {
            self.failed = true;
            self.failed_sources.push(outcome.source);
        }
    }

    fn share_blocks(&mut self, job: &mut Job) -> Result<(), Line> {
        use crate::options::Reflink;
        let wanted = self.options.data && self.options.reflink != Reflink::Never;
        let optional = self.options.reflink == Reflink::Auto;
        let may = optional && self.options.sparse == crate::options::Sparse::Auto;
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

    fn plan_text(&self, job: &Job, way: Way, reason: &str) -> Vec<u8> {
        let (name, reason) = match (self.options.data, job.cloned, way) {
            (false, ..) => ("attributes only", "--attributes-only"),
            (_, true, _) => ("shared blocks", "the file system can"),
            (_, _, Way::Plain) => ("read and write", reason),
            (_, _, Way::Range) => ("copy_file_range", reason),
            (_, _, Way::Extents) => ("extents", reason),
            (_, _, Way::Zeros) => ("search for zeros", reason),
            (_, _, Way::Ring) => ("ring", reason),
        };
        let mut text = job.locale.shell(&job.copy_path);
        text.extend_from_slice(format!(": {name} ({reason})").as_bytes());
        text
    }
}

/// As many as can run, and no more than keep one disk busy.
fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(4)
}
