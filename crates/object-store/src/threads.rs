//! Runs syscalls that block on a thread of tokio's pool.

use object_store::Result;
use tokio::runtime::Handle;

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
    match runtime.spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Failure::RuntimeEnded.into()),
        },
    }
}
