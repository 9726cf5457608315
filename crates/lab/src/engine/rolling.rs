//! The rolling window of every engine with a queue: keep it full, never wait for a whole batch.
//!
//! Each round hands over what is to be read, waits for at least some completions, and takes all
//! that are there. The clock is read twice a round: operations handed over together began
//! together, since the kernel is entered once for all of them, and completions taken together
//! ended together, since none was known of before. A latency is thus what a caller sees, not when
//! the device was done.

use super::Tally;
use crate::{
    job::{Failure, Request, Window},
    lane::Lane,
};

/// Takes a completion: the slot, and what the read brought.
pub(super) type Take<'a> = dyn FnMut(usize, &[u8]) -> Result<(), Failure> + 'a;

/// A queue of operations with the kernel.
pub(super) trait Queue {
    /// Prepares a read into the slot's own buffer.
    fn push(&mut self, slot: usize, request: Request) -> Result<(), Failure>;

    /// Hands over all that was prepared, and waits until `want` completions are there.
    fn submit_and_wait(&mut self, want: usize) -> Result<(), Failure>;

    /// Gives each completion that is there, with what it brought.
    fn reap(&mut self, take: &mut Take<'_>) -> Result<(), Failure>;
}

/// For how many completions to wait at a depth. With few in flight, each one as it comes. With
/// many, an eighth of them: the rest keeps the device busy, and fewer wake-ups and larger
/// submissions leave more of the processor. (On a virtio disk at depth 32, waiting for one made the
/// ring a tenth slower than waiting for four.)
fn completions_wanted(depth: usize) -> usize {
    (depth / 8).clamp(1, 16)
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    request: Request,
    began_ns: u64,
}

/// Keeps `depth` reads in flight until the lane is over, then waits for the rest.
pub(super) fn drive(
    queue: &mut impl Queue,
    window: &Window,
    mut lane: Lane,
    depth: usize,
) -> Result<Tally, Failure> {
    let mut slots = vec![Slot::default(); depth];
    let mut idle: Vec<usize> = (0..depth).rev().collect();
    let mut fresh = Vec::with_capacity(depth);
    let want = completions_wanted(depth);
    loop {
        while let Some(&slot) = idle.last() {
            let Some(request) = lane.next_request() else { break };
            idle.pop();
            slots[slot].request = request;
            queue.push(slot, request)?;
            fresh.push(slot);
        }
        let in_flight = depth - idle.len();
        if in_flight == 0 {
            return Ok(Tally::of(window, [lane.into_counts()]));
        }
        let began_ns = lane.clock();
        lane.begin(fresh.len() as u64, began_ns);
        fresh.drain(..).for_each(|slot| slots[slot].began_ns = began_ns);
        queue.submit_and_wait(want.min(in_flight))?;
        let ended_ns = lane.clock();
        queue.reap(&mut |slot, bytes| {
            let Slot { request, began_ns } = slots[slot];
            idle.push(slot);
            lane.complete(request, began_ns, ended_ns, bytes)
        })?;
    }
}
