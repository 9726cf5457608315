//! The interface to a backend. It has no code: `backend.rs` chooses one of its implementations.

use std::time::Instant;

use crate::{backend::Cqe, descriptor::Blocking, error::Errno, flight::call::Call, op::Opcode};

/// Takes calls and gives results.
pub(crate) trait Driver {
    /// Returns whether a call can be queued without submitting first.
    fn has_room(&mut self) -> bool;

    /// Queues a call that does nothing. Returns false if there is no room. It is separate from
    /// [`queue`](Self::queue), since no-ops measure the cost of a loop.
    fn queue_nop(&mut self, user_data: u64) -> bool;

    /// Queues a call. The caller has seen that there is room, and keeps everything that the call
    /// points to in place until its result has come.
    fn queue(&mut self, user_data: u64, call: Call, blocking: Blocking);

    /// Returns whether chains can be queued whole, and run in order without the loop.
    fn links(&self) -> bool {
        false
    }

    /// Returns whether `count` calls can be queued without submitting first.
    fn has_room_for(&mut self, count: usize) -> bool;

    /// Queues a whole chain: each call starts when the one before is complete. The caller has seen
    /// that there is room. Returns false and queues nothing if the backend cannot do this.
    fn queue_linked(&mut self, _calls: &[(u64, Call)]) -> bool {
        false
    }

    /// Hands over all queued calls, and waits until `want` results are ready or the deadline has
    /// passed. Returns how many are ready. After an error, all calls that were not handed over stay
    /// queued.
    fn submit(&mut self, want: usize, deadline: Option<Instant>) -> Result<usize, Errno>;

    /// Takes the next result, without waiting and without a syscall.
    fn next(&mut self) -> Option<Cqe>;

    /// Takes back results that were taken and are for somebody else. They come next, in their
    /// order.
    fn put_back(&mut self, results: &[Cqe]);

    /// Adds results that the loop makes itself. They come after all results that are there: the end
    /// of a stream comes after its data.
    fn append(&mut self, results: &[Cqe]);

    /// Returns whether the ring, not a thread, makes this call.
    fn supports(&self, opcode: Opcode) -> bool;
}
