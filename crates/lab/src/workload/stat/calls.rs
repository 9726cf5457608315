//! `stat`: the metadata of files by name: by blocking calls in one thread or in many, and through
//! the ring. The length of each file is compared with what it was made with.

use std::{fs, path::Path, sync::Arc};

use ringwise::{BackendChoice, Local, Operation};

use crate::{
    engine::{Engine, Tally, beside_the_ring, threads::in_threads, unavailable, uring},
    error::plain,
    sampling::{
        job::{Failure, Job, Request, Start},
        lane::Lane,
    },
};

fn failed(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Io(format!("statx of {}: {error}", path.display()))
}

/// A file must be as long as it was made.
fn check(job: &Job, request: Request, length: u64) -> Result<(), Failure> {
    let file = &job.files[request.file];
    if length == file.bytes { Ok(()) } else { Err(Failure::changed(file)) }
}

/// By blocking calls, in as many threads as the depth.
#[derive(Debug)]
pub struct BlockingStat;

impl Engine for BlockingStat {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let look = |(), lane: &mut Lane| {
            while let Some(request) = lane.next_request() {
                let path = &job.files[request.file].path;
                let began_ns = lane.clock();
                lane.begin(1, began_ns);
                let found = fs::metadata(path).map_err(|error| failed(path, plain(&error)))?;
                let ended_ns = lane.clock();
                check(job, request, found.len())?;
                lane.complete_checked(began_ns, ended_ns);
            }
            Ok(())
        };
        let tally = in_threads(job, start, &|| (), &look)?;
        Ok(Tally { system_calls: Some(tally.counts.completed), ..tally })
    }
}

/// Through the ring, a rolling window of as many as the depth.
#[derive(Debug)]
pub struct RingStat;

impl Engine for RingStat {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let entries = u32::try_from(job.depth.max(uring::ENTRIES_MIN)).unwrap_or(u32::MAX);
        let builder = Local::builder().backend(BackendChoice::Uring).entries(entries);
        let mut local = builder.build().map_err(unavailable)?;
        let before = local.stats();
        let window = start.ready()?;
        let lane = Lane::new(job, window, 0, 1);
        let mut rolling = Rolling { job, lane, slots: vec![(Request::default(), 0); job.depth] };
        rolling.run(&mut local)?;
        let after = local.stats();
        Ok(Tally {
            submitted: Some(after.submitted - before.submitted),
            system_calls: Some(after.enters - before.enters),
            lacks: beside_the_ring(after.fallback_operations - before.fallback_operations),
            detail: Some(local.setup().granted().to_string()),
            ..Tally::of(job, &window, [rolling.lane.into_counts()])
        })
    }
}

struct Rolling<'a> {
    job: &'a Job,
    lane: Lane,
    /// What each slot looks at, and since when.
    slots: Vec<(Request, u64)>,
}

impl Rolling<'_> {
    fn run(&mut self, local: &mut Local) -> Result<(), Failure> {
        let ring_failed = |error: ringwise::Error| Failure::Io(error.to_string());
        let mut idle: Vec<usize> = (0..self.slots.len()).collect();
        loop {
            let mut fresh = Vec::with_capacity(idle.len());
            while let Some(request) = (!idle.is_empty()).then(|| self.lane.next_request()).flatten()
            {
                let slot = idle.pop().expect("one is idle");
                self.slots[slot].0 = request;
                let operation = Operation::statx(&self.job.files[request.file].path);
                local.push(operation, slot as u64).map_err(unavailable)?;
                fresh.push(slot);
            }
            let began_ns = self.lane.clock();
            self.lane.begin(fresh.len() as u64, began_ns);
            fresh.iter().for_each(|&slot| self.slots[slot].1 = began_ns);
            if idle.len() == self.slots.len() {
                return Ok(());
            }
            local.submit_and_wait(1).map_err(ring_failed)?;
            let ended_ns = self.lane.clock();
            while let Some(completion) = local.next_completion() {
                let slot = completion.tag() as usize;
                let (request, began_ns) = self.slots[slot];
                let found = completion.metadata();
                let path = &self.job.files[request.file].path;
                let found = found.map_err(|error| failed(path, error))?;
                check(self.job, request, found.len())?;
                self.lane.complete_checked(began_ns, ended_ns);
                idle.push(slot);
            }
        }
    }
}
