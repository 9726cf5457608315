//! `sync`: one thread that calls pread(2), one block after the other.

use std::{fs::File, os::unix::fs::FileExt, sync::Arc};

use super::{Engine, Named, Tally, buffer};
use crate::sampling::{
    job::{Failure, Job, Start, Timing},
    lane::Lane,
};

/// The engine. It has no depth but 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sync;

impl Named for Sync {
    const DEFAULT: Sync = Sync;
    const IS_SINGLE: bool = true;

    fn engine(self, _: Timing) -> Box<dyn Engine> {
        Box::new(self)
    }
}

impl Engine for Sync {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let files = job.open()?;
        let mut bytes = buffer(job);
        let window = start.ready()?;
        let mut lane = Lane::new(job, window, 0, 1);
        read_all(job, &files, &mut bytes, &mut lane)?;
        let counts = lane.into_counts();
        let system_calls = Some(counts.completed);
        Ok(Tally { system_calls, ..Tally::of(job, &window, [counts]) })
    }
}

/// Reads with pread(2) until the lane is over.
pub(super) fn read_all(
    job: &Job,
    files: &[File],
    bytes: &mut [u8],
    lane: &mut Lane,
) -> Result<(), Failure> {
    while let Some(request) = lane.next_request() {
        let began_ns = lane.clock();
        lane.begin(1, began_ns);
        let read = files[request.file].read_at(bytes, request.offset);
        let ended_ns = lane.clock();
        let read = read.map_err(|error| job.read_failed(request, &error))?;
        lane.complete(request, began_ns, ended_ns, &bytes[..read])?;
    }
    Ok(())
}
