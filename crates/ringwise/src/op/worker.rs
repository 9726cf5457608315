//! Which operations a ring always hands to a worker thread of the kernel (io-wq), as far as that can
//! be told from the operation itself. The kernel tells no ring what it handed over.

use super::{Hint, Kind, Operation};

impl Operation {
    /// Whether a ring makes it by a worker: it forces that when it takes such an entry
    /// (`REQ_F_FORCE_ASYNC` in io_uring/{sync,statx,truncate,fs,openclose}.c, Linux 6.18), or the file
    /// system was found to know no call of the kind that must not wait.
    pub(crate) fn is_by_worker(&self) -> bool {
        match self.0.as_deref() {
            Some(
                Kind::Sync { .. }
                | Kind::Statx(_)
                | Kind::Allocate { .. }
                | Kind::SetLen { .. }
                | Kind::Unlink { .. }
                | Kind::CreateDirectory { .. }
                | Kind::Rename { .. }
                | Kind::Link { .. }
                | Kind::Symlink(_),
            ) => true,
            Some(Kind::Open(open)) => {
                // O_TMPFILE has O_DIRECTORY's bit in it.
                let temporary = open.flags & libc::O_TMPFILE == libc::O_TMPFILE;
                temporary || open.flags & (libc::O_CREAT | libc::O_TRUNC) != 0
            }
            Some(Kind::Read { hint, .. } | Kind::Write { hint, .. }) => *hint == Hint::ByWorker,
            _ => false,
        }
    }
}
