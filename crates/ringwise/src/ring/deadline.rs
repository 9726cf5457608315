//! A submitted operation with a deadline.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use super::{Pending, clock::Expiry};
use crate::completion::Completion;

/// An operation on its way, with a deadline: a future of its [`Completion`], or of word that it is
/// [`Overdue`]. Made by [`Pending::deadline`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Deadline {
    pending: Option<Pending>,
    is_over: Arc<AtomicBool>,
}

/// An operation that was past its deadline and goes on: what becomes of it is not known yet.
#[derive(Debug)]
pub struct Overdue(Pending);

impl Overdue {
    /// The operation. Awaited, it gives its completion and its buffer; dropped, it goes on to its
    /// end.
    pub fn into_pending(self) -> Pending {
        self.0
    }
}

impl fmt::Display for Overdue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the operation is past its deadline and goes on; its outcome is not known yet")
    }
}

impl std::error::Error for Overdue {}

impl Pending {
    /// Bounds the time that the operation may take, counted from when the driver has it.
    ///
    /// One that is cancelled when its future is dropped (a read, a timeout, or by
    /// [`cancel_on_drop`](Self::cancel_on_drop)) is cancelled at the deadline. Its completion is
    /// waited for all the same, so that the buffer comes back: it fails with
    /// [`TimedOut`](crate::ErrorKind::TimedOut), or has succeeded if the cancel came too late. So
    /// does anything that the ring had no room for until then: it did nothing.
    ///
    /// Everything else, a write above all, goes on to its end, and the future gives [`Overdue`] at
    /// the deadline, from which the operation can be had back.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ringwise::{Descriptor, ErrorKind, Operation, Ring};
    ///
    /// # futures::executor::block_on(async {
    /// let ring = Ring::new()?;
    /// let (reader, _writer) = std::io::pipe()?;
    /// let reader = Descriptor::from(std::os::fd::OwnedFd::from(reader));
    /// let read = ring.submit(Operation::read_at(&reader, vec![0; 8], 0));
    /// let done = read.deadline(Duration::from_millis(10)).await?;
    /// assert_eq!(done.result().unwrap_err().kind(), ErrorKind::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn deadline(mut self, time: Duration) -> Deadline {
        let is_over = Arc::new(AtomicBool::new(false));
        let expiry = if self.cancels() { Expiry::Cancel } else { Expiry::Tell(is_over.clone()) };
        self.set_deadline(time, expiry);
        Deadline { pending: Some(self), is_over }
    }
}

impl Future for Deadline {
    type Output = Result<Completion, Overdue>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let pending = self.pending.as_mut().expect("a future was polled after its end");
        match Pin::new(pending).poll(context) {
            Poll::Ready(completion) => {
                self.pending = None;
                Poll::Ready(Ok(completion))
            }
            // Told after this, it is woken: its waker is there.
            Poll::Pending if self.is_over.load(Ordering::Acquire) => {
                let pending = self.pending.take().expect("polled just now");
                Poll::Ready(Err(Overdue(pending)))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
