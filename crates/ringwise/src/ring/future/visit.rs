//! Registrations, which only the loop's own driver may make.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Poll, Waker},
};

use crate::{
    buf::{BufferGroup, Pool},
    descriptor::{Descriptor, RegisteredFile},
    error::{Errno, Error},
    local::Local,
    op::Opcode,
    ring::{Ring, contained::wake},
    sync::lock,
};

/// The answer of a visit, and the waker of the task that waits for it.
struct Answer<T>(Mutex<State<T>>);

struct State<T> {
    answer: Option<Result<T, Error>>,
    waker: Option<Waker>,
    /// Whether nobody takes the answer any more.
    is_abandoned: bool,
}

impl<T> Answer<T> {
    /// Stores the answer. Returns the waker, for use outside all locks, or the answer if nobody
    /// takes it.
    fn give(&self, answer: Result<T, Error>) -> Result<Option<Waker>, Result<T, Error>> {
        let mut state = lock(&self.0);
        if state.is_abandoned {
            return Err(answer);
        }
        state.answer = Some(answer);
        Ok(state.waker.take())
    }

    /// Notes that nobody waits for the answer any more. Returns the answer if it is there.
    fn abandon(&self) -> Option<Result<T, Error>> {
        let mut state = lock(&self.0);
        state.is_abandoned = true;
        state.answer.take()
    }

    fn poll(&self, waker: &Waker) -> Poll<Result<T, Error>> {
        // Cloned and dropped outside the lock, since a waker runs code of the user.
        let mut other = Some(waker.clone());
        let mut state = lock(&self.0);
        let answer = state.answer.take();
        if answer.is_none() {
            std::mem::swap(&mut state.waker, &mut other);
        }
        drop(state);
        drop(other);
        answer.map_or(Poll::Pending, Poll::Ready)
    }
}

/// Gives an answer even if the visit never takes place because the ring has ended.
struct Promise<T>(Option<Arc<Answer<T>>>);

impl<T> Promise<T> {
    fn keep(mut self, answer: Result<T, Error>) -> Result<Option<Waker>, Result<T, Error>> {
        self.0.take().map_or(Ok(None), |promised| promised.give(answer))
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(promised) = self.0.take() {
            wake(promised.give(Err(refusal(libc::ESHUTDOWN))).ok().flatten());
        }
    }
}

fn refusal(errno: i32) -> Error {
    Error::new(Opcode::Register, Errno(errno))
}

/// Waits for an answer. If it is dropped before, what was done is undone.
struct Waiting<'a, T: Send + 'static> {
    ring: &'a Ring,
    answer: Arc<Answer<T>>,
    undo: fn(&mut Local, T),
}

impl<T: Send + 'static> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        if let Some(Ok(done)) = self.answer.abandon() {
            let undo = self.undo;
            let visit = Box::new(move |local: &mut Local| {
                undo(local, done);
                None
            });
            if let Ok(next) = self.ring.hub().visit(visit) {
                self.ring.follow(next);
            }
        }
    }
}

impl Ring {
    /// Makes a pool of `count` buffers of `buffer_bytes` each and registers it with the ring, as
    /// [`Local::register_pool`](crate::Local::register_pool).
    ///
    /// # Errors
    ///
    /// `EINVAL` for sizes that no pool can have.
    pub async fn register_pool(&self, count: usize, buffer_bytes: usize) -> Result<Pool, Error> {
        self.visit(move |local| local.register_pool(count, buffer_bytes), |_, pool| drop(pool))
            .await
    }

    /// Makes a group of buffers for [`recv_multi`](crate::net::TcpStream::recv_multi), as
    /// [`BufferGroup::new`].
    ///
    /// # Errors
    ///
    /// `EINVAL` for sizes that no group can have.
    pub async fn buffer_group(
        &self,
        count: usize,
        bytes_each: usize,
    ) -> Result<BufferGroup, Error> {
        let make = move |local: &mut Local| BufferGroup::new(local, count, bytes_each);
        self.visit(make, |_, group| drop(group)).await
    }

    /// Puts a file into the ring's table, for cheaper operations on it, as
    /// [`Local::register_file`](crate::Local::register_file).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it returns, the file leaves the table again.
    ///
    /// # Errors
    ///
    /// `ENFILE` when the table is full, and the errors of io_uring_register(2).
    pub async fn register_file(&self, file: &Descriptor) -> Result<RegisteredFile, Error> {
        let file = file.clone();
        let undo = |local: &mut Local, file| drop(local.unregister_file(file));
        self.visit(move |local| local.register_file(&file), undo).await
    }

    /// Takes a file out of the ring's table, at once or when the last operation on it completes. The future
    /// does not wait for that.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after its first poll, the file still leaves the table.
    ///
    /// # Errors
    ///
    /// `EBADF` when the file is not, or no longer, in this ring's table.
    pub async fn unregister_file(&self, file: RegisteredFile) -> Result<(), Error> {
        self.visit(move |local| local.unregister_file(file), |_, ()| ()).await
    }

    /// Makes the driver call `act` on its loop. If the future is dropped, `act` is still called,
    /// and `undo` takes its result back.
    async fn visit<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Local) -> Result<T, Error> + Send + 'static,
        undo: fn(&mut Local, T),
    ) -> Result<T, Error> {
        if self.is_foreign() {
            return Err(refusal(libc::EOWNERDEAD));
        }
        let state = State { answer: None, waker: None, is_abandoned: false };
        let answer = Arc::new(Answer(Mutex::new(state)));
        let promise = Promise(Some(answer.clone()));
        let waiting = Waiting { ring: self, answer, undo };
        let visit = Box::new(move |local: &mut Local| match promise.keep(act(local)) {
            Ok(waker) => waker,
            Err(unwanted) => {
                unwanted.into_iter().for_each(|done| undo(local, done));
                None
            }
        });
        match self.hub().visit(visit) {
            Ok(next) => self.follow(next),
            // The drop of the promise gives the answer.
            Err(visit) => drop(visit),
        }
        poll_fn(|context| waiting.answer.poll(context.waker())).await
    }
}
