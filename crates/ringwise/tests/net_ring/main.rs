//! Sockets on a ring: on io_uring and on classic calls, on every kind of executor. What comes is
//! checked byte by byte.

#[cfg(any(feature = "tokio", feature = "futures-io"))]
mod adapters;
mod drops;
#[cfg(feature = "tokio")]
#[path = "../../examples/echo_server.rs"]
#[allow(dead_code, reason = "the example's own main")]
mod echo_server;
mod endings;
mod flows;
mod groups;
#[cfg(feature = "tokio")]
#[path = "../../examples/http_hello.rs"]
#[allow(dead_code, reason = "the example's own main")]
mod http_hello;
#[path = "../shared/rings.rs"]
mod rings;
#[cfg(all(feature = "tokio", feature = "sim"))]
mod scarcity;
#[cfg(feature = "tokio")]
#[path = "../../examples/tls_echo.rs"]
#[allow(dead_code, reason = "the example's own main")]
mod tls_echo;
mod vanished;

use std::{
    future::Future,
    io::{Read, Write},
    net::{self as standard, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    pin::Pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use futures::{
    executor::block_on,
    future::{join, join_all, join3},
    task::SpawnExt,
};
use rings::skip;
use ringwise::{
    BackendChoice, BufResult, Builder, ErrorKind, Local, Ring,
    net::{
        KeepAlive, ListenOptions, Shutdown, TcpListener, TcpStream, UdpSocket, UnixListener,
        UnixStream,
    },
};
use tokio::runtime::{Builder as RuntimeBuilder, Runtime};

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(30);

/// Builders of rings with room for many receives that wait; driven by a thread, or by the runtime
/// that they are built in, where the feature `tokio` is on.
fn builders() -> Vec<Builder> {
    [
        Local::builder().backend(BackendChoice::Uring).driver_thread(true),
        Local::builder().backend(BackendChoice::Uring),
        Local::builder().backend(BackendChoice::Classic),
    ]
    .into_iter()
    .filter(|builder| match builder.clone().build() {
        Ok(_) => true,
        Err(error) => {
            skip(&error.to_string());
            false
        }
    })
    .map(|builder| builder.entries(1024))
    .collect()
}

fn tokio_runtimes() -> [Runtime; 2] {
    [
        RuntimeBuilder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
        RuntimeBuilder::new_current_thread().enable_all().build().unwrap(),
    ]
}

/// Runs a test on every kind of ring and executor, as a task of it and for so long at most.
fn everywhere<F>(test: impl Fn(Ring) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    for builder in builders() {
        for runtime in tokio_runtimes() {
            runtime.block_on(async {
                let ring = builder.clone().build_ring().unwrap();
                let task = tokio::spawn(test(ring.clone()));
                tokio::time::timeout(LONG, task).await.expect("it hangs").unwrap();
                end(ring).await;
            });
        }
        let ring = builder.build_ring().unwrap();
        let pool = futures::executor::ThreadPool::builder().pool_size(2).create().unwrap();
        let task = pool.spawn_with_handle(test(ring.clone())).unwrap();
        within(LONG, task);
        block_on(end(ring));
    }
}

async fn end(ring: Ring) {
    ring.shutdown(10 * SECOND).await.unwrap();
    let stats = ring.stats();
    assert_eq!(stats.delivered + stats.reclaimed, stats.submitted, "{stats:?}");
    assert_eq!(stats.local.in_flight, 0, "{stats:?}");
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future on this thread, for so long at most.
fn within<F: Future>(time: Duration, future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = Box::pin(future);
    let start = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(start.elapsed() < time, "it hangs");
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

/// Polls a future once.
fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn listen(ring: &Ring) -> (TcpListener, SocketAddr) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = TcpListener::bind(ring, &any, &ListenOptions::default()).unwrap();
    let address = listener.local_address().unwrap();
    (listener, address)
}

/// A connection between two streams of a ring.
async fn pair(ring: &Ring) -> (TcpStream, TcpStream) {
    let (listener, address) = listen(ring);
    let client = TcpStream::connect(ring, address).await.unwrap();
    let (server, from) = listener.accept().await.unwrap();
    assert_eq!(from, client.local_address().unwrap());
    assert_eq!(client.peer_address().unwrap(), address);
    (client, server)
}

/// A connection between a stream of a ring and one of the standard library's.
fn mixed_pair(ring: &Ring) -> (TcpStream, standard::TcpStream) {
    let listener = standard::TcpListener::bind("127.0.0.1:0").unwrap();
    let other = standard::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    other.set_nodelay(true).unwrap();
    let (stream, _) = listener.accept().unwrap();
    (TcpStream::from_std(ring, stream).unwrap(), other)
}

/// The bytes at a place of an endless stream: no two places near each other look the same.
fn pattern(at: usize, len: usize) -> Vec<u8> {
    // A prime number of bytes, so that no two blocks of a size that is used are the same.
    const PERIOD: usize = 1_048_573;
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let byte = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
        (0..PERIOD as u64).map(byte).collect()
    });
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let from = (at + bytes.len()) % PERIOD;
        let count = (PERIOD - from).min(len - bytes.len());
        bytes.extend_from_slice(&BYTES[from..from + count]);
    }
    bytes
}

/// Sends back all that comes, until its end.
async fn echo(stream: TcpStream) {
    let mut buffer = vec![0; 10_000];
    loop {
        let BufResult(result, mut back) = stream.recv(buffer).await;
        let count = result.unwrap();
        if count == 0 {
            return stream.shutdown(Shutdown::Write).await.unwrap();
        }
        back.truncate(count);
        let BufResult(sent, back) = stream.send_all(back).await;
        sent.unwrap();
        buffer = back;
        buffer.resize(10_000, 0);
    }
}

/// Few bytes, or many, or very many.
fn length(random: &mut fastrand::Rng, few: usize) -> usize {
    let most = [few, 1000, 100_000][random.usize(..3)];
    random.usize(1..=most)
}

/// Sends `total` bytes in pieces of random sizes.
async fn send_pattern(stream: &TcpStream, total: usize, mut random: fastrand::Rng) {
    let mut sent = 0;
    while sent < total {
        let len = length(&mut random, 10).min(total - sent);
        let bytes = pattern(sent, len);
        let result = if random.bool() {
            let at = random.usize(..=len);
            let parts = vec![bytes[..at].to_vec(), bytes[at..].to_vec()];
            let BufResult(result, back) = stream.send_all_vectored(parts).await;
            assert_eq!(back.concat(), bytes);
            result
        } else {
            let BufResult(result, back) = stream.send_all(bytes.clone()).await;
            assert_eq!(back, bytes);
            result
        };
        result.unwrap();
        sent += len;
    }
    stream.shutdown(Shutdown::Write).await.unwrap();
}

/// Receives until the end, and checks that it was `total` bytes of the pattern.
async fn receive_pattern(stream: &TcpStream, total: usize, mut random: fastrand::Rng) {
    let mut received = 0;
    loop {
        let len = length(&mut random, 3);
        let (count, bytes) = if random.bool() {
            let BufResult(result, parts) =
                stream.recv_vectored(vec![vec![0; len], vec![0; 7]]).await;
            (result.unwrap(), parts.concat())
        } else {
            let BufResult(result, bytes) = stream.recv(vec![0; len]).await;
            (result.unwrap(), bytes)
        };
        assert!(bytes[..count] == pattern(received, count), "wrong bytes at {received}");
        received += count;
        if count == 0 {
            return assert_eq!(received, total);
        }
    }
}

#[test]
fn an_echo_of_random_sizes() {
    everywhere(|ring| async move {
        const TOTAL: usize = 1 << 20;
        let (client, server) = pair(&ring).await;
        let send = send_pattern(&client, TOTAL, fastrand::Rng::with_seed(1));
        let receive = receive_pattern(&client, TOTAL, fastrand::Rng::with_seed(2));
        join3(echo(server), send, receive).await;
        client.close().await.unwrap();
    });
}

#[test]
fn two_hundred_connections_at_a_time() {
    everywhere(|ring| async move {
        const COUNT: usize = 200;
        let (listener, address) = listen(&ring);
        let serve = async {
            let accept = || async { echo(listener.accept().await.unwrap().0).await };
            join_all((0..COUNT).map(|_| accept())).await;
        };
        let ask = |number: usize| {
            let ring = ring.clone();
            async move {
                let stream = TcpStream::connect(&ring, address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                for round in 0..5 {
                    let question = pattern(number * 100 + round, 50 + number);
                    stream.send_all(question.clone()).await.0.unwrap();
                    let mut answer: Vec<u8> = Vec::new();
                    while answer.len() < question.len() {
                        let BufResult(count, bytes) = stream.recv(vec![0; 1000]).await;
                        answer.extend(&bytes[..count.unwrap()]);
                    }
                    assert!(answer == question, "connection {number}, round {round}");
                }
                stream.shutdown(Shutdown::Write).await.unwrap();
                assert_eq!(stream.recv(vec![0; 10]).await.0.unwrap(), 0);
            }
        };
        join(serve, join_all((0..COUNT).map(ask))).await;
    });
}

#[test]
fn one_direction_ends_and_the_other_goes_on() {
    everywhere(|ring| async move {
        let (client, server) = pair(&ring).await;
        client.send_all(b"the last word".to_vec()).await.0.unwrap();
        client.shutdown(Shutdown::Write).await.unwrap();
        let BufResult(count, bytes) = server.recv(vec![0; 100]).await;
        assert_eq!(&bytes[..count.unwrap()], b"the last word");
        for _ in 0..2 {
            assert_eq!(server.recv(vec![0; 100]).await.0.unwrap(), 0);
        }
        server.send_all(b"the answer".to_vec()).await.0.unwrap();
        let BufResult(count, bytes) = client.recv(vec![0; 100]).await;
        assert_eq!(&bytes[..count.unwrap()], b"the answer");
        let BufResult(refused, bytes) = client.send_all(b"too late".to_vec()).await;
        assert_eq!(refused.unwrap_err().errno(), libc::EPIPE);
        assert_eq!(bytes, b"too late");
    });
}

#[test]
fn a_reset_is_told_and_the_buffer_comes_back() {
    everywhere(|ring| async move {
        let (client, server) = pair(&ring).await;
        let waiting = client.recv(vec![7; 100]);
        let reset = async {
            server.set_reset_on_close().unwrap();
            server.close().await.unwrap();
        };
        let (BufResult(result, buffer), ()) = join(waiting, reset).await;
        assert_eq!(result.unwrap_err().errno(), libc::ECONNRESET);
        assert_eq!(buffer, [7; 100]);
        let BufResult(result, buffer) = client.send_all(vec![8; 100]).await;
        assert_eq!(result.unwrap_err().errno(), libc::EPIPE);
        assert_eq!(buffer, [8; 100]);
    });
}

#[test]
fn a_deadline_ends_what_waits_and_nothing_else() {
    const SHORT: Duration = Duration::from_millis(30);
    everywhere(|ring| async move {
        let (client, server) = pair(&ring).await;
        let start = Instant::now();
        let BufResult(result, buffer) = client.recv_deadline(vec![7; 100], SHORT).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!((SHORT..SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
        assert_eq!(buffer.len(), 100);
        server.send_all(b"late".to_vec()).await.0.unwrap();
        let BufResult(result, buffer) = client.recv_deadline(buffer, LONG).await;
        assert_eq!(&buffer[..result.unwrap()], b"late");

        // Nobody reads: more than the two socket buffers hold cannot be sent.
        let much = vec![9; 64 << 20];
        let BufResult(result, much) = client.send_all_deadline(much, SHORT).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(much.len(), 64 << 20);
        // One that waits for its turn has the same time.
        let mut stuck = Box::pin(server.recv(vec![0; 1]));
        server.send_all(b"x".to_vec()).await.0.unwrap();
        while poll_once(stuck.as_mut()).is_pending() {
            yield_now().await;
        }
    });
}

/// Lets other tasks run.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn one_that_waits_for_its_turn_has_its_deadline_too() {
    everywhere(|ring| async move {
        let (client, _server) = pair(&ring).await;
        let mut first = Box::pin(client.recv(vec![0; 10]));
        assert!(poll_once(first.as_mut()).is_pending());
        let BufResult(result, buffer) = client.recv_deadline(vec![7; 10], SECOND / 20).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(buffer, [7; 10]);
        assert!(poll_once(first.as_mut()).is_pending());
    });
}

/// A listener whose queue is full answers no more: the kernel drops what comes (tcp(7), backlog).
#[test]
fn a_connect_has_a_deadline() {
    everywhere(|ring| async move {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = ListenOptions::default().backlog(0);
        let listener = TcpListener::bind(&ring, &any, &options).unwrap();
        let address = listener.local_address().unwrap();
        let mut queued = Vec::new();
        let error = loop {
            let connect = TcpStream::connect_deadline(&ring, address, SECOND / 10);
            match connect.await {
                Ok(stream) => queued.push(stream),
                Err(error) => break error,
            }
            assert!(queued.len() < 10, "the queue is never full");
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        assert!(!queued.is_empty());
        listener.close().await.unwrap();
        let refused = TcpStream::connect(&ring, address).await.unwrap_err();
        assert_eq!(refused.errno(), libc::ECONNREFUSED);
    });
}

#[test]
fn datagrams_and_whence_they_come() {
    everywhere(|ring| async move {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let bind = || UdpSocket::bind(&ring, &any).unwrap();
        let (one, other) = (bind(), bind());
        let (here, there) = (one.local_address().unwrap(), other.local_address().unwrap());
        for len in [0, 1, 1000, 60_000] {
            let BufResult(sent, bytes) = one.send_to(pattern(len, len), there).await;
            assert_eq!(sent.unwrap(), len);
            let BufResult(datagram, received) = other.recv_from(vec![0; 65_536]).await;
            let datagram = datagram.unwrap();
            assert_eq!((datagram.bytes, datagram.from), (len, here));
            assert!(!datagram.is_truncated && received[..len] == bytes);
        }
        one.send_to(pattern(0, 100), there).await.0.unwrap();
        let BufResult(datagram, received) = other.recv_from(vec![0; 10]).await;
        assert!(datagram.unwrap().is_truncated && received == pattern(0, 10));

        one.connect(there).await.unwrap();
        assert_eq!(one.send(b"connected".to_vec()).await.0.unwrap(), 9);
        assert_eq!(other.recv(vec![0; 100]).await.0.unwrap(), 9);
        other.send_to(b"back".to_vec(), here).await.0.unwrap();
        assert_eq!(one.recv(vec![0; 100]).await.0.unwrap(), 4);
    });
}

#[test]
fn unix_sockets() {
    everywhere(|ring| async move {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&ring, &path).unwrap();
        let (client, server) = join(UnixStream::connect(&ring, &path), listener.accept()).await;
        let (client, server) = (client.unwrap(), server.unwrap());
        assert_eq!(client.peer_address().unwrap(), path.as_path().into());
        client.send_all(b"hello".to_vec()).await.0.unwrap();
        let BufResult(count, bytes) = server.recv(vec![0; 10]).await;
        assert_eq!(&bytes[..count.unwrap()], b"hello");
        client.close().await.unwrap();
        assert_eq!(server.recv(bytes).await.0.unwrap(), 0);
        let missing = UnixStream::connect(&ring, directory.path().join("none")).await;
        let error = missing.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("none"), "{error}");
    });
}

#[test]
fn a_socket_comes_from_the_standard_library_and_goes_back() {
    everywhere(|ring| async move {
        let listener = standard::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let listener = TcpListener::from_std(&ring, listener).unwrap();
        let mut client = standard::TcpStream::connect(address).unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let keepalive = KeepAlive { idle: SECOND, interval: SECOND, count: 3 };
        server.set_keepalive(Some(keepalive)).unwrap();
        server.set_user_timeout(LONG).unwrap();
        client.write_all(b"one").unwrap();
        assert_eq!(server.recv(vec![0; 10]).await.0.unwrap(), 3);
        let clone = server.clone();
        let server = server.into_std().expect_err("a clone holds it");
        drop(clone);
        let mut server = server.into_std().unwrap();
        client.write_all(b"two").unwrap();
        let mut bytes = [0; 3];
        server.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"two");
        client.set_nonblocking(true).unwrap();
        let client = TcpStream::from_std(&ring, client).unwrap();
        // It waits, for all that its descriptor said that it would not.
        let mut waiting = Box::pin(client.recv(vec![0; 10]));
        assert!(poll_once(waiting.as_mut()).is_pending());
        server.write_all(b"three").unwrap();
        assert_eq!(waiting.await.0.unwrap(), 5);
        listener.into_std().unwrap();
    });
}

/// Whether this process has the descriptor open: its number may be another's by now, so whether it
/// is the same socket.
fn inode(stream: &TcpStream) -> std::path::PathBuf {
    let number = stream.as_fd().as_raw_fd();
    std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap()
}

fn is_open(socket: &std::path::Path) -> bool {
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap();
    numbers
        .flatten()
        .any(|number| std::fs::read_link(number.path()).is_ok_and(|link| link == socket))
}

#[test]
fn a_socket_closes_after_its_last_operation() {
    everywhere(|ring| async move {
        let (client, mut other) = mixed_pair(&ring);
        let socket = inode(&client);
        let clone = client.clone();
        let mut waiting = Box::pin(async move { clone.recv(vec![0; 10]).await });
        assert!(poll_once(waiting.as_mut()).is_pending());
        let refused = client.clone().into_std().expect_err("a receive is in flight");
        drop((refused, client));
        assert!(is_open(&socket));
        other.write_all(b"still").unwrap();
        assert_eq!(waiting.await.0.unwrap(), 5);
        assert!(!is_open(&socket));
        assert_eq!(other.read(&mut [0; 10]).unwrap(), 0);
    });
}

#[test]
fn a_dropped_receive_keeps_no_socket_open() {
    everywhere(|ring| async move {
        let (client, other) = pair(&ring).await;
        let mut waiting = Box::pin(client.recv(vec![0; 10]));
        assert!(poll_once(waiting.as_mut()).is_pending());
        drop(waiting);
        drop(client);
        assert_eq!(other.recv(vec![0; 10]).await.0.unwrap(), 0);
    });
}

#[test]
fn a_ring_ends_with_receives_in_flight() {
    for builder in builders() {
        for runtime in tokio_runtimes() {
            runtime.block_on(async {
                let ring = builder.clone().build_ring().unwrap();
                let (listener, _) = listen(&ring);
                let pairs: Vec<_> = (0..50).map(|_| mixed_pair(&ring)).collect();
                let (streams, others): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
                let waiting = streams.iter().map(|stream| {
                    let stream = stream.clone();
                    tokio::spawn(async move { stream.recv(vec![7; 100]).await })
                });
                let waiting: Vec<_> = waiting.collect();
                let accepting = tokio::spawn(async move { listener.accept().await.map(drop) });
                tokio::time::sleep(SECOND / 50).await;
                ring.shutdown(10 * SECOND).await.unwrap();
                for ended in waiting {
                    let BufResult(result, buffer) = ended.await.unwrap();
                    assert_eq!(result.unwrap_err().kind(), ErrorKind::Cancelled);
                    assert_eq!(buffer, [7; 100]);
                }
                let error = accepting.await.unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Cancelled);
                let BufResult(result, _) = streams[0].recv(vec![7; 100]).await;
                assert_eq!(result.unwrap_err().errno(), libc::ESHUTDOWN);
                drop((streams, others));
                end(ring).await;
            });
        }
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Polls a future for the first time in a task of a runtime: on a thread that ends with it, where
/// the runtime has threads.
fn begin_on<T: Send + 'static>(
    runtime: &Runtime,
    future: impl Future<Output = T> + Send + 'static,
) -> Boxed<T> {
    let mut future: Boxed<T> = Box::pin(future);
    let begun = runtime.spawn(async move {
        assert!(poll_once(future.as_mut()).is_pending());
        [future]
    });
    let [future] = runtime.block_on(begun).unwrap();
    future
}

/// Tasks that wait on sockets when their runtime ends, and a thread that waits with them and goes
/// on. On a ring, what a runtime's thread had submitted is cancelled by the kernel with that thread,
/// and nobody is to notice.
#[test]
fn a_runtime_ends_first() {
    const MUCH: usize = 32 << 20;
    for builder in builders() {
        for runtime in tokio_runtimes() {
            let ring = runtime.block_on(async { builder.clone().build_ring().unwrap() });
            let (listener, address) = listen(&ring);
            let (client, mut other) = mixed_pair(&ring);
            let stream = client.clone();
            let receive = begin_on(&runtime, async move { stream.recv(vec![0; 100]).await });
            let stream = client.clone();
            let send = async move { stream.send_all(pattern(0, MUCH)).await };
            let send = begin_on(&runtime, send);
            let accept = begin_on(&runtime, async move { listener.accept().await });
            let (task_client, mut task_other) = mixed_pair(&ring);
            runtime.block_on(async {
                let stream = task_client.clone();
                tokio::spawn(async move { stream.recv(vec![0; 100]).await });
                tokio::time::sleep(SECOND / 50).await;
            });
            drop(runtime);
            other.write_all(b"after").unwrap();
            let BufResult(count, bytes) = within(LONG, receive);
            assert_eq!(&bytes[..count.unwrap()], b"after");
            // What the task's receive may have taken is for the next one.
            task_other.write_all(b"too").unwrap();
            assert_eq!(within(LONG, task_client.recv(vec![0; 10])).0.unwrap(), 3);
            let reader = std::thread::spawn(move || {
                let mut bytes = vec![0; MUCH];
                other.read_exact(&mut bytes).unwrap();
                bytes
            });
            within(LONG, send).0.unwrap();
            assert!(reader.join().unwrap() == pattern(0, MUCH));
            let connected = standard::TcpStream::connect(address).unwrap();
            let (_, from) = within(LONG, accept).unwrap();
            assert_eq!(from, connected.local_addr().unwrap());
            within(LONG, end(ring));
        }
    }
}

/// A connect that waits until there is room in the listener's queue, which the kernel asks for again
/// after a second.
#[test]
fn a_connect_outlives_its_runtime() {
    for builder in builders() {
        let [runtime, _] = tokio_runtimes();
        let ring = runtime.block_on(async { builder.clone().build_ring().unwrap() });
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = ListenOptions::default().backlog(0);
        let listener = TcpListener::bind(&ring, &any, &options).unwrap();
        let address = listener.local_address().unwrap();
        let queued = standard::TcpStream::connect(address).unwrap();
        let connector = ring.clone();
        let connect = async move { TcpStream::connect(&connector, address).await };
        let connect = begin_on(&runtime, connect);
        runtime.block_on(async { tokio::time::sleep(SECOND / 50).await });
        drop(runtime);
        let accepter = std::thread::spawn(move || {
            let (mut first, mut others) = (true, Vec::new());
            // The one that was given up may be among them.
            while let Ok((stream, from)) = within(LONG, listener.accept()) {
                if !std::mem::take(&mut first) {
                    let BufResult(count, _) = within(LONG, stream.recv(vec![0; 1]));
                    if count.is_ok_and(|count| count == 1) {
                        return from;
                    }
                }
                others.push(stream);
            }
            unreachable!("a listener does not end by itself");
        });
        let stream = within(LONG, connect).unwrap();
        within(LONG, stream.send_all(b"x".to_vec())).0.unwrap();
        assert_eq!(accepter.join().unwrap(), stream.local_address().unwrap());
        drop((queued, stream));
        within(LONG, end(ring));
    }
}
