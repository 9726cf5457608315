//! Writes whose futures were dropped. They go on to their end, and the file keeps them until then.
//!
//! Such a write could land late, over a newer one or after a sync that was to cover it. So an overlapping
//! write waits for it, and a sync, a chain, a close and [`File::settled`] wait for all of them. The first
//! of these four reports a failure, once.
//!
//! It orders nothing else: a caller that waits for its writes orders them itself.

use std::{
    future::{Future, poll_fn},
    ops::Range,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use super::File;
use crate::{
    error::{Error, ErrorKind},
    flight::completion::Completion,
    op::{Opcode, Operation},
    ring::{Pending, Timer, wake},
    sync::lock,
};

/// All of a file: of what changes its length or its space.
pub(super) const EVERYWHERE: Range<u64> = 0..u64::MAX;

/// The abandoned writes of a file and its clones.
#[derive(Debug, Default)]
pub(super) struct Abandoned {
    /// How many there are, and one more while a failure is not reported. Most callers only see that it is 0.
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Where those are that may be in flight.
    ranges: Vec<Range<u64>>,
    /// The same with their operations. Empty too while somebody looks at them.
    writes: Vec<Write>,
    is_looked_at: bool,
    /// Another caller came meanwhile, and has to look again.
    has_missed: bool,
    /// A write was added while somebody looked, and nobody has looked at it.
    has_added: bool,
    /// Wakers of the callers that wait for one of them to end.
    waiters: Vec<Waker>,
    failure: Option<Error>,
}

#[derive(Debug)]
struct Write {
    range: Range<u64>,
    pending: Pending,
}

impl State {
    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.ranges.iter().any(|other| other.start < range.end && range.start < other.end)
    }
}

impl Abandoned {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn add(self: &Arc<Self>, range: Range<u64>, pending: Pending) {
        self.count.fetch_add(1, Ordering::AcqRel);
        let mut state = self.lock();
        state.ranges.push(range.clone());
        state.writes.push(Write { range, pending });
        drop(state);
        // This frees those that have ended, with their buffers.
        let _ = self.poll(&EVERYWHERE, None);
    }

    /// Whether none that overlaps with `range` is in flight any more. If not, `waiter` is woken when
    /// one of them has ended.
    fn poll(self: &Arc<Self>, range: &Range<u64>, waiter: Option<&Waker>) -> Poll<()> {
        // A waker is a user's code, so it is cloned outside of the lock.
        let waiter = waiter.cloned();
        let mut state = self.lock();
        // A write that has nobody to wait for begins at its first poll, also while somebody looks at others.
        if !state.overlaps(range) {
            return Poll::Ready(());
        }
        let is_known = |own: &Waker| state.waiters.iter().any(|waiter| waiter.will_wake(own));
        let (known, fresh): (Vec<_>, Vec<_>) = waiter.into_iter().partition(is_known);
        state.waiters.extend(fresh);
        drop(state);
        drop(known);
        loop {
            let mut state = self.lock();
            if std::mem::replace(&mut state.is_looked_at, true) {
                state.has_missed = true;
                return Poll::Pending;
            }
            let writes = std::mem::take(&mut state.writes);
            drop(state);
            self.look(writes);
            let mut state = self.lock();
            if !std::mem::take(&mut state.has_added) {
                return if state.overlaps(range) { Poll::Pending } else { Poll::Ready(()) };
            }
        }
    }

    /// Polls writes that were taken out, and puts those back that have not ended.
    fn look(self: &Arc<Self>, mut writes: Vec<Write>) {
        let teller = Waker::from(self.clone());
        let mut context = Context::from_waker(&teller);
        let mut ended = Vec::new();
        writes.retain_mut(|write| match Pin::new(&mut write.pending).poll(&mut context) {
            Poll::Ready(done) => {
                ended.push((write.range.clone(), done));
                false
            }
            Poll::Pending => true,
        });
        self.put_back(writes, ended);
    }

    /// Lets others look again. Memory and descriptors of what has ended are free before anybody is told, so
    /// that a close finds nothing that holds its file.
    fn put_back(&self, writes: Vec<Write>, ended: Vec<(Range<u64>, Completion)>) {
        let failure = ended.iter().find_map(|(_, done)| failure_of(done));
        let (ranges, ended): (Vec<_>, Vec<_>) = ended.into_iter().unzip();
        let told = Told { abandoned: self, writes, ended: ranges, failure };
        drop(ended);
        drop(told);
    }

    /// Takes the failure of one of them that was not reported.
    fn take_failure(&self) -> Option<Error> {
        let failure = self.lock().failure.take();
        if failure.is_some() {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
        failure
    }
}

/// Tells that writes have ended when it is dropped, also if a user's buffer panics before that.
struct Told<'a> {
    abandoned: &'a Abandoned,
    /// Those that have not ended.
    writes: Vec<Write>,
    /// Where those were that have.
    ended: Vec<Range<u64>>,
    failure: Option<Error>,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        let mut state = self.abandoned.lock();
        state.has_added = !state.writes.is_empty();
        self.writes.append(&mut state.writes);
        state.writes = std::mem::take(&mut self.writes);
        for range in &self.ended {
            let known = state.ranges.iter().position(|known| known == range);
            known.map(|at| state.ranges.swap_remove(at));
        }
        state.is_looked_at = false;
        let is_new = self.failure.is_some() && state.failure.is_none();
        if is_new {
            state.failure = self.failure.take();
        }
        self.abandoned.count.fetch_sub(self.ended.len() - usize::from(is_new), Ordering::AcqRel);
        let is_news = std::mem::take(&mut state.has_missed) || !self.ended.is_empty();
        let waiters = if is_news { std::mem::take(&mut state.waiters) } else { Vec::new() };
        drop(state);
        waiters.into_iter().for_each(|waiter| wake(Some(waiter)));
    }
}

impl Wake for Abandoned {
    /// One of them has ended. This frees its buffer, and wakes those who wait.
    fn wake(self: Arc<Self>) {
        let _ = self.poll(&EVERYWHERE, None);
        let waiters = std::mem::take(&mut self.lock().waiters);
        waiters.into_iter().for_each(|waiter| wake(Some(waiter)));
    }
}

/// Why a write was not made, or not whole.
fn failure_of(done: &Completion) -> Option<Error> {
    let error = done.result().err()?;
    // A ring that closes says so itself.
    (error.kind() != ErrorKind::Cancelled).then(|| error.advise("its future had been dropped"))
}

/// An operation in flight and the range of the file that it changes. If it is dropped before its end, the
/// file keeps the operation.
pub(super) struct Change<'a> {
    file: &'a File,
    range: Range<u64>,
    pending: Option<Pending>,
}

impl<'a> Change<'a> {
    pub(super) fn new(file: &'a File, range: Range<u64>, pending: Pending) -> Change<'a> {
        Change { file, range, pending: Some(pending) }
    }

    /// Polls it, in the time that is left.
    pub(super) fn poll(
        &mut self,
        timer: &mut Timer,
        context: &mut Context<'_>,
    ) -> Poll<Completion> {
        let Some(pending) = &mut self.pending else { return Poll::Pending };
        let polled = timer.poll_limited(pending, context);
        if polled.is_ready() {
            self.pending = None;
        }
        polled
    }

    /// Asks for its end.
    pub(super) fn cancel(&self) {
        if let Some(pending) = &self.pending {
            pending.cancel();
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let Some(pending) = self.pending.take().filter(|_| !self.range.is_empty()) else { return };
        if let Some(pending) = pending.set_aside() {
            self.file.shared.abandoned.add(self.range.clone(), pending);
        }
    }
}

impl File {
    /// Waits until every write of this file whose future was dropped has ended.
    ///
    /// Overlapping writes, syncs, chains and [`close`](File::close) through this file wait by themselves.
    /// Call this function before you use the file in another way.
    ///
    /// # Errors
    ///
    /// What a dropped write failed with. This function, a sync, a chain or `close` reports it once. Of
    /// several failures, the first is reported.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringwise::{OpenOptions, Ring, fs::File};
    ///
    /// # futures::executor::block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// let ring = Ring::new()?;
    /// let options = OpenOptions::new().read(true).write(true).create(true);
    /// let file = File::open(&ring, &path, options).await?;
    /// // A `select!` may drop the future of a write that has begun.
    /// drop(futures::future::poll_immediate(Box::pin(file.write_at(b"late".to_vec(), 0))).await);
    /// file.settled().await?;
    /// assert_eq!(std::fs::read(&path)?, b"late");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn settled(&self) -> Result<(), Error> {
        self.settle_all(&mut self.timer()).await
    }

    /// Whether there may be writes to wait for.
    pub(super) fn has_abandoned(&self) -> bool {
        self.shared.abandoned.count.load(Ordering::Acquire) > 0
    }

    /// Waits for the abandoned writes that overlap with what is about to be written.
    pub(super) async fn settle(&self, range: Range<u64>, timer: &mut Timer) -> Result<(), Error> {
        let abandoned = &self.shared.abandoned;
        if !self.has_abandoned() {
            return Ok(());
        }
        let settled = poll_fn(|context| abandoned.poll(&range, Some(context.waker())));
        timer.limit(Opcode::Write, settled).await
    }

    /// The same, in the time that a function of the file has.
    pub(super) async fn settle_at(&self, range: Range<u64>) -> Result<(), Error> {
        self.settle(range, &mut self.timer()).await
    }

    /// Waits for all abandoned writes, and reports the failure of one.
    pub(super) async fn settle_all(&self, timer: &mut Timer) -> Result<(), Error> {
        self.settle(EVERYWHERE, timer).await?;
        if !self.has_abandoned() {
            return Ok(());
        }
        self.shared.abandoned.take_failure().map_or(Ok(()), Err)
    }

    /// Makes an operation that changes this range of the file, after the abandoned writes there.
    pub(super) async fn change(
        &self,
        range: Range<u64>,
        operation: Operation,
        timer: &mut Timer,
    ) -> Completion {
        if let Err(error) = self.settle(range.clone(), timer).await {
            return Completion::refused(operation, error.errno());
        }
        if timer.is_over() {
            return Completion::refused(operation, libc::ETIME);
        }
        let mut change = Change::new(self, range, self.ring.submit(operation));
        poll_fn(|context| change.poll(timer, context)).await
    }
}
