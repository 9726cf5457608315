//! Ends of connections: half of one, a slow reader, and resets in the middle of a body.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    routing::{get, post},
};
use futures_util::Stream;
use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size};
use tokio::sync::oneshot;

use crate::{LONG, answer, ask, blocking, connect, everywhere, pattern, serve};

const CHUNK: usize = 64 << 10;
/// More than the sockets of both ends hold.
const CHUNKS: usize = 1024;
/// Four times what the server's socket holds (`net.ipv4.tcp_wmem`).
const HELD_MAX: usize = 16 << 20;

/// A body of many chunks.
struct Chunks {
    next: usize,
    /// How many were asked for.
    made: Arc<AtomicUsize>,
}

impl Stream for Chunks {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.next == CHUNKS {
            return Poll::Ready(None);
        }
        let bytes = pattern(self.next * CHUNK, CHUNK);
        self.next += 1;
        self.made.fetch_add(1, Relaxed);
        Poll::Ready(Some(Ok(Bytes::from(bytes))))
    }
}

/// A router with such a body and a small one, and how many chunks were made.
fn much() -> (Router, Arc<AtomicUsize>) {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let chunks = || async move { Body::from_stream(Chunks { next: 0, made: counted }) };
    let router = Router::new().route("/", get(chunks)).route("/small", get(|| async { "small" }));
    (router, made)
}

#[test]
fn a_client_that_ends_its_half_is_answered() {
    everywhere(|builder| async move {
        let server = serve(builder, Router::new().route("/", get(|| async { "the answer" })));
        let address = server.address;
        let (head, body) = blocking(move || {
            let mut stream = connect(address);
            stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            answer(&mut stream)
        })
        .await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(body, b"the answer");
        server.end().await;
    });
}

#[test]
fn a_client_that_does_not_read_stops_the_body() {
    everywhere(|builder| async move {
        let (router, made) = much();
        let server = serve(builder, router);
        let address = server.address;
        let mut stream = blocking(move || {
            let mut stream = connect(address);
            set_socket_recv_buffer_size(&stream, CHUNK).unwrap();
            ask(&mut stream, "/");
            stream
        })
        .await;
        // The body has stopped when nothing is made for a while.
        let mut before = usize::MAX;
        while made.load(Relaxed) != before || before == 0 {
            before = made.load(Relaxed);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert!(before * CHUNK < HELD_MAX, "{before} chunks were made");
        let (_, body) = blocking(move || answer(&mut stream)).await;
        assert!(without_lengths(&body) == pattern(0, CHUNKS * CHUNK));
        server.end().await;
    });
}

/// The content of a body that came in chunks of HTTP, each under its length.
fn without_lengths(mut body: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let end = body.windows(2).position(|window| window == b"\r\n").expect("a length");
        let len = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if len == 0 {
            return content;
        }
        let start = end + 2;
        content.extend_from_slice(&body[start..start + len]);
        body = &body[start + len + 2..];
    }
}

#[test]
fn a_reset_ends_the_body() {
    everywhere(|builder| async move {
        let (router, made) = much();
        let server = serve(builder, router);
        let address = server.address;
        let served = blocking(move || {
            let mut stream = connect(address);
            ask(&mut stream, "/");
            stream.read_exact(&mut vec![0; 1 << 20]).unwrap();
            reset(stream);
            // Others are served as before.
            let mut stream = connect(address);
            ask(&mut stream, "/small");
            answer(&mut stream).1
        })
        .await;
        assert_eq!(served, b"small");
        // This waits for the connection that was reset too.
        server.end().await;
        assert!(made.load(Relaxed) < CHUNKS);
    });
}

/// Tells when a handler is over, whether by itself or because it was dropped.
struct Ended(Option<oneshot::Sender<()>>);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.take().map(|sender| sender.send(()));
    }
}

#[test]
fn a_reset_in_an_upload_ends_its_handler() {
    everywhere(|builder| async move {
        let (sender, ended) = oneshot::channel();
        let (begins, begun) = std::sync::mpsc::channel();
        let handler = Arc::new(std::sync::Mutex::new(Some(Ended(Some(sender)))));
        let has_all = Arc::new(AtomicBool::new(false));
        let seen = has_all.clone();
        let upload = |body: Body| async move {
            begins.send(()).unwrap();
            let _ended = handler.lock().unwrap().take();
            let read = axum::body::to_bytes(body, usize::MAX).await;
            seen.store(read.is_ok(), Relaxed);
        };
        let server = serve(builder, Router::new().route("/", post(upload)));
        let address = server.address;
        blocking(move || {
            let mut stream = connect(address);
            let head = "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&pattern(0, 500_000)).unwrap();
            // A reset takes what was not received yet, and there may be no handler then.
            begun.recv_timeout(LONG).unwrap();
            reset(stream);
        })
        .await;
        tokio::time::timeout(LONG, ended).await.expect("it hangs").unwrap();
        assert!(!has_all.load(Relaxed));
        server.end().await;
    });
}

/// Closes with a reset.
fn reset(stream: TcpStream) {
    set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}
