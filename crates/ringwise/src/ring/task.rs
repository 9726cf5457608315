//! A driver as a task of a tokio runtime: results come through the runtime's own epoll, so that a
//! completion wakes the thread that goes on with it, and no other in between. So do those of classic
//! calls, whose epoll set is readable too: they cost no wake-up more than the runtime's own blocking
//! threads do.
//!
//! Whoever brings an order while the driver sleeps hands it over itself: no other task is woken for
//! it. After results were handed out the driver lets the tasks that they woke run first, and takes
//! their orders together; so that the device does not run dry meanwhile, every few orders are handed
//! over by the task that brought the last of them. The loop thus wanders between the runtime's
//! threads, and its ring promises the kernel nothing about who enters it. When the ring ends, or the
//! runtime does first, the driver goes on with a thread of its own.
//!
//! # Safety
//!
//! The runtime watches a descriptor by its number: it is owned by the watch itself.
#![allow(unsafe_code)]

use std::{
    future::Future,
    os::fd::{BorrowedFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    task::{Context, Poll},
};

use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::Handle,
};

use super::{driver::Driver, hub::Hub, portable::Portable, thread};
use crate::setup::{Builder, Setup, SetupError};

/// The driver where both its task and those who bring orders reach it. Empty when it has gone on
/// with a thread.
pub(super) struct SharedDriver(Mutex<Option<Portable>>);

impl SharedDriver {
    fn lock(&self) -> MutexGuard<'_, Option<Portable>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over the orders that are there, if nobody else is at it; else the driver is woken.
    pub(super) fn hand_over(&self, hub: &Hub) {
        let mut guard = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return hub.wake_driver(),
        };
        let Some(driver) = guard.as_mut().map(Portable::get_mut) else {
            return hub.wake_driver();
        };
        driver.take_orders();
        let submitted = driver.local.submit_and_arm();
        driver.reap();
        let results = driver.take_results();
        let needs_driver =
            submitted.is_err() || driver.is_closing() || driver.has_startable_backlog();
        drop(guard);
        if needs_driver {
            hub.wake_driver();
        }
        results.deliver(hub);
    }
}

/// Builds a loop and drives it from a task of the current runtime. Nothing where that cannot be:
/// no runtime, one without I/O, or a loop that is simulated.
pub(super) fn start(
    builder: &Builder,
    hub: &Arc<Hub>,
) -> Option<Result<(Setup, Arc<SharedDriver>), SetupError>> {
    let runtime = Handle::try_current().ok()?;
    let mut driver = match Portable::build(builder.clone(), hub) {
        Ok(driver) => driver,
        Err(error) => return Some(Err(error)),
    };
    let setup = driver.get_mut().local.setup().clone();
    let events = watch(driver.get_mut().local.event_descriptor()?)?;
    let driver = Arc::new(SharedDriver(Mutex::new(Some(driver))));
    hub.let_callers_hand_over(true);
    let task = Task { driver: driver.clone(), hub: hub.clone(), events, has_yielded: false };
    drop(runtime.spawn(task));
    Some(Ok((setup, driver)))
}

/// Has the runtime watch a ring. Nothing where it does no I/O, or there is no descriptor to spare.
fn watch(ring: BorrowedFd<'_>) -> Option<AsyncFd<OwnedFd>> {
    let descriptor = ring.try_clone_to_owned().ok()?;
    // SAFETY: the descriptor is owned by what is returned, and stays open as long as it.
    let register = || unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    // A runtime without I/O panics here, and cannot be asked before.
    catch_unwind(AssertUnwindSafe(register)).ok()?.ok()
}

struct Task {
    driver: Arc<SharedDriver>,
    hub: Arc<Hub>,
    events: AsyncFd<OwnedFd>,
    /// Whether the tasks that results woke have had their turn.
    has_yielded: bool,
}

/// What a turn came to.
enum Turn {
    /// There is more to do after the tasks that are ready have run.
    Yield,
    /// Woken by an order or a result.
    Sleep,
    /// The ring is closing.
    End,
}

impl Task {
    fn turn(&mut self, context: &mut Context<'_>) -> Turn {
        self.hub.awake();
        loop {
            while self.has_events(context) {}
            let delivered = self.deliver();
            // One task goes on and hands over what it brings; several are waited for.
            if delivered > 1 && !std::mem::replace(&mut self.has_yielded, true) {
                return Turn::Yield;
            }
            self.has_yielded = false;
            let submitted;
            let busy = {
                let mut guard = self.driver.lock();
                let Some(driver) = guard.as_mut().map(Portable::get_mut) else { return Turn::End };
                driver.take_orders();
                if driver.is_closing() {
                    return Turn::End;
                }
                submitted = driver.local.submit_and_arm();
                driver.reap();
                driver.has_results() || driver.has_startable_backlog()
            };
            if submitted.is_err() {
                // What the kernel did not take stays queued, and nothing else would hand it over.
                Driver::pause();
                return Turn::Yield;
            }
            if !busy && !self.has_events(context) && self.hub.sleep(context.waker()) {
                return Turn::Sleep;
            }
        }
    }

    /// Whether the ring had news since this was asked last. If not, it will wake the task.
    fn has_events(&self, context: &mut Context<'_>) -> bool {
        match self.events.poll_read_ready(context) {
            Poll::Ready(Ok(mut ready)) => {
                ready.clear_ready();
                true
            }
            // The runtime is shutting down, and drops this task next.
            Poll::Ready(Err(_)) | Poll::Pending => false,
        }
    }

    fn deliver(&self) -> usize {
        let mut guard = self.driver.lock();
        let Some(driver) = guard.as_mut().map(Portable::get_mut) else { return 0 };
        driver.reap();
        let results = driver.take_results();
        drop(guard);
        results.deliver(&self.hub)
    }

    /// Goes on with a thread, until nothing is in flight.
    fn leave(&mut self) {
        let driver = self.driver.lock().take();
        if let Some(driver) = driver {
            thread::adopt(driver);
        }
    }
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.turn(context) {
            Turn::Yield => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Turn::Sleep => Poll::Pending,
            Turn::End => {
                self.leave();
                Poll::Ready(())
            }
        }
    }
}

impl Drop for Task {
    /// The runtime ends before the ring.
    fn drop(&mut self) {
        self.leave();
    }
}
