//! The handle of a ring: it builds and ends the ring, and tells its settings and statistics.

use std::{
    future::{Future, poll_fn},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use super::{
    contained::wake,
    hits::Hits,
    hub::{Counts, Hub},
    stats::RingStats,
};
#[cfg(feature = "tokio")]
use crate::ring::driver::task;
#[cfg(feature = "tracing")]
use crate::ring::future::span;
use crate::{
    local::Leaked,
    op::Opcode,
    ring::{driver::thread, hub::order::Next},
    settings::{
        failure::SetupError,
        setup::{Builder, Setup},
    },
    sim::Simulation,
    sys::fork::ProcessMark,
};

/// How long operations in flight have when the last handle is dropped.
const DROP_DEADLINE: Duration = Duration::from_secs(5);

/// A handle on a loop, which can be cloned and shared. It is `Send` and `Sync`, and its futures are
/// `Send`.
///
/// The loop ends in the background when the last clone and the last future are gone. Reads, receives,
/// accepts, connects and timeouts are then cancelled, and all other operations go on to their end. Await
/// [`shutdown`](Self::shutdown) before the process exits.
///
/// A ring cannot be used in a child of fork(2). Operations that are submitted there fail with `EOWNERDEAD`,
/// and earlier futures never end there. The ring and the runtime may be dropped.
///
/// # Cancel safety
///
/// Every future may be dropped. [`Pending`](super::Pending) says what happens to its operation.
///
/// # Examples
///
/// ```
/// use ringwise::{Descriptor, Operation, Ring};
///
/// # futures::executor::block_on(async {
/// let ring = Ring::new()?;
/// let file = Descriptor::from(std::fs::File::open("/proc/self/comm")?);
/// let done = ring.submit(Operation::read_at(&file, vec![0; 64], 0)).await;
/// assert!(done.result()? > 0);
/// ring.shutdown(std::time::Duration::from_secs(1)).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Ring(Arc<Inner>);

struct Inner {
    hub: Arc<Hub>,
    setup: Setup,
    process: Arc<ProcessMark>,
    /// Requests that the caller's thread served itself.
    inline_hits: Hits,
    bounced_reads: AtomicU64,
    /// Whether the ring was shut down. Threads that serve their own requests check this.
    is_closed: AtomicBool,
    simulation: Option<Simulation>,
    #[cfg(feature = "tokio")]
    driver: Option<Arc<task::SharedDriver>>,
}

impl Builder {
    /// Builds a handle that is shared between threads and tasks, with the loop behind it.
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build), and [`SetupError::Driver`] when its thread cannot be started.
    pub fn build_ring(self) -> Result<Ring, SetupError> {
        Ring::build(self)
    }
}

impl Ring {
    /// Builds a ring with the default settings: on io_uring if that works, or else on classic
    /// syscalls.
    ///
    /// A multi-threaded tokio runtime drives the rings that are built in it (feature `tokio`). Every
    /// other ring has a thread of its own; [`Builder::driver_thread`] chooses.
    ///
    /// # Errors
    ///
    /// As for [`Builder::build_ring`].
    pub fn new() -> Result<Ring, SetupError> {
        Ring::build(Builder::default())
    }

    pub(crate) fn build(builder: Builder) -> Result<Ring, SetupError> {
        // The driver keeps a little room for itself.
        let builder = Builder { entries: builder.entries.map(|asked| asked.max(4)), ..builder };
        let process = Arc::new(ProcessMark::new().map_err(SetupError::Driver)?);
        let hub = Arc::new(Hub::new());
        let simulation = builder.simulation.clone();
        #[cfg(feature = "tokio")]
        let (setup, driver) = match task::start(&builder, &hub, &process) {
            Some(started) => started.map(|(setup, driver)| (setup, Some(driver)))?,
            None => (thread::start(builder, hub.clone())?, None),
        };
        #[cfg(not(feature = "tokio"))]
        let setup = thread::start(builder, hub.clone())?;
        #[cfg(feature = "tracing")]
        span::warn_fallback(&setup);
        Ok(Ring(Arc::new(Inner {
            hub,
            setup,
            process,
            inline_hits: Hits::default(),
            bounced_reads: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            simulation,
            #[cfg(feature = "tokio")]
            driver,
        })))
    }

    /// Returns the simulated machine that its loop runs on, if it is simulated.
    pub(crate) fn simulation(&self) -> Option<&Simulation> {
        self.0.simulation.as_ref()
    }

    /// Does the step that makes the driver see an order.
    pub(super) fn follow(&self, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Wake(waker) => wake(Some(waker)),
            #[cfg(feature = "tokio")]
            Next::HandOver(own) => {
                if let Some(driver) = &self.0.driver {
                    driver.hand_over(&self.0.hub, own);
                }
            }
        }
    }

    /// Returns the settings that were requested and granted.
    pub fn setup(&self) -> &Setup {
        &self.0.setup
    }

    /// Returns the counts of the ring so far. A forked process has none.
    pub fn stats(&self) -> RingStats {
        let ((counts, local), inline_hits) = if self.is_foreign() {
            Default::default()
        } else {
            (self.0.hub.counts(), self.0.inline_hits.sum())
        };
        let Counts { submitted, delivered, reclaimed, wakes } = counts;
        let (backend, fallback) = (self.0.setup.backend(), self.0.setup.fallback().cloned());
        let waiting_for_room = if self.is_foreign() { 0 } else { self.0.hub.waiting_for_room() };
        RingStats {
            submitted,
            delivered,
            reclaimed,
            wakes,
            inline_hits,
            bounced_reads: self.0.bounced_reads.load(Ordering::Relaxed),
            waiting_for_room,
            local,
            backend,
            fallback,
        }
    }

    /// Counts a request that the caller's thread served.
    #[inline]
    pub(crate) fn count_inline_hit(&self) {
        self.0.inline_hits.count();
    }

    pub(crate) fn count_bounced_read(&self) {
        self.0.bounced_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the ring for all its handles. New operations fail with `ESHUTDOWN`. Reads, receives, accepts,
    /// connects and timeouts are cancelled, and this future waits for the end of the others. In a forked
    /// process it does nothing.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens before the first poll. After it the ring is closed, whether or not the future is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`Leaked`] if the kernel still has operations after `deadline`. The ring still waits for them in the
    /// background, and their futures complete.
    pub fn shutdown(&self, deadline: Duration) -> impl Future<Output = Result<(), Leaked>> + Send {
        let ring = self.clone();
        async move {
            if ring.is_foreign() {
                return Ok(());
            }
            ring.0.is_closed.store(true, Ordering::Release);
            ring.0.hub.close(deadline);
            let ended = |context: &mut std::task::Context<'_>| {
                ring.0.hub.poll_ended(context.waker()).map_or(Poll::Pending, Poll::Ready)
            };
            poll_fn(ended).await
        }
    }

    pub(super) fn hub(&self) -> &Hub {
        &self.0.hub
    }

    /// Returns whether a caller's thread may serve its own requests of this kind. If not, requests go to
    /// the ring, which refuses them (`fs::File`).
    #[inline]
    pub(crate) fn lets_callers_serve(&self, opcode: Opcode) -> bool {
        let setup = &self.0.setup;
        !self.is_foreign()
            && !self.0.is_closed.load(Ordering::Acquire)
            && !setup.is_data_only()
            && setup.allows(opcode)
    }

    /// Returns whether this process was forked from the one that built the ring. The ring has no
    /// driver here.
    pub(crate) fn is_foreign(&self) -> bool {
        self.0.process.is_foreign()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.process.is_foreign() {
            self.hub.close(DROP_DEADLINE);
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("backend", &self.0.setup.backend()).finish_non_exhaustive()
    }
}
