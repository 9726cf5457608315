//! A crew: the same engine in several threads, each with its own descriptors, its own ring if it has one, its own
//! lane, and its own share of the files.
//!
//! Threads share nothing but the flag that stops them, so that neither the engine nor the lab makes one wait for another. The
//! engine is any other; it does not know that it has a crew. Threads are bound to processors, since where a scheduler
//! puts them is another question.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    thread,
};

use ringwise_measure::{Latency, cpu::pin_current_thread};

use super::{Engine, Tally, unavailable};
use crate::{
    dataset::DataFile,
    error::plain,
    sampling::{
        job::{Failure, Job, Start, StartControl, Until, Window},
        lane::Record,
    },
};

/// Keeps the orders of threads apart: 2^64 divided by the golden ratio, as splitmix64 counts.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// What one thread of a crew has for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The files that it reads, all of one length.
    pub files: Arc<[DataFile]>,
    /// The seed of their content.
    pub seed: u64,
    /// The processor that it runs on, if that is known.
    pub processor: Option<usize>,
}

/// The engine: another one in as many threads as there are shares.
pub struct Crew {
    member: Arc<dyn Engine>,
    shares: Vec<Share>,
}

impl Crew {
    /// A thread with `member` for each share.
    pub fn new(member: Arc<dyn Engine>, shares: Vec<Share>) -> Crew {
        Crew { member, shares }
    }

    fn jobs(&self, job: &Job) -> Vec<Arc<Job>> {
        let of_thread = |(index, share): (usize, &Share)| Job {
            files: share.files.clone(),
            seed: share.seed,
            block_bytes: job.block_bytes,
            depth: job.depth,
            pattern: job.pattern,
            cache: job.cache,
            order_seed: job.order_seed ^ SEED_STEP.wrapping_mul(index as u64 + 1),
            heatmap: false,
            interrupt: job.interrupt.clone(),
            failed: false.into(),
            latency: Record::default(),
        };
        self.shares.iter().enumerate().map(|share| Arc::new(of_thread(share))).collect()
    }

    fn one(&self, index: usize, jobs: &[Arc<Job>], start: Start) -> Result<Tally, Failure> {
        if let Some(processor) = self.shares[index].processor {
            pin_current_thread(&[processor]).map_err(|error| {
                unavailable(format_args!("a thread on processor {processor}: {}", plain(&error)))
            })?;
        }
        let result = self.member.run(&jobs[index], start);
        if result.is_err() {
            jobs.iter().for_each(|job| job.failed.store(true, Ordering::Relaxed));
        }
        result
    }
}

impl Engine for Crew {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let jobs = self.jobs(job);
        thread::scope(|scope| {
            let (mut threads, mut controls) = (Vec::new(), Vec::new());
            for index in 0..jobs.len() {
                let (begin, control) = Start::pair();
                let jobs = &jobs;
                let run = move || self.one(index, jobs, begin);
                let thread = thread::Builder::new().spawn_scoped(scope, run).map_err(|error| {
                    unavailable(format_args!("starting {} threads: {}", jobs.len(), plain(&error)))
                })?;
                threads.push(thread);
                controls.push(control);
            }
            let window = begin(controls, start);
            let tallies: Vec<Result<Tally, Failure>> =
                threads.into_iter().map(|own| own.join().expect("engines do not panic")).collect();
            match window {
                Ok(Some(window)) => {
                    Ok(merged(job, &window, tallies.into_iter().collect::<Result<_, _>>()?))
                }
                // The first that failed by itself; the others only lacked a window.
                Ok(None) => Err(first_failure(tallies)),
                Err(failure) => Err(failure),
            }
        })
    }
}

/// Tells all threads the window when all are ready. None if one of them never is.
fn begin(controls: Vec<StartControl>, start: Start) -> Result<Option<Window>, Failure> {
    if !controls.iter().all(|control| control.wait().is_some()) {
        return Ok(None);
    }
    let window = start.ready()?;
    let count = controls.len() as u64;
    for (index, control) in (0..count).zip(&controls) {
        let mut own = window;
        if let Until::Operations { count: all } = window.until {
            own.until = Until::Operations { count: share(all, index, count) };
        }
        // A thread waits for this and for nothing else.
        let _ = control.tell(own);
    }
    Ok(Some(window))
}

/// The part of `all` operations that one of several threads makes.
fn share(all: u64, index: u64, count: u64) -> u64 {
    all * (index + 1) / count - all * index / count
}

fn first_failure(tallies: Vec<Result<Tally, Failure>>) -> Failure {
    let mut failures = tallies.into_iter().filter_map(Result::err);
    let first = failures.next();
    let own = failures.find(|failure| matches!(failure, Failure::Unavailable(_)));
    match (first, own) {
        (Some(Failure::Io(_)), Some(own)) => own,
        (Some(first), _) => first,
        (None, _) => Failure::Io("a thread ended before it was ready".to_owned()),
    }
}

/// What all threads did together.
fn merged(job: &Job, window: &Window, tallies: Vec<Tally>) -> Tally {
    let mut latency = Latency::default();
    tallies.iter().for_each(|tally| latency.merge(&tally.latency));
    let sum = |figure: fn(&Tally) -> Option<u64>| tallies.iter().map(figure).sum::<Option<u64>>();
    let mut figures: BTreeMap<&'static str, f64> = BTreeMap::new();
    for (name, figure) in tallies.iter().flat_map(|tally| &tally.figures) {
        *figures.entry(name).or_default() += figure;
    }
    Tally {
        latency,
        figures,
        submitted: sum(|tally| tally.submitted),
        system_calls: sum(|tally| tally.system_calls),
        detail: tallies.iter().find_map(|tally| tally.detail.clone()),
        lacks: tallies.iter().find_map(|tally| tally.lacks.clone()),
        ..Tally::of(job, window, tallies.iter().map(|tally| tally.counts.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, time::Duration};

    use super::*;
    use crate::{
        engine::null::Null,
        sampling::{
            job::{Cache, Extent, Timing},
            lane::{Counts, Lane},
            sample::{self, Instruments},
        },
        testing::{self, Mock},
    };

    fn shares(files: &[DataFile]) -> Vec<Share> {
        let share = |file: &DataFile| Share {
            files: [file.clone()].into(),
            seed: 1 + file.number,
            processor: None,
        };
        files.iter().map(share).collect()
    }

    fn files(count: u64) -> Vec<DataFile> {
        (0..count).map(|number| DataFile { path: "f".into(), number, bytes: 1 << 20 }).collect()
    }

    fn take(crew: &Crew, extent: Extent) -> Result<sample::Sample, Failure> {
        let timing = Timing { warm_up: Duration::from_millis(1), extent };
        let sources = ringwise_measure::Sources::below("/nonexistent");
        let instruments = Instruments { sources, device_number: None, idle: None };
        sample::take(crew, &Arc::new(testing::job()), timing, &instruments)
    }

    #[test]
    fn every_thread_has_its_own_files_and_all_that_they_did_is_summed() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = seen.clone();
        let member = Mock(move |job: &Arc<Job>, window: Window| {
            let number = job.files[0].number;
            told.lock().unwrap().push((number, job.seed, job.order_seed));
            let Until::Operations { count } = window.until else { panic!("{window:?}") };
            let mut latency = Latency::default();
            latency.record_many_ns(1000 * (number + 1), count);
            let counts = Counts { operations: count, end_ns: 7, ..Counts::default() };
            let figures = [("asked", count as f64)].into();
            let submitted = Some(count);
            Ok(Tally { counts, latency, submitted, figures, ..Tally::default() })
        });
        let crew = Crew::new(Arc::new(member), shares(&files(3)));
        let tally = take(&crew, Extent::Operations(10)).unwrap().tally;
        assert_eq!((tally.counts.operations, tally.submitted), (10, Some(10)));
        assert_eq!((tally.latency.count(), tally.figures["asked"]), (10, 10.0));
        assert_eq!(tally.latency.percentiles().max / 1000, 3);
        let mut seen = seen.lock().unwrap().clone();
        seen.sort_unstable();
        let threads: Vec<(u64, u64)> =
            seen.iter().map(|(number, seed, _)| (*number, *seed)).collect();
        assert_eq!(threads, [(0, 1), (1, 2), (2, 3)]);
        let orders: std::collections::BTreeSet<u64> = seen.iter().map(|one| one.2).collect();
        assert_eq!(orders.len(), 3, "another order for each thread");
    }

    #[test]
    fn operations_are_dealt_out_whole() {
        let parts: Vec<u64> = (0..3).map(|index| share(10, index, 3)).collect();
        assert_eq!(parts, [3, 3, 4]);
    }

    #[test]
    fn a_thread_that_fails_stops_the_others_and_says_why() {
        let member = Mock(|job: &Arc<Job>, window: Window| {
            if job.files[0].number == 1 {
                return Err(Failure::Io("a device is gone".to_owned()));
            }
            let mut lane = Lane::new(job, window, 0, 1);
            // Without the stop it would go on for a minute.
            while lane.next_request().is_some() {
                thread::yield_now();
            }
            Ok(Tally { counts: lane.into_counts(), ..Tally::default() })
        });
        let crew = Crew::new(Arc::new(member), shares(&files(3)));
        let failure = take(&crew, Extent::Time(Duration::from_secs(60))).unwrap_err();
        assert_eq!(failure, Failure::Io("a device is gone".to_owned()));
    }

    #[test]
    fn a_thread_that_cannot_begin_says_why() {
        let mut all = shares(&files(2));
        all[1].processor = Some(usize::MAX);
        let crew = Crew::new(Arc::new(Null::new(1 << 20, 1)), all);
        let failure = take(&crew, Extent::Operations(10)).unwrap_err();
        assert!(
            matches!(&failure, Failure::Unavailable(text) if text.contains("processor")),
            "{failure}"
        );
    }

    #[test]
    fn a_crew_over_memory_verifies_its_blocks() {
        let null = Null::new(1 << 20, 1);
        let share = Share { files: [null.file()].into(), seed: 1, processor: None };
        let crew = Crew::new(Arc::new(null), vec![share.clone(), share.clone()]);
        assert!(take(&crew, Extent::Operations(1000)).unwrap().tally.counts.operations >= 1000);
        let wrong = Share { seed: 2, ..share.clone() };
        let crew = Crew::new(Arc::new(Null::new(1 << 20, 1)), vec![share, wrong]);
        let failure = take(&crew, Extent::Operations(1000)).unwrap_err();
        assert!(matches!(failure, Failure::Mismatch(_)), "{failure}");
        assert_eq!(testing::job().cache, Cache::Bypassed);
    }
}
