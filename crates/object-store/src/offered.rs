//! [`Offered`]: work that a task may take over, so that several threads do parts of one call.
//!
//! A call whose data the page cache has is a copy, and one thread would make all of it. The caller does what no task
//! has begun: it waits neither for threads that are busy with something else, nor for a task that is queued behind
//! itself because a program blocks this thread until the call is done.

use std::{
    panic::resume_unwind,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{FutureExt, future::BoxFuture};
use object_store::Result;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::JoinSet,
};

use crate::failure::Failure;

type Work<T> = BoxFuture<'static, Result<T>>;

/// Work that has begun, or that nobody has begun. Dropping it cancels it.
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
        match self.task.join_next().await {
            Some(Ok(Some(result))) => result,
            Some(Err(error)) if error.is_panic() => resume_unwind(error.into_panic()),
            _ => Err(Failure::RuntimeEnded.into()),
        }
    }
}

/// The runtime that polls, if it has several threads that could take over work.
pub(crate) fn several_threads() -> Option<Handle> {
    let runtime = Handle::try_current().ok()?;
    (runtime.runtime_flavor() != RuntimeFlavor::CurrentThread).then_some(runtime)
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

    #[test]
    fn a_drop_cancels_it() {
        struct Guard(Arc<AtomicBool>);
        impl Drop for Guard {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
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
