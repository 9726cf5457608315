//! Operations that ended with `ECANCELED` although nobody cancelled them, because a thread was
//! missing.
//!
//! There are two reasons, and the kernel does not tell which one applies:
//!
//! - The thread that submitted the operation has exited, in a runtime whose threads share a ring.
//!   The operation then starts again.
//! - The kernel starts no worker for an operation that needs one (a limit of processes;
//!   io_uring/io-wq.c, io_wq_enqueue). This would happen again, so the loop's own threads perform
//!   such operations from then on.

use crate::{
    descriptor::{Blocking, Target},
    flight::completion::Completion,
    local::Local,
    op::{Opcode, Operation},
    ring::hub::order::Key,
    settings::setup::Backend,
};

/// How often an operation that needs a worker may be lost before its user gets the error. A ring
/// loses it twice at most. Threads lose it only if the file system itself returns `ECANCELED`.
const LOSSES_MAX: u8 = 3;

/// How often each operation in flight was lost.
#[derive(Default)]
pub(super) struct Losses(Vec<Option<(Key, u8)>>);

impl Losses {
    /// Counts one more loss of this operation.
    fn count(&mut self, key: Key) -> u8 {
        let at = key.index();
        if at >= self.0.len() {
            self.0.resize(at + 1, None);
        }
        // The place may have belonged to another operation.
        let before = self.0[at].filter(|(own, _)| *own == key).map_or(0, |(_, count)| count);
        let count = before.saturating_add(1);
        self.0[at] = Some((key, count));
        count
    }

    /// Returns whether an operation that nobody cancelled starts again. `is_shared`: many threads
    /// submit.
    pub(super) fn goes_again(
        &mut self,
        key: Key,
        completion: &Completion,
        local: &mut Local,
        is_shared: bool,
    ) -> bool {
        if !is_lost(completion) {
            return false;
        }
        let is_simulated = local.setup().backend() == Backend::Simulated;
        if !is_simulated && !needs_worker(&completion.operation) {
            // It waits without a worker. A driver's own thread does not exit.
            return is_shared;
        }
        let losses = self.count(key);
        let begins_anew = is_shared && losses == 1;
        losses <= LOSSES_MAX && (begins_anew || local.leave_to_threads(completion.opcode()))
    }
}

/// Returns whether this operation was cancelled and can run again, whatever the first attempt did.
/// Operations on names cannot: the first attempt may have made or removed the name.
fn is_lost(completion: &Completion) -> bool {
    use Opcode::{
        Accept, Allocate, Read, ReadVectored, Receive, ReceiveMessage, Send, SendMessage, SetLen,
        Statx, Sync, Write, WriteVectored,
    };
    // A connect is not among them: once a connect has started, the socket takes no second one
    // (`net::TcpStream`).
    completion.raw_result() == -libc::ECANCELED
        && match completion.opcode() {
            Read | ReadVectored | Write | WriteVectored | Sync | Allocate | SetLen | Statx => true,
            // If one of these had moved anything, its result would be a count.
            Accept | Receive | ReceiveMessage | Send | SendMessage => true,
            _ => false,
        }
}

/// Returns whether a worker of the kernel may have to perform it. Operations that wait for a socket
/// or a pipe need none. For a file that only the ring has, the answer makes no difference: no
/// thread can use that file.
fn needs_worker(operation: &Operation) -> bool {
    match operation.target() {
        Some(Target::Descriptor(file)) => {
            matches!(file.blocking(), Blocking::Cached | Blocking::Device)
        }
        Some(Target::Registered(_)) => false,
        None => true,
    }
}

#[cfg(all(not(ringwise_loom), test))]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_for_each_operation() {
        let mut losses = Losses::default();
        let key = |generation: u64| Key::from_tag(generation << 32 | 5);
        assert_eq!([losses.count(key(1)), losses.count(key(1))], [1, 2]);
        assert_eq!(losses.count(key(2)), 1, "another has the place now");
    }
}
