//! The rolling window of every engine with a queue: keep it full, never wait for a whole batch.
//!
//! Each round waits for some completions and takes all that are there; each that is taken is
//! verified and replaced by the next read at once. What is fresh is handed over every few reads, so
//! that the device has work while the rest of a batch is being verified.
//!
//! The clock is read before and after each system call: operations handed over by one call began
//! together, and completions that were seen after it ended together, since none was known of
//! before. A latency is thus what a caller sees, not when the device was done.

use std::time::Duration;

use super::Tally;
use crate::sampling::{
    job::{Cache, Failure, Job, Request, Window},
    lane::Lane,
};

/// Takes a completion: the slot, and what the read brought.
pub(crate) type Take<'a> = dyn FnMut(usize, &[u8]) -> Result<(), Failure> + 'a;

/// A queue of operations with the kernel.
pub(crate) trait Queue {
    /// Prepares a read into the slot's own buffer.
    fn push(&mut self, slot: usize, request: Request) -> Result<(), Failure>;

    /// Hands over all that was prepared.
    fn submit(&mut self) -> Result<(), Failure>;

    /// Hands over all that was prepared, and waits until `want` completions are there.
    fn submit_and_wait(&mut self, want: usize) -> Result<(), Failure>;

    /// After how many operations to hand over what is fresh, where not as for reads.
    fn fresh_max(&self) -> Option<usize> {
        None
    }

    /// Gives one completion that is there, with what it brought; nothing where there is none.
    fn reap(&mut self, take: &mut Take<'_>) -> Result<(), Failure>;
}

/// A queue that can also wait for a time.
pub(crate) trait TimedQueue: Queue {
    /// Hands over all that was prepared, and waits until a completion is there, for at most `timeout`.
    fn submit_and_wait_for(&mut self, timeout: Duration) -> Result<(), Failure>;

    /// Waits for a time with nothing in flight.
    fn sleep(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Now, in nanoseconds since the epoch of the window. A simulated device has a clock of its own.
    fn now_ns(&self, window: &Window) -> u64 {
        window.now_ns()
    }
}

/// After how many direct reads to hand over what is fresh. Each one alone costs a system call; all
/// at the end let the device run dry meanwhile (docs/notes/lab/reads-per-submit.md has the figures). The same goes
/// for reads through a cache that is too small. Other buffered reads are handed over all at once:
/// what the cache holds keeps no device waiting.
const FRESH_MAX: usize = 4;

/// How many operations one call hands over, and for how many it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batches {
    /// What is fresh is handed over when it is so many.
    pub fresh_max: usize,
    /// Completions to wait for. With few in flight, each one as it comes. With many, a sixteenth of them:
    /// the rest keeps the device busy, and fewer wake-ups and larger submissions leave more of the
    /// processor (docs/notes/lab/reads-per-submit.md has the figures).
    pub wanted: usize,
}

impl Batches {
    /// The batches for reads at this depth.
    pub(crate) fn of(cache: Cache, depth: usize) -> Batches {
        let fresh_max = match cache {
            Cache::Bypassed | Cache::Bounded => FRESH_MAX,
            Cache::Warm | Cache::Cold => depth,
        };
        Batches { fresh_max, wanted: (depth / 16).clamp(1, 16) }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    request: Request,
    began_ns: u64,
}

/// Keeps as many reads in flight as the job's depth until the lane is over, then waits for the rest.
pub(crate) fn drive(
    queue: &mut impl Queue,
    window: &Window,
    lane: Lane,
    job: &Job,
) -> Result<Tally, Failure> {
    let depth = job.depth;
    let Batches { fresh_max, wanted } = Batches::of(job.cache, depth);
    let fresh_max = queue.fresh_max().unwrap_or(fresh_max);
    let mut rolling = Rolling {
        lane,
        slots: vec![Slot::default(); depth],
        fresh: Vec::with_capacity(depth),
        fresh_max,
        in_flight: 0,
    };
    for slot in 0..depth {
        rolling.refill(queue, slot)?;
    }
    while rolling.in_flight > 0 {
        rolling.hand_over();
        queue.submit_and_wait(wanted.min(rolling.in_flight))?;
        rolling.take_all(queue)?;
    }
    Ok(Tally::of(job, window, [rolling.lane.into_counts()]))
}

struct Rolling {
    lane: Lane,
    slots: Vec<Slot>,
    /// Slots whose read is prepared and not yet handed over.
    fresh: Vec<usize>,
    fresh_max: usize,
    in_flight: usize,
}

impl Rolling {
    /// Prepares the next read into an idle slot, if there is one to come.
    #[inline]
    fn refill(&mut self, queue: &mut impl Queue, slot: usize) -> Result<(), Failure> {
        let Some(request) = self.lane.next_request() else { return Ok(()) };
        self.slots[slot].request = request;
        queue.push(slot, request)?;
        self.fresh.push(slot);
        self.in_flight += 1;
        if self.fresh.len() == self.fresh_max && self.slots.len() > self.fresh_max {
            self.hand_over();
            queue.submit()?;
        }
        Ok(())
    }

    /// Says that what is fresh begins now. The system call follows.
    #[inline]
    fn hand_over(&mut self) {
        if self.fresh.is_empty() {
            return;
        }
        let began_ns = self.lane.clock();
        self.lane.begin(self.fresh.len() as u64, began_ns);
        for slot in self.fresh.drain(..) {
            self.slots[slot].began_ns = began_ns;
        }
    }

    /// Takes and replaces every completion that is there.
    #[inline]
    fn take_all(&mut self, queue: &mut impl Queue) -> Result<(), Failure> {
        let mut ended_ns = self.lane.clock();
        loop {
            let mut done = None;
            let (lane, slots, fresh) = (&mut self.lane, &mut self.slots, &mut self.fresh);
            queue.reap(&mut |slot, bytes| {
                done = Some(slot);
                // A kernel thread (SQPOLL) takes what is prepared before it is handed over.
                if let Some(at) = fresh.iter().position(|&prepared| prepared == slot) {
                    fresh.swap_remove(at);
                    slots[slot].began_ns = ended_ns;
                    lane.begin(1, ended_ns);
                    ended_ns = lane.clock();
                }
                let Slot { request, began_ns } = slots[slot];
                lane.complete(request, began_ns, ended_ns, bytes)
            })?;
            let Some(slot) = done else { return Ok(()) };
            self.in_flight -= 1;
            self.refill(queue, slot)?;
            if self.fresh.is_empty() {
                // It was handed over: what is seen from now on may have come meanwhile.
                ended_ns = self.lane.clock();
            }
        }
    }
}
