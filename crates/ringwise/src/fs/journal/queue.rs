//! Who appends, and what becomes of it: records gather while a batch is committed, and are the next batch.
//!
//! One commit is under way at a time. Its future belongs to the queue and not to a task: whoever appends
//! first begins it, and each completion of the ring polls it on, from the ring's driver. So a commit goes on
//! if the future of an append is dropped, forgotten or not polled any more, and the next batch begins without
//! any of the tasks. The queue knows no file, and does no I/O.
//!
//! Of the threads that reach the queue, one polls the commit at a time (`is_polled`). A completion that comes
//! meanwhile leaves a mark (`is_due`), and whoever polls looks at the mark before it leaves. No waker is
//! cloned, woken or dropped under the lock (invariant 12).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
};

use super::frame::Batch;
use crate::{
    error::{Errno, Error},
    op::Opcode,
    ring::{BoxFuture, wake},
    sync::lock,
};

/// What writes batches and makes them durable.
pub(super) trait Commit: Send + Sized + 'static {
    /// Begins a commit when its future is first polled.
    fn commit(self, batch: Batch) -> Committing<Self>;
}

/// A commit on its way.
pub(super) type Committing<W> = BoxFuture<Committed<W>>;

/// What a commit came to.
pub(super) struct Committed<W> {
    pub(super) writer: W,
    /// The memory of the batch, to be used again.
    pub(super) bytes: Vec<u8>,
    pub(super) result: Result<(), Error>,
}

pub(super) struct Queue<W> {
    state: Mutex<State<W>>,
    /// How many bytes gather at most, unless a record alone has more.
    bytes_max: usize,
}

struct State<W> {
    /// The next batch.
    gathered: Batch,
    /// Memory for the batch after that.
    spare: Vec<u8>,
    /// Every record with a smaller number is durable.
    durable: u64,
    /// Away while a commit has it.
    writer: Option<W>,
    /// Under way. Away while somebody polls it.
    commit: Option<Committing<W>>,
    /// The number after the last record of the commit.
    commit_end: u64,
    is_polled: bool,
    /// The commit has news.
    is_due: bool,
    /// Once there is one, nothing is committed any more.
    failure: Option<Error>,
    /// No more records are taken.
    is_closed: bool,
    /// Counts those who wait, so that each has a key of its own.
    tickets: u64,
    /// Who waits for room in the next batch, first come, first served. The waker is away if it was woken.
    at_door: BTreeMap<u64, Option<Waker>>,
    /// Who waits for a record to be durable, by its number.
    waiting: BTreeMap<(u64, u64), Waker>,
}

impl<W: Commit> Queue<W> {
    /// A queue whose first record gets the number `next`.
    pub(super) fn new(writer: W, next: u64, bytes_max: usize) -> Queue<W> {
        let state = State {
            gathered: Batch::new(next, Vec::new()),
            spare: Vec::new(),
            durable: next,
            writer: Some(writer),
            commit: None,
            commit_end: next,
            is_polled: false,
            is_due: false,
            failure: None,
            is_closed: false,
            tickets: 0,
            at_door: BTreeMap::new(),
            waiting: BTreeMap::new(),
        };
        Queue { state: Mutex::new(state), bytes_max }
    }

    /// The number after the last durable record.
    pub(super) fn durable(&self) -> u64 {
        lock(&self.state).durable
    }

    /// A place in the queue, to be polled.
    pub(super) fn place(self: &Arc<Self>) -> Place<'_, W> {
        Place { queue: self, stage: Stage::Outside }
    }

    /// Takes no more records. Those who wait for room are told.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        let told = state.leave_door();
        drop(state);
        drop(Told(told));
    }

    /// Polls the commit that has news, and begins the next one, as long as there is one of either.
    fn drive(self: &Arc<Self>) {
        // Told at the end: the next commit begins first, so that the disk is not idle meanwhile.
        let mut told = Told(Vec::new());
        loop {
            let taken = lock(&self.state).take_up();
            let Some((mut commit, door)) = taken else { return };
            told.0.extend(door);
            let relay = Waker::from(Arc::clone(self));
            let guard = Polling(self);
            let polled = commit.as_mut().poll(&mut Context::from_waker(&relay));
            std::mem::forget(guard);
            match polled {
                Poll::Pending => lock(&self.state).put_back(commit),
                Poll::Ready(committed) => {
                    // It is over, and holds nothing that the next one needs.
                    drop(commit);
                    told.0.extend(lock(&self.state).settle(committed, self.bytes_max));
                }
            }
        }
    }
}

impl<W: Commit> Wake for Queue<W> {
    /// An operation of the commit has completed.
    fn wake(self: Arc<Self>) {
        lock(&self.state).is_due = true;
        self.drive();
    }
}

impl<W: Commit> State<W> {
    /// Takes the commit out to be polled, if it has news, or begins the next one. Nobody else polls until it is
    /// put back. Also gives who may now look for room.
    fn take_up(&mut self) -> Option<(Committing<W>, Option<Waker>)> {
        let is_begun = self.commit.is_some();
        if self.is_polled || (is_begun && !self.is_due) {
            return None;
        }
        let (commit, door) = match self.commit.take() {
            Some(commit) => (commit, None),
            None => (self.begin()?, self.first_at_door()),
        };
        (self.is_polled, self.is_due) = (true, false);
        Some((commit, door))
    }

    /// A commit of all that has gathered.
    fn begin(&mut self) -> Option<Committing<W>> {
        if self.failure.is_some() || self.gathered.is_empty() {
            return None;
        }
        let writer = self.writer.take()?;
        self.commit_end = self.gathered.end();
        let next = Batch::new(self.commit_end, std::mem::take(&mut self.spare));
        Some(writer.commit(std::mem::replace(&mut self.gathered, next)))
    }

    fn put_back(&mut self, commit: Committing<W>) {
        self.commit = Some(commit);
        self.is_polled = false;
    }

    /// Notes what a commit came to, and gives whoever is to be told.
    fn settle(&mut self, committed: Committed<W>, bytes_max: usize) -> Vec<Waker> {
        let Committed { writer, bytes, result } = committed;
        self.is_polled = false;
        self.writer = Some(writer);
        if let Err(error) = result {
            return self.fail(error);
        }
        // The memory of a record that was longer than the limit is not kept.
        if bytes.capacity() <= bytes_max.saturating_mul(2) {
            self.spare = bytes;
        }
        self.durable = self.commit_end;
        let rest = self.waiting.split_off(&(self.durable, 0));
        std::mem::replace(&mut self.waiting, rest).into_values().collect()
    }

    fn fail(&mut self, error: Error) -> Vec<Waker> {
        self.failure = Some(error);
        self.gathered = Batch::new(self.gathered.end(), Vec::new());
        let at_door = self.leave_door();
        std::mem::take(&mut self.waiting).into_values().chain(at_door).collect()
    }

    fn leave_door(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.at_door).into_values().flatten().collect()
    }

    fn first_at_door(&mut self) -> Option<Waker> {
        self.at_door.first_entry().and_then(|mut first| first.get_mut().take())
    }

    fn next_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }
}

/// While somebody polls the commit, outside of the lock. Forgotten, unless the poll panics.
struct Polling<'a, W: Commit>(&'a Queue<W>);

impl<W: Commit> Drop for Polling<'_, W> {
    fn drop(&mut self) {
        let error = Error::new(Opcode::Write, Errno(libc::ECANCELED));
        let mut state = lock(&self.0.state);
        state.is_polled = false;
        let told = state.fail(error.advise("the commit of a journal panicked"));
        drop(state);
        drop(Told(told));
    }
}

/// Wakes these when it is dropped, also if something panics before that.
struct Told(Vec<Waker>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|waker| wake(Some(waker)));
    }
}

/// A place in the queue: of one that appends a record, or waits for those that were appended.
pub(super) struct Place<'a, W: Commit> {
    queue: &'a Arc<Queue<W>>,
    stage: Stage,
}

#[derive(Clone, Copy)]
enum Stage {
    Outside,
    /// Waits for room.
    AtDoor(u64),
    /// Waits until this record is durable.
    Inside(u64, u64),
}

impl<W: Commit> Place<'_, W> {
    /// Appends a record and waits until it is durable. Gives its number.
    pub(super) fn poll_append(
        &mut self,
        record: &[u8],
        context: &mut Context<'_>,
    ) -> Poll<Result<u64, Error>> {
        let entered = match self.stage {
            Stage::Inside(number, ticket) => Poll::Ready(Ok((number, ticket))),
            Stage::Outside => self.poll_enter(None, record, context),
            Stage::AtDoor(ticket) => self.poll_enter(Some(ticket), record, context),
        };
        match entered {
            Poll::Ready(Ok(key)) => self.poll_durable(key, context),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Waits until everything that is in the queue by now is durable.
    pub(super) fn poll_settled(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Stage::Outside = self.stage {
            let mut state = lock(&self.queue.state);
            let Some(last) = state.gathered.end().checked_sub(1) else {
                return Poll::Ready(Ok(()));
            };
            self.stage = Stage::Inside(last, state.next_ticket());
        }
        match self.stage {
            Stage::Inside(number, ticket) => {
                self.poll_durable((number, ticket), context).map(|told| told.map(drop))
            }
            Stage::Outside | Stage::AtDoor(_) => Poll::Ready(Ok(())),
        }
    }

    /// Waits for room, and puts the record into the next batch.
    fn poll_enter(
        &mut self,
        ticket: Option<u64>,
        record: &[u8],
        context: &mut Context<'_>,
    ) -> Poll<Result<(u64, u64), Error>> {
        let waker = context.waker().clone();
        let mut state = lock(&self.queue.state);
        if let Some(failure) = &state.failure {
            return Poll::Ready(Err(failure.clone()));
        }
        if state.is_closed {
            let error = Error::new(Opcode::Write, Errno(libc::ESHUTDOWN));
            return Poll::Ready(Err(error.advise("the journal was closed")));
        }
        let ticket = ticket.unwrap_or_else(|| state.next_ticket());
        let is_first = state.at_door.first_key_value().is_none_or(|(first, _)| *first == ticket);
        let has_room =
            state.gathered.is_empty() || state.gathered.len_with(record) <= self.queue.bytes_max;
        if !(is_first && has_room) {
            self.stage = Stage::AtDoor(ticket);
            let old = state.at_door.insert(ticket, Some(waker));
            drop(state);
            drop(old);
            return Poll::Pending;
        }
        let number = state.gathered.push(record);
        self.stage = Stage::Inside(number, ticket);
        let left = state.at_door.remove(&ticket);
        let next = state.first_at_door();
        drop(state);
        drop(left);
        wake(next);
        self.queue.drive();
        Poll::Ready(Ok((number, ticket)))
    }

    /// Waits until a record is durable. The key is its number and a ticket.
    fn poll_durable(
        &mut self,
        key: (u64, u64),
        context: &mut Context<'_>,
    ) -> Poll<Result<u64, Error>> {
        let waker = context.waker().clone();
        let mut state = lock(&self.queue.state);
        if state.durable > key.0 {
            return Poll::Ready(Ok(key.0));
        }
        if let Some(failure) = &state.failure {
            return Poll::Ready(Err(failure.clone()));
        }
        let old = state.waiting.insert(key, waker);
        drop(state);
        drop(old);
        Poll::Pending
    }
}

impl<W: Commit> Drop for Place<'_, W> {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        let (left, next) = match self.stage {
            Stage::Outside => (None, None),
            Stage::Inside(number, ticket) => (state.waiting.remove(&(number, ticket)), None),
            Stage::AtDoor(ticket) => {
                let left = state.at_door.remove(&ticket).flatten();
                // The first may have been woken for room, which is the next one's now.
                (left, state.first_at_door())
            }
        };
        drop(state);
        drop(left);
        wake(next);
    }
}

#[cfg(test)]
mod tests;
