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
    /// Gives whom to wake, out of all locks.
    fn give(&self, answer: Result<T, Error>) -> Option<Waker> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.answer = Some(answer);
        state.waker.take()
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
struct Promise<T>(Option<Arc<Answer<T>>>);

impl<T> Promise<T> {
    fn keep(mut self, answer: Result<T, Error>) -> Option<Waker> {
        self.0.take().and_then(|promised| promised.give(answer))
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(promised) = self.0.take() {
            hub::wake(promised.give(Err(refusal(libc::ESHUTDOWN))));
        }
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
        let promise = Promise(Some(answer.clone()));
        match self.hub().visit(Box::new(move |local| promise.keep(act(local)))) {
            Ok(next) => self.follow(next),
            // The promise is kept by its drop.
            Err(visit) => drop(visit),
        }
        poll_fn(|context| answer.poll(context.waker())).await
    }
}
