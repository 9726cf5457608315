//! The interface to a backend. It has no code: `backend.rs` chooses one of those that implement it.

use std::time::Instant;

use crate::{backend::Cqe, call::Call, descriptor::Blocking, error::Errno, op::Opcode};

/// Takes calls and gives results.
pub(crate) trait Driver {
    /// Whether a call can be queued without submitting first.
    fn has_room(&mut self) -> bool;

    /// Queues a call that does nothing; false where there is no room. Apart from
    /// [`queue`](Self::queue), since it is the measure of what a loop costs.
    fn queue_nop(&mut self, user_data: u64) -> bool;

    /// Queues a call. The caller has seen that there is room and keeps what the call points to in
    /// place until its result came.
    fn queue(&mut self, user_data: u64, call: Call, blocking: Blocking);

    /// Whether chains can be queued whole, and are made in order without the loop.
    fn links(&self) -> bool {
        false
    }

    /// Whether so many calls can be queued without submitting first.
    fn has_room_for(&mut self, count: usize) -> bool;

    /// Queues a chain, whole: each call is made when the one before is complete. The caller has seen
    /// that there is room. False, and nothing is queued, where the backend cannot.
    fn queue_linked(&mut self, _calls: &[(u64, Call)]) -> bool {
        false
    }

    /// Hands over all that is queued and waits until `want` results are ready or the deadline has
    /// passed; gives how many are ready. On an error everything that was not handed over stays
    /// queued.
    fn submit(&mut self, want: usize, deadline: Option<Instant>) -> Result<usize, Errno>;

    /// The next result, without waiting and without a system call.
    fn next(&mut self) -> Option<Cqe>;

    /// Gives results back that were taken and are for somebody else. They come next, in their order.
    fn put_back(&mut self, results: &[Cqe]);

    /// Takes results in that the loop makes itself. They come after all that is there: the end of a
    /// stream comes after its data.
    fn append(&mut self, results: &[Cqe]);

    /// Whether the ring, not a thread, makes this call.
    fn supports(&self, opcode: Opcode) -> bool;
}
