//! The engines of a replay: each recorded thread again, by syscalls or by rings.
//!
//! Every step passes through a lane, like the operations of all engines of the lab, and has to move as many bytes as the
//! program moved.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering, mpsc},
    thread::{self, ScopedJoinHandle},
};

use ringwise::AlignedBuf;
use rustix::thread::gettid;

use super::{
    done::{Done, Shared, check, words},
    pace::{Pace, compute, wait_until},
    place::Place,
    queue::{self, Queue, aio::Aio, ring::Ring},
    script::{Means, Script, Step, StepKind},
    tasks::{self, By},
};
use crate::{
    engine::{BUFFER_ALIGNMENT, Engine, Tally, beside_the_ring},
    sampling::{
        job::{Failure, Job, Start, Window},
        lane::Lane,
    },
};

/// The name of the sum of the durations among the figures of a sample.
pub(crate) const IO_NS: &str = "io_ns";
/// The name of a sample's number in `Runs`.
const RUN: &str = "run";

/// Which threads made the samples of a replay, so that what a recorder saw of them can be found.
#[derive(Debug, Default)]
pub(crate) struct Runs(Mutex<Vec<Vec<u32>>>);

impl Runs {
    /// The number of a sample that these threads made.
    fn add(&self, threads: Vec<u32>) -> usize {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.push(threads);
        runs.len() - 1
    }

    /// The threads of a sample with these figures. Empty: they are not known.
    pub(crate) fn threads(&self, figures: &BTreeMap<&'static str, f64>) -> Vec<u32> {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        figures.get(RUN).and_then(|run| runs.get(*run as usize)).cloned().unwrap_or_default()
    }
}

/// How the threads of a trace are made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// What each thread had: syscalls, a ring, or a context of Linux AIO.
    Recorded,
    /// Syscalls, one after the other in each thread.
    Calls,
    /// A ring for each thread.
    Rings,
    /// One ring, driven by one thread, for all of them.
    OneRing,
    /// A task of tokio for each thread.
    Tasks(By),
}

/// An engine.
#[derive(Debug)]
pub(crate) struct Replay {
    pub script: Arc<Script>,
    pub place: Arc<Place>,
    pub way: Way,
    pub pace: Pace,
    pub runs: Arc<Runs>,
}

impl Engine for Replay {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        if let Way::Tasks(by) = self.way {
            let files = self.place.open();
            let files = files.map_err(|error| Failure::Io(format!("replay: {error}")))?;
            let prepared = tasks::Prepared::new(by, files, self.place.clone())?;
            let window = start.ready()?;
            let done = prepared.run(&self.script.threads, (job, window), self.pace)?;
            return Ok(tally(job, &window, done));
        }
        let threads: Vec<&[Step]> = self.script.threads.iter().map(|steps| &steps[..]).collect();
        let crews: Vec<&[&[Step]]> = match self.way {
            Way::OneRing => vec![&threads[..]],
            _ => threads.chunks(1).collect(),
        };
        thread::scope(|scope| {
            let (ready, is_ready) = mpsc::channel();
            let mut running = Vec::new();
            let mut windows = Vec::new();
            for threads in crews {
                let (window, told) = mpsc::channel();
                windows.push(window);
                let crew = Crew {
                    threads,
                    means: self.means(threads),
                    place: &self.place,
                    job,
                    pace: self.pace,
                };
                let ready = ready.clone();
                running.push(scope.spawn(move || crew.run(&ready, &told)));
            }
            drop(ready);
            // If a crew ends before it is ready, its result says why.
            let are_ready = running.iter().all(|_| is_ready.recv().unwrap_or(false));
            let window = are_ready.then(|| start.ready()).transpose();
            if let Ok(Some(window)) = &window {
                for own in &windows {
                    // A crew that has ended needs none.
                    let _ = own.send(*window);
                }
            }
            drop(windows);
            // All of them end before the first failure is told.
            let ended: Vec<Result<Done, Failure>> = running.into_iter().map(join).collect();
            let window = window?;
            let cause =
                ended.iter().filter_map(|own| own.as_ref().err()).find(|own| **own != given_up());
            if let Some(cause) = cause {
                return Err(cause.clone());
            }
            let done = ended.into_iter().collect::<Result<Vec<Done>, Failure>>()?;
            let run = self.runs.add(done.iter().filter_map(|own| own.thread).collect());
            let mut tally = tally(job, &window.ok_or_else(given_up)?, done);
            tally.figures.insert(RUN, run as f64);
            Ok(tally)
        })
    }
}

impl Replay {
    fn means(&self, threads: &[&[Step]]) -> Means {
        match self.way {
            Way::Calls | Way::Tasks(_) => Means::Calls,
            Way::Rings | Way::OneRing => Means::Ring,
            Way::Recorded => threads.first().map_or(Means::Calls, |steps| Means::of(steps)),
        }
    }
}

fn join(thread: ScopedJoinHandle<'_, Result<Done, Failure>>) -> Result<Done, Failure> {
    thread.join().unwrap_or_else(|_| Err(Failure::Io("replay: a thread panicked".to_owned())))
}

fn given_up() -> Failure {
    Failure::Io("replay: the sample was given up".to_owned())
}

/// Threads of the recording that one thread of the replay makes.
struct Crew<'a> {
    threads: &'a [&'a [Step]],
    means: Means,
    place: &'a Place,
    job: &'a Arc<Job>,
    pace: Pace,
}

impl Crew<'_> {
    /// Makes the queue if there is one, says so, and makes the steps when the window is told.
    fn run(
        &self,
        ready: &mpsc::Sender<bool>,
        told: &mpsc::Receiver<Window>,
    ) -> Result<Done, Failure> {
        let Crew { threads, place, job, pace, .. } = *self;
        let prepared: Result<Prepared<'_>, Failure> = match self.means {
            Means::Calls => Ok(Box::new(|shared| all_by_calls(threads, shared))),
            Means::Ring => self.queued::<Ring>(),
            Means::LinuxAio => self.queued::<Aio>(),
        };
        let _ = ready.send(prepared.is_ok());
        let prepared = prepared?;
        let window = told.recv().map_err(|_| given_up())?;
        let mut done = prepared(&Shared { job, window, place, pace });
        match &mut done {
            Ok(done) => done.thread = u32::try_from(gettid().as_raw_nonzero().get()).ok(),
            Err(_) => job.failed.store(true, Ordering::Relaxed),
        }
        done
    }

    fn queued<'a, Q: Queue + 'a>(&'a self) -> Result<Prepared<'a>, Failure> {
        let queue = queue::Prepared::<Q>::new(self.threads, self.place.files())?;
        Ok(Box::new(move |shared| queue.run(shared)))
    }
}

/// Steps that can begin.
type Prepared<'a> = Box<dyn FnOnce(&Shared<'_>) -> Result<Done, Failure> + 'a>;

fn tally(job: &Job, window: &Window, done: Vec<Done>) -> Tally {
    let io_ns: u64 = done.iter().map(|own| own.io_ns).sum();
    let fallbacks: u64 = done.iter().map(|own| own.fallbacks).sum();
    let submitted: Option<u64> = done.iter().map(|own| own.submitted).sum();
    let system_calls: u64 = done.iter().map(|own| own.system_calls).sum();
    let tally = Tally::of(job, window, done.into_iter().flat_map(|own| own.counts));
    Tally {
        submitted,
        system_calls: Some(system_calls),
        lacks: beside_the_ring(fallbacks),
        figures: [(IO_NS, io_ns as f64)].into(),
        ..tally
    }
}

/// Makes the steps of a thread by syscalls, one after the other.
fn all_by_calls(threads: &[&[Step]], shared: &Shared<'_>) -> Result<Done, Failure> {
    threads.iter().try_fold(Done::default(), |mut all, steps| {
        let done = by_calls(steps, shared)?;
        all.counts.extend(done.counts);
        all.io_ns += done.io_ns;
        all.system_calls += done.system_calls;
        all.submitted = Some(all.submitted.unwrap_or(0) + done.submitted.unwrap_or(0));
        Ok(all)
    })
}

fn by_calls(steps: &[Step], shared: &Shared<'_>) -> Result<Done, Failure> {
    let Shared { job, window, place, pace } = shared;
    let files = place.files();
    let longest = steps.iter().map(|step| step.length).max().unwrap_or(0);
    let mut buffer = AlignedBuf::zeroed(longest, BUFFER_ALIGNMENT);
    buffer.fill(0xa5);
    let mut lane = Lane::new(job, *window, 0, 1);
    let (mut io_ns, mut ended_ns, mut calls) = (0, 0, 0);
    for step in steps {
        place.ready_for(step)?;
        compute(*pace, step, job);
        wait_until(pace.due_ns(step, ended_ns), window, job);
        if job.is_stopped() {
            break;
        }
        let file = &files[step.handle];
        let began_ns = pace.begin(step, &mut lane);
        let moved = match step.kind {
            StepKind::Read => rustix::io::pread(file, &mut buffer[..step.length], step.offset),
            StepKind::Write => rustix::io::pwrite(file, &buffer[..step.length], step.offset),
            StepKind::Sync => rustix::fs::fsync(file).map(|()| 0),
            StepKind::DataSync => rustix::fs::fdatasync(file).map(|()| 0),
        };
        ended_ns = lane.clock();
        let moved =
            moved.map_err(|error| Failure::Io(format!("replay: {}: {error}", words(step))))?;
        check(step, moved)?;
        lane.complete_moved(began_ns, ended_ns, moved);
        io_ns += ended_ns - began_ns;
        calls += 1;
    }
    let counts = vec![lane.into_counts()];
    let submitted = Some(calls);
    Ok(Done { counts, io_ns, system_calls: calls, submitted, ..Done::default() })
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use ringwise_measure::Sources;
    use ringwise_trace::{File, FileId, Interface, Kind, Name, Operation};

    use super::*;
    use crate::{
        program::{
            replay::script::CacheChoice,
            traced::tests::{file, number, operation, traced},
        },
        sampling::{
            job::{Cache, Extent, Timing},
            sample::{self, Instruments, Sample},
        },
    };

    /// Replays operations once.
    fn sample(
        operations: Vec<Operation>,
        (way, pace): (Way, Pace),
        change: impl FnOnce(&mut Script),
    ) -> Result<Sample, Failure> {
        let mut script = Script::of(&traced(operations), CacheChoice::Recorded, false);
        change(&mut script);
        sample_of(script, (way, pace), |_| {})
    }

    /// The same with a script, and looks at the files after it.
    fn sample_of(
        script: Script,
        (way, pace): (Way, Pace),
        look: impl FnOnce(&Place),
    ) -> Result<Sample, Failure> {
        let parent = crate::testing::directory();
        let script = Arc::new(script);
        let place = Arc::new(Place::lay(&script, parent.path(), 1 << 30).unwrap());
        place.prepare().unwrap();
        let timing =
            Timing { warm_up: Duration::ZERO, extent: Extent::Operations(script.steps() as u64) };
        let job = Job {
            files: place.data_files().into(),
            cache: Cache::Bounded,
            block_bytes: 4096,
            ..crate::testing::job()
        };
        let instruments =
            Instruments { sources: Sources::default(), device_number: None, idle: None };
        let engine = Replay { script, place: place.clone(), way, pace, runs: Arc::default() };
        let sample = sample::take(&engine, &Arc::new(job), timing, &instruments);
        look(&place);
        sample
    }

    /// Two threads: reads 300 us apart; writes with a sync. One operation is of a ring.
    fn operations() -> Vec<Operation> {
        let mut all = Vec::new();
        for round in 0..10 {
            let at = (round * 300_000, 1000);
            all.push(Operation { offset: Some(round * 4096), ..operation(1, Kind::Read, at) });
            all.push(operation(2, Kind::Write, at));
        }
        // As of sync_file_range(2).
        let sync = operation(2, Kind::DataSync, (3_000_000, 1000));
        all.push(Operation { offset: Some(4096), ..sync });
        all.push(Operation {
            interface: Interface::IoUring,
            ..operation(1, Kind::Read, (3_000_000, 1000))
        });
        all
    }

    fn has_ring() -> bool {
        let is_there =
            ringwise::Local::builder().backend(ringwise::BackendChoice::Uring).build().is_ok();
        if !is_there {
            assert!(std::env::var_os("CI").is_none(), "skipped in CI: no ring");
            println!("skipped: no ring");
        }
        is_there
    }

    /// Changes by what operations were made.
    type Change = fn(Vec<Operation>) -> Vec<Operation>;

    /// Every way, with operations that were recorded of Linux AIO once more.
    fn ways() -> Vec<(Way, Change)> {
        let same: Change = |all| all;
        let by_aio: Change = |mut all| {
            all.iter_mut().for_each(|own| own.interface = Interface::LinuxAio);
            all
        };
        let mut ways = vec![(Way::Calls, same), (Way::Recorded, by_aio)];
        if has_ring() {
            let rings = [Way::Recorded, Way::Rings, Way::OneRing];
            let tasks = [Way::Tasks(By::Pool), Way::Tasks(By::Files)];
            ways.extend(rings.into_iter().chain(tasks).map(|way| (way, same)));
        }
        ways
    }

    #[test]
    fn every_way_makes_every_step_and_moves_every_byte() {
        for (way, by) in ways() {
            let sample = sample(by(operations()), (way, Pace::Asap), |_| {}).unwrap();
            let counts = &sample.tally.counts;
            assert_eq!((counts.operations, counts.completed), (22, 22), "{way:?}");
            assert_eq!(counts.bytes, 21 * 4096, "{way:?}");
            assert_eq!(crate::checks::gates::completeness(&sample), None, "{way:?}");
            let io_ns = sample.tally.figures[IO_NS];
            assert!(io_ns > 0.0 && io_ns <= 2.0 * sample.tally.elapsed_ns as f64, "{way:?}");
        }
    }

    /// A journal that is made three times and written each time. Its blocks are free when the next one is made.
    #[test]
    fn every_way_makes_files_in_place_of_those_before() {
        for (way, by) in ways() {
            let write = |id: u32| Operation {
                file: Some(FileId(number(id))),
                ..operation(1, Kind::Write, (u64::from(id) * 1_000_000, 1000))
            };
            let mut trace = traced(by((1..=3).map(write).collect()));
            let life = |id: u32| File {
                name: Name::Path("/journal".into()),
                made_ns: Some(u64::from(id)),
                ..file(id, 0)
            };
            trace.files = (1..=3).map(life).collect();
            let script = Script::of(&trace, CacheChoice::Recorded, false);
            let sample = sample_of(script, (way, Pace::Asap), |place| {
                let found = fs::read_dir(place.root()).unwrap().map(Result::unwrap);
                let mut found: Vec<_> =
                    found.map(|entry| (entry.file_name(), entry.metadata().unwrap())).collect();
                found.sort_by(|one, other| one.0.cmp(&other.0));
                let found: Vec<_> = found
                    .iter()
                    .map(|(name, about)| (name.to_str().unwrap(), about.len()))
                    .collect();
                let (first, second) = (("00000.data", 0), ("00001.data", 0));
                let last = [("00002.data", 4096), ("00002.name", 4096)];
                assert_eq!(found, [&[first, second][..], &last].concat(), "{way:?}");
            });
            assert_eq!(sample.unwrap().tally.counts.bytes, 3 * 4096, "{way:?}");
        }
    }

    #[test]
    fn think_time_is_kept_at_the_recorded_pace_only() {
        let reads = || {
            let read = |round| operation(1, Kind::Read, (round * 20_000_000, 1000));
            (0..6_u64).map(read).collect()
        };
        for (way, by) in ways() {
            let at = |pace| sample(by(reads()), (way, pace), |_| {}).unwrap().tally.elapsed_ns;
            assert!(at(Pace::Recorded) >= 5 * 19_999_000, "{way:?}");
            let least = (0..5).map(|_| at(Pace::Asap)).min().unwrap();
            assert!(least < 50_000_000, "{way:?}: {least} ns without think time");
        }
    }

    /// What an engine does not keep up with takes longer, and the replay does not.
    #[test]
    fn what_is_late_takes_longer_at_the_recorded_times() {
        let read = |round: u64| operation(1, Kind::Read, (round * 20_000_000, 1000));
        for (way, by) in ways() {
            // The last one should have begun with the first.
            let late = |script: &mut Script| script.threads[0][5].begin_ns = 0;
            let reads = (0..6).map(read).collect();
            let sample = sample(by(reads), (way, Pace::Open), late).unwrap();
            let (elapsed_ns, io_ns) = (sample.tally.elapsed_ns, sample.tally.figures[IO_NS]);
            assert!(elapsed_ns >= 4 * 20_000_000, "{way:?}: {elapsed_ns} ns");
            assert!(io_ns >= 80e6 && io_ns < 2.0 * elapsed_ns as f64, "{way:?}: {io_ns} ns");
            assert_eq!(crate::checks::gates::littles_law(&sample), None, "{way:?}");
        }
    }

    #[test]
    fn other_bytes_than_recorded_are_a_failure() {
        for way in [Way::Calls, Way::OneRing, Way::Tasks(By::Pool)] {
            if way != Way::Calls && !has_ring() {
                continue;
            }
            let longer = |script: &mut Script| script.threads[0][3].bytes = 4097;
            let failure = sample(operations(), (way, Pace::Asap), longer).unwrap_err().to_string();
            assert!(failure.contains("moved 4096 bytes and not 4097"), "{way:?}: {failure}");
        }
    }
}
