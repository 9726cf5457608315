//! Classic syscalls behind the ring's interface.
//!
//! A loop that waits for one call makes it itself, since handing it to a thread costs more than
//! most calls. The calls of a batch are first tried without blocking. If the data is in the page
//! cache, the loop's thread serves the call at once. Calls that have to wait for a device go to the
//! pool, so that the waits overlap. Calls that wait for a stream wait in an epoll set. The loop
//! itself has the timeouts.
//!
//! This backend is a product and not only a baseline, since many containers forbid the ring. Beside
//! a ring it makes the calls that the ring cannot.

mod net;
pub(crate) mod pool;
pub(crate) mod readiness;
mod timers;

#[cfg(feature = "tokio")]
use std::os::fd::BorrowedFd;
use std::{
    collections::VecDeque,
    io,
    os::fd::{AsRawFd, RawFd},
    task::Waker,
    time::{Duration, Instant},
};

#[cfg(feature = "tokio")]
use pool::HandOut;
use pool::{Job, WorkerPool};
use readiness::Readiness;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use timers::Timers;

use crate::{
    backend::{Cqe, Driver},
    descriptor::Blocking,
    error::Errno,
    flight::{call::Call, slot::OWN_NUDGE},
    op::Opcode,
    settings::stats::Stats,
};

/// The classic backend of one loop.
pub(crate) struct Classic {
    // Declared before the pool, whose eventfd is in the set.
    readiness: Readiness,
    pool: WorkerPool,
    /// Queued and not submitted.
    queued: Vec<Job>,
    queued_max: usize,
    timers: Timers,
    ready: VecDeque<Cqe>,
    /// Calls that the pool has and whose results were not taken.
    with_pool: usize,
    /// Whether operations of the loop are parked, and a nudge may start them again.
    expects_nudges: bool,
    /// Submits since the set was last looked at.
    unlooked: u32,
    made: u64,
}

/// How many times in a row a loop that has results goes on without a look at the set.
const UNLOOKED_MAX: u32 = 16;

impl Classic {
    pub(crate) fn new(threads_max: usize, queued_max: usize) -> io::Result<Classic> {
        let pool = WorkerPool::new(threads_max)?;
        Ok(Classic {
            readiness: Readiness::new(pool.wake())?,
            pool,
            queued: Vec::new(),
            queued_max,
            timers: Timers::default(),
            ready: VecDeque::new(),
            with_pool: 0,
            expects_nudges: false,
            unlooked: 0,
            made: 0,
        })
    }

    /// Adds the backend's own counts.
    pub(crate) fn count(&self, stats: &mut Stats) {
        stats.fallback_operations = self.made;
    }

    /// Starts everything that is queued. `alone`: the caller waits for it and nothing else is in
    /// progress, so a single call may block here.
    pub(super) fn start(&mut self, alone: bool) {
        if self.queued.is_empty() {
            return;
        }
        let mut queued = std::mem::take(&mut self.queued);
        let single = alone && queued.len() == 1 && self.is_idle();
        for job in queued.drain(..) {
            self.start_one(job, single);
        }
        // The allocation serves the next batch.
        self.queued = queued;
    }

    /// Returns whether nothing is in progress and no timer runs.
    pub(super) fn is_idle(&self) -> bool {
        self.with_pool == 0 && self.timers.is_empty() && self.readiness.is_empty()
    }

    fn start_one(&mut self, job: Job, single: bool) {
        match job.call {
            Call::Nop => self.ready.push_back(job.done(0)),
            Call::Timeout { .. } => {
                let after = job.timeout().unwrap_or_default();
                let deadline = Instant::now().checked_add(after).unwrap_or_else(far_future);
                self.timers.start(deadline, job.user_data);
            }
            Call::Cancel { user_data, fd } => {
                let result = self.cancel(user_data, fd).unwrap_or(-libc::ENOENT);
                self.ready.push_back(job.done(result));
            }
            _ => self.start_call(job, single),
        }
    }

    fn start_call(&mut self, job: Job, single: bool) {
        if let Some(name) = job.socket() {
            match self.readiness.start_on_socket(job, name, &mut self.ready) {
                Ok(()) => {}
                Err(job) => self.send(job),
            }
        } else if let Some(stream) = job.stream() {
            match self.readiness.start(job, stream) {
                Ok(done) => self.ready.extend(done),
                Err(job) => self.send(job),
            }
        } else if single {
            self.ready.push_back(job.run());
        } else {
            match job.run_cached() {
                Some(cqe) => self.ready.push_back(cqe),
                None => self.send(job),
            }
        }
    }

    fn send(&mut self, job: Job) {
        self.with_pool += 1;
        self.pool.send(job);
    }

    /// Cancels the call with this number. Returns 0 if it ends as cancelled, the negated error
    /// number if it does not, and nothing if this backend does not have it. `fd`: its file, if that
    /// is known.
    pub(super) fn cancel(&mut self, user_data: u64, fd: Option<RawFd>) -> Option<i32> {
        let cancelled = self
            .readiness
            .cancel_on_socket(user_data, fd)
            .or_else(|| self.timers.cancel(user_data).then(|| Cqe::cancelled(user_data)))
            .or_else(|| {
                let at = self.queued.iter().position(|job| job.user_data == user_data)?;
                self.queued.remove(at);
                Some(Cqe::cancelled(user_data))
            })
            .or_else(|| self.readiness.cancel(user_data));
        match cancelled {
            Some(cqe) => {
                self.ready.push_back(cqe);
                Some(0)
            }
            None => self.pool.cancel(user_data),
        }
    }

    /// Collects the pool's results and the expired timers. The only syscall is for the clock.
    fn collect(&mut self) {
        if self.with_pool > 0 {
            let before = self.ready.len();
            self.pool.take_done(&mut self.ready);
            self.with_pool -= self.ready.len() - before;
        }
        if self.expects_nudges && self.pool.take_nudge() {
            self.ready.push_back(Cqe::by_thread(OWN_NUDGE, 0));
        }
        if self.timers.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(user_data) = self.timers.expire(now) {
            self.ready.push_back(Cqe::by_thread(user_data, -libc::ETIME));
        }
    }

    /// Collects all results, and makes the calls whose files have become ready.
    pub(super) fn look(&mut self) {
        self.unlooked = 0;
        for job in self.readiness.collect(&mut self.ready) {
            self.send(job);
        }
        self.collect();
    }

    /// Makes one call that waits for a thread on the loop's own thread, if no thread could be
    /// started. Returns whether there was one.
    pub(super) fn rescue(&mut self) -> bool {
        if self.with_pool == 0 {
            return false;
        }
        let rescued = self.pool.run_one_if_deserted();
        self.with_pool -= usize::from(rescued.is_some());
        self.ready.extend(rescued);
        rescued.is_some()
    }

    /// Takes the results that are ready, for a ring to hand out with its own.
    pub(super) fn take_ready(&mut self) -> impl Iterator<Item = Cqe> + '_ {
        self.ready.drain(..)
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Does the same as [`look`](Self::look), for a caller that hears of everything that becomes
    /// ready in the set. It asks the set only for sockets that were reported and not fully served.
    pub(super) fn look_untold(&mut self) {
        if self.readiness.has_leftover() { self.look() } else { self.collect() }
    }

    /// Promises that the loop will sleep on [`wake_fd`](Self::wake_fd). Returns false, without a
    /// promise, if a result is there already.
    pub(super) fn prepare_sleep(&self) -> bool {
        !self.readiness.has_leftover() && self.pool.prepare_sleep()
    }

    /// Returns a waker with which other threads wake this loop.
    pub(crate) fn waker(&self) -> Waker {
        self.pool.waker()
    }

    /// From now on reports nudges as results.
    pub(crate) fn expect_nudges(&mut self) {
        self.expects_nudges = true;
    }

    /// Removes the results that `keep` refuses.
    pub(crate) fn sift(&mut self, keep: &mut dyn FnMut(Cqe) -> bool) {
        self.ready.retain(|cqe| keep(*cqe));
    }

    /// Returns whether a result is ready, after a look at the set.
    pub(crate) fn has_work(&mut self) -> bool {
        if self.ready.is_empty() {
            self.look();
        }
        !self.ready.is_empty()
    }

    /// Returns the descriptor that is readable when [`look`](Self::look) has something to collect,
    /// except timers.
    pub(super) fn wake_fd(&self) -> RawFd {
        self.readiness.as_fd().as_raw_fd()
    }

    /// Returns the descriptor that is readable when [`look`](Self::look) has something to collect,
    /// or when an armed timer has expired.
    #[cfg(feature = "tokio")]
    pub(super) fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }

    /// Starts everything. What comes later makes the event descriptor readable. The descriptor
    /// stays readable: whoever waits for it gets an event for each change (`EPOLLET` in epoll(7)).
    #[cfg(feature = "tokio")]
    pub(super) fn submit_and_arm(&mut self) -> Result<(), Errno> {
        self.submit(0, None)?;
        while self.rescue() || !self.prepare_sleep() {
            self.look();
        }
        self.arm_timer()
    }

    /// Makes the event descriptor readable when the next timer has expired.
    #[cfg(feature = "tokio")]
    pub(super) fn arm_timer(&mut self) -> Result<(), Errno> {
        let next = self.next_timer();
        self.readiness.arm(next).map_err(|errno| Errno(errno.raw_os_error()))
    }

    /// See [`WorkerPool::hand_out_by`].
    #[cfg(feature = "tokio")]
    pub(crate) fn hand_out_by(&self, hand_out: HandOut) {
        self.pool.hand_out_by(hand_out);
    }

    /// Resets the eventfd that woke the loop.
    pub(super) fn clear_wake(&self) {
        self.pool.clear_wake();
    }

    /// Sleeps until there is something to collect, or the time is over.
    pub(super) fn sleep(&mut self, deadline: Option<Instant>) {
        let until = [deadline, self.next_timer()].into_iter().flatten().min();
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        if !self.readiness.is_empty() {
            return self.sleep_in_set(timeout);
        }
        if !self.prepare_sleep() {
            return;
        }
        // No file waits in the set, so the eventfd alone is enough. An interrupted poll is a
        // wake-up like any other: the loop looks again.
        let wake = PollFd::from_borrowed_fd(self.pool.wake(), PollFlags::IN);
        let _ = poll(&mut [wake], timeout.as_ref());
        self.clear_wake();
    }

    /// Sleeps in the set itself, and makes the calls whose files have become ready. One syscall
    /// reports both files and the eventfd.
    fn sleep_in_set(&mut self, timeout: Option<Timespec>) {
        self.unlooked = 0;
        let timeout = if self.prepare_sleep() { timeout } else { Some(Timespec::default()) };
        let mut to_block = Vec::new();
        if self.readiness.wait(timeout, &mut self.ready, &mut to_block) {
            self.clear_wake();
        } else {
            self.pool.end_sleep();
        }
        to_block.into_iter().for_each(|job| self.send(job));
    }

    /// Returns whether a submit that needs no more results has to look at the set all the same:
    /// always if no result is wanted, and now and then if results keep coming without a look.
    fn has_to_look(&mut self, want: usize) -> bool {
        self.unlooked += 1;
        want == 0 || self.unlooked > UNLOOKED_MAX
    }
}

/// Returns whether the loop does this itself, without a syscall.
fn is_own(call: &Call) -> bool {
    matches!(call, Call::Nop | Call::Timeout { .. } | Call::Cancel { .. })
}

/// Returns a time that never comes, for timeouts beyond the clock's range.
fn far_future() -> Instant {
    const HUNDRED_YEARS: Duration = Duration::from_secs(3_155_760_000);
    Instant::now() + HUNDRED_YEARS
}

impl Driver for Classic {
    fn has_room(&mut self) -> bool {
        self.queued.len() < self.queued_max
    }

    fn has_room_for(&mut self, count: usize) -> bool {
        self.queued_max.saturating_sub(self.queued.len()) >= count
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
        self.start(want > self.ready.len() && deadline.is_none());
        let mut has_looked = false;
        loop {
            self.collect();
            if self.ready.len() < want.max(1) && self.rescue() {
                continue;
            }
            let expired = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if self.ready.len() < want && !expired {
                self.sleep(deadline);
                has_looked = true;
            } else if !has_looked && (expired || self.has_to_look(want)) {
                self.look();
                has_looked = true;
            } else {
                return Ok(self.ready.len());
            }
        }
    }

    fn next(&mut self) -> Option<Cqe> {
        if self.ready.is_empty() {
            self.collect();
        }
        self.ready.pop_front()
    }

    fn put_back(&mut self, results: &[Cqe]) {
        results.iter().rev().for_each(|result| self.ready.push_front(*result));
    }

    fn append(&mut self, results: &[Cqe]) {
        self.ready.extend(results);
    }

    fn supports(&self, _: Opcode) -> bool {
        false
    }
}
