//! A submitted operation as a future.
//!
//! It owns its operation until it is first polled; after that it is a number, and may be dropped
//! at any moment without anything being freed early (invariants 1 and 6).

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    Ring,
    clock::Expiry,
    hub::{Admission, Key, wake},
};
use crate::{completion::Completion, op::Operation};

/// An operation on its way: a future of its [`Completion`].
///
/// It does nothing until it is polled. Dropped after that, a read or a timeout is cancelled, and
/// everything else goes on to its end (see [`finish`](Self::finish) and
/// [`cancel_on_drop`](Self::cancel_on_drop)); what the operation owns is freed when the kernel is
/// done with it, and a file that it opens is closed.
#[must_use = "a future does nothing unless it is polled"]
pub struct Pending {
    ring: Ring,
    stage: Stage,
    cancels: bool,
    /// What the driver is to be told yet.
    deadline: Option<(Duration, Expiry)>,
}

enum Stage {
    New(Operation),
    Submitted(Key),
    /// It was never handed in.
    Refused(Box<Completion>),
    Over,
}

impl Pending {
    pub(super) fn new(ring: Ring, operation: Operation) -> Pending {
        let cancels = operation.opcode().cancels_on_shutdown();
        Pending { ring, stage: Stage::New(operation), cancels, deadline: None }
    }

    /// Futures of operations that are submitted at once.
    pub(super) fn submit_all(
        ring: &Ring,
        operations: Vec<Operation>,
        linked: bool,
    ) -> Vec<Pending> {
        let cancels: Vec<bool> =
            operations.iter().map(|operation| operation.opcode().cancels_on_shutdown()).collect();
        let refuse = |operations: Vec<Operation>, errno| -> Vec<Stage> {
            let refused = |operation| Completion::refused(operation, errno);
            operations.into_iter().map(|each| Stage::Refused(Box::new(refused(each)))).collect()
        };
        let stages: Vec<Stage> = if ring.is_foreign() {
            refuse(operations, libc::EOWNERDEAD)
        } else {
            match ring.hub().submit_all(operations, linked) {
                Ok((keys, next)) => {
                    ring.follow(next);
                    keys.into_iter().map(Stage::Submitted).collect()
                }
                Err(operations) => refuse(operations, libc::ESHUTDOWN),
            }
        };
        let pending =
            |(stage, cancels)| Pending { ring: ring.clone(), stage, cancels, deadline: None };
        stages.into_iter().zip(cancels).map(pending).collect()
    }

    /// Lets the operation go on to its end when the future is dropped.
    pub fn finish(mut self) -> Pending {
        self.cancels = false;
        self
    }

    /// Cancels the operation when the future is dropped, a write too: whether it took place is
    /// not known then.
    pub fn cancel_on_drop(mut self) -> Pending {
        self.cancels = true;
        self
    }

    pub(super) fn cancels(&self) -> bool {
        self.cancels
    }

    pub(super) fn set_deadline(&mut self, time: Duration, expiry: Expiry) {
        self.deadline = Some((time, expiry));
    }

    fn submit(&mut self, operation: Operation, context: &Context<'_>) -> Poll<Completion> {
        if self.ring.is_foreign() {
            return Poll::Ready(Completion::refused(operation, libc::EOWNERDEAD));
        }
        let deadline = self.deadline.take();
        match self.ring.hub().submit(operation, context.waker().clone(), deadline) {
            Admission::Taken(key, next) => {
                self.stage = Stage::Submitted(key);
                self.ring.follow(next);
                Poll::Pending
            }
            Admission::Refused(operation) => {
                Poll::Ready(Completion::refused(operation, libc::ESHUTDOWN))
            }
        }
    }
}

impl Future for Pending {
    type Output = Completion;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completion> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::New(operation) => self.submit(operation, context),
            Stage::Submitted(key) => match self.ring.hub().poll(key, context.waker()) {
                Some(completion) => Poll::Ready(completion),
                None => {
                    self.stage = Stage::Submitted(key);
                    if let Some((time, expiry)) = self.deadline.take() {
                        let next = self.ring.hub().set_deadline(key, time, expiry);
                        self.ring.follow(next);
                    }
                    Poll::Pending
                }
            },
            Stage::Refused(completion) => Poll::Ready(*completion),
            Stage::Over => panic!("a future was polled after its end"),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Stage::Submitted(key) = self.stage else { return };
        if self.ring.is_foreign() {
            // The lock may have been held by a thread that this process does not have.
            return;
        }
        let (driver, completion) = self.ring.hub().abandon(key, self.cancels);
        wake(driver);
        drop(completion);
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stage = match &self.stage {
            Stage::New(_) => "new",
            Stage::Submitted(_) => "submitted",
            Stage::Refused(_) => "refused",
            Stage::Over => "over",
        };
        f.debug_struct("Pending").field("stage", &stage).finish_non_exhaustive()
    }
}
