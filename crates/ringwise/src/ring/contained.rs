//! Runs code of users: wakers, and drops of the values that an operation owns. A panic in this code
//! goes no further (invariant 12).

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

use crate::flight::completion::Completion;

/// Wakes a task.
pub(crate) fn wake(waker: Option<Waker>) {
    let Some(waker) = waker else { return };
    // The waker is left as the panic left it.
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}

/// Drops a result.
pub(super) fn contain_drop(completion: Completion) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(completion)));
}
