//! Recorded threads as tasks of tokio: what the program would be with `spawn_blocking`, or with the library's files.
//!
//! A task has as many operations in flight as its thread had. Tokio's timer counts milliseconds, so the rest of a think
//! time is spent yielding to other tasks.

use std::{
    collections::HashMap,
    os::unix::fs::FileExt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::{Either, select},
    stream::FuturesUnordered,
};
use ringwise::{AlignedBuf, BufResult, Local, Ring, fs::File};
use tokio::{
    runtime::Runtime,
    task::{JoinSet, spawn_blocking, yield_now},
    time::sleep,
};

use super::{
    done::{Done, check, words},
    pace::{Pace, compute},
    place::Place,
    script::{Step, StepKind},
};
use crate::{
    engine::{BUFFER_ALIGNMENT, unavailable},
    sampling::{
        job::{Failure, Job, Window},
        lane::Lane,
    },
};

/// Buffers of so many lengths are kept.
const LENGTHS_MAX: usize = 64;
/// More than tokio's timer is late by.
const TIMER_NS: u64 = 2_000_000;

/// Who makes the calls of the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Blocking threads, by `spawn_blocking`.
    Pool,
    /// The library's files.
    Files,
}

/// A runtime with its files, before the time begins.
pub(crate) struct Prepared {
    runtime: Runtime,
    files: Files,
    place: Arc<Place>,
    ring: Option<Ring>,
}

#[derive(Clone)]
enum Files {
    Pool(Arc<[std::fs::File]>),
    Ring(Arc<[File]>),
}

/// What a task needs beside its steps.
#[derive(Clone)]
struct Scene {
    job: Arc<Job>,
    window: Window,
    pace: Pace,
    files: Files,
    place: Arc<Place>,
}

impl Prepared {
    pub fn new(by: By, files: Vec<std::fs::File>, place: Arc<Place>) -> Result<Prepared, Failure> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.enable_all().build().map_err(|error| {
            Failure::Unavailable(format!("starting the runtime: {}", crate::error::plain(&error)))
        })?;
        if by == By::Pool {
            return Ok(Prepared { runtime, files: Files::Pool(files.into()), place, ring: None });
        }
        let context = runtime.enter();
        let ring = Local::builder().build_ring().map_err(unavailable)?;
        drop(context);
        let files = files.into_iter().map(|file| File::from_std(&ring, file)).collect();
        Ok(Prepared { runtime, files: Files::Ring(files), place, ring: Some(ring) })
    }

    /// Makes all steps.
    pub fn run(
        self,
        threads: &[Vec<Step>],
        (job, window): (&Arc<Job>, Window),
        pace: Pace,
    ) -> Result<Vec<Done>, Failure> {
        let scene = Scene { job: job.clone(), window, pace, files: self.files, place: self.place };
        let done = self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for steps in threads {
                let (steps, scene) = (steps.as_slice().into(), scene.clone());
                tasks.spawn(async move {
                    let done = all_steps(steps, &scene).await;
                    if done.is_err() {
                        scene.job.failed.store(true, Ordering::Relaxed);
                    }
                    done
                });
            }
            tasks.join_all().await
        });
        let mut done = done.into_iter().collect::<Result<Vec<Done>, Failure>>()?;
        if let (Some(ring), Some(first)) = (&self.ring, done.first_mut()) {
            let stats = ring.stats();
            // Those of the ring are of all tasks.
            first.system_calls = stats.local.enters + stats.inline_hits;
            first.fallbacks = stats.local.fallback_operations;
        } else {
            done.iter_mut().for_each(|own| own.system_calls = own.submitted.unwrap_or(0));
        }
        Ok(done)
    }
}

/// Makes the steps of a thread.
async fn all_steps(steps: Arc<[Step]>, scene: &Scene) -> Result<Done, Failure> {
    let Scene { job, window, pace, .. } = scene;
    let mut lane = Lane::new(job, *window, 0, 1);
    let (mut ends_ns, mut io_ns, mut next) = (Vec::with_capacity(steps.len()), 0, 0);
    let mut flights = FuturesUnordered::new();
    // Idle ones by their length.
    let mut buffers: HashMap<usize, Vec<AlignedBuf>> = HashMap::new();
    loop {
        let step = steps.get(next).filter(|_| !job.is_stopped());
        let due_ns = step.and_then(|step| pace.due_after_ns(step, &ends_ns));
        let ended = match due_ns {
            Some(due_ns) if due_ns <= window.now_ns() => {
                let step = steps[next];
                scene.place.ready_for(&step)?;
                let kept = buffers.get_mut(&step.length).and_then(Vec::pop);
                let buffer = kept.unwrap_or_else(|| {
                    let mut new = AlignedBuf::zeroed(step.length, BUFFER_ALIGNMENT);
                    new.fill(0xa5);
                    new
                });
                let began_ns = pace.begin(&step, &mut lane);
                flights.push(make(scene.files.clone(), (step, buffer), began_ns));
                next += 1;
                continue;
            }
            None if flights.is_empty() => break,
            None => flights.next().await,
            Some(due_ns) if flights.is_empty() => {
                // As a task that computes does, it keeps a worker of the runtime meanwhile.
                compute(*pace, &steps[next], job);
                wait_for(due_ns, scene).await;
                continue;
            }
            Some(due_ns) => {
                match select(flights.next(), std::pin::pin!(wait_for(due_ns, scene))).await {
                    Either::Left((ended, _)) => ended,
                    Either::Right(_) => continue,
                }
            }
        };
        let Some((step, began_ns, (moved, buffer))) = ended else { continue };
        let ended_ns = lane.clock();
        let moved =
            moved.map_err(|error| Failure::Io(format!("replay: {}: {error}", words(&step))))?;
        check(&step, moved)?;
        lane.complete_moved(began_ns, ended_ns, moved);
        ends_ns.push(ended_ns);
        io_ns += ended_ns - began_ns;
        if buffers.len() > LENGTHS_MAX {
            buffers.clear();
        }
        buffers.entry(step.length).or_default().push(buffer);
    }
    drop(flights);
    let submitted = Some(ends_ns.len() as u64);
    Ok(Done { counts: vec![lane.into_counts()], io_ns, submitted, ..Done::default() })
}

/// What a call moved, with its buffer.
type Moved = (std::io::Result<usize>, AlignedBuf);

/// Makes one step. The answer has the step and when it began.
async fn make(
    files: Files,
    (step, buffer): (Step, AlignedBuf),
    began_ns: u64,
) -> (Step, u64, Moved) {
    let moved = match files {
        Files::Pool(files) => {
            let call = move || by_call(&files[step.handle], step, buffer);
            spawn_blocking(call).await.expect("a call does not panic")
        }
        Files::Ring(files) => by_file(&files[step.handle], step, buffer).await,
    };
    (step, began_ns, moved)
}

fn by_call(file: &std::fs::File, step: Step, mut buffer: AlignedBuf) -> Moved {
    let moved = match step.kind {
        StepKind::Read => file.read_at(&mut buffer, step.offset),
        StepKind::Write => file.write_at(&buffer, step.offset),
        StepKind::Sync => file.sync_all().map(|()| 0),
        StepKind::DataSync => file.sync_data().map(|()| 0),
    };
    (moved, buffer)
}

async fn by_file(file: &File, step: Step, buffer: AlignedBuf) -> Moved {
    let BufResult(moved, buffer) = match step.kind {
        StepKind::Read => file.read_at(buffer, step.offset).await,
        StepKind::Write => file.write_at(buffer, step.offset).await,
        StepKind::Sync => BufResult(file.sync_all().await.map(|()| 0), buffer),
        StepKind::DataSync => BufResult(file.sync_data().await.map(|()| 0), buffer),
    };
    (moved.map_err(Into::into), buffer)
}

async fn wait_for(due_ns: u64, scene: &Scene) {
    while !scene.job.is_stopped() {
        match due_ns.saturating_sub(scene.window.now_ns()) {
            0 => return,
            1..=TIMER_NS => yield_now().await,
            left_ns => sleep(Duration::from_nanos((left_ns - TIMER_NS).min(10_000_000))).await,
        }
    }
}
