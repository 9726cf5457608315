//! The shared handle: operations from any thread or task, each a `Send` future.
//!
//! A [`Ring`] is a loop ([`Local`](crate::Local)) behind a driver. Futures hand operations to the
//! driver and are woken when results are there; they own nothing that the kernel may touch, so they
//! can be dropped at any moment (invariant 1). No executor is needed: whoever polls will do.

mod driver;
mod flow;
mod hits;
mod hub;
mod pending;
#[cfg(feature = "tokio")]
mod portable;
#[cfg(feature = "tracing")]
pub(crate) mod span;
#[cfg(feature = "tokio")]
mod task;
mod thread;
mod timer;
mod visit;

use std::{
    future::{Future, poll_fn},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Poll, Waker},
    time::Duration,
};

pub(crate) use flow::Flow;
use hits::Hits;
pub(crate) use hub::wake;
use hub::{Counts, Hub, Next, Together};
pub use pending::{Deadline, Pending};
pub(crate) use timer::Timer;

use crate::{
    buf::{BufferGroup, Pool},
    descriptor::{Descriptor, RegisteredFile},
    error::Error,
    local::{Leaked, Local},
    op::{Opcode, Operation},
    setup::{Backend, Builder, FallbackReason, Setup, SetupError},
    sim::Simulation,
    stats::Stats,
    sys::fork::ProcessMark,
};

/// How long operations in flight have when the last handle is dropped.
const DROP_DEADLINE: Duration = Duration::from_secs(5);

/// A handle on a loop, to be cloned and shared: `Send` and `Sync`, and its futures are `Send`.
///
/// The loop ends when the last clone and the last future are gone: reads and timeouts that nobody
/// waits for are cancelled, writes and syncs go on to their end. That happens in the background; a
/// process that is about to exit calls [`shutdown`](Self::shutdown) and waits.
///
/// In a child of fork(2) nothing can be done with it: what is submitted there fails with `EOWNERDEAD`,
/// and a future that was submitted before never ends there. It may be dropped, and so may the runtime.
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
    /// Reads that the caller's thread served by itself.
    inline_hits: Hits,
    bounced_reads: AtomicU64,
    /// It was shut down, which callers' threads have to know too.
    is_closed: AtomicBool,
    simulation: Option<Simulation>,
    #[cfg(feature = "tokio")]
    driver: Option<Arc<task::SharedDriver>>,
}

impl Ring {
    /// Builds a ring with the default settings: on io_uring where that works, else on classic calls.
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
        let builder = Builder { entries: builder.entries.max(4), ..builder };
        let process = Arc::new(ProcessMark::new().map_err(SetupError::Driver)?);
        let hub = Arc::new(Hub::new());
        let simulation = builder.simulation.clone();
        #[cfg(feature = "tokio")]
        if let Some(started) = task::start(&builder, &hub, &process) {
            let (setup, driver) = started?;
            #[cfg(feature = "tracing")]
            span::warn_fallback(&setup);
            return Ok(Ring(Arc::new(Inner {
                hub,
                setup,
                process,
                inline_hits: Hits::default(),
                bounced_reads: AtomicU64::new(0),
                is_closed: AtomicBool::new(false),
                simulation,
                driver: Some(driver),
            })));
        }
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
            driver: None,
        })))
    }

    /// The simulated machine that its loop runs on, where it is simulated.
    pub(crate) fn simulation(&self) -> Option<&Simulation> {
        self.0.simulation.as_ref()
    }

    /// Makes an order heard.
    fn follow(&self, next: Next) {
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

    /// An operation as a future of its completion.
    pub fn submit(&self, operation: Operation) -> Pending {
        Pending::new(self.clone(), operation)
    }

    /// Hands many operations in together: one lock, at most one wake-up, and one enter for as many
    /// as the queue holds. Unlike those of [`submit`](Self::submit) they are under way before their
    /// futures are polled.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringwise::{Descriptor, Operation, Ring};
    ///
    /// # futures::executor::block_on(async {
    /// let ring = Ring::new()?;
    /// let file = Descriptor::from(std::fs::File::open("/dev/zero")?);
    /// let reads = (0..32).map(|at| Operation::read_at(&file, vec![1; 512], at * 512));
    /// for read in ring.submit_all(reads) {
    ///     assert_eq!(read.await.result()?, 512);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn submit_all(&self, operations: impl IntoIterator<Item = Operation>) -> Vec<Pending> {
        self.submit_together(operations.into_iter().collect(), Together::Batch)
    }

    /// Hands operations in as a chain, under way before its futures are polled: each starts when the
    /// one before it has completed in full.
    ///
    /// One that fails, and a read or write that moves fewer bytes than it was asked to, ends the
    /// chain: those after it fail with [`Cancelled`](crate::ErrorKind::Cancelled) and did nothing.
    /// Nothing is repaired; [`fs::File::chain`](crate::fs::File::chain) does that.
    ///
    /// On a ring the kernel goes from one to the next where it can (see
    /// [`Local::push_linked`](crate::Local::push_linked)). A chain may be longer than the queue, and
    /// more than there is room for: it is then handed over in parts. Dropping the future of a read
    /// or a timeout, or its [deadline](Pending::deadline), cancels it, when its turn comes at the
    /// latest, and with it those after it; other futures may be dropped and their operations are
    /// made all the same.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringwise::{Descriptor, Operation, Ring};
    ///
    /// # futures::executor::block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let ring = Ring::new()?;
    /// let file = Descriptor::from(std::fs::File::create(&path)?);
    /// let write = Operation::write_at(&file, b"a record".to_vec(), 0);
    /// for done in ring.submit_linked([write, Operation::sync_data(&file)]) {
    ///     done.await.result()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn submit_linked(&self, operations: impl IntoIterator<Item = Operation>) -> Vec<Pending> {
        self.submit_together(operations.into_iter().collect(), Together::Chain)
    }

    fn submit_together(&self, operations: Vec<Operation>, together: Together) -> Vec<Pending> {
        if self.is_foreign() {
            return operations.into_iter().map(|operation| self.submit(operation)).collect();
        }
        let future = |operation| Pending::of(self.clone(), operation);
        let futures: Vec<Pending> = operations.iter().map(future).collect();
        match self.hub().submit_all(operations, together, Waker::noop()) {
            Ok((keys, next)) => {
                let futures = futures.into_iter().zip(keys);
                let futures = futures.map(|(future, key)| future.submitted(key)).collect();
                self.follow(next);
                futures
            }
            // Each is refused when it is polled.
            Err(operations) => {
                let futures = futures.into_iter().zip(operations);
                futures.map(|(future, operation)| future.with(operation)).collect()
            }
        }
    }

    /// Gives any future of this ring so long from its first poll on. Then it is dropped, which is safe
    /// at any moment: what it had begun is cancelled or goes on to its end, as its type says.
    ///
    /// What comes back with its buffer, on time or not, are [`Pending::deadline`], the chains' and the
    /// streams' own deadlines and a [file that has one](crate::fs::File::with_deadline).
    ///
    /// # Errors
    ///
    /// [`TimedOut`](crate::ErrorKind::TimedOut).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use ringwise::{ErrorKind, Ring, net::{ListenOptions, TcpListener}};
    ///
    /// # futures::executor::block_on(async {
    /// let ring = Ring::new()?;
    /// let any = "127.0.0.1:0".parse()?;
    /// let listener = TcpListener::bind(&ring, &any, &ListenOptions::default())?;
    /// let nobody = ring.within(Duration::from_millis(10), listener.accept()).await;
    /// assert_eq!(nobody.unwrap_err().kind(), ErrorKind::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn within<F: Future>(&self, after: Duration, future: F) -> Result<F::Output, Error> {
        Timer::new(self, Some(after)).limit(Opcode::Timeout, future).await
    }

    /// Makes a pool of `count` buffers of `buffer_bytes` each and registers it with the ring, as
    /// [`Local::register_pool`](crate::Local::register_pool).
    ///
    /// # Errors
    ///
    /// `EINVAL` for sizes that no pool can have.
    pub async fn register_pool(&self, count: usize, buffer_bytes: usize) -> Result<Pool, Error> {
        self.visit(move |local| local.register_pool(count, buffer_bytes), |_, pool| drop(pool))
            .await
    }

    /// Makes a group of buffers for [`recv_multi`](crate::net::TcpStream::recv_multi), as
    /// [`BufferGroup::new`].
    ///
    /// # Errors
    ///
    /// `EINVAL` for sizes that no group can have.
    pub async fn buffer_group(
        &self,
        count: usize,
        bytes_each: usize,
    ) -> Result<BufferGroup, Error> {
        let make = move |local: &mut Local| BufferGroup::new(local, count, bytes_each);
        self.visit(make, |_, group| drop(group)).await
    }

    /// Puts a file into the ring's table, for cheaper operations on it, as
    /// [`Local::register_file`](crate::Local::register_file).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it has given the file's name, the file leaves the table again.
    ///
    /// # Errors
    ///
    /// `ENFILE` when the table is full, and what io_uring_register(2) reports.
    pub async fn register_file(&self, file: &Descriptor) -> Result<RegisteredFile, Error> {
        let file = file.clone();
        let undo = |local: &mut Local, file| drop(local.unregister_file(file));
        self.visit(move |local| local.register_file(&file), undo).await
    }

    /// Takes a file out of the ring's table, when the last operation on it has completed.
    ///
    /// # Errors
    ///
    /// `EBADF` when it is not in this ring's table, or no longer.
    pub async fn unregister_file(&self, file: RegisteredFile) -> Result<(), Error> {
        self.visit(move |local| local.unregister_file(file), |_, ()| ()).await
    }

    /// What was asked for and what the kernel granted.
    pub fn setup(&self) -> &Setup {
        &self.0.setup
    }

    /// What the ring did so far, and on what; no counts in a process that was forked from the ring's
    /// own.
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

    /// A read was served by the caller's thread.
    #[inline]
    pub(crate) fn count_inline_hit(&self) {
        self.0.inline_hits.count();
    }

    pub(crate) fn count_bounced_read(&self) {
        self.0.bounced_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the ring, for all its handles: nothing new is taken (`ESHUTDOWN`), reads and timeouts
    /// are cancelled, the rest goes on to its end, for which this future waits. In a process that
    /// was forked from the ring's own there is nothing to end.
    ///
    /// # Errors
    ///
    /// [`Leaked`] when the kernel still has operations after `deadline`. They are waited for in the
    /// background all the same, and their futures complete when they do.
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

    fn hub(&self) -> &Hub {
        &self.0.hub
    }

    /// Whether a caller's thread may serve its own requests: those of a ring that takes no others are
    /// refused by it (`fs::File`).
    #[inline]
    pub(crate) fn lets_callers_serve(&self) -> bool {
        !self.is_foreign() && !self.0.is_closed.load(Ordering::Acquire)
    }

    /// Whether this process was forked from the one that built the ring: it has no driver here.
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

/// What a ring did since it was built. Counts are totals.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct RingStats {
    /// Operations handed in.
    pub submitted: u64,
    /// Results that a future took.
    pub delivered: u64,
    /// Operations whose future was dropped.
    pub reclaimed: u64,
    /// Times the driver was woken for an order. Orders that come while it is busy wake nobody.
    pub wakes: u64,
    /// Reads and writes of files that the caller's thread served by itself, from or into the page
    /// cache or memory; they are in no other count.
    pub inline_hits: u64,
    /// Reads of direct files that were not aligned: each was made by a longer one, and a copy.
    pub bounced_reads: u64,
    /// Operations that wait for room in the loop at this moment (see [`Builder::entries`]). Those that
    /// wait for a socket, a pipe or a time need no room, so this is 0 unless more operations work at
    /// once than the loop holds.
    pub waiting_for_room: usize,
    /// Of the loop, as of the last results.
    pub local: Stats,
    /// What makes its operations.
    pub backend: Backend,
    /// Why that is not a ring, where it is not: asked for, or what stood in the way.
    pub fallback: Option<FallbackReason>,
}
