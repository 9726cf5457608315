//! A time limit: a timeout of the ring, polled together with the future that it limits.
//!
//! The timeout belongs to the ring, so it needs no runtime and follows a simulation's clock. An
//! operation that is asked to end is still awaited, so its buffer comes back.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    error::{Errno, Error},
    flight::completion::Completion,
    op::{Opcode, Operation},
    ring::{Pending, Ring},
};

#[derive(Debug)]
pub(crate) enum Timer {
    Endless,
    /// The time begins at the first poll.
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

    /// Returns whether the time is over. It returns true only once.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        let Timer::Running(timeout) = self else { return false };
        let Poll::Ready(is_over) = timeout.poll_timeout(context) else { return false };
        // A ring that closes ends the timeout too.
        *self = if is_over { Timer::Over } else { Timer::Endless };
        is_over
    }

    /// Begins the time, or notes that it is over.
    pub(crate) async fn look(&mut self) {
        poll_fn(|context| {
            self.poll(context);
            Poll::Ready(())
        })
        .await;
    }

    /// Waits for a future until the time is over, and then drops it.
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

    /// Polls an operation with this time limit. When the time is over, cancels the operation if
    /// possible, and waits for its end in any case.
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

    /// Runs an operation in the time that is left. If there is none, the operation does not start.
    pub(crate) async fn make(&mut self, ring: &Ring, operation: Operation) -> Completion {
        if self.is_over() {
            return Completion::refused(operation, libc::ETIME);
        }
        let mut pending = ring.submit(operation);
        poll_fn(|context| self.poll_limited(&mut pending, context)).await
    }
}
