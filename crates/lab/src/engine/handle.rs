//! `ringwise`: the library's files in a multi-threaded tokio runtime, with as many tasks as reads
//! are to be in flight. What `tokio` does with the blocking pool, done with [`File`].

use std::{fmt, sync::Arc};

use ringwise::{BufResult, Local, Ring, RingStats, fs::File};
use tokio::task::JoinSet;

use super::{Engine, Named, Tally, buffer};
use crate::{
    error::plain,
    sampling::{
        job::{Failure, Job, Start, Timing},
        lane::{Counts, Lane},
    },
};

/// Entries of the ring; twice as many reads can be in flight, and more wait their turn.
const ENTRIES: u32 = 256;

/// The engine: a task per unit of depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ringwise {
    /// A driver with a thread of its own, where the runtime would drive it.
    pub driver_thread: bool,
    /// A runtime with one worker thread instead of one for each processor.
    pub one_worker: bool,
    /// What is read is not looked at, for a comparison with a program that does not look either.
    pub unverified: bool,
}

impl Named for Ringwise {
    const DEFAULT: Ringwise =
        Ringwise { driver_thread: false, one_worker: false, unverified: false };

    fn parse(text: &str) -> Option<Ringwise> {
        let mut switches = Ringwise::default();
        let mut names = text.split('+');
        // Before the first plus stands nothing.
        names.next().filter(|before| before.is_empty())?;
        for name in names {
            match name {
                "driver-thread" => switches.driver_thread = true,
                "one-worker" => switches.one_worker = true,
                "unverified" => switches.unverified = true,
                _ => return None,
            }
        }
        Some(switches)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }

    fn engine(self, _: Timing) -> Box<dyn Engine> {
        Box::new(self)
    }
}

impl fmt::Display for Ringwise {
    /// What differs from the default, as it is typed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switches = [
            (self.driver_thread, "+driver-thread"),
            (self.one_worker, "+one-worker"),
            (self.unverified, "+unverified"),
        ];
        switches.iter().filter(|(on, _)| *on).try_for_each(|(_, name)| f.write_str(name))
    }
}

impl Engine for Ringwise {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        if self.one_worker {
            runtime.worker_threads(1);
        }
        let runtime = runtime.enable_io().build().map_err(|error| {
            Failure::Unavailable(format!("starting the runtime: {}", plain(&error)))
        })?;
        let ring = {
            let _context = runtime.enter();
            let builder = Local::builder().entries(ENTRIES).driver_thread(self.driver_thread);
            builder.build_ring().map_err(|error| Failure::Unavailable(error.to_string()))?
        };
        let files = job.open()?.into_iter().map(|file| File::from_std(&ring, file));
        let files: Arc<[File]> = files.collect();
        let window = start.ready()?;
        let lanes = runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for index in 0..job.depth {
                let lane = Lane::new(job, window, index, job.depth);
                let lane = if self.unverified { lane.unverified() } else { lane };
                tasks.spawn(read_all(job.clone(), files.clone(), lane));
            }
            tasks.join_all().await
        });
        let counts = lanes.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(tally(&ring, Tally::of(job, &window, counts)))
    }
}

/// Adds what the ring counted. A read is one operation, by the ring or inline, or two: looked for in
/// the page cache, and not there.
fn tally(ring: &Ring, tally: Tally) -> Tally {
    let RingStats { submitted, inline_hits, wakes, local, .. } = ring.stats();
    let detail = format!(
        "{}, {inline_hits} of {} from the page cache, {wakes} wake-ups of the driver",
        ring.setup().backend(),
        submitted + inline_hits
    );
    // What it gives to threads of its own it chooses to; without a ring at all it is not what it is
    // called.
    let lacks = ring.setup().fallback().map(|reason| format!("it has no ring: {reason}"));
    Tally {
        lacks,
        submitted: Some(submitted + inline_hits),
        system_calls: Some(local.enters + inline_hits),
        detail: Some(detail),
        ..tally
    }
}

async fn read_all(job: Arc<Job>, files: Arc<[File]>, mut lane: Lane) -> Result<Counts, Failure> {
    let mut bytes = buffer(&job);
    while let Some(request) = lane.next_request() {
        let began_ns = lane.clock();
        lane.begin(1, began_ns);
        let BufResult(read, given_back) = files[request.file].read_at(bytes, request.offset).await;
        bytes = given_back;
        let ended_ns = lane.clock();
        let result = read
            .map_err(|error| job.read_failed(request, &error.into()))
            .and_then(|read| lane.complete(request, began_ns, ended_ns, &bytes[..read]));
        if result.is_err() {
            job.failed.store(true, std::sync::atomic::Ordering::Relaxed);
            result?;
        }
    }
    Ok(lane.into_counts())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for text in ["", "+driver-thread", "+one-worker", "+driver-thread+one-worker+unverified"] {
            assert_eq!(Ringwise::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Ringwise::parse("-unverified"), None);
        assert_eq!(Ringwise::parse("+thread"), None);
    }
}
