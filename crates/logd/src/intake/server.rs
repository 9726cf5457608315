//! The intake as a whole: its runtime, the thread of the depot, and the end.

use std::{
    net::TcpListener,
    os::fd::OwnedFd,
    sync::{Arc, PoisonError},
    thread,
    time::Duration,
};

use ringwise::{BackendChoice, Local};
use ringwise_serve::{ServeError, give_up_after};
use tokio::{
    runtime::Runtime,
    sync::{Semaphore, mpsc, oneshot, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    depot::{Depot, Parts},
    fluent::Fluent,
    http::Http,
    listener::serve,
    relp::Relp,
    shared::{Counts, PERMIT_BYTES, Shared},
};
use crate::{error::LogdError, monitoring::log, worker::PATIENCE};

/// How often it looks whether the daemon drains.
const DRAIN_LOOK_TIME: Duration = Duration::from_millis(100);
/// Requests that wait for the depot beside those that it has.
const DEPOSITS_MAX: usize = 1024;

/// What is spoken on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Relp,
    Fluent,
}

/// What an intake is made of.
pub(crate) struct Order {
    /// Where it listens, and what is spoken there.
    pub(crate) ports: Vec<(Protocol, TcpListener)>,
    pub(crate) parts: Parts,
    pub(crate) backend: BackendChoice,
    pub(crate) threads: u32,
    /// Connections of each port.
    pub(crate) connections_max: usize,
    /// How long the end waits for what is still to be stored.
    pub(crate) drain: Duration,
}

/// A running intake.
pub(crate) struct Intake {
    runtime: Runtime,
    /// What it does where, for whoever started the daemon.
    told: Vec<String>,
    end: watch::Sender<bool>,
    serving: JoinSet<()>,
    storing: thread::JoinHandle<()>,
    /// How storing ended.
    stored: oneshot::Receiver<Result<(), LogdError>>,
    counts: Arc<Counts>,
    drain: Duration,
}

/// Is called when it is dropped, also by a panic, unless all went well.
struct OnFailure<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnFailure<F> {
    fn drop(&mut self) {
        if let Some(failed) = self.0.take() {
            failed();
        }
    }
}

impl Protocol {
    /// What is done where.
    fn tell(self, listener: &TcpListener, is_tls: bool) -> Result<String, LogdError> {
        let address = listener.local_addr().map_err(LogdError::failed)?;
        let over = if is_tls { " over TLS" } else { "" };
        Ok(match (self, is_tls) {
            (Protocol::Http, false) => format!("taking requests on http://{address}/ingest"),
            (Protocol::Http, true) => format!("taking requests on https://{address}/ingest"),
            (Protocol::Relp, _) => format!("taking RELP{over} on {address}"),
            (Protocol::Fluent, _) => format!("taking Fluent Forward{over} on {address}"),
        })
    }

    /// Accepts connections until the end.
    fn serve(
        self,
        listener: TcpListener,
        (shared, connections_max): (&Arc<Shared>, usize),
        serving: &mut JoinSet<()>,
    ) -> Result<(), LogdError> {
        // A session may be silent for days, and its client gone.
        let same = listener.try_clone().map_err(LogdError::failed)?;
        give_up_after(&OwnedFd::from(same).into(), PATIENCE)?;
        listener.set_nonblocking(true).map_err(LogdError::failed)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(LogdError::failed)?;
        let shared = shared.clone();
        match self {
            Protocol::Http => serving.spawn(serve(listener, Http, shared, connections_max)),
            Protocol::Relp => serving.spawn(serve(listener, Relp, shared, connections_max)),
            Protocol::Fluent => serving.spawn(serve(listener, Fluent, shared, connections_max)),
        };
        Ok(())
    }
}

impl Intake {
    /// Recovers its stream and takes requests. `failed` is called if nothing more can be stored.
    pub(crate) fn start(
        order: Order,
        failed: impl FnOnce() + Send + 'static,
    ) -> Result<Intake, LogdError> {
        let Order { ports, parts, backend, threads, connections_max, drain } = order;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads as usize)
            .thread_name("logd-intake")
            .enable_all()
            .build()
            .map_err(|error| LogdError::failed(format_args!("starting the intake: {error}")))?;
        let context = runtime.enter();
        let ring = Local::builder().backend(backend).build_ring().map_err(LogdError::failed)?;
        let (live, guarantee) = (parts.live.clone(), parts.storage.guarantee);
        let (addresses, tenants) = (parts.addresses.clone(), parts.tenants.clone());
        let (budget, is_tls) = {
            let live = live.lock().unwrap_or_else(PoisonError::into_inner);
            (live.limits.budget_all, live.tls.is_some())
        };
        let (deposits, received) = mpsc::channel(DEPOSITS_MAX);
        let (opened, state) = std::sync::mpsc::channel();
        let (tell, stored) = oneshot::channel();
        // Whoever opens segments waits for the disk, and whoever validates lines computes: no task of the runtime does.
        let handle = runtime.handle().clone();
        let work = move || {
            let mut failed = OnFailure(Some(failed));
            let depot = Depot::new(parts, ring);
            let depot = match depot {
                Ok(depot) => depot,
                Err(error) => return drop(opened.send(Err(error))),
            };
            let _ = opened.send(Ok(depot.state()));
            let ended = handle.block_on(depot.run(received));
            if ended.is_ok() {
                failed.0 = None;
            }
            let _ = tell.send(ended);
        };
        let storing = thread::Builder::new().name("logd-depot".to_owned()).spawn(work);
        let storing = storing.map_err(|error| {
            ServeError::of_thread("that stores what the intake receives", &error)
        })?;
        let state = state.recv().map_err(|_| LogdError::failed("a thread panicked"))??;
        let counts = Arc::new(Counts { state, ..Counts::default() });
        let (end, ends) = watch::channel(false);
        let permits = (budget / PERMIT_BYTES).min(Semaphore::MAX_PERMITS);
        let shared = Shared {
            live,
            deposits,
            memory: Arc::new(Semaphore::new(permits)),
            memory_bytes: permits * PERMIT_BYTES,
            unfinished: Arc::new(Semaphore::new(permits / 2)),
            counts: counts.clone(),
            guarantee,
            end: ends,
            addresses,
            tenants,
        };
        let (shared, mut serving, mut told) = (Arc::new(shared), JoinSet::new(), Vec::new());
        for (protocol, listener) in ports {
            told.push(protocol.tell(&listener, is_tls)?);
            protocol.serve(listener, (&shared, connections_max), &mut serving)?;
        }
        drop(context);
        Ok(Intake { runtime, told, end, serving, storing, stored, counts, drain })
    }

    /// What it does where, a line for each port.
    pub(crate) fn told(&self) -> Vec<String> {
        self.told.clone()
    }

    pub(crate) fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Ends the intake as soon as `is_draining` says so.
    pub(crate) fn end_when(&self, is_draining: impl Fn() -> bool + Send + 'static) {
        let end = self.end.clone();
        self.runtime.spawn(async move {
            while !is_draining() {
                sleep(DRAIN_LOOK_TIME).await;
            }
            let _ = end.send(true);
        });
    }

    /// Takes no more requests, and waits until those that came are stored and answered.
    ///
    /// # Errors
    ///
    /// Nothing more could be stored, or not in time.
    pub(crate) fn finish(self) -> Result<(), LogdError> {
        let Intake { runtime, end, mut serving, storing, stored, counts, drain, .. } = self;
        let _ = end.send(true);
        let ended = runtime.block_on(async {
            let both = async {
                while serving.join_next().await.is_some() {}
                stored.await
            };
            timeout(drain, both).await
        });
        log::remark("intake", format_args!("intake: {}", counts.stats()));
        if ended.is_ok() {
            // It has told its end, or panicked.
            let _ = storing.join();
        }
        runtime.shutdown_background();
        match ended {
            Ok(Ok(stored)) => stored,
            Ok(Err(_)) => {
                Err(LogdError::failed("the thread that stores what the intake receives panicked"))
            }
            Err(_) => Err(LogdError::failed(
                "what the intake received could not be stored within --drain; it was not acknowledged",
            )),
        }
    }
}
