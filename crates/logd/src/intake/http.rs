//! HTTP: a request with lines is answered when they are stored.
//!
//! A request is refused before its body is read, if that can be known. Bodies take from the memory of all connections, and
//! a request beyond it is asked to come again, so that many clients cannot exhaust it.
//!
//! A request finds its protocol by its path (`route`). The parsers (`bulk`, `otlp`, `loki`) are functions of bytes. They
//! make lines of a body, and the answer of a verdict (`exchange`).

mod answer;
pub(crate) mod bulk;
mod credentials;
mod exchange;
mod json;
pub(crate) mod loki;
pub(crate) mod otlp;
mod request;
mod route;
mod status;
mod watched;
mod wire;

use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    HeaderMap, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::{
    depot::{Deposit, Verdict},
    listener::{Readable, Speaker, has_bytes, part},
    shared::{Client, Shared},
};
use crate::{clients::refusal::Refusal as Unknown, lines::framing::Framing, monitoring::log};
pub(crate) use answer::Refusal;
use answer::with_body;
use exchange::Exchange;
use request::Room;
pub(crate) use route::Form;
use route::{Purpose, Route};
use watched::{Unread, Watched};

/// How long lines may take to be stored, before their client is told to send them again.
const STORE_TIME: Duration = Duration::from_secs(30);
/// How long a connection may be silent between requests, and take for the head of one, without `--idle`.
const IDLE_TIME: Duration = Duration::from_secs(75);
/// When it looks first whether a connection is idle and needs no buffers. Each later look comes after twice the time.
const BUFFERS_TIME_MIN: Duration = Duration::from_millis(10);
/// The longest time between two such looks.
const BUFFERS_TIME_MAX: Duration = Duration::from_secs(1);
/// How often it looks at the end whether all requests of a connection are answered.
const ANSWERS_TIME: Duration = Duration::from_millis(100);
/// How long at the end a client may read nothing of its answers.
const UNREAD_AT_END_TIME: Duration = Duration::from_secs(1);
/// The most bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The protocol.
#[derive(Clone, Copy)]
pub(super) struct Http;

impl Speaker for Http {
    /// Answers requests until the connection or the daemon ends. While the connection is idle it has no buffers.
    async fn converse<S: Readable>(&self, mut stream: S, client: Client, shared: &Arc<Shared>) {
        let idle = shared.live().limits.idle.unwrap_or(IDLE_TIME);
        let mut before = Bytes::new();
        loop {
            let has_taken = !before.is_empty() || stream.has_taken();
            if !has_taken && !has_bytes(stream.socket(), shared, idle).await {
                return;
            }
            let watched = Watched { stream, before, watch: Arc::default() };
            // In a box of its own, so that an idle connection has none of it.
            match Box::pin(answer(watched, &client, shared, idle)).await {
                Some(rest) => (stream, before) = rest,
                None => return,
            }
        }
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
    let (mut unread, mut look_time) = (Unread::default(), BUFFERS_TIME_MIN);
    let ended = 'served: loop {
        tokio::select! {
            ended = &mut connection => break ended,
            () = shared.ended() => {
                std::pin::Pin::new(&mut connection).graceful_shutdown();
                // Who has sent half of the head of a request, or reads no answers, is not waited for.
                while watch.is_asked() {
                    if unread.lasts(&watch) >= UNREAD_AT_END_TIME {
                        return give_up(client, shared);
                    }
                    tokio::select! {
                        ended = &mut connection => break 'served ended,
                        () = sleep(ANSWERS_TIME) => {}
                    }
                }
                return None;
            }
            () = sleep(look_time) => {}
        }
        look_time = BUFFERS_TIME_MAX.min(2 * look_time);
        if unread.lasts(&watch) >= idle {
            return give_up(client, shared);
        }
        if watch.is_idle() {
            let parts = connection.into_parts();
            // It refers to the whole buffer, also where it has no bytes.
            let before = Bytes::copy_from_slice(&parts.read_buf);
            return Some((parts.io.into_inner().stream, before));
        }
    };
    let is_answered = ended.as_ref().err().is_none_or(hyper::Error::is_parse);
    if let Err(error) = ended {
        note(&error, client, shared);
    }
    if is_answered {
        part(connection.into_parts().io.into_inner().stream, b"", shared).await;
    }
    None
}

/// Counts why a connection has ended. A client that breaks off has its reasons.
fn note(error: &hyper::Error, client: &Client, shared: &Shared) {
    let counts = &shared.counts;
    if error.is_timeout() {
        counts.idle_ended.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let why = match error {
        error if error.is_parse() => format!("no HTTP: {error}"),
        error if error.is_incomplete_message() => {
            "the connection ended within the head of a request".to_owned()
        }
        _ => return,
    };
    counts.broken.fetch_add(1, Ordering::Relaxed);
    log::remark("http", format_args!("{}: {why}; closed", client.peer));
}

/// Ends a connection whose client does not read its answers. None: nothing is left of it.
fn give_up<T>(client: &Client, shared: &Shared) -> Option<T> {
    shared.counts.broken.fetch_add(1, Ordering::Relaxed);
    let peer = client.peer;
    log::remark("unread", format_args!("{peer}: the client does not read its answers; closed"));
    None
}

async fn respond(
    mut request: Request<Incoming>,
    client: &Client,
    shared: &Shared,
) -> Response<Full<Bytes>> {
    let route = route::find(request.uri().path(), request.headers());
    let protocol = route.protocol;
    match take(&mut request, route, client, shared).await {
        Ok(answer) => answer,
        Err(refusal) => {
            shared.counts.refused.fetch_add(1, Ordering::Relaxed);
            refusal.answer(protocol)
        }
    }
}

/// Stores the lines of a request, and says what became of them.
async fn take(
    request: &mut Request<Incoming>,
    route: Route,
    client: &Client,
    shared: &Shared,
) -> Result<Response<Full<Bytes>>, Refusal> {
    let encoding = request::check(&route, request.method(), request.headers())?;
    if *shared.end.borrow() {
        return Err(Refusal::Draining);
    }
    let state = &shared.counts.state;
    if state.is_stalled.load(Ordering::Relaxed) || state.is_low.load(Ordering::Relaxed) {
        return Err(Refusal::Stalled);
    }
    let (tenant, body_max) = identify(request.headers(), client, shared)?;
    if let Purpose::About(told) = route.purpose {
        return Ok(with_body(route.protocol, StatusCode::OK, told.into()));
    }
    let mut room = Room::new(&shared.memory, body_max).within(shared.memory_bytes);
    let body = tokio::select! {
        body = request::body(request, encoding, &mut room) => body?,
        () = shared.ended() => return Err(Refusal::Draining),
    };
    let lately = shared.lately(tenant.as_deref());
    let (mut exchange, body) = Exchange::begin(route, body, lately, &mut room)?;
    let (verdict, told) = oneshot::channel();
    let rejected_max = exchange.rejected_max();
    let (room, keys) = (room.take()?, std::mem::take(&mut exchange.keys));
    let store = async {
        let claims = shared.recent().claims().with(keys).await.ok_or(Refusal::Twice)?;
        let deposit = Deposit {
            peer: client.peer,
            tenant,
            body,
            framing: Framing::Lines,
            room: Some(room),
            rejected_max,
            claims,
            verdict,
        };
        shared.deposits.send(deposit).await.map_err(|_| Refusal::Stalled)?;
        told.await.map_err(|_| Refusal::Stalled)
    };
    match timeout(STORE_TIME, store).await.map_err(|_| Refusal::Late)?? {
        Verdict::Stored { lines, rejected } => {
            let counts = &shared.counts;
            counts.refused_items.fetch_add(exchange.refused_items(), Ordering::Relaxed);
            counts.repeated_items.fetch_add(exchange.repeated_items(), Ordering::Relaxed);
            Ok(exchange.answer(lines, &rejected, shared.guarantee))
        }
        Verdict::OverQuota => Err(Refusal::OverQuota),
    }
}

/// The tenant of a client, by its token or else its certificate, and how many bytes its requests may have.
fn identify(
    headers: &HeaderMap,
    client: &Client,
    shared: &Shared,
) -> Result<(Option<Arc<str>>, usize), Refusal> {
    let (tokens, body_max) = {
        let live = shared.live();
        (live.limits.tokens.clone(), live.limits.of_each())
    };
    let Some(token) = credentials::token(headers)? else {
        return match shared.may_send(client.peer, client.tenant.as_deref()) {
            true => Ok((client.tenant.clone(), body_max)),
            false => Err(Refusal::Token),
        };
    };
    let found = tokens.tenant(&token, Some(client.peer), client.is_tls);
    let tenant = found.map_err(|unknown| match unknown {
        Unknown::Transport => Refusal::Transport,
        _ => Refusal::Token,
    })?;
    Ok((Some(tenant), body_max))
}
