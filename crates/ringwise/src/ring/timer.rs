//! The time that something has: a timeout of the ring, looked at beside what it limits.
//!
//! It is the ring's own, so that it needs no runtime, and follows a simulation's clock. What is asked to
//! end is waited for all the same: its buffer comes back.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use super::{Pending, Ring};
use crate::{
    completion::Completion,
    error::{Errno, Error},
    op::{Opcode, Operation},
};

#[derive(Debug)]
pub(crate) enum Timer {
    Endless,
    /// It begins when it is first looked at.
    Running(Pending),
    Over,
}

impl Timer {
    pub(crate) fn new(ring: &Ring, after: Option<Duration>) -> Timer {
        after.map_or(Timer::Endless, |after| Timer::Running(ring.submit(Operation::timeout(after))))
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Timer::Over)
    }

    /// Whether the time is over, of which the caller is told once.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        let Timer::Running(timeout) = self else { return false };
        let Poll::Ready(is_over) = timeout.poll_timeout(context) else { return false };
        // A ring that closes ends it too.
        *self = if is_over { Timer::Over } else { Timer::Endless };
        is_over
    }

    /// Begins it, or sees that it is over.
    pub(crate) async fn look(&mut self) {
        poll_fn(|context| {
            self.poll(context);
            Poll::Ready(())
        })
        .await;
    }

    /// Waits for a future until the time is over; then it is dropped.
    pub(crate) async fn limit<F: Future>(
        &mut self,
        opcode: Opcode,
        future: F,
    ) -> Result<F::Output, Error> {
        let mut future = pin!(future);
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending if self.poll(context) => {
                Poll::Ready(Err(Error::new(opcode, Errno(libc::ETIME))))
            }
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Polls an operation that is to end in this time: then it is cancelled if it can be, and comes to
    /// its own end in any case.
    pub(crate) fn poll_limited(
        &mut self,
        operation: &mut Pending,
        context: &mut Context<'_>,
    ) -> Poll<Completion> {
        let mut polled = Pin::new(&mut *operation).poll(context);
        match &mut polled {
            Poll::Ready(done) if self.is_over() && done.result == -libc::ECANCELED => {
                done.result = -libc::ETIME;
            }
            Poll::Ready(_) => {}
            Poll::Pending if self.poll(context) => operation.cancel(),
            Poll::Pending => {}
        }
        polled
    }

    /// Makes an operation in the time that is left; one that had not begun does not begin.
    pub(crate) async fn make(&mut self, ring: &Ring, operation: Operation) -> Completion {
        if self.is_over() {
            return Completion::refused(operation, libc::ETIME);
        }
        let mut pending = ring.submit(operation);
        poll_fn(|context| self.poll_limited(&mut pending, context)).await
    }
}
