//! Recorded threads on a queue of the kernel: the steps of one thread, or of several, are in flight together as far as
//! their order lets them.

pub(crate) mod aio;
pub(crate) mod ring;

use std::{collections::HashMap, time::Duration};

use ringwise::{AlignedBuf, Descriptor};

use super::{
    done::{Done, Shared, check, words},
    pace::{SPIN_NS, compute, wait_until},
    script::Step,
};
use crate::{
    engine::BUFFER_ALIGNMENT,
    sampling::{job::Failure, lane::Lane},
};

/// More are not in flight in one queue.
const ENTRIES_MAX: usize = 4096;
/// Buffers of so many lengths are kept.
const LENGTHS_MAX: usize = 64;
/// How long a wait for completions is at most, so that an interrupt is seen.
const WAIT_MAX: Duration = Duration::from_millis(10);

/// A queue of operations with the kernel.
pub(crate) trait Queue: Sized {
    /// What an operation owns while it is in flight.
    type Buffer: From<AlignedBuf>;

    /// Makes a queue that holds so many operations on these files.
    fn new(files: &[Descriptor], entries: usize) -> Result<Self, Failure>;

    /// Prepares a step. One that moves bytes takes a buffer of its length.
    fn push(
        &mut self,
        tag: usize,
        step: &Step,
        buffer: impl FnOnce() -> Self::Buffer,
    ) -> Result<(), Failure>;

    /// Hands over all that was prepared.
    fn submit(&mut self, wait: Wait) -> Result<(), Failure>;

    /// A completion that is there.
    fn next(&mut self) -> Option<Completed<Self::Buffer>>;

    /// What was spent so far.
    fn spent(&mut self) -> Spent;
}

/// For how long a submission waits until one operation has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    No,
    AtMost(Duration),
    Completion,
}

/// An operation that has ended.
pub(crate) struct Completed<B> {
    pub tag: usize,
    /// The bytes, or why it failed.
    pub moved: Result<usize, String>,
    pub buffer: Option<B>,
}

/// What a queue counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub system_calls: u64,
    pub submitted: u64,
    pub fallbacks: u64,
}

/// A queue with its files, before the time begins.
pub(crate) struct Prepared<'a, Q> {
    queue: Q,
    threads: &'a [&'a [Step]],
    entries: usize,
}

/// A recorded thread.
struct Track<'a> {
    steps: &'a [Step],
    next: usize,
    /// When steps ended, in that order.
    ends_ns: Vec<u64>,
    lane: Lane,
}

/// A step in flight.
#[derive(Clone, Copy)]
struct Flight {
    track: usize,
    step: Step,
    began_ns: u64,
}

impl<'a, Q: Queue> Prepared<'a, Q> {
    pub fn new(
        threads: &'a [&'a [Step]],
        files: &[Descriptor],
    ) -> Result<Prepared<'a, Q>, Failure> {
        let entries = threads.iter().map(|steps| depth(steps)).sum::<usize>().clamp(2, ENTRIES_MAX);
        Ok(Prepared { queue: Q::new(files, entries)?, threads, entries })
    }

    /// Makes all steps.
    pub fn run(mut self, shared: &Shared<'_>) -> Result<Done, Failure> {
        let before = self.queue.spent();
        let track = |steps: &&'a [Step]| Track {
            steps,
            next: 0,
            ends_ns: Vec::with_capacity(steps.len()),
            lane: Lane::new(shared.job, shared.window, 0, 1),
        };
        let mut driver = Driver {
            tracks: self.threads.iter().map(track).collect(),
            flights: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            io_ns: 0,
            buffers: HashMap::new(),
            entries: self.entries,
            queue: &mut self.queue,
            shared,
        };
        driver.drive()?;
        let (io_ns, tracks) = (driver.io_ns, driver.tracks);
        let counts = tracks.into_iter().map(|track| track.lane.into_counts()).collect();
        let after = self.queue.spent();
        Ok(Done {
            counts,
            io_ns,
            system_calls: after.system_calls - before.system_calls,
            submitted: Some(after.submitted - before.submitted),
            fallbacks: after.fallbacks - before.fallbacks,
            ..Done::default()
        })
    }
}

/// How many steps of a thread can be in flight at once.
fn depth(steps: &[Step]) -> usize {
    let open = steps.iter().enumerate().map(|(index, step)| (index + 1).saturating_sub(step.after));
    open.max().unwrap_or(0)
}

struct Driver<'a, 'r, Q: Queue> {
    tracks: Vec<Track<'a>>,
    /// By the tag of the operation.
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    in_flight: usize,
    io_ns: u64,
    /// Idle buffers by their length.
    buffers: HashMap<usize, Vec<Q::Buffer>>,
    entries: usize,
    queue: &'r mut Q,
    shared: &'r Shared<'r>,
}

impl<Q: Queue> Driver<'_, '_, Q> {
    fn drive(&mut self) -> Result<(), Failure> {
        let Shared { job, window, .. } = self.shared;
        loop {
            if job.is_stopped() && self.in_flight == 0 {
                return Ok(());
            }
            let due_ns = if job.is_stopped() { None } else { self.push_due()? };
            if self.in_flight == 0 {
                let Some(due_ns) = due_ns else { return Ok(()) };
                // Of several threads each would hold up the others.
                if let [track] = &self.tracks[..]
                    && let Some(step) = track.steps.get(track.next)
                {
                    compute(self.shared.pace, step, job);
                }
                wait_until(due_ns, window, job);
                continue;
            }
            let wait = match due_ns.map(|due_ns| due_ns.saturating_sub(window.now_ns())) {
                // The kernel may be late by more than that (timer slack, 50 us by default).
                Some(..SPIN_NS) => Wait::No,
                Some(left_ns) => {
                    Wait::AtMost(Duration::from_nanos(left_ns - SPIN_NS).min(WAIT_MAX))
                }
                None => Wait::Completion,
            };
            self.queue.submit(wait)?;
            self.reap()?;
        }
    }

    /// Pushes every step that may begin. Returns when the next one may that waits only for its time.
    fn push_due(&mut self) -> Result<Option<u64>, Failure> {
        let mut next_due_ns: Option<u64> = None;
        for index in 0..self.tracks.len() {
            loop {
                let track = &self.tracks[index];
                let Some(&step) = track.steps.get(track.next) else { break };
                if self.in_flight == self.entries {
                    break;
                }
                let due_ns = self.shared.pace.due_after_ns(&step, &track.ends_ns);
                let Some(due_ns) = due_ns else { break };
                if due_ns > self.shared.window.now_ns() {
                    next_due_ns = Some(next_due_ns.map_or(due_ns, |own| own.min(due_ns)));
                    break;
                }
                self.push(index, step)?;
            }
        }
        Ok(next_due_ns)
    }

    fn push(&mut self, index: usize, step: Step) -> Result<(), Failure> {
        let tag = self.free.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() - 1
        });
        self.shared.place.ready_for(&step)?;
        let track = &mut self.tracks[index];
        let began_ns = self.shared.pace.begin(&step, &mut track.lane);
        let buffers = &mut self.buffers;
        self.queue.push(tag, &step, || {
            let kept = buffers.get_mut(&step.length).and_then(Vec::pop);
            kept.unwrap_or_else(|| {
                let mut new = AlignedBuf::zeroed(step.length, BUFFER_ALIGNMENT);
                new.fill(0xa5);
                new.into()
            })
        })?;
        track.next += 1;
        self.flights[tag] = Some(Flight { track: index, step, began_ns });
        self.in_flight += 1;
        Ok(())
    }

    fn reap(&mut self) -> Result<(), Failure> {
        while let Some(Completed { tag, moved, buffer }) = self.queue.next() {
            let Some(Flight { track, step, began_ns }) = self.flights[tag].take() else { continue };
            self.free.push(tag);
            self.in_flight -= 1;
            let track = &mut self.tracks[track];
            let ended_ns = track.lane.clock();
            let moved =
                moved.map_err(|error| Failure::Io(format!("replay: {}: {error}", words(&step))))?;
            let moved = if step.length > 0 { moved } else { 0 };
            check(&step, moved)?;
            track.lane.complete_moved(began_ns, ended_ns, moved);
            track.ends_ns.push(ended_ns);
            self.io_ns += ended_ns - began_ns;
            if let Some(buffer) = buffer {
                if self.buffers.len() > LENGTHS_MAX {
                    self.buffers.clear();
                }
                self.buffers.entry(step.length).or_default().push(buffer);
            }
        }
        Ok(())
    }
}
