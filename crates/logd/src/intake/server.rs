//! Connections and requests, on a tokio runtime.
//!
//! A request is refused before its body is read, if that can be known. Bodies take from one bound of memory, and a
//! request beyond it is asked to come again, so that many clients cannot exhaust it.

use std::{
    convert::Infallible,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use ringwise::{BackendChoice, Local};
use ringwise_serve::ServeError;
use tokio::{
    runtime::Runtime,
    sync::{Semaphore, mpsc, oneshot, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::{
    answer::{Refusal, Rejected, stored},
    depot::{Deposit, Depot, Parts, State, Verdict},
    request::{self, PERMIT_BYTES, Room},
    watched::{Readable, Watched},
};
use crate::{
    clients::refusal::Refusal as Unknown,
    error::LogdError,
    guarantee::Guarantee,
    live::Live,
    monitoring::{log, stats::Stats},
    session::tls::client_name,
};

/// How long lines may take to be stored, before their client is told to send them again.
const STORE_TIME: Duration = Duration::from_secs(30);
/// How long a connection may be silent between requests, and take for the head of one, without `--idle`.
const IDLE_TIME: Duration = Duration::from_secs(75);
/// How often it looks whether a connection is idle and needs no buffers.
const BUFFERS_TIME: Duration = Duration::from_secs(1);
/// How long a failed accept waits: descriptors may become free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The most bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Requests that wait for the depot beside those that it has.
const DEPOSITS_MAX: usize = 1024;

/// What an intake is made of.
pub(crate) struct Order {
    pub(crate) parts: Parts,
    pub(crate) backend: BackendChoice,
    pub(crate) threads: u32,
    pub(crate) connections_max: usize,
    /// How long the end waits for what is still to be stored.
    pub(crate) drain: Duration,
}

/// A running intake.
pub(crate) struct Intake {
    runtime: Runtime,
    url: String,
    end: watch::Sender<bool>,
    serving: JoinHandle<()>,
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

/// What it counts, for `/metrics`.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    state: Arc<State>,
    connections: AtomicU64,
    open: AtomicU64,
    tls_failures: AtomicU64,
    refused: AtomicU64,
}

impl Counts {
    /// As those of a thread.
    pub(crate) fn stats(&self) -> Stats {
        let stats = *self.state.stats.lock().unwrap_or_else(PoisonError::into_inner);
        Stats {
            connections: self.connections.load(Ordering::Relaxed),
            open: self.open.load(Ordering::Relaxed),
            tls_failures: self.tls_failures.load(Ordering::Relaxed),
            refused_requests: self.refused.load(Ordering::Relaxed),
            ..stats
        }
    }
}

/// What all connections share.
struct Shared {
    live: Arc<Mutex<Live>>,
    deposits: mpsc::Sender<Deposit>,
    memory: Arc<Semaphore>,
    memory_bytes: usize,
    counts: Arc<Counts>,
    guarantee: Guarantee,
    end: watch::Receiver<bool>,
}

type Session = tokio_rustls::server::TlsStream<tokio::net::TcpStream>;

/// Who sends a request.
#[derive(Clone)]
struct Client {
    peer: SocketAddr,
    is_tls: bool,
    /// The name in its certificate.
    tenant: Option<Arc<str>>,
}

impl Intake {
    /// Recovers its stream and takes requests. `failed` is called if nothing more can be stored.
    pub(crate) fn start(
        listener: TcpListener,
        order: Order,
        failed: impl FnOnce() + Send + 'static,
    ) -> Result<Intake, LogdError> {
        let Order { parts, backend, threads, connections_max, drain } = order;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads as usize)
            .thread_name("logd-intake")
            .enable_all()
            .build()
            .map_err(|error| LogdError::failed(format_args!("starting the intake: {error}")))?;
        let context = runtime.enter();
        let ring = Local::builder().backend(backend).build_ring().map_err(LogdError::failed)?;
        let (live, guarantee) = (parts.live.clone(), parts.storage.guarantee);
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
        let storing =
            storing.map_err(|error| ServeError::of_thread("that stores requests", &error))?;
        let state = state.recv().map_err(|_| LogdError::failed("a thread panicked"))??;
        let counts = Arc::new(Counts { state, ..Counts::default() });
        let (end, ends) = watch::channel(false);
        let scheme = if is_tls { "https" } else { "http" };
        let address = listener.local_addr().map_err(LogdError::failed)?;
        let url = format!("{scheme}://{address}/ingest");
        listener.set_nonblocking(true).map_err(LogdError::failed)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(LogdError::failed)?;
        let permits = (budget / PERMIT_BYTES).min(Semaphore::MAX_PERMITS);
        let shared = Shared {
            live,
            deposits,
            memory: Arc::new(Semaphore::new(permits)),
            memory_bytes: permits * PERMIT_BYTES,
            counts: counts.clone(),
            guarantee,
            end: ends,
        };
        let serving = runtime.spawn(serve(listener, Arc::new(shared), connections_max));
        drop(context);
        Ok(Intake { runtime, url, end, serving, storing, stored, counts, drain })
    }

    /// Where requests go.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Ends the intake as soon as `is_draining` says so.
    pub(crate) fn end_when(&self, is_draining: impl Fn() -> bool + Send + 'static) {
        let end = self.end.clone();
        self.runtime.spawn(async move {
            while !is_draining() {
                sleep(ACCEPT_PAUSE).await;
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
        let Intake { runtime, end, serving, storing, stored, counts, drain, .. } = self;
        let _ = end.send(true);
        let ended = runtime.block_on(async {
            let both = async { (serving.await, stored.await).1 };
            timeout(drain, both).await
        });
        log::remark("intake", format_args!("HTTP: {}", counts.stats()));
        if ended.is_ok() {
            // It has told its end, or panicked.
            let _ = storing.join();
        }
        runtime.shutdown_background();
        match ended {
            Ok(Ok(stored)) => stored,
            Ok(Err(_)) => Err(LogdError::failed("the thread that stores requests panicked")),
            Err(_) => Err(LogdError::failed(
                "requests could not be stored in the time for the drain; they were not answered with 200",
            )),
        }
    }
}

/// Accepts connections until the end, and waits for them then.
async fn serve(listener: tokio::net::TcpListener, shared: Arc<Shared>, connections_max: usize) {
    let places = Arc::new(Semaphore::new(connections_max));
    let mut end = shared.end.clone();
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = ended(&mut end) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let shared = shared.clone();
                shared.counts.connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(async move {
                    shared.counts.open.fetch_add(1, Ordering::Relaxed);
                    let _ = stream.set_nodelay(true);
                    welcome(stream, peer, &shared).await;
                    shared.counts.open.fetch_sub(1, Ordering::Relaxed);
                    drop(place);
                });
            }
            Err(error) => {
                log::remark(
                    "intake",
                    format_args!("cannot accept a connection: {error}; trying again"),
                );
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop((listener, shared));
    while connections.join_next().await.is_some() {}
}

/// Serves a connection, by TLS if the daemon speaks it. What is large is in boxes of its own, here and below, so that an
/// idle connection has none of it.
async fn welcome(stream: tokio::net::TcpStream, peer: SocketAddr, shared: &Arc<Shared>) {
    let (tls, handshake, idle) = {
        let live = shared.live.lock().unwrap_or_else(PoisonError::into_inner);
        (live.tls.clone(), live.handshake, live.limits.idle)
    };
    let idle = idle.unwrap_or(IDLE_TIME);
    let Some(tls) = tls else {
        let client = Client { peer, is_tls: false, tenant: None };
        return Box::pin(converse(stream, client, shared, idle)).await;
    };
    let mut end = shared.end.clone();
    let accepted = tokio::select! {
        accepted = timeout(handshake, Box::pin(TlsAcceptor::from(tls).accept(stream))) => accepted,
        () = ended(&mut end) => return,
    };
    match accepted.map_err(|_| "no handshake within --tls-handshake".to_owned()).and_then(named) {
        Ok((stream, tenant)) => {
            let client = Client { peer, is_tls: true, tenant };
            Box::pin(converse(stream, client, shared, idle)).await;
        }
        Err(why) => {
            shared.counts.tls_failures.fetch_add(1, Ordering::Relaxed);
            log::remark("tls", format_args!("{peer}: TLS: {why}"));
        }
    }
}

/// A session, with the name in the client's certificate, if it showed one.
fn named(accepted: std::io::Result<Session>) -> Result<(Session, Option<Arc<str>>), String> {
    let stream = accepted.map_err(|error| error.to_string())?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let tenant = shown.and_then(client_name).map(Arc::from);
    match shown.is_some() && tenant.is_none() {
        true => Err("the client's certificate names nobody".to_owned()),
        false => Ok((stream, tenant)),
    }
}

/// Answers requests until the connection or the daemon ends. While the connection is idle it has no buffers.
async fn converse<S: Readable>(
    mut stream: S,
    client: Client,
    shared: &Arc<Shared>,
    idle: Duration,
) {
    let mut before = Bytes::new();
    loop {
        let has_taken = !before.is_empty() || stream.has_taken();
        if !has_taken && !has_bytes(stream.socket(), shared, idle).await {
            return;
        }
        match answer(Watched { stream, before, watch: Arc::default() }, &client, shared, idle).await
        {
            Some(rest) => (stream, before) = rest,
            None => return,
        }
    }
}

/// Waits for the end of the intake.
async fn ended(end: &mut watch::Receiver<bool>) {
    let _ = end.wait_for(|has_ended| *has_ended).await;
}

/// Waits for bytes or the end of a connection. False: neither came in time, or the daemon ends.
async fn has_bytes(socket: &tokio::net::TcpStream, shared: &Shared, idle: Duration) -> bool {
    let mut end = shared.end.clone();
    tokio::select! {
        ready = timeout(idle, socket.readable()) => matches!(ready, Ok(Ok(()))),
        () = ended(&mut end) => false,
    }
}

/// Answers requests until the connection is idle: what is left of it. None: it has ended.
async fn answer<S: Readable>(
    watched: Watched<S>,
    client: &Client,
    shared: &Arc<Shared>,
    idle: Duration,
) -> Option<(S, Bytes)> {
    let watch = watched.watch.clone();
    let service = service_fn(|request| {
        let (shared, client, active) = (shared.clone(), client.clone(), watch.begin());
        async move {
            let answer = respond(request, &client, &shared).await;
            drop(active);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(idle)
        // Whoever sends no more may still wait for its answer.
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(watched), service);
    let mut end = shared.end.clone();
    loop {
        tokio::select! {
            // A client that breaks off has its reasons.
            _ = &mut connection => return None,
            () = ended(&mut end) => {
                std::pin::Pin::new(&mut connection).graceful_shutdown();
                // Who has sent half of the head of a request, or reads no answers, is not waited for.
                while watch.is_asked() {
                    tokio::select! {
                        _ = &mut connection => return None,
                        () = sleep(ACCEPT_PAUSE) => {}
                    }
                }
                return None;
            }
            () = sleep(BUFFERS_TIME) => {}
        }
        if watch.is_idle() {
            let parts = connection.into_parts();
            // It refers to the whole buffer, also where it has no bytes.
            let before = Bytes::copy_from_slice(&parts.read_buf);
            return Some((parts.io.into_inner().stream, before));
        }
    }
}

async fn respond(
    mut request: Request<Incoming>,
    client: &Client,
    shared: &Shared,
) -> Response<Full<Bytes>> {
    match take(&mut request, client, shared).await {
        Ok((lines, rejected)) => stored(lines, &rejected, shared.guarantee),
        Err(refusal) => {
            shared.counts.refused.fetch_add(1, Ordering::Relaxed);
            request::discard(&mut request).await;
            refusal.answer()
        }
    }
}

/// Stores the lines of a request: how many there were, and which of them were rejected.
async fn take(
    request: &mut Request<Incoming>,
    client: &Client,
    shared: &Shared,
) -> Result<(u64, Rejected), Refusal> {
    let encoding = request::check(request.uri().path(), request.method(), request.headers())?;
    if *shared.end.borrow() {
        return Err(Refusal::Draining);
    }
    let state = &shared.counts.state;
    if state.is_stalled.load(Ordering::Relaxed) || state.is_low.load(Ordering::Relaxed) {
        return Err(Refusal::Stalled);
    }
    let (tokens, body_max) = {
        let live = shared.live.lock().unwrap_or_else(PoisonError::into_inner);
        (live.limits.tokens.clone(), live.limits.of_each())
    };
    let tenant = match request::token(request.headers())? {
        None => client.tenant.clone(),
        Some(token) => {
            let found = tokens.tenant(token, Some(client.peer), client.is_tls);
            Some(found.map_err(|unknown| match unknown {
                Unknown::Transport => Refusal::Transport,
                _ => Refusal::Token,
            })?)
        }
    };
    let mut room = Room::new(&shared.memory, body_max.min(shared.memory_bytes));
    let mut end = shared.end.clone();
    let body = tokio::select! {
        body = request::body(request, encoding, &mut room) => body?,
        () = ended(&mut end) => return Err(Refusal::Draining),
    };
    let (verdict, told) = oneshot::channel();
    let deposit = Deposit { peer: client.peer, tenant, body, room: room.take()?, verdict };
    let store = async {
        shared.deposits.send(deposit).await.map_err(|_| Refusal::Stalled)?;
        told.await.map_err(|_| Refusal::Stalled)
    };
    match timeout(STORE_TIME, store).await.map_err(|_| Refusal::Late)?? {
        Verdict::Stored { lines, rejected } => Ok((lines, rejected)),
        Verdict::OverQuota => Err(Refusal::OverQuota),
    }
}
