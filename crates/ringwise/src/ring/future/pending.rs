//! A submitted operation as a future.
//!
//! It owns its operation until it is first polled. After that it is only a number, and may be
//! dropped at any moment: nothing is freed early (invariants 1 and 6).

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    flight::completion::Completion,
    op::Operation,
    ring::{
        Ring, Timer,
        hub::order::{Admission, Key},
    },
};

/// An operation as a future of its [`Completion`].
///
/// It does nothing until it is polled.
///
/// # Cancel safety
///
/// If it is dropped after that, reads, receives, accepts, connects and timeouts are cancelled, and any other
/// operation goes on to its end. [`finish`](Self::finish) and [`cancel_on_drop`](Self::cancel_on_drop) change
/// that. The buffers are freed when the kernel has finished with them, and a file that was opened is closed.
///
/// If a receive or an accept has completed by then, its bytes or its connection are lost. The sockets of
/// [`net`](crate::net) keep them for the next call.
///
/// # Examples
///
/// ```
/// use ringwise::{Descriptor, Operation, Ring};
///
/// # futures::executor::block_on(async {
/// let ring = Ring::new()?;
/// let file = Descriptor::from(std::fs::File::open("/dev/zero")?);
/// let read = ring.submit(Operation::read_at(&file, vec![1; 64], 0));
/// assert_eq!(read.await.result()?, 64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[must_use = "a future does nothing unless it is polled"]
pub struct Pending {
    ring: Ring,
    stage: Stage,
    cancels: bool,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

enum Stage {
    New(Operation),
    Submitted(Key),
    Over,
}

impl Pending {
    pub(crate) fn new(ring: Ring, operation: Operation) -> Pending {
        Pending::of(ring, &operation).with(operation)
    }

    /// Makes the future of an operation. The operation itself comes by [`with`](Self::with), or is
    /// [`submitted`](Self::submitted) to the driver.
    pub(crate) fn of(ring: Ring, operation: &Operation) -> Pending {
        Pending {
            ring,
            stage: Stage::Over,
            cancels: operation.opcode().cancels_on_shutdown(),
            #[cfg(feature = "tracing")]
            span: super::span::of(operation),
        }
    }

    /// Gives it the operation, which is submitted at the first poll.
    pub(crate) fn with(mut self, operation: Operation) -> Pending {
        self.stage = Stage::New(operation);
        self
    }

    /// Gives it the key of an operation that the driver has.
    pub(crate) fn submitted(mut self, key: Key) -> Pending {
        self.stage = Stage::Submitted(key);
        self
    }

    /// Sets a time limit for the operation, from the first poll on. When the time is over, the
    /// operation is cancelled and fails with [`TimedOut`](crate::ErrorKind::TimedOut). The future
    /// always waits for the operation's end, so that its buffer comes back. A write that the device
    /// has cannot be stopped, and completes later with its own result. The deadline needs no room
    /// in the ring.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{os::fd::OwnedFd, time::Duration};
    /// use ringwise::{Descriptor, ErrorKind, Operation, Ring};
    ///
    /// # futures::executor::block_on(async {
    /// let ring = Ring::new()?;
    /// let (reader, _writer) = std::io::pipe()?;
    /// let reader = Descriptor::from(OwnedFd::from(reader));
    /// let read = ring.submit(Operation::read_at(reader, vec![0; 64], 0));
    /// let done = read.deadline(Duration::from_millis(10)).await;
    /// assert_eq!(done.result().unwrap_err().kind(), ErrorKind::TimedOut);
    /// assert_eq!(done.into_buffer().unwrap().as_slice().len(), 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn deadline(self, after: Duration) -> Deadline {
        let timer = Timer::new(&self.ring, Some(after));
        Deadline { operation: self, timer }
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// For a timeout: returns whether its time is over. A ring that closes also ends the timeout,
    /// and then this is false.
    pub(crate) fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        Pin::new(self).poll(context).map(|ended| ended.result().is_ok())
    }

    /// Leaves the operation alone as a drop does, but keeps its completion to be awaited later.
    /// Returns nothing if the driver does not have the operation.
    pub(crate) fn set_aside(self) -> Option<Pending> {
        if !matches!(self.stage, Stage::Submitted(_)) {
            return None;
        }
        if self.cancels {
            self.cancel();
        }
        Some(self)
    }

    /// Asks the driver to cancel the operation.
    pub(crate) fn cancel(&self) {
        if let Stage::Submitted(key) = self.stage
            && !self.ring.is_foreign()
        {
            self.ring.follow(self.ring.hub().cancel(key));
        }
    }

    /// Lets the operation go on to its end when the future is dropped.
    pub fn finish(mut self) -> Pending {
        self.cancels = false;
        self
    }

    /// Cancels the operation when the future is dropped, even a write. It is then unknown whether the write
    /// took place.
    pub fn cancel_on_drop(mut self) -> Pending {
        self.cancels = true;
        self
    }

    fn poll_stage(&mut self, context: &Context<'_>) -> Poll<Completion> {
        if matches!(self.stage, Stage::Submitted(_)) && self.ring.is_foreign() {
            // The operation belongs to the other process, and one of its threads may hold the hub's
            // lock.
            return Poll::Pending;
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::New(operation) => self.submit(operation, context),
            Stage::Submitted(key) => match self.ring.hub().poll(key, context.waker()) {
                Some(completion) => Poll::Ready(completion),
                None => {
                    self.stage = Stage::Submitted(key);
                    Poll::Pending
                }
            },
            Stage::Over => panic!("a future was polled after its end"),
        }
    }

    fn submit(&mut self, operation: Operation, context: &Context<'_>) -> Poll<Completion> {
        if self.ring.is_foreign() {
            return Poll::Ready(Completion::refused(operation, libc::EOWNERDEAD));
        }
        match self.ring.hub().submit(operation, context.waker().clone()) {
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
        #[cfg(feature = "tracing")]
        let entered = std::mem::replace(&mut self.span, tracing::Span::none()).entered();
        let polled = self.poll_stage(context);
        #[cfg(feature = "tracing")]
        match &polled {
            Poll::Ready(completion) => super::span::end(&entered, completion),
            Poll::Pending => self.span = entered.exit(),
        }
        polled
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Stage::Submitted(key) = self.stage else { return };
        if self.ring.is_foreign() {
            // The lock may be held by a thread that this process does not have.
            return;
        }
        let (next, completion) = self.ring.hub().abandon(key, self.cancels);
        self.ring.follow(next);
        drop(completion);
    }
}

/// An operation with a deadline. Made by [`Pending::deadline`]. Dropping it has the same effect as
/// dropping the operation's own future.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use futures::future::join_all;
/// use ringwise::{Deadline, Operation, Ring};
///
/// # futures::executor::block_on(async {
/// let ring = Ring::new()?;
/// let limited = |ms| -> Deadline {
///     ring.submit(Operation::timeout(Duration::from_millis(ms))).deadline(Duration::from_millis(20))
/// };
/// let done = join_all([limited(1), limited(60_000)]).await;
/// assert!(done[0].result().is_ok() && done[1].result().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Deadline {
    operation: Pending,
    timer: Timer,
}

impl Future for Deadline {
    type Output = Completion;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completion> {
        let Deadline { operation, timer } = &mut *self;
        timer.poll_limited(operation, context)
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stage = match &self.stage {
            Stage::New(_) => "new",
            Stage::Submitted(_) => "submitted",
            Stage::Over => "over",
        };
        f.debug_struct("Pending").field("stage", &stage).finish_non_exhaustive()
    }
}
