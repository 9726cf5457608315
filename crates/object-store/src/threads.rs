//! Runs syscalls that block on a thread of tokio's pool.

use std::panic::{AssertUnwindSafe, catch_unwind};

use object_store::Result;
use tokio::{runtime::Handle, task::unconstrained};

use crate::failure::Failure;

/// Runs `work` where it may block: on tokio's pool, or on this thread if there is no runtime.
///
/// # Cancel safety
///
/// On the pool, work that has begun goes on to its end if the future is dropped.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let Ok(runtime) = Handle::try_current() else { return work() };
    // Without the budget of the task, so that a thread that is blocked until this ends is woken.
    match unconstrained(runtime.spawn_blocking(work)).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Failure::RuntimeEnded.into()),
        },
    }
}

/// Drops a value where that may block. If the pool takes no more work, the value is dropped on this thread.
pub(crate) fn drop_blocking(value: impl Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        // tokio panics if no thread can be started. It has the value then, and drops it later.
        let spawn = AssertUnwindSafe(|| drop(runtime.spawn_blocking(move || drop(value))));
        let _ = catch_unwind(spawn);
    }
}
