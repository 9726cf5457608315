//! Classic system calls behind the ring's interface.
//!
//! A loop that waits for one call makes it itself, for a hand-over costs more than most calls. A
//! batch is tried first without blocking: what is in the page cache is served at once by the
//! loop's thread, and what has to wait for a device goes to the pool, so that the waits overlap.
//! Timeouts are the loop's own. It is a product and not only a baseline: many containers forbid
//! the ring.

pub(crate) mod pool;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    io,
    time::{Duration, Instant},
};

use pool::{Job, WorkerPool, remaining};

use crate::{
    backend::{Blocking, Cqe, Driver},
    call::Call,
    error::Errno,
    op::Opcode,
    stats::Stats,
};

/// The classic backend of one loop.
pub(crate) struct Classic {
    pool: WorkerPool,
    /// Queued and not submitted.
    queued: Vec<Job>,
    queued_max: usize,
    timers: BinaryHeap<Reverse<(Instant, u64)>>,
    ready: VecDeque<Cqe>,
    /// Calls that the pool has and whose results were not taken.
    with_pool: usize,
    made: u64,
}

impl Classic {
    pub(crate) fn new(threads_max: usize, queued_max: usize) -> io::Result<Classic> {
        Ok(Classic {
            pool: WorkerPool::new(threads_max)?,
            queued: Vec::new(),
            queued_max,
            timers: BinaryHeap::new(),
            ready: VecDeque::new(),
            with_pool: 0,
            made: 0,
        })
    }

    /// Adds the backend's own counts.
    pub(crate) fn count(&self, stats: &mut Stats) {
        stats.fallback_operations = self.made;
    }

    /// Starts everything that is queued. `alone`: the caller waits for it and nothing else is
    /// under way, so a single call may as well block here.
    fn start(&mut self, alone: bool) {
        let mut queued = std::mem::take(&mut self.queued);
        let single = alone && queued.len() == 1 && self.with_pool == 0 && self.timers.is_empty();
        for job in queued.drain(..) {
            self.start_one(job, single);
        }
        // The allocation serves the next batch.
        self.queued = queued;
    }

    fn start_one(&mut self, job: Job, single: bool) {
        match job.call {
            Call::Nop => self.ready.push_back(job.done(0)),
            Call::Timeout { .. } => {
                let after = job.timeout().unwrap_or_default();
                let deadline = Instant::now().checked_add(after).unwrap_or_else(far_future);
                self.timers.push(Reverse((deadline, job.user_data)));
            }
            Call::Cancel { user_data } => {
                let result = self.cancel(user_data);
                self.ready.push_back(job.done(result));
            }
            _ if single && job.blocking != Blocking::Unbounded => {
                self.ready.push_back(job.run());
            }
            _ => match job.run_cached() {
                Some(cqe) => self.ready.push_back(cqe),
                None => {
                    self.with_pool += 1;
                    self.pool.send(job);
                }
            },
        }
    }

    fn cancel(&mut self, user_data: u64) -> i32 {
        if self.timers.iter().any(|Reverse((_, timer))| *timer == user_data) {
            self.timers.retain(|Reverse((_, timer))| *timer != user_data);
            self.ready.push_back(Cqe::by_thread(user_data, -libc::ECANCELED));
            return 0;
        }
        self.pool.cancel(user_data).unwrap_or(-libc::ENOENT)
    }

    /// Brings in the pool's results and the timers that have expired.
    fn collect(&mut self) {
        if self.with_pool > 0 {
            let before = self.ready.len();
            self.pool.take_done(&mut self.ready);
            self.with_pool -= self.ready.len() - before;
        }
        if self.timers.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(Reverse((deadline, user_data))) = self.timers.peek().copied() {
            if deadline > now {
                break;
            }
            self.timers.pop();
            self.ready.push_back(Cqe::by_thread(user_data, -libc::ETIME));
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((deadline, _))| *deadline)
    }
}

/// Whether the loop does this by itself, without a call.
fn is_own(call: &Call) -> bool {
    matches!(call, Call::Nop | Call::Timeout { .. } | Call::Cancel { .. })
}

/// A time beyond the clock's reach never comes; nor does this one.
fn far_future() -> Instant {
    const HUNDRED_YEARS: Duration = Duration::from_secs(3_155_760_000);
    Instant::now() + HUNDRED_YEARS
}

impl Driver for Classic {
    fn has_room(&mut self) -> bool {
        self.queued.len() < self.queued_max
    }

    fn queue_nop(&mut self, user_data: u64) -> bool {
        let has_room = self.has_room();
        if has_room {
            self.queue(user_data, Call::Nop, Blocking::Device);
        }
        has_room
    }

    fn queue(&mut self, user_data: u64, call: Call, blocking: Blocking) {
        self.made += u64::from(!is_own(&call));
        self.queued.push(Job { user_data, call, blocking });
    }

    fn submit(&mut self, want: usize, deadline: Option<Instant>) -> Result<usize, Errno> {
        self.start(want > 0 && deadline.is_none());
        loop {
            self.collect();
            if self.ready.len() >= want {
                return Ok(self.ready.len());
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(self.ready.len());
            }
            if let Some(cqe) = self.pool.run_one_if_deserted() {
                self.with_pool -= 1;
                self.ready.push_back(cqe);
                continue;
            }
            let until = [deadline, self.next_timer()].into_iter().flatten().min();
            self.pool.sleep(remaining(until));
        }
    }

    fn next(&mut self) -> Option<Cqe> {
        if self.ready.is_empty() {
            self.collect();
        }
        self.ready.pop_front()
    }

    fn put_back(&mut self, results: &[Cqe]) {
        self.ready.extend(results);
    }

    fn supports(&self, _: Opcode) -> bool {
        false
    }
}
