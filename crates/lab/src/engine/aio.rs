//! `aio`: Linux AIO, the older queue: io_submit(2) and io_getevents(2). Asynchronous for direct
//! reads only; a buffered read is made within io_submit.

pub(crate) mod context;

use std::{fs::File, sync::Arc};

use ringwise::AlignedBuf;

use self::context::{Command, Context};
use super::{Engine, Named, Tally, buffer, rolling};
use crate::sampling::{
    job::{Failure, Job, Request, Start, Timing},
    lane::Lane,
};

/// The engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Aio;

impl Named for Aio {
    const DEFAULT: Aio = Aio;

    fn engine(self, _: Timing) -> Box<dyn Engine> {
        Box::new(self)
    }
}

impl Engine for Aio {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let mut queue = Queue {
            context: Context::new(job.depth)?,
            job: job.clone(),
            files: job.open()?,
            idle: (0..job.depth).map(|_| Some(buffer(job))).collect(),
            requests: vec![Request::default(); job.depth],
        };
        let window = start.ready()?;
        let lane = Lane::new(job, window, 0, 1);
        let tally = rolling::drive(&mut queue, &window, lane, job)?;
        Ok(Tally {
            submitted: Some(queue.context.submitted),
            system_calls: Some(queue.context.system_calls),
            ..tally
        })
    }
}

struct Queue {
    context: Context,
    job: Arc<Job>,
    files: Vec<File>,
    /// The buffer of each slot, while it is not in flight.
    idle: Vec<Option<AlignedBuf>>,
    requests: Vec<Request>,
}

impl rolling::Queue for Queue {
    fn push(&mut self, slot: usize, request: Request) -> Result<(), Failure> {
        self.requests[slot] = request;
        let at = (request.offset, self.idle[slot].take());
        self.context.push((slot, Command::Read), &self.files[request.file], at);
        Ok(())
    }

    fn submit(&mut self) -> Result<(), Failure> {
        self.context.submit()
    }

    fn submit_and_wait(&mut self, want: usize) -> Result<(), Failure> {
        self.context.submit_and_wait(want, None)
    }

    fn reap(&mut self, take: &mut rolling::Take<'_>) -> Result<(), Failure> {
        let Some(done) = self.context.next() else { return Ok(()) };
        let (slot, request) = (done.tag, self.requests[done.tag]);
        let read = done.result.map_err(|error| self.job.read_failed(request, &error))?;
        self.idle[slot] = done.buffer;
        let bytes = self.idle[slot].as_deref().unwrap_or_default();
        take(slot, &bytes[..read])
    }
}
