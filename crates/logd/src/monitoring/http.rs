//! The daemon's own page: figures for Prometheus, whether it lives and is ready, a status page, and stored lines.
//!
//! Requests are rare, so each has a thread of its own, [`ANSWERS_MAX`] at a time, and a connection is closed
//! after its answer. A few more connections may ask only whether the daemon lives and is ready. Clients that read stored
//! lines have places of their own. This server takes no log lines, and it never delays the threads that do.

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ringwise_serve::ServeError;

use crate::{
    clients::tokens::Tokens,
    disk::keeper::NICENESS,
    error::LogdError,
    live::Live,
    monitoring::{log, monitor::Monitor},
    tool::query::QueryArgs,
};
use access::{Denied, Ends};
use answer::Answer;
use client::{Client, LIVE_OPTIONS, Refused, SEARCH_OPTIONS};
use readers::{Kind, LIVE_MAX, Readers, SEARCHES_MAX};
use request::{Asked, Head, drain, read};

mod access;
mod answer;
mod client;
mod live;
mod metrics;
mod page;
mod readers;
mod request;
mod search;
mod trial;

pub(crate) use trial::request as try_request;

/// Requests that are answered at a time.
const ANSWERS_MAX: usize = 16;
/// How long a request may take to come.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// More places for `/livez` and `/readyz` alone, and how long such a request may take to come.
const STATES_MAX: usize = 16;
const STATE_TIME: Duration = Duration::from_millis(500);
/// The most connections at a time that do not read lines; one more is refused at once.
pub(crate) const REQUESTS_MAX: usize = ANSWERS_MAX + STATES_MAX;
/// How long a client has to close after its answer.
const PARTING_TIME: Duration = Duration::from_millis(500);

/// The most descriptors of clients that read lines, from the segments of so many streams.
pub(crate) fn readers_descriptors(streams: u64) -> u64 {
    // A packed segment is open twice while it is unpacked.
    const SEGMENT: u64 = 2;
    // Beside the connection: a segment of each stream, a listing, and for a search two segments that are read ahead.
    LIVE_MAX * (2 + SEGMENT * streams) + SEARCHES_MAX * (2 + SEGMENT * (streams + 2))
}

/// Starts to answer; returns the address. `live` has who may read lines.
pub(crate) fn start(
    listener: TcpListener,
    monitor: Arc<Monitor>,
    live: Arc<Mutex<Live>>,
) -> Result<SocketAddr, LogdError> {
    let bound = listener.local_addr().map_err(|error| LogdError::failed(error).of("--http"))?;
    let server = Arc::new(Server { monitor, live, readers: Readers::default() });
    let work = move || serve(&listener, &server);
    thread::Builder::new()
        .name("logd-http".to_owned())
        .spawn(work)
        .map_err(|error| ServeError::of_thread("that takes requests (--http)", &error))?;
    Ok(bound)
}

/// What requests are answered from.
struct Server {
    monitor: Arc<Monitor>,
    live: Arc<Mutex<Live>>,
    readers: Readers,
}

/// A place among the requests that are answered, until it is dropped.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(listener: &TcpListener, server: &Arc<Server>) {
    let active = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => Arc::new(stream),
            Err(error) => {
                // Descriptors may become free; a connection that is gone does not matter.
                log::remark("http", format_args!("--http: accept: {error}"));
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let before = active.fetch_add(1, Ordering::Relaxed);
        let place = Place(active.clone());
        if before >= REQUESTS_MAX {
            let _ = stream.set_nonblocking(true);
            let _ = Answer::text(503, "busy\n").write(&stream, true);
            continue;
        }
        let is_brief = before >= ANSWERS_MAX;
        let (asking, answering) = (stream.clone(), server.clone());
        let work = move || {
            // A client that went away does not miss its answer.
            let _ = converse(&asking, &answering, place, is_brief);
        };
        if let Err(error) = thread::Builder::new().name("logd-http".to_owned()).spawn(work) {
            let error = ServeError::of_thread("of a request (--http)", &error);
            log::remark("http", format_args!("{error}"));
            // Without an answer a monitor would take the daemon for dead. Long answers are refused.
            active.fetch_add(1, Ordering::Relaxed);
            let _ = converse(&stream, server, Place(active.clone()), true);
        }
    }
}

/// One request and its answer. `is_brief`: the request may only ask whether the daemon lives and is ready,
/// because all other places are taken or no thread could be started.
fn converse(stream: &TcpStream, server: &Server, place: Place, is_brief: bool) -> io::Result<()> {
    let time = if is_brief { STATE_TIME } else { REQUEST_TIME };
    stream.set_write_timeout(Some(time))?;
    let (answer, has_body) = match read(stream, Instant::now() + time)? {
        Asked::For(head) if is_brief && !matches!(&*head.path, "/livez" | "/readyz") => {
            (Answer::text(503, "busy\n"), true)
        }
        Asked::For(head) if head.method == "GET" || head.method == "HEAD" => {
            let has_body = head.method == "GET";
            let ends = Ends { own: stream.local_addr()?, peer: stream.peer_addr()? };
            match &*head.path {
                "/live" | "/search" => match server.admit(&head, ends) {
                    Ok(wish) => return server.send(stream, wish, place, has_body),
                    Err(answer) => (answer, has_body),
                },
                path => (server.answer(path, &head, ends), has_body),
            }
        }
        Asked::For(_) => (Answer::text(405, "only GET and HEAD\n"), true),
        Asked::Wrongly(status, why) => (Answer::text(status, why), true),
    };
    answer.write(stream, has_body)?;
    part(stream)
}

/// Ends a connection whose answer is written.
fn part(stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    // Closing a socket with unread bytes would discard the answer.
    drain(stream, Instant::now() + PARTING_TIME)
}

/// What a client that may read lines wants.
struct Wish {
    is_live: bool,
    args: QueryArgs,
    /// Its place among those that read in the same way.
    place: readers::Place,
}

impl Server {
    fn tokens(&self) -> Option<Arc<Tokens>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).page_tokens.clone()
    }

    fn answer(&self, path: &str, head: &Head, ends: Ends) -> Answer {
        let monitor = &*self.monitor;
        let sample = monitor.sample();
        let state = |reasons: Vec<String>| match reasons.is_empty() {
            true => Answer::text(200, "ok\n"),
            false => Answer::text(503, &format!("{}\n", reasons.join("\n"))),
        };
        match path {
            "/" => page::page(monitor, &sample, access::way(head, ends, self.tokens().as_deref())),
            "/metrics" => {
                let text = metrics::text(monitor, &sample, &self.readers);
                Answer::new(200, "text/plain; version=0.0.4; charset=utf-8", text)
            }
            "/livez" => state(monitor.dead(&sample)),
            "/readyz" => state(monitor.unready(&sample)),
            _ => Answer::text(404, "there are /, /live, /search, /metrics, /livez and /readyz\n"),
        }
    }

    /// Decides whether a client gets lines, and which.
    fn admit(&self, head: &Head, ends: Ends) -> Result<Wish, Answer> {
        let is_live = head.path == "/live";
        let tenant = access::tenant(head, ends, self.tokens().as_deref());
        let tenant = tenant.map_err(|denied| self.deny(denied, ends))?;
        let options = if is_live { LIVE_OPTIONS } else { SEARCH_OPTIONS };
        let directory = &self.monitor.facts.directory;
        let args = client::parse(&head.query, options, directory, tenant.as_deref());
        let args = args.map_err(|refused| match refused {
            Refused::Denied(denied) => self.deny(denied, ends),
            Refused::Wrong(why) => Answer::text(400, &format!("{why}\n")),
        })?;
        let (kind, places_max, busy): (&Kind, _, _) = match is_live {
            true => (
                &self.readers.live,
                LIVE_MAX,
                "too many clients are reading lines; try again later\n",
            ),
            false => (
                &self.readers.searches,
                SEARCHES_MAX,
                "too many searches are running; try again later\n",
            ),
        };
        let place = kind.enter(places_max).ok_or_else(|| Answer::text(503, busy))?;
        Ok(Wish { is_live, args, place })
    }

    fn deny(&self, denied: Denied, ends: Ends) -> Answer {
        self.readers.deny(denied);
        if denied == Denied::Token {
            let peer = ends.peer;
            log::remark("page", format_args!("{peer} asked for lines with an unknown token"));
        }
        let (status, why) = denied.answer();
        Answer::text(status, why)
    }

    /// Sends lines for as long as the client wants. It gives up the place among requests that are soon answered.
    fn send(&self, stream: &TcpStream, wish: Wish, place: Place, has_body: bool) -> io::Result<()> {
        drop(place);
        // Threads that take lines go first. The thread ends with its answer, and those that it starts inherit this.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        let kind = if wish.is_live { live::KIND } else { search::KIND };
        let client = Client::begin(stream, &self.monitor, kind)?;
        match wish.is_live {
            _ if !has_body => {}
            true => live::send(client, &wish.args, &self.readers),
            false => search::send(&client, &wish.args, &self.readers),
        }
        drop(wish.place);
        part(stream)
    }
}
