//! A driver as a task of a tokio runtime. Results come through the runtime's own epoll, so a
//! completion wakes the thread that goes on with it, and no other thread in between.
//!
//! A thread of the classic backend hands out its result itself. If somebody else uses the loop at
//! that moment, the result comes through the runtime's epoll too, because the backend's epoll set
//! is readable. So classic syscalls cost no more wake-ups than the runtime's own blocking threads
//! do.
//!
//! A caller that brings an order while the driver sleeps hands it over itself, and no other task is
//! woken for it. If several results are ready, one task is woken at a time ([`turns`](crate::ring::hub)),
//! and the orders of these tasks are taken together. To keep the device busy meanwhile, every few
//! orders the task that brought the last one hands them over. The loop thus moves between the
//! runtime's threads, and its ring promises the kernel nothing about the threads that enter it.
//! When the ring or the runtime ends, the driver continues on a thread of its own.
//!
//! The task is woken through the runtime's epoll and never by its waker. A task that another task
//! wakes waits on the thread of the other, which may compute for a second. The lookout
//! (`task/lookout.rs`) wakes the next tasks if a woken task does not. It also stands in for the
//! driver's task if the runtime has woken it and does not run it (`task/summons.rs`).
//!
//! # Safety
//!
//! The runtime watches a descriptor by its number: it is owned by the watch itself. The watches are
//! dropped once, with their task.
#![allow(unsafe_code)]

mod io;
mod lookout;
mod summons;

use std::{
    future::Future,
    mem::ManuallyDrop,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use lookout::Lookout;
use rustix::event::{EventfdFlags, eventfd};
use summons::Caller;
use tokio::{
    io::unix::AsyncFd,
    runtime::{Handle, RuntimeFlavor},
};

use super::{portable::Portable, thread};
use crate::{
    ring::{
        contained::wake,
        driver::Driver,
        hub::{
            Hub,
            order::Key,
            turns::{By, Spread},
        },
    },
    settings::{
        failure::SetupError,
        setup::{Builder, Setup},
    },
    sync::lock,
    sys::fork::ProcessMark,
};

/// The time to wake a thread of the runtime and let it run, including two context switches
/// (docs/notes/library/waking-tasks.md).
const ROW_TIME_MAX: Duration = Duration::from_micros(50);

/// The driver, where both its task and callers with orders reach it.
pub(crate) struct SharedDriver {
    /// Empty when the driver runs on a thread of its own.
    driver: Mutex<Option<Portable>>,
    bell: Arc<Bell>,
    submitting: Submitting,
    lookout: Arc<Lookout>,
}

/// The time that was spent in submits. The kernel blocks the submitting thread while the device has
/// as many requests as it takes, and another thread would only wait beside it.
#[derive(Debug, Default)]
struct Submitting(AtomicU64);

impl Submitting {
    fn time<T>(&self, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = call();
        self.0.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }

    fn total(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// A row of tasks, one woken after the other.
#[derive(Clone, Copy, Debug)]
struct Row {
    began: Instant,
    /// The time spent in submits until then.
    submitting: Duration,
}

/// An eventfd that is written to for another turn of the task. The runtime looks at it after all
/// tasks that can run now. Unlike for a task that yields, the runtime wakes none of its other
/// threads for it.
struct Bell(OwnedFd);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The only possible error is a full counter, which has rung already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl SharedDriver {
    fn lock(&self) -> MutexGuard<'_, Option<Portable>> {
        lock(&self.driver)
    }

    /// Hands over all orders if nobody else uses the loop. Otherwise wakes the driver.
    pub(crate) fn hand_over(&self, hub: &Arc<Hub>, own: Option<Key>) {
        if !self.has_gone_round(hub, By::Caller(own)) {
            hub.wake_driver();
        }
    }

    /// Hands over orders and hands out results. Returns false if somebody else uses the loop, or if
    /// the driver runs on a thread of its own.
    fn has_gone_round(&self, hub: &Arc<Hub>, by: By) -> bool {
        let mut guard = match self.driver.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let Some(driver) = guard.as_mut().map(Portable::get_mut) else { return false };
        driver.take_orders();
        let submitted = self.submitting.time(|| driver.local.submit_and_arm());
        driver.reap();
        let results = driver.take_results();
        let needs_driver = submitted.is_err() || driver.is_closing() || driver.needs_turn();
        drop(guard);
        if results.keep(hub, by) {
            self.bell.wake_by_ref();
            self.lookout.look(hub);
        }
        if needs_driver {
            hub.wake_driver();
        }
        true
    }

    /// Lets the lookout take a turn in place of the driver's task. It wakes all tasks with results
    /// at once, since nobody else would wake the next.
    fn let_lookout_stand_in(self: &Arc<SharedDriver>) {
        let driver = Arc::downgrade(self);
        let stand_in = move |hub: &Arc<Hub>| {
            let Some(driver) = driver.upgrade() else { return };
            if driver.has_gone_round(hub, By::Thread) {
                let (woken, _) = hub.begin_turn(Spread::AtOnce);
                woken.into_iter().for_each(|waker| wake(Some(waker)));
            }
        };
        self.lookout.stand_in_by(Box::new(stand_in));
    }

    /// Lets the threads of a classic loop hand out results themselves, which saves a wake-up.
    fn let_threads_hand_out(self: &Arc<SharedDriver>, hub: &Arc<Hub>) {
        // The threads end after their loop, so they must not keep it alive.
        let (driver, hub) = (Arc::downgrade(self), Arc::downgrade(hub));
        let hand_out = move || {
            let (driver, hub) = (driver.upgrade(), hub.upgrade());
            driver.zip(hub).is_some_and(|(driver, hub)| driver.has_gone_round(&hub, By::Thread))
        };
        if let Some(driver) = self.lock().as_mut().map(Portable::get_mut) {
            driver.local.hand_out_by(Box::new(hand_out));
        }
    }
}

/// Builds a loop and drives it from a task of the current runtime. Returns nothing if there is no
/// runtime or it has no I/O, if the loop is simulated, or if the driver gets a thread of its own.
/// The builder decides about the thread; by default the driver gets one if the runtime runs only
/// while somebody is inside its `block_on`.
pub(crate) fn start(
    builder: &Builder,
    hub: &Arc<Hub>,
    process: &Arc<ProcessMark>,
) -> Option<Result<(Setup, Arc<SharedDriver>), SetupError>> {
    let runtime = Handle::try_current().ok()?;
    let runs_by_itself = runtime.runtime_flavor() != RuntimeFlavor::CurrentThread;
    let has_thread = builder.driver_thread.unwrap_or(!runs_by_itself || !io::CAN_BE_TRIED);
    if has_thread || builder.simulation.is_some() {
        return None;
    }
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
    let turns = io::watch(bell.as_fd())?;
    let mut driver = match Portable::build(builder.clone(), hub) {
        Ok(driver) => driver,
        Err(error) => return Some(Err(error)),
    };
    let setup = driver.get_mut().local.setup().clone();
    let events = io::watch(driver.get_mut().local.event_descriptor()?)?;
    let driver = Arc::new(SharedDriver {
        driver: Mutex::new(Some(driver)),
        bell: Arc::new(Bell(bell)),
        submitting: Submitting::default(),
        lookout: Arc::default(),
    });
    hub.let_callers_hand_over(true);
    driver.let_threads_hand_out(hub);
    driver.let_lookout_stand_in();
    let news = ManuallyDrop::new(News { events, turns });
    let (hub, process) = (hub.clone(), process.clone());
    let waker = Waker::from(driver.bell.clone());
    let caller = Arc::new(Caller::new(driver.lookout.clone(), hub.clone(), process.clone()));
    let task = Task { driver: driver.clone(), hub, process, news, waker, caller, row: None };
    drop(runtime.spawn(task));
    Some(Ok((setup, driver)))
}

struct Task {
    driver: Arc<SharedDriver>,
    hub: Arc<Hub>,
    process: Arc<ProcessMark>,
    news: ManuallyDrop<News>,
    /// Rings the bell.
    waker: Waker,
    /// Wakes the task for the news.
    caller: Arc<Caller>,
    /// The row of the last turn, if other tasks were held back behind it.
    row: Option<Row>,
}

/// The descriptors that the runtime watches.
struct News {
    /// Readable when the ring has news.
    events: AsyncFd<OwnedFd>,
    /// Readable when somebody rang the bell.
    turns: AsyncFd<OwnedFd>,
}

/// The result of a turn.
enum Turn {
    /// There is more to do, so the task yields.
    Again,
    /// The task sleeps until an order, a result or the bell wakes it.
    Sleep,
    /// The ring is closing.
    End,
}

impl Task {
    fn turn(&mut self, context: &mut Context<'_>) -> Turn {
        self.hub.awake();
        loop {
            while is_ready(&self.news.turns, context) {}
            while is_ready(&self.news.events, context) {}
            let (submitted, has_more) = {
                let mut guard = self.driver.lock();
                let Some(driver) = guard.as_mut().map(Portable::get_mut) else { return Turn::End };
                driver.take_orders();
                if driver.is_closing() {
                    return Turn::End;
                }
                let local = &mut driver.local;
                let submitted = self.driver.submitting.time(|| local.submit_and_arm());
                driver.reap();
                let has_more = driver.needs_turn();
                let results = driver.take_results();
                drop(guard);
                results.keep(&self.hub, By::Driver);
                (submitted, has_more)
            };
            let spread = self.spread();
            let (woken, others_wait) = self.hub.begin_turn(spread);
            let count = woken.len();
            woken.into_iter().for_each(|waker| wake(Some(waker)));
            if submitted.is_err() {
                // Operations that the kernel did not take stay queued, and nothing else would hand
                // them over.
                Driver::pause();
                return Turn::Again;
            }
            if others_wait {
                let submitting = self.driver.submitting.total();
                self.row = Some(Row { began: Instant::now(), submitting });
                self.driver.lookout.look(&self.hub);
            }
            // A single woken task hands over its own orders. After several the driver waits for
            // their orders.
            let is_done = count <= 1 && !others_wait && !has_more;
            if is_done && !is_ready(&self.news.events, context) && self.hub.sleep(&self.waker) {
                return Turn::Sleep;
            }
            if count > 0 {
                self.waker.wake_by_ref();
                return Turn::Sleep;
            }
        }
    }

    /// Chooses how to wake tasks: one after the other, which wakes no other thread. If the last row
    /// took longer than waking a thread, its tasks compute, and all are woken at once.
    fn spread(&mut self) -> Spread {
        let Some(row) = self.row.take() else { return Spread::InTurn };
        let submitting = self.driver.submitting.total().saturating_sub(row.submitting);
        let is_slow = row.began.elapsed() > ROW_TIME_MAX.saturating_add(submitting);
        if is_slow { Spread::AtOnce } else { Spread::InTurn }
    }

    /// Moves the driver to a thread of its own, until nothing is in flight.
    fn leave(&mut self) {
        self.driver.lookout.end();
        let driver = self.driver.lock().take();
        if let Some(driver) = driver {
            thread::adopt(driver);
        }
        let (woken, _) = self.hub.begin_turn(Spread::AtOnce);
        woken.into_iter().for_each(|waker| wake(Some(waker)));
    }
}

/// Returns whether there was news since the last call. If not, the next news will wake the task.
fn is_ready(watched: &AsyncFd<OwnedFd>, context: &mut Context<'_>) -> bool {
    match watched.poll_read_ready(context) {
        Poll::Ready(Ok(mut ready)) => {
            ready.clear_ready();
            true
        }
        // The runtime is shutting down, and drops this task next.
        Poll::Ready(Err(_)) | Poll::Pending => false,
    }
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.caller.follow(context.waker());
        let called = Waker::from(self.caller.clone());
        match self.turn(&mut Context::from_waker(&called)) {
            Turn::Again => {
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
        if self.process.is_foreign() {
            // A child of fork(2) ends its copy of the runtime. It has no ring to end. The watched
            // epoll set belongs to the other process too: removing the descriptors would stop the
            // watch there.
            std::mem::forget(self.driver.clone());
            return;
        }
        self.leave();
        // SAFETY: dropped here and nowhere else, and not used after this.
        unsafe { ManuallyDrop::drop(&mut self.news) };
    }
}
