//! Operations that ended with `ECANCELED` and nobody had cancelled: for want of a thread.
//!
//! There are two reasons for that, and the kernel does not tell which. The thread that handed an
//! operation over may have ended, in a runtime whose threads share a ring; then it begins anew. Or the
//! kernel may start no worker for what only a worker can make (a limit of processes; io_uring/io-wq.c,
//! io_wq_enqueue); that again and again, so that such operations are left to the loop's own threads
//! from then on.

use crate::{
    completion::Completion,
    descriptor::{Blocking, Target},
    local::Local,
    op::{Opcode, Operation},
    ring::order::Key,
    setup::Backend,
};

/// So often one that needs a worker is lost before its user is told: by a ring twice, and by threads
/// only where a file system answers so.
const LOSSES_MAX: u8 = 3;

/// How often those in flight were lost.
#[derive(Default)]
pub(super) struct Losses(Vec<Option<(Key, u8)>>);

impl Losses {
    /// Counts one more, of this operation.
    fn count(&mut self, key: Key) -> u8 {
        let at = key.index();
        if at >= self.0.len() {
            self.0.resize(at + 1, None);
        }
        // The place may have been another's.
        let before = self.0[at].filter(|(own, _)| *own == key).map_or(0, |(_, count)| count);
        let count = before.saturating_add(1);
        self.0[at] = Some((key, count));
        count
    }

    /// Whether an operation that nobody asked the end of is to be made again. `is_shared`: many threads
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
            // It waits without one. A driver's own thread does not end.
            return is_shared;
        }
        let losses = self.count(key);
        let begins_anew = is_shared && losses == 1;
        losses <= LOSSES_MAX && (begins_anew || local.leave_to_threads(completion.opcode()))
    }
}

/// Whether an operation was cancelled that may be made again, whatever became of it. A name may have been
/// made or removed by the first attempt.
fn is_lost(completion: &Completion) -> bool {
    use Opcode::{Accept, Receive, ReceiveMessage, Send, SendMessage};
    use Opcode::{Allocate, Read, ReadVectored, SetLen, Statx, Sync, Write, WriteVectored};
    // A connect is not among them: begun once, a socket takes no second one (`net::TcpStream`).
    completion.raw_result() == -libc::ECANCELED
        && match completion.opcode() {
            Read | ReadVectored | Write | WriteVectored | Sync | Allocate | SetLen | Statx => true,
            // What had moved anything would tell how much.
            Accept | Receive | ReceiveMessage | Send | SendMessage => true,
            _ => false,
        }
}

/// Whether a worker of the kernel may have to make it: what waits for a socket or a pipe needs none. Of
/// a file that only the ring has it makes no difference, since no thread can have it.
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
    fn losses_are_those_of_one_operation() {
        let mut losses = Losses::default();
        let key = |generation: u64| Key::from_tag(generation << 32 | 5);
        assert_eq!([losses.count(key(1)), losses.count(key(1))], [1, 2]);
        assert_eq!(losses.count(key(2)), 1, "another has the place now");
    }
}
