//! `threads`: as many threads as reads are to be in flight, each as `sync`. What a ring has to
//! beat: the same depth without it.

use std::{
    sync::{Arc, atomic::Ordering, mpsc},
    thread,
};

use ringwise::AlignedBuf;

use super::{Engine, Named, Tally, buffer, sync::read_all};
use crate::{
    error::plain,
    sampling::{
        job::{Failure, Job, Start, Timing, Window},
        lane::{Counts, Lane},
    },
};

/// Small, since there may be hundreds, and a read needs little.
const STACK_BYTES: usize = 256 << 10;

/// The engine: a thread per unit of depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Threads;

impl Named for Threads {
    const DEFAULT: Threads = Threads;

    fn engine(self, _: Timing) -> Box<dyn Engine> {
        Box::new(self)
    }
}

impl Engine for Threads {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        // Descriptors are shared, as a program's threads would share them.
        let files = job.open()?;
        let read = |mut bytes: AlignedBuf, lane: &mut Lane| read_all(job, &files, &mut bytes, lane);
        let tally = in_threads(job, start, &|| buffer(job), &read)?;
        Ok(Tally { system_calls: Some(tally.counts.completed), ..tally })
    }
}

/// Drives a lane in each of as many threads as the job's depth. What `prepare` makes in each of
/// them before anything is timed, `read` is given.
pub(crate) fn in_threads<T>(
    job: &Arc<Job>,
    start: Start,
    prepare: &(dyn Fn() -> T + Sync),
    read: &(dyn Fn(T, &mut Lane) -> Result<(), Failure> + Sync),
) -> Result<Tally, Failure> {
    let lane = |index: usize, window: mpsc::Receiver<Window>| {
        let prepared = prepare();
        // Without a window the others could not be started.
        let Ok(window) = window.recv() else { return Ok(Counts::default()) };
        let mut lane = Lane::new(job, window, index, job.depth);
        let result = read(prepared, &mut lane);
        if result.is_err() {
            job.failed.store(true, Ordering::Relaxed);
        }
        result.map(|()| lane.into_counts())
    };
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(job.depth);
        let mut windows = Vec::with_capacity(job.depth);
        for index in 0..job.depth {
            let (tell, told) = mpsc::channel();
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            let lane = &lane;
            let thread = builder.spawn_scoped(scope, move || lane(index, told));
            threads.push(thread.map_err(|error| {
                let text = format!("starting {} threads: {}", job.depth, plain(&error));
                Failure::Unavailable(text)
            })?);
            windows.push(tell);
        }
        let window = start.ready()?;
        for tell in windows {
            // A thread waits for this and for nothing else.
            let _ = tell.send(window);
        }
        let lanes: Result<Vec<Counts>, Failure> =
            threads.into_iter().map(|thread| thread.join().expect("lanes do not panic")).collect();
        Ok(Tally::of(job, &window, lanes?))
    })
}
