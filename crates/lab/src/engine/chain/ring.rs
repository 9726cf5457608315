//! The chain through the ring: the steps are linked, so that the kernel goes from one to the next
//! by itself, and many chains are in flight.

use std::sync::Arc;

use ringwise::{BackendChoice, Buffer, Completion, Local, Operation, RegisteredFile};

use super::{SyncKind, compare, failed, open, stamp};
use crate::{
    engine::{Engine, Tally, beside_the_ring, buffer, rolling, unavailable},
    sampling::{
        job::{Failure, Job, Request, Start},
        lane::Lane,
    },
};

/// When a chain that is done is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// At once.
    Rolling,
    /// When all others are done too.
    Barrier,
}

/// Kernel workers: one for each sync that waits, up to here. Syncs that wait together share what the
/// file system does for one (ext4: a commit of its journal, a flush of the device's cache).
const WORKER_THREADS_MAX: usize = 256;

/// The engine.
#[derive(Debug)]
pub struct RingChain {
    /// What makes a page durable.
    pub sync: SyncKind,
    /// When a chain that is done is replaced.
    pub flow: Flow,
}

impl Engine for RingChain {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let steps = self.sync.steps();
        let entries = u32::try_from(job.depth * steps).unwrap_or(u32::MAX);
        let builder = Local::builder().backend(BackendChoice::Uring).entries(entries);
        let mut local = builder
            .worker_threads(job.depth.min(WORKER_THREADS_MAX))
            .build()
            .map_err(unavailable)?;
        let file = local.register_file(&open(job, self.sync)?.into()).map_err(unavailable)?;
        let detail = local.setup().granted().to_string();
        let before = local.stats();
        let window = start.ready()?;
        let slots = (0..job.depth).map(|_| Slot::new(job)).collect();
        let (sync, flow) = (self.sync, self.flow);
        let mut queue = Queue { job, local, file, sync, flow, slots, pushed: 0 };
        let tally = rolling::drive(&mut queue, &window, Lane::new(job, window, 0, 1), job)?;
        let after = queue.local.stats();
        Ok(Tally {
            submitted: Some((after.submitted - before.submitted) / steps as u64),
            system_calls: Some(after.enters - before.enters),
            lacks: beside_the_ring(after.fallback_operations - before.fallback_operations),
            detail: Some(detail),
            ..tally
        })
    }
}

/// A chain's buffers; none while the kernel has them.
struct Slot {
    page: Option<Buffer>,
    back: Option<Buffer>,
    request: Request,
    /// Steps whose completion has not come.
    open: usize,
}

impl Slot {
    fn new(job: &Job) -> Slot {
        let one = || Some(buffer(job).into());
        Slot { page: one(), back: one(), request: Request::default(), open: 0 }
    }
}

struct Queue<'a> {
    job: &'a Job,
    local: Local,
    file: RegisteredFile,
    sync: SyncKind,
    flow: Flow,
    slots: Vec<Slot>,
    /// Chains pushed and not taken.
    pushed: usize,
}

/// What a step's tag says beside its slot.
const STEPS_MAX: u64 = 4;
const WRITE: u64 = 0;
const SYNC: u64 = 1;
const READ: u64 = 2;

impl rolling::Queue for Queue<'_> {
    fn fresh_max(&self) -> Option<usize> {
        // Syncs that come together cost least: what is fresh is handed over by one call.
        Some(self.slots.len())
    }

    fn push(&mut self, slot: usize, request: Request) -> Result<(), Failure> {
        let steps = self.sync.steps();
        let own = &mut self.slots[slot];
        let mut page = own.page.take().expect("an idle slot has its buffers");
        let back = own.back.take().expect("an idle slot has its buffers");
        (own.request, own.open) = (request, steps);
        stamp(self.job, request).fill(page.as_mut_slice());
        let tag = |step| slot as u64 * STEPS_MAX + step;
        let file = self.file;
        let mut chain = Vec::with_capacity(steps);
        chain.push((Operation::write_at(file, page, request.offset), tag(WRITE)));
        match self.sync {
            SyncKind::Fsync => chain.push((Operation::sync_all(file), tag(SYNC))),
            SyncKind::Fdatasync => chain.push((Operation::sync_data(file), tag(SYNC))),
            SyncKind::Dsync => {}
        }
        chain.push((Operation::read_at(file, back, request.offset), tag(READ)));
        self.local.push_linked(chain).map_err(unavailable)?;
        self.pushed += 1;
        Ok(())
    }

    fn submit(&mut self) -> Result<(), Failure> {
        self.local.submit().map_err(|error| Failure::Io(error.to_string()))?;
        Ok(())
    }

    fn submit_and_wait(&mut self, _want: usize) -> Result<(), Failure> {
        let chains = match self.flow {
            // Filled up again when half of it is done: syncs that come together share a commit and a
            // flush, and while one half waits for its own the other half is written.
            Flow::Rolling => self.pushed.div_ceil(2),
            Flow::Barrier => self.pushed,
        };
        let open: usize = self.slots.iter().map(|slot| slot.open).sum();
        let want = (chains * self.sync.steps()).min(open);
        self.local.submit_and_wait(want).map_err(|error| Failure::Io(error.to_string()))?;
        Ok(())
    }

    fn reap(&mut self, take: &mut rolling::Take<'_>) -> Result<(), Failure> {
        while let Some(completion) = self.local.next_completion() {
            let slot = (completion.tag() / STEPS_MAX) as usize;
            self.settle(slot, completion)?;
            if self.slots[slot].open == 0 {
                self.pushed -= 1;
                return self.finish(slot, take);
            }
        }
        Ok(())
    }
}

impl Queue<'_> {
    /// Takes a step's completion, which must be a success in full.
    fn settle(&mut self, slot: usize, completion: Completion) -> Result<(), Failure> {
        let own = &mut self.slots[slot];
        own.open -= 1;
        let (step, opcode) = (completion.tag() % STEPS_MAX, completion.opcode());
        let moved = completion.result();
        let moved = moved.map_err(|error| failed(self.job, opcode.name(), own.request, error))?;
        if step != SYNC && moved != self.job.block_bytes {
            return Err(failed(self.job, opcode.name(), own.request, "was cut short"));
        }
        match step {
            WRITE => own.page = completion.into_buffer(),
            READ => own.back = completion.into_buffer(),
            _ => {}
        }
        Ok(())
    }

    /// A chain is whole: compares and hands on what it read.
    fn finish(&self, slot: usize, take: &mut rolling::Take<'_>) -> Result<(), Failure> {
        let own = &self.slots[slot];
        let both = own.page.as_ref().zip(own.back.as_ref());
        let (page, back) = both.expect("a write and a read give their buffers back");
        compare(self.job, own.request, page.as_slice(), back.as_slice())?;
        take(slot, back.as_slice())
    }
}
