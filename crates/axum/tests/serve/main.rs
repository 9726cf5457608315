//! axum over a ring's sockets, on io_uring and on classic syscalls: bodies byte by byte, ends of connections,
//! and clients that read slowly or go away.

mod bodies;
mod endings;
mod failures;
#[path = "../../examples/files.rs"]
#[allow(dead_code, reason = "the example's own main")]
mod files;
mod site;

use std::{
    future::Future,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::LazyLock,
    time::Duration,
};

use axum::Router;
use ringwise::{
    BackendChoice, Builder,
    net::{ListenOptions, TcpListener},
};
use ringwise_axum::RingListener;
use tokio::{runtime, sync::oneshot, task::JoinHandle};

const LONG: Duration = Duration::from_secs(30);

/// A server, until it is told to end.
struct Server {
    address: SocketAddr,
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    /// Ends it, when the last connection is over.
    async fn end(self) {
        self.end.send(()).unwrap();
        tokio::time::timeout(LONG, self.task).await.expect("it hangs").unwrap();
    }
}

fn listen(builder: Builder) -> RingListener {
    let ring = builder.build_ring().unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    RingListener::new(TcpListener::bind(&ring, &any, &ListenOptions::default()).unwrap())
}

fn serve(builder: Builder, router: Router) -> Server {
    let listener = listen(builder);
    let address = listener.get_ref().local_address().unwrap();
    let (end, ended) = oneshot::channel();
    let server = axum::serve(listener, router).with_graceful_shutdown(async {
        let _ = ended.await;
    });
    let task = tokio::spawn(async { server.await.unwrap() });
    Server { address, end, task }
}

/// Runs a test on every backend and kind of runtime.
fn everywhere<F: Future<Output = ()>>(test: impl Fn(Builder) -> F) {
    for choice in [BackendChoice::Uring, BackendChoice::Classic] {
        let builder = Builder::default().backend(choice);
        if let Err(error) = builder.clone().build() {
            assert!(std::env::var_os("CI").is_none(), "skipped in CI: {error}");
            println!("skipped: {error}");
            continue;
        }
        let several = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let one = runtime::Builder::new_current_thread().enable_all().build();
        for runtime in [several.unwrap(), one.unwrap()] {
            runtime.block_on(async {
                let limited = tokio::time::timeout(2 * LONG, test(builder.clone()));
                limited.await.expect("it hangs");
            });
        }
    }
}

/// Runs what blocks on a thread beside the runtime.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Asks for a path by a connection that ends after the answer.
fn ask(stream: &mut TcpStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
}

/// Reads to the end, and splits head and body.
fn answer(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    let end = received.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
    let body = received.split_off(end + 4);
    (String::from_utf8(received).unwrap(), body)
}

/// The bytes at a place of an endless stream. It repeats after a prime number of bytes, so that no two chunks of a
/// usual length are the same. They are copied from a table, since these tests are built without optimisation.
fn pattern(at: usize, len: usize) -> Vec<u8> {
    const PERIOD: usize = 65_521;
    static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let byte = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
        (0..PERIOD as u64).map(byte).collect()
    });
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let rest = &TABLE[(at + bytes.len()) % PERIOD..];
        bytes.extend_from_slice(&rest[..rest.len().min(len - bytes.len())]);
    }
    bytes
}
