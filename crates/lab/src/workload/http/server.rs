//! The servers of `http`: hyper's HTTP/1.1 over each kind of socket, with bodies from each source. The lab
//! runs itself as one of these.
//!
//! All have the same version and options of hyper, the same runtime with tokio's defaults, TCP_NODELAY, and
//! chunks of the same length. They differ in who moves bytes between memory, sockets and files.

use std::{
    convert::Infallible,
    io::{self, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};

use bytes::Bytes;
use futures_util::{Stream, stream::try_unfold};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response, StatusCode,
    body::{Frame, Incoming},
    header::CONTENT_LENGTH,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use ringwise::{
    BackendChoice, BufResult, Builder, OpenOptions, Ring,
    net::{Buffered, ListenOptions, TcpListener},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::{
    plan::{Bodies, HttpServer},
    site::FILES,
};
use crate::error::{LabError, plain};

/// What is read of a file at a time: as much as tower-http's `ServeDir` reads.
const CHUNK_BYTES: u64 = 64 << 10;

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The name by which the lab runs itself as a server.
pub(super) fn child_name(server: HttpServer, bodies: Bodies) -> String {
    format!("http-{bodies}-{server}")
}

/// Returns what a name asks for if it is one of [`child_name`].
fn parse(name: &str) -> Option<(HttpServer, Bodies)> {
    let (bodies, server) = name.strip_prefix("http-")?.split_once('-')?;
    Some((HttpServer::parse(server).ok()?, Bodies::parse(bodies).ok()?))
}

/// Returns whether the lab is to run as a server of this workload.
pub(crate) fn is_meant(name: &str) -> bool {
    name.starts_with("http-")
}

/// Serves the files of a directory until standard input ends, so that no server outlives the lab.
///
/// # Errors
///
/// No server has this name, the kernel gives no ring, a syscall fails.
pub(crate) fn serve(name: &str, directory: &Path, out: &mut dyn Write) -> Result<(), LabError> {
    let Some((server, bodies)) = parse(name) else {
        let text = format!("--child-server {name}: expected http-BODIES-ENGINE");
        return Err(LabError::Usage(text));
    };
    let failed = |error: io::Error| LabError::Failed(format!("{name}: {}", plain(&error)));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(failed)?;
    let (end, ended) = mpsc::channel();
    let _context = runtime.enter();
    let ring = ring(server).map_err(|error| LabError::Failed(format!("{name}: {error}")))?;
    let source = Source::open(bodies, ring.as_ref(), directory).map_err(failed)?;
    let listener = Listener::bind(server, ring.as_ref()).map_err(failed)?;
    let address = listener.address().map_err(failed)?;
    let failure = end.clone();
    runtime.spawn(async move {
        let error = listener.serve(Arc::new(source)).await;
        failure.send(Err(error))
    });
    thread::spawn(move || end.send(io::copy(&mut io::stdin(), &mut io::sink()).map(drop)));
    writeln!(out, "listening on {address}")
        .and_then(|()| out.flush())
        .map_err(|error| LabError::output(&error))?;
    ended.recv().expect("standard input ends").map_err(failed)
}

/// The ring of a server, if it has one. The context of the runtime that is to drive it has to be entered.
fn ring(server: HttpServer) -> Result<Option<Ring>, ringwise::SetupError> {
    let backend = match server {
        HttpServer::Tokio => return Ok(None),
        HttpServer::RingFiles | HttpServer::Ring => BackendChoice::Uring,
        HttpServer::Classic => BackendChoice::Classic,
    };
    Builder::default().backend(backend).build_ring().map(Some)
}

/// Who accepts connections.
enum Listener {
    Tokio(tokio::net::TcpListener),
    Ring(TcpListener),
}

impl Listener {
    fn bind(server: HttpServer, ring: Option<&Ring>) -> io::Result<Listener> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        match (server, ring) {
            (HttpServer::Ring | HttpServer::Classic, Some(ring)) => {
                Ok(Listener::Ring(TcpListener::bind(ring, &any, &ListenOptions::default())?))
            }
            _ => {
                let listener = std::net::TcpListener::bind(any)?;
                listener.set_nonblocking(true)?;
                Ok(Listener::Tokio(tokio::net::TcpListener::from_std(listener)?))
            }
        }
    }

    fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Listener::Tokio(listener) => listener.local_addr(),
            Listener::Ring(listener) => Ok(listener.local_address()?),
        }
    }

    /// Serves connections until one cannot be accepted.
    async fn serve(self, source: Arc<Source>) -> io::Error {
        loop {
            let accepted = match &self {
                Listener::Tokio(listener) => match listener.accept().await {
                    Ok((stream, _)) => stream.set_nodelay(true).map(|()| {
                        tokio::spawn(converse(stream, source.clone()));
                    }),
                    Err(error) => Err(error),
                },
                Listener::Ring(listener) => match listener.accept().await {
                    Ok((stream, _)) => {
                        stream.set_nodelay(true).map_err(io::Error::from).map(|()| {
                            tokio::spawn(converse(Buffered::new(stream), source.clone()));
                        })
                    }
                    Err(error) => Err(error.into()),
                },
            };
            if let Err(error) = accepted {
                return error;
            }
        }
    }
}

/// Serves one connection to its end.
async fn converse<S>(stream: S, source: Arc<Source>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| answer(source.clone(), request));
    // The client reports a connection that fails.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    source: Arc<Source>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let number = request.uri().path().strip_prefix('/').and_then(|text| text.parse().ok());
    let mut response = Response::new(Full::default().map_err(never).boxed_unsync());
    let Some(number) = number.filter(|number| *number < FILES) else {
        *response.status_mut() = StatusCode::NOT_FOUND;
        return Ok(response);
    };
    match source.body(number).await {
        Ok((length, body)) => {
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
            *response.body_mut() = body;
        }
        Err(error) => {
            // The lab shows the first line. Nobody else listens.
            let _ = writeln!(io::stderr(), "file {number}: {}", plain(&error));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
    }
    Ok(response)
}

fn never(never: Infallible) -> io::Error {
    match never {}
}

/// Where bodies come from.
enum Source {
    Memory(Vec<Bytes>),
    TokioFiles(PathBuf),
    RingFiles(Ring, PathBuf),
}

impl Source {
    fn open(bodies: Bodies, ring: Option<&Ring>, directory: &Path) -> io::Result<Source> {
        let read = |number: u64| std::fs::read(directory.join(number.to_string())).map(Bytes::from);
        Ok(match (bodies, ring) {
            (Bodies::Memory, _) => Source::Memory((0..FILES).map(read).collect::<Result<_, _>>()?),
            (Bodies::Files, None) => Source::TokioFiles(directory.to_owned()),
            (Bodies::Files, Some(ring)) => Source::RingFiles(ring.clone(), directory.to_owned()),
        })
    }

    /// A body and its length.
    async fn body(&self, number: u64) -> io::Result<(u64, Body)> {
        match self {
            Source::Memory(bodies) => {
                let bytes = bodies[number as usize].clone();
                Ok((bytes.len() as u64, Full::new(bytes).map_err(never).boxed_unsync()))
            }
            Source::TokioFiles(directory) => {
                let file = tokio::fs::File::open(directory.join(number.to_string())).await?;
                let length = file.metadata().await?.len();
                Ok((length, StreamBody::new(chunks_of_tokio(file, length)).boxed_unsync()))
            }
            Source::RingFiles(ring, directory) => {
                let (path, options) =
                    (directory.join(number.to_string()), OpenOptions::new().read(true));
                let file = ringwise::fs::File::open(ring, path, options).await?;
                let length = file.metadata().await?.len();
                Ok((length, StreamBody::new(chunks_of_ring(file, length)).boxed_unsync()))
            }
        }
    }
}

/// Room for the next chunk.
fn room(left: u64) -> Vec<u8> {
    Vec::with_capacity(left.min(CHUNK_BYTES) as usize)
}

/// The first `length` bytes of a file. A file that is shorter by then ends the answer early, which the
/// client reports.
fn chunks_of_tokio(
    file: tokio::fs::File,
    length: u64,
) -> impl Stream<Item = io::Result<Frame<Bytes>>> {
    try_unfold((file, length), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let mut bytes = room(left);
        let count = file.read_buf(&mut bytes).await? as u64;
        let rest = (file, left.saturating_sub(count));
        Ok((count > 0).then(|| (Frame::data(Bytes::from(bytes)), rest)))
    })
}

/// The same through the library.
fn chunks_of_ring(
    file: ringwise::fs::File,
    length: u64,
) -> impl Stream<Item = io::Result<Frame<Bytes>>> {
    try_unfold((file, 0), move |(file, offset)| async move {
        if offset >= length {
            return Ok(None);
        }
        let BufResult(result, bytes) = file.read_at(room(length - offset), offset).await;
        let count = result? as u64;
        Ok((count > 0).then(|| (Frame::data(Bytes::from(bytes)), (file, offset + count))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        let every = "tokio,tokio+ringwise-files,ringwise,ringwise-classic";
        for server in every.split(',').map(|name| HttpServer::parse(name).unwrap()) {
            for bodies in [Bodies::Memory, Bodies::Files] {
                let name = child_name(server, bodies);
                assert!(is_meant(&name) && parse(&name) == Some((server, bodies)), "{name}");
            }
        }
        let error = serve("http-disk-tokio", Path::new("."), &mut Vec::new()).unwrap_err();
        assert_eq!(error.exit_status(), 2, "{error}");
    }
}
