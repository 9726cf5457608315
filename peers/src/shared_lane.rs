//! One lane for all tasks of a runtime that runs them in one thread, as the lab's ring has one for
//! all its slots: no task pays for a histogram of its own.
//!
//! The tasks never hold the lane over a point where another could run, so its clock never goes
//! back.

use std::{
    cell::RefCell,
    io,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
};

use ringwise_lab::{
    engine::Tally,
    sampling::job::{Failure, Job, Request, Window},
    sampling::lane::Lane,
};

/// The lane, and the failure that ended it, if one did.
pub struct SharedLane {
    job: Arc<Job>,
    window: Window,
    lane: RefCell<Lane>,
    failure: RefCell<Option<Failure>>,
}

/// A read that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    request: Request,
    began_ns: u64,
}

impl Read {
    /// Where in the file.
    pub fn offset(self) -> u64 {
        self.request.offset
    }
}

impl SharedLane {
    /// The lane of a job in its window.
    pub fn new(job: &Arc<Job>, window: Window) -> Rc<SharedLane> {
        Rc::new(SharedLane {
            job: job.clone(),
            window,
            lane: RefCell::new(Lane::new(job, window, 0, 1)),
            failure: RefCell::new(None),
        })
    }

    /// The read to do next, which begins now; none when it is over.
    #[inline]
    pub fn begin(&self) -> Option<Read> {
        let mut lane = self.lane.borrow_mut();
        let request = lane.next_request()?;
        let began_ns = lane.clock();
        lane.begin(1, began_ns);
        Some(Read { request, began_ns })
    }

    /// A read has ended, now, with these bytes. A failure ends the lane.
    #[inline]
    pub fn end(&self, read: Read, bytes: io::Result<&[u8]>) {
        let mut lane = self.lane.borrow_mut();
        let ended_ns = lane.clock();
        let result = bytes
            .map_err(|error| self.job.read_failed(read.request, &error))
            .and_then(|bytes| lane.complete(read.request, read.began_ns, ended_ns, bytes));
        if let Err(failure) = result {
            self.job.failed.store(true, Ordering::Relaxed);
            self.failure.borrow_mut().get_or_insert(failure);
        }
    }

    /// What was counted, when all tasks have ended.
    ///
    /// # Errors
    ///
    /// The first failure of a read.
    pub fn finish(self: Rc<Self>) -> Result<Tally, Failure> {
        let lane =
            Rc::into_inner(self).ok_or_else(|| Failure::Io("a task has not ended".to_owned()))?;
        match lane.failure.into_inner() {
            Some(failure) => Err(failure),
            None => Ok(Tally::of(&lane.job, &lane.window, [lane.lane.into_inner().into_counts()])),
        }
    }
}
