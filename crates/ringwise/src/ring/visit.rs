//! What only the loop's own driver may do, asked for from anywhere: registrations.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    task::{Poll, Waker},
};

use super::{Ring, hub};
use crate::{
    error::{Errno, Error},
    local::Local,
    op::Opcode,
};

/// The answer of a visit, and who waits for it.
struct Answer<T>(Mutex<State<T>>);

struct State<T> {
    answer: Option<Result<T, Error>>,
    waker: Option<Waker>,
}

impl<T> Answer<T> {
    fn give(&self, answer: Result<T, Error>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.answer = Some(answer);
        let waker = state.waker.take();
        drop(state);
        hub::wake(waker);
    }

    fn poll(&self, waker: &Waker) -> Poll<Result<T, Error>> {
        // Cloned and dropped out of the lock: a waker is a user's code.
        let mut other = Some(waker.clone());
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = state.answer.take();
        if answer.is_none() {
            std::mem::swap(&mut state.waker, &mut other);
        }
        drop(state);
        drop(other);
        answer.map_or(Poll::Pending, Poll::Ready)
    }
}

/// Gives an answer even where the visit never takes place, because the ring has ended.
struct Promise<T>(Arc<Answer<T>>);

impl<T> Promise<T> {
    fn keep(self, answer: Result<T, Error>) {
        self.0.give(answer);
        std::mem::forget(self);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.0.give(Err(refusal(libc::ESHUTDOWN)));
    }
}

fn refusal(errno: i32) -> Error {
    Error::new(Opcode::Register, Errno(errno))
}

impl Ring {
    /// Has the driver call `act` on its loop. Dropped, it is called all the same.
    pub(super) async fn visit<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Local) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        if self.is_foreign() {
            return Err(refusal(libc::EOWNERDEAD));
        }
        let answer = Arc::new(Answer(Mutex::new(State { answer: None, waker: None })));
        let promise = Promise(answer.clone());
        // A closed ring drops the visit, and so keeps the promise.
        drop(self.hub().visit(Box::new(move |local| promise.keep(act(local)))));
        poll_fn(|context| answer.poll(context.waker())).await
    }
}
