//! An operation that goes on to its end although no task waits for it, within a time limit.
//!
//! A dropped future leaves its operation alone. If the operation has to end by some time, or if something has
//! to be kept until then, somebody has to poll it. The completions of the ring do that here, from the ring's
//! driver. The operation's result is dropped: nobody asks for it.

use std::{
    sync::{Arc, Mutex},
    task::{Context, Wake, Waker},
    time::Duration,
};

use crate::{
    ring::{Pending, Timer},
    sync::lock,
};

/// Sees an operation in flight to its end, cancels it after this time, and drops `kept` when it has ended.
///
/// The time is that of a ring that is open. If the ring closes meanwhile, its shutdown limits the operation.
pub(crate) fn oversee<T: Send + 'static>(operation: Pending, after: Option<Duration>, kept: T) {
    let timer = Timer::new(operation.ring(), after);
    let work = Work { operation, timer, _kept: kept };
    let state = State { work: Some(work), is_due: false };
    Arc::new(Overseen(Mutex::new(state))).poll();
}

struct Overseen<T>(Mutex<State<T>>);

struct State<T> {
    /// Away while somebody polls it, and when it has ended.
    work: Option<Work<T>>,
    /// There was news while somebody polled it.
    is_due: bool,
}

struct Work<T> {
    operation: Pending,
    timer: Timer,
    /// Dropped after the operation.
    _kept: T,
}

impl<T: Send + 'static> Overseen<T> {
    fn poll(self: Arc<Self>) {
        let mut state = lock(&self.0);
        state.is_due = true;
        let Some(mut work) = state.work.take() else { return };
        // To poll may wake a task, whose code may come here again, so nothing is locked meanwhile.
        while std::mem::take(&mut state.is_due) {
            drop(state);
            let waker = Waker::from(Arc::clone(&self));
            let mut context = Context::from_waker(&waker);
            if work.timer.poll_limited(&mut work.operation, &mut context).is_ready() {
                return;
            }
            state = lock(&self.0);
        }
        state.work = Some(work);
    }
}

impl<T: Send + 'static> Wake for Overseen<T> {
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}
