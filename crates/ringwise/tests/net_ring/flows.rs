//! `recv_multi` and `accept_multi`: what comes is whole and in order, whatever is dropped and when, and
//! what is not taken holds back its own sender only.

use std::{
    io::{Read, Write},
    net as standard,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{executor::block_on, future::FutureExt};
use ringwise::{
    BackendChoice, BufResult, Local, Ring,
    net::{ListenOptions, Shutdown, TcpListener, UnixListener, UnixStream},
    sim::{Fault, Simulation, When},
};

use super::{
    LONG, SECOND, drops::try_for, end, everywhere, listen, mixed_pair, pattern, rings, within,
    yield_now,
};

fn write(mut stream: impl Write + Send + 'static, total: usize) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || stream.write_all(&pattern(0, total)).unwrap())
}

#[test]
fn pieces_are_whole_and_in_order() {
    everywhere(|ring| async move {
        const TOTAL: usize = 300_000;
        let group = ring.buffer_group(16, 512).await.unwrap();
        let (stream, other) = mixed_pair(&ring);
        let writer = write(other, TOTAL);
        let mut got = Vec::new();
        let mut pieces = stream.recv_multi(&group, 2);
        while let Some(piece) = pieces.next().await {
            got.extend_from_slice(piece.unwrap().selected());
        }
        assert!(pieces.next().await.is_none(), "it stays at its end");
        drop(pieces);
        writer.join().unwrap();
        assert!(got == pattern(0, TOTAL), "{} bytes, or others", got.len());
        assert_eq!(group.available(), 16);
    });
}

/// Futures of pieces and the whole stream of them are dropped; receives of another kind come between.
#[test]
fn nothing_is_lost_with_what_is_dropped() {
    everywhere(|ring| async move {
        const TOTAL: usize = 150_000;
        let group = ring.buffer_group(8, 300).await.unwrap();
        let (stream, other) = mixed_pair(&ring);
        let writer = write(other, TOTAL);
        let mut random = fastrand::Rng::with_seed(7);
        let mut got = Vec::new();
        let mut is_over = false;
        while !is_over {
            if random.u8(..4) == 0 {
                let BufResult(count, bytes) = stream.recv(vec![0; 100]).await;
                let count = count.unwrap();
                is_over = count == 0;
                got.extend_from_slice(&bytes[..count]);
                continue;
            }
            let mut pieces = stream.recv_multi(&group, random.usize(1..4));
            for _ in 0..random.usize(..6) {
                match try_for(pieces.next(), random.usize(..4)).await {
                    Some(Some(piece)) => got.extend_from_slice(piece.unwrap().selected()),
                    Some(None) => is_over = true,
                    None => {}
                }
            }
        }
        writer.join().unwrap();
        assert!(got == pattern(0, TOTAL), "{} bytes, or others", got.len());
        // The last one dropped may still be on its way to its end.
        stream.close().await.unwrap();
        assert_eq!(group.available(), 8);
    });
}

/// One who does not take what comes is left alone when its credit is used up, and the others go on.
#[test]
fn a_fast_sender_is_held_back_by_its_own_credit() {
    everywhere(|ring| async move {
        let group = ring.buffer_group(256, 4096).await.unwrap();
        let (flooded, mut flooder) = mixed_pair(&ring);
        let (quiet, mut asker) = mixed_pair(&ring);
        let stops = Arc::new(AtomicBool::new(false));
        let is_told = stops.clone();
        flooder.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        let flood = std::thread::spawn(move || {
            // A full socket is a time that is over.
            while !is_told.load(Ordering::Relaxed) {
                let _ = flooder.write(&[7; 4096]);
            }
        });
        let mut pieces = flooded.recv_multi(&group, 4);
        pieces.next().await.unwrap().unwrap();
        // More comes until the kernel has heard that it is too much, and gives its buffers back.
        pause().await;
        assert!(group.available() >= 256 - 4, "{}", group.available());
        let mut answers = quiet.recv_multi(&group, 4);
        for round in 0..20_u8 {
            asker.write_all(&[round]).unwrap();
            let answer = answers.next().await.unwrap().unwrap();
            assert_eq!(answer.selected(), [round]);
        }
        assert!(group.available() >= 256 - 4 - 4, "{}", group.available());
        // And taken, it goes on.
        for _ in 0..500 {
            assert!(pieces.next().await.unwrap().is_ok());
        }
        stops.store(true, Ordering::Relaxed);
        flood.join().unwrap();
    });
}

/// Fifty milliseconds in which other tasks run, on any executor.
async fn pause() {
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_millis(50) {
        yield_now().await;
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_piece_waits_for_a_buffer() {
    everywhere(|ring| async move {
        let group = ring.buffer_group(2, 16).await.unwrap();
        let (stream, mut other) = mixed_pair(&ring);
        other.write_all(&pattern(0, 64)).unwrap();
        let mut pieces = stream.recv_multi(&group, 8);
        let first = pieces.next().await.unwrap().unwrap();
        let second = pieces.next().await.unwrap().unwrap();
        assert_eq!(group.available(), 0);
        assert!(try_for(pieces.next(), 50).await.is_none());
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(first.selected(), pattern(0, 16));
            drop(first);
        });
        let third = pieces.next().await.unwrap().unwrap();
        thread.join().unwrap();
        assert_eq!(third.selected(), pattern(32, 16));
        assert_eq!(second.selected(), pattern(16, 16));
    });
}

#[test]
fn a_reset_ends_the_pieces() {
    everywhere(|ring| async move {
        let group = ring.buffer_group(2, 16).await.unwrap();
        let (own, other) = super::pair(&ring).await;
        let mut pieces = own.recv_multi(&group, 8);
        assert!(try_for(pieces.next(), 10).await.is_none());
        other.set_reset_on_close().unwrap();
        other.close().await.unwrap();
        let error = pieces.next().await.unwrap().unwrap_err();
        assert_eq!(error.errno(), libc::ECONNRESET);
        assert!(pieces.next().await.is_none());
    });
}

#[test]
fn a_piece_is_sent_as_it_is() {
    everywhere(|ring| async move {
        let group = ring.buffer_group(2, 16).await.unwrap();
        let (stream, mut other) = mixed_pair(&ring);
        other.write_all(b"echo").unwrap();
        let mut pieces = stream.recv_multi(&group, 1);
        let piece = pieces.next().await.unwrap().unwrap();
        let BufResult(sent, piece) = stream.send_all(piece).await;
        sent.unwrap();
        drop(piece);
        let mut answer = [0; 4];
        other.read_exact(&mut answer).unwrap();
        assert_eq!((&answer, group.available()), (b"echo", 2));
        // A group of another ring is refused, and told.
        let foreign = Ring::new().unwrap();
        let theirs = foreign.buffer_group(2, 16).await.unwrap();
        drop(pieces);
        let error = stream.recv_multi(&theirs, 1).next().await.unwrap().unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL);
        end(foreign).await;
    });
}

#[test]
fn connections_come_one_after_the_other() {
    everywhere(|ring| async move {
        let (listener, address) = listen(&ring);
        let peers: Vec<_> =
            (0..40).map(|_| standard::TcpStream::connect(address).unwrap()).collect();
        let mut expected: Vec<_> = peers.iter().map(|peer| peer.local_addr().unwrap()).collect();
        let mut random = fastrand::Rng::with_seed(3);
        let mut accepted = Vec::new();
        while accepted.len() < peers.len() {
            if random.u8(..4) == 0 {
                accepted.push(listener.accept().await.unwrap().1);
                continue;
            }
            let mut connections = listener.accept_multi(2);
            for _ in 0..random.usize(..5).min(peers.len() - accepted.len()) {
                let taken = try_for(connections.next(), random.usize(..4)).await;
                accepted.extend(taken.map(|taken| taken.unwrap().1));
            }
        }
        accepted.sort_unstable();
        expected.sort_unstable();
        assert_eq!(accepted, expected);
        listener.close().await.unwrap();
    });
}

#[test]
fn unix_sockets_have_them_too() {
    everywhere(|ring| async move {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&ring, &path).unwrap();
        let mut connections = listener.accept_multi(4);
        let client = UnixStream::connect(&ring, &path).await.unwrap();
        let server = connections.next().await.unwrap();
        let group = ring.buffer_group(2, 16).await.unwrap();
        client.send_all(b"hello".to_vec()).await.0.unwrap();
        let piece = server.recv_multi(&group, 1).next().await.unwrap().unwrap();
        assert_eq!(piece.selected(), b"hello");
    });
}

/// Descriptors that nothing is done with; as many as there may be.
fn fill_descriptors() -> Vec<std::fs::File> {
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

fn connections_at_the_limit() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = Rlimit { current: Some(100), maximum: Some(100) };
    setrlimit(Resource::Nofile, limit).unwrap();
    for choice in [BackendChoice::Uring, BackendChoice::Classic] {
        let Some(ring) = rings::threaded(choice) else { continue };
        within(LONG, async {
            let (listener, address) = listen(&ring);
            let mut connections = listener.accept_multi(4);
            let first = standard::TcpStream::connect(address).unwrap();
            let (kept, _) = connections.next().await.unwrap();
            let second = standard::TcpStream::connect(address).unwrap();
            let (taken, _) = connections.next().await.unwrap();
            // The third finds no descriptor on its way in.
            let third = rustix::net::socket(
                rustix::net::AddressFamily::INET,
                rustix::net::SocketType::STREAM,
                None,
            )
            .unwrap();
            let full = fill_descriptors();
            rustix::net::connect(&third, &address).unwrap();
            assert!(connections.next().now_or_never().is_none());
            std::thread::sleep(Duration::from_millis(20));
            assert!(connections.next().now_or_never().is_none(), "it waits, and is no error");
            taken.close().await.unwrap();
            let _accepted = connections.next().await.unwrap();
            drop((kept, first, second, full));
        });
        block_on(end(ring));
    }
}

#[test]
fn at_the_limit_of_descriptors_connections_wait() {
    rings::in_child(
        "flows::at_the_limit_of_descriptors_connections_wait",
        connections_at_the_limit,
    );
}

/// Rings that end meanwhile say so.
#[test]
fn a_ring_that_ends_is_told() {
    for choice in [BackendChoice::Uring, BackendChoice::Classic] {
        let Some(ring) = rings::threaded(choice) else { continue };
        let (stream, _other) = mixed_pair(&ring);
        let (listener, _) = listen(&ring);
        let group = block_on(ring.buffer_group(2, 16)).unwrap();
        let mut pieces = stream.recv_multi(&group, 1);
        let mut connections = listener.accept_multi(1);
        assert!(pieces.next().now_or_never().is_none());
        assert!(connections.next().now_or_never().is_none());
        block_on(ring.shutdown(10 * SECOND)).unwrap();
        let error = within(LONG, pieces.next()).unwrap().unwrap_err();
        assert_eq!(error.errno(), libc::ESHUTDOWN);
        assert_eq!(within(LONG, connections.next()).unwrap_err().errno(), libc::ESHUTDOWN);
    }
}

/// On a simulated machine, where multishots end and buffers are missing all the time.
#[test]
fn a_simulated_network_has_them_too() {
    for seed in 0..20 {
        let simulation = Simulation::builder(seed)
            .fault(Fault::MultishotEnds, When::rate(0.3))
            .fault(Fault::NoBuffers, When::rate(0.3))
            .fault(Fault::ShortRead, When::rate(0.3))
            .fault(Fault::ConnectionAborted, When::nth(2))
            .build();
        let ring = Local::builder().simulation(&simulation).build_ring().unwrap();
        within(LONG, async {
            let any = "127.0.0.1:0".parse().unwrap();
            let listener = TcpListener::bind(&ring, &any, &ListenOptions::default()).unwrap();
            let address = listener.local_address().unwrap();
            let mut outsiders: Vec<_> =
                (0..3).map(|_| simulation.connect(address).unwrap()).collect();
            let mut connections = listener.accept_multi(1);
            let (first, _) = connections.next().await.unwrap();
            let (third, from) = connections.next().await.unwrap();
            let is_third = outsiders[2].local_address().unwrap().ip() == Some(from);
            assert!(is_third, "the second was aborted, seed {seed}");
            let group = ring.buffer_group(4, 64).await.unwrap();
            for (stream, at) in [(first, 0), (third, 2)] {
                outsiders[at].write_all(&pattern(0, 2000)).unwrap();
                outsiders[at].shutdown(Shutdown::Write).unwrap();
                let mut got = Vec::new();
                let mut pieces = stream.recv_multi(&group, 2);
                while let Some(piece) = pieces.next().await {
                    got.extend_from_slice(piece.unwrap().selected());
                }
                assert_eq!(got, pattern(0, 2000), "seed {seed}");
            }
        });
    }
}

#[cfg(feature = "tokio")]
#[test]
fn the_example_echoes() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let ring = Local::builder().entries(256).build_ring().unwrap();
        let group = ring.buffer_group(8, 1000).await.unwrap();
        let (listener, address) = listen(&ring);
        let server = tokio::spawn(super::echo_server::serve(listener, group));
        let clients = (0..10_u64).map(|seed| {
            let ring = ring.clone();
            tokio::spawn(async move {
                let stream = ringwise::net::TcpStream::connect(&ring, address).await.unwrap();
                let random = fastrand::Rng::with_seed(seed);
                let sends = super::send_pattern(&stream, 50_000, random.clone());
                let receives = super::receive_pattern(&stream, 50_000, random);
                futures::future::join(sends, receives).await;
            })
        });
        for client in clients.collect::<Vec<_>>() {
            tokio::time::timeout(LONG, client).await.expect("it hangs").unwrap();
        }
        server.abort();
    });
}
