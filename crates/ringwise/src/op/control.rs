//! Operations on the loop itself: nothing, time, and cancelling another.

use std::time::Duration;

use crate::{
    flight::slot::Ticket,
    op::{Kind, Operation},
    sys::time::Timespec,
};

impl Operation {
    /// Does nothing and completes with 0: a probe of the loop, and the price of one operation.
    pub fn nop() -> Operation {
        Operation(None)
    }

    /// Completes with 0 after `duration` of the monotonic clock. Cancelled before that, it fails
    /// with [`Cancelled`](crate::ErrorKind::Cancelled).
    pub fn timeout(duration: Duration) -> Operation {
        Operation::of(Kind::Timeout(Box::new(Timespec::from(duration))))
    }

    /// Cancels the operation that `ticket` names.
    ///
    /// This operation completes with 0 when the other was cancelled, and fails with
    /// [`NothingToCancel`](crate::ErrorKind::NothingToCancel) when it had completed or never was,
    /// or [`TooLateToCancel`](crate::ErrorKind::TooLateToCancel) when it runs and cannot be
    /// stopped. The other operation always completes by itself too, with its own result or with
    /// [`Cancelled`](crate::ErrorKind::Cancelled); the two come in any order. One that has several
    /// completions may end as cancelled although the kernel had nothing to cancel just then.
    pub fn cancel(ticket: Ticket) -> Operation {
        Operation::of(Kind::Cancel(ticket))
    }
}
