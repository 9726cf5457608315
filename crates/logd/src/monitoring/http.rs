//! The daemon's own page: figures for Prometheus, whether it lives and is ready, and a status page.
//!
//! Requests are rare, so each has a thread of its own, [`ANSWERS_MAX`] at a time, and a connection is closed
//! after its answer. A few more connections may ask only whether the daemon lives and is ready. This server
//! takes no log lines, and it never delays the threads that do.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ringwise_serve::ServeError;

use crate::{
    error::LogdError,
    monitoring::{log, monitor::Monitor},
};

mod metrics;
mod page;

/// Requests that are answered at a time.
const ANSWERS_MAX: usize = 16;
/// The most bytes of a request, and how long it may take to come.
const REQUEST_BYTES: usize = 8 << 10;
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// More places for `/livez` and `/readyz` alone, and how long such a request may take to come.
const STATES_MAX: usize = 16;
const STATE_TIME: Duration = Duration::from_millis(500);
/// The most connections at a time; one more is refused at once.
pub(crate) const REQUESTS_MAX: usize = ANSWERS_MAX + STATES_MAX;
/// How long a client has to close after its answer.
const PARTING_TIME: Duration = Duration::from_millis(500);
const HEADERS_MAX: usize = 64;

/// Starts to answer; returns the address.
pub(crate) fn start(listener: TcpListener, monitor: Arc<Monitor>) -> Result<SocketAddr, LogdError> {
    let bound = listener.local_addr().map_err(|error| LogdError::failed(error).of("--http"))?;
    let work = move || serve(&listener, &monitor);
    thread::Builder::new()
        .name("logd-http".to_owned())
        .spawn(work)
        .map_err(|error| ServeError::of_thread("that takes requests (--http)", &error))?;
    Ok(bound)
}

fn serve(listener: &TcpListener, monitor: &Arc<Monitor>) {
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
        if before >= REQUESTS_MAX {
            active.fetch_sub(1, Ordering::Relaxed);
            let _ = stream.set_nonblocking(true);
            let _ = Answer::text(503, "busy\n").write(&stream, true);
            continue;
        }
        let is_brief = before >= ANSWERS_MAX;
        let (asking, watching, own) = (stream.clone(), Arc::clone(monitor), Arc::clone(&active));
        let work = move || {
            // A client that went away does not miss its answer.
            let _ = converse(&asking, &watching, is_brief);
            own.fetch_sub(1, Ordering::Relaxed);
        };
        if let Err(error) = thread::Builder::new().name("logd-http".to_owned()).spawn(work) {
            let error = ServeError::of_thread("of a request (--http)", &error);
            log::remark("http", format_args!("{error}"));
            // Without an answer a monitor would take the daemon for dead. Long answers are refused.
            let _ = converse(&stream, monitor, true);
            active.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// One request and its answer. `is_brief`: the request may only ask whether the daemon lives and is ready,
/// because all other places are taken or no thread could be started.
fn converse(stream: &TcpStream, monitor: &Monitor, is_brief: bool) -> io::Result<()> {
    let time = if is_brief { STATE_TIME } else { REQUEST_TIME };
    stream.set_write_timeout(Some(time))?;
    let (answer, has_body) = match read(stream, Instant::now() + time)? {
        Asked::For { path, .. } if is_brief && !matches!(&*path, "/livez" | "/readyz") => {
            (Answer::text(503, "busy\n"), true)
        }
        Asked::For { method, path } if method == "GET" || method == "HEAD" => {
            (answer(&path, monitor), method == "GET")
        }
        Asked::For { .. } => (Answer::text(405, "only GET and HEAD\n"), true),
        Asked::Wrongly(status, why) => (Answer::text(status, why), true),
    };
    answer.write(stream, has_body)?;
    stream.shutdown(Shutdown::Write)?;
    // Closing a socket with unread bytes would discard the answer.
    drain(stream, Instant::now() + PARTING_TIME)
}

/// Reads what comes until then; nothing if the time is over.
fn read_until(
    mut stream: &TcpStream,
    piece: &mut [u8],
    until: Instant,
) -> io::Result<Option<usize>> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(None);
    }
    stream.set_read_timeout(Some(left))?;
    stream.read(piece).map(Some)
}

/// Reads until the other end closes, or until then, however slowly it sends.
fn drain(stream: &TcpStream, until: Instant) -> io::Result<()> {
    let mut piece = [0; 1024];
    for _ in 0..REQUEST_BYTES / piece.len() {
        if read_until(stream, &mut piece, until)?.unwrap_or(0) == 0 {
            break;
        }
    }
    Ok(())
}

enum Asked {
    For { method: String, path: String },
    Wrongly(u16, &'static str),
}

fn read(stream: &TcpStream, until: Instant) -> io::Result<Asked> {
    let mut bytes = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let count = match read_until(stream, &mut piece, until) {
            Ok(None) => return Ok(Asked::Wrongly(408, "too slow\n")),
            Ok(Some(0)) => return Ok(Asked::Wrongly(400, "no request\n")),
            Ok(Some(count)) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        bytes.extend_from_slice(&piece[..count]);
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes) {
            Ok(httparse::Status::Complete(_)) => {
                let method = request.method.unwrap_or_default().to_owned();
                let path = request.path.unwrap_or_default();
                let path = path.split('?').next().unwrap_or_default().to_owned();
                return Ok(Asked::For { method, path });
            }
            Ok(httparse::Status::Partial) if bytes.len() < REQUEST_BYTES => {}
            Ok(httparse::Status::Partial) => return Ok(Asked::Wrongly(431, "too long\n")),
            Err(_) => return Ok(Asked::Wrongly(400, "no request\n")),
        }
    }
}

fn answer(path: &str, monitor: &Monitor) -> Answer {
    let sample = monitor.sample();
    let state = |reasons: Vec<String>| match reasons.is_empty() {
        true => Answer::text(200, "ok\n"),
        false => Answer::text(503, &format!("{}\n", reasons.join("\n"))),
    };
    match path {
        "/" => Answer::new(200, "text/html; charset=utf-8", page::page(monitor, &sample)),
        "/metrics" => {
            let text = metrics::text(monitor, &sample);
            Answer::new(200, "text/plain; version=0.0.4; charset=utf-8", text)
        }
        "/livez" => state(monitor.dead(&sample)),
        "/readyz" => state(monitor.unready(&sample)),
        _ => Answer::text(404, "there are /, /metrics, /livez and /readyz\n"),
    }
}

struct Answer {
    status: u16,
    kind: &'static str,
    body: String,
}

impl Answer {
    fn new(status: u16, kind: &'static str, body: String) -> Answer {
        Answer { status, kind, body }
    }

    fn text(status: u16, body: &str) -> Answer {
        Answer::new(status, "text/plain; charset=utf-8", body.to_owned())
    }

    fn write(&self, mut stream: &TcpStream, has_body: bool) -> io::Result<()> {
        let words = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let allow = if self.status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {} {words}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}\
             Cache-Control: no-store\r\nContent-Security-Policy: script-src 'none'; \
             img-src 'none'; connect-src 'none'\r\nConnection: close\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        let body = if has_body { &*self.body } else { "" };
        stream.write_all([&head, body].concat().as_bytes())
    }
}
