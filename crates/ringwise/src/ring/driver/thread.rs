//! A driver with a thread of its own. The thread sleeps in the kernel, for results and for orders
//! alike.
//!
//! The thread keeps a read on an eventfd, the bell, in flight, so that both kinds of news end the
//! same wait. A caller with an order writes to the eventfd only while the thread sleeps.

use std::{
    io::{self, Write},
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
    task::{Wake, Waker},
    thread::Builder as ThreadBuilder,
    time::Instant,
};

use rustix::event::{EventfdFlags, eventfd};

#[cfg(feature = "tokio")]
use super::portable::Portable;
use crate::{
    descriptor::Descriptor,
    error::Error,
    op::Operation,
    ring::{
        driver::{BELL_TAG, Driver},
        hub::Hub,
    },
    settings::{
        failure::SetupError,
        setup::{Builder, Setup},
    },
};

/// Writes to the eventfd that the thread reads.
struct Doorbell(Descriptor);

impl Wake for Doorbell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The only possible error is a full counter, which wakes the thread as well.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// Starts the thread. The thread builds its loop itself, since only the thread that built a loop
/// may enter it.
pub(crate) fn start(builder: Builder, hub: Arc<Hub>) -> Result<Setup, SetupError> {
    let (tell, told) = mpsc::sync_channel(1);
    let bell =
        eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| SetupError::Driver(errno.into()))?;
    let run = move || match builder.build() {
        Ok(local) => {
            let _ = tell.send(Ok(local.setup().clone()));
            drop(tell);
            Thread::new(Driver::new(local, hub), bell).run();
        }
        Err(error) => drop(tell.send(Err(error))),
    };
    let thread = ThreadBuilder::new().name("ringwise-driver".into()).spawn(run);
    thread.map_err(SetupError::Driver)?;
    let ended = |_| SetupError::Driver(io::Error::other("its thread ended before it had begun"));
    told.recv().map_err(ended)?
}

/// Continues a driver that lost its runtime, on a thread of its own. If no thread can be started,
/// nobody can wait for the operations in flight, and they are leaked (invariant 7).
#[cfg(feature = "tokio")]
pub(crate) fn adopt(driver: Portable) {
    let mut driver = std::mem::ManuallyDrop::new(driver);
    let hub = driver.get_mut().hub.clone();
    hub.let_callers_hand_over(false);
    let Ok(bell) = eventfd(0, EventfdFlags::CLOEXEC) else { return hub.orphan() };
    let run = move || {
        // This captures the whole driver. Capturing only its field would not be `Send`.
        let driver = driver;
        Thread::new(std::mem::ManuallyDrop::into_inner(driver).into_inner(), bell).run();
    };
    if ThreadBuilder::new().name("ringwise-driver".into()).spawn(run).is_err() {
        hub.orphan();
    }
}

/// Aborts the process if the driver panics, which is a fault of the library. Otherwise all futures
/// would wait forever, and nobody would get a buffer back.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(
                io::stderr(),
                "ringwise: the driver of a ring panicked, which is a fault of the library"
            );
            std::process::abort();
        }
    }
}

struct Thread {
    driver: Driver,
    bell: Descriptor,
    waker: Waker,
}

impl Thread {
    fn new(driver: Driver, bell: OwnedFd) -> Thread {
        let bell = Descriptor::from(bell);
        let waker = Waker::from(Arc::new(Doorbell(bell.clone())));
        Thread { driver, bell, waker }
    }

    fn run(mut self) {
        let _guard = AbortOnPanic;
        loop {
            self.driver.hub.awake();
            self.driver.take_orders();
            self.listen();
            if self.wait().is_err() {
                Driver::pause();
            }
            self.driver.deliver();
            if self.driver.has_ended() {
                return self.driver.end();
            }
        }
    }

    /// Hands over all operations, and waits for news if there is nothing else to do.
    fn wait(&mut self) -> Result<usize, Error> {
        let busy = self.driver.has_results()
            || self.driver.has_startable_backlog()
            // Only the read on the bell is left.
            || self.driver.has_ended();
        let sleeps = !busy && self.driver.hub.sleep(&self.waker);
        let deadline = self.driver.closing_deadline();
        let local = &mut self.driver.local;
        match deadline {
            _ if !sleeps => local.submit(),
            None => local.submit_and_wait(1),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                local.submit_and_wait_timeout(1, left)
            }
        }
    }

    /// Keeps a read on the bell in flight. If there is no room for the read, a completion will make
    /// room, and wakes the thread itself.
    fn listen(&mut self) {
        if !self.driver.has_bell() {
            self.driver.push_own(Operation::read_bell(&self.bell), BELL_TAG);
        }
    }
}
