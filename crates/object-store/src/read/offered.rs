//! [`Offered`]: work that a task may take over, so that several threads do parts of one call.
//!
//! If the page cache has the data, a call is only a copy, and one thread would do all of it. So the tasks of the runtime
//! share it. The caller does what no task has begun: it waits neither for threads that are busy with something else, nor
//! for a task that is queued behind itself because a program blocks this thread until the call is done.
//!
//! If a call has two shares, the caller does both: tokio keeps the last task that a worker thread spawned for that thread.

use std::{
    panic::resume_unwind,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{FutureExt, future::BoxFuture};
use object_store::Result;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::{JoinSet, unconstrained},
};

use crate::failure::Failure;

type Work<T> = BoxFuture<'static, Result<T>>;

/// Work that a task has begun, or that nobody has begun. A drop cancels it: at once if nobody has begun it, and otherwise
/// as soon as the task is polled.
pub(crate) struct Offered<T> {
    work: Arc<Mutex<Option<Work<T>>>>,
    task: JoinSet<Option<Result<T>>>,
}

impl<T: Send + 'static> Offered<T> {
    pub(crate) fn new(
        work: impl Future<Output = Result<T>> + Send + 'static,
        runtime: &Handle,
    ) -> Offered<T> {
        let work = Arc::new(Mutex::new(Some(work.boxed())));
        let offered = work.clone();
        let mut task = JoinSet::new();
        let take_over = async move {
            match take(&offered) {
                Some(work) => Some(work.await),
                None => None,
            }
        };
        task.spawn_on(take_over, runtime);
        Offered { work, task }
    }

    /// Does the work, or waits for the task that has begun it.
    pub(crate) async fn done(mut self) -> Result<T> {
        if let Some(work) = take(&self.work) {
            return work.await;
        }
        // Without the budget of the task that polls: where it is used up, tokio defers the waker until this thread goes
        // on, and this thread may be blocked until the work is done.
        match unconstrained(self.task.join_next()).await {
            Some(Ok(Some(result))) => result,
            Some(Err(error)) if error.is_panic() => resume_unwind(error.into_panic()),
            _ => Err(Failure::RuntimeEnded.into()),
        }
    }
}

/// The runtime that polls, if it has several threads that could take over work.
pub(crate) fn several_threads() -> Option<Handle> {
    let runtime = Handle::try_current().ok()?;
    let has_several = runtime.runtime_flavor() != RuntimeFlavor::CurrentThread
        && runtime.metrics().num_workers() > 1;
    has_several.then_some(runtime)
}

impl<T> Drop for Offered<T> {
    fn drop(&mut self) {
        drop(take(&self.work));
    }
}

fn take<T>(work: &Mutex<Option<Work<T>>>) -> Option<Work<T>> {
    work.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
            mpsc,
        },
        thread::ThreadId,
        time::Duration,
    };

    use futures_util::future::pending;
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    async fn on_thread() -> Result<ThreadId> {
        Ok(std::thread::current().id())
    }

    fn threads(count: usize) -> Runtime {
        Builder::new_multi_thread().worker_threads(count).build().unwrap()
    }

    #[test]
    fn another_thread_does_it() {
        let runtime = threads(2);
        runtime.block_on(async {
            let (began, begins) = mpsc::channel();
            let work = async move {
                began.send(()).unwrap();
                on_thread().await
            };
            let offered = Offered::new(work, &Handle::current());
            begins.recv().unwrap();
            assert_ne!(offered.done().await.unwrap(), std::thread::current().id());
        });
    }

    #[test]
    fn the_caller_does_what_no_task_has_begun() {
        // The only thread of the runtime waits here for the work.
        let runtime = threads(1);
        let task = runtime.spawn(async {
            let offered = Offered::new(on_thread(), &Handle::current());
            let done = futures::executor::block_on(offered.done()).unwrap();
            (done, std::thread::current().id())
        });
        let (done, worker) = runtime.block_on(task).unwrap();
        assert_eq!(done, worker);
    }

    /// The budget of the task was used up, and the waker was kept until the blocked thread would go on.
    #[test]
    fn a_thread_that_is_blocked_until_the_work_is_done_is_woken() {
        let runtime = threads(2);
        let task = runtime.spawn(async {
            for _ in 0..300 {
                let (began, begins) = mpsc::channel();
                let work = async move {
                    began.send(()).unwrap();
                    std::thread::sleep(Duration::from_micros(100));
                    Ok(())
                };
                let handle = Handle::current();
                let offered = std::thread::scope(|scope| {
                    // Not from a worker thread, which would keep the task.
                    scope.spawn(|| Offered::new(work, &handle)).join().unwrap()
                });
                begins.recv().unwrap();
                futures::executor::block_on(offered.done()).unwrap();
            }
        });
        runtime.block_on(task).unwrap();
    }

    struct Guard(Arc<AtomicBool>);

    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }

    #[test]
    fn a_drop_frees_at_once_what_nobody_has_begun() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let is_dropped = Arc::new(AtomicBool::new(false));
        let guard = Guard(is_dropped.clone());
        let work = async move {
            let _guard = guard;
            Ok(())
        };
        drop(Offered::new(work, runtime.handle()));
        assert!(is_dropped.load(Ordering::Acquire));
    }

    #[test]
    fn a_drop_cancels_it() {
        let runtime = threads(1);
        let is_dropped = Arc::new(AtomicBool::new(false));
        let (began, begins) = mpsc::channel();
        let guard = Guard(is_dropped.clone());
        let work = async move {
            let _guard = guard;
            began.send(()).unwrap();
            pending::<Result<()>>().await
        };
        let offered = Offered::new(work, runtime.handle());
        begins.recv().unwrap();
        drop(offered);
        while !is_dropped.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
}
