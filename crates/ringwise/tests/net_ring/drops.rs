//! Futures that are dropped at every moment: no byte, connection or datagram is lost, and none comes
//! twice.

use std::{
    io::{Read, Write},
    net as standard,
    time::Duration,
};

use futures::future::{Either, select};
use ringwise::{
    BufResult, Operation, Ring,
    net::{TcpStream, UdpSocket},
};

use super::{LONG, everywhere, listen, mixed_pair, pair, pattern, poll_once, within, yield_now};

/// Polls a future some times, with other tasks in between, and drops it then; its result, if it
/// came to that.
pub async fn try_for<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let patience = async {
        for _ in 0..polls {
            yield_now().await;
        }
    };
    match select(Box::pin(future), Box::pin(patience)).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

/// Writes the pattern in pieces of random sizes, with and without pauses.
fn write_pattern(mut stream: standard::TcpStream, total: usize, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut at = 0;
    while at < total {
        let len = random.usize(1..=600).min(total - at);
        stream.write_all(&pattern(at, len)).unwrap();
        at += len;
        match random.u8(..4) {
            0 => std::thread::sleep(Duration::from_micros(random.u64(..150))),
            1 => std::thread::yield_now(),
            _ => {}
        }
    }
}

/// Receives that are dropped while data comes, of every length and way.
async fn receive_and_drop(ring: Ring, seed: u64) {
    const TOTAL: usize = 200_000;
    let (stream, other) = mixed_pair(&ring);
    let writer = std::thread::spawn(move || write_pattern(other, TOTAL, seed));
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut received, mut dropped) = (0, 0);
    loop {
        let polls = random.usize(..4);
        let len = random.usize(1..=2000);
        let result = match random.u8(..3) {
            0 => {
                let receive = stream.recv_vectored(vec![vec![0; len], vec![0; 10]]);
                let done = try_for(receive, polls).await;
                done.map(|done| done.map_buffer(|parts| parts.concat()))
            }
            1 => try_for(stream.recv_deadline(vec![0; len], LONG), polls).await,
            _ => try_for(stream.recv(vec![0; len]), polls).await,
        };
        let Some(BufResult(result, bytes)) = result else {
            dropped += 1;
            continue;
        };
        let count = result.unwrap();
        assert!(bytes[..count] == pattern(received, count), "wrong bytes at {received}");
        received += count;
        if count == 0 {
            break;
        }
    }
    assert_eq!(received, TOTAL);
    assert!(dropped > 100, "only {dropped} receives were dropped");
    writer.join().unwrap();
}

#[test]
fn dropped_receives_lose_no_byte() {
    everywhere(|ring| receive_and_drop(ring, 7));
}

/// What a late cancel left with the stream is there for a receive that is smaller, twice.
#[test]
fn what_a_dropped_receive_took_comes_in_order() {
    everywhere(|ring| async move {
        let mut kept = 0;
        for round in 0..200 {
            let (stream, mut other) = mixed_pair(&ring);
            let mut receive = Box::pin(stream.recv(vec![0; 100]));
            assert!(poll_once(receive.as_mut()).is_pending());
            other.write_all(&pattern(round, 50)).unwrap();
            // Until its result is there, at the latest, and not seen.
            for _ in 0..round % 10 {
                yield_now().await;
            }
            drop(receive);
            drop(other);
            let mut all: Vec<u8> = Vec::new();
            loop {
                let BufResult(count, bytes) = stream.recv(vec![0; 20]).await;
                let count = count.unwrap();
                if count == 0 {
                    break;
                }
                all.extend(&bytes[..count]);
            }
            assert!(all == pattern(round, 50), "round {round}: {} bytes", all.len());
            kept += 1;
        }
        assert_eq!(kept, 200);
    });
}

#[test]
fn dropped_accepts_lose_no_connection() {
    everywhere(|ring| async move {
        const COUNT: u32 = 100;
        let (listener, address) = listen(&ring);
        let connector = std::thread::spawn(move || {
            for number in 0..COUNT {
                let mut stream = standard::TcpStream::connect(address).unwrap();
                stream.write_all(&number.to_be_bytes()).unwrap();
                std::thread::sleep(Duration::from_micros(u64::from(number) * 3 % 100));
            }
        });
        let mut random = fastrand::Rng::with_seed(3);
        let mut numbers = Vec::new();
        while numbers.len() < COUNT as usize {
            let Some(accepted) = try_for(listener.accept(), random.usize(..4)).await else {
                continue;
            };
            let BufResult(count, bytes) = accepted.unwrap().0.recv(vec![0; 4]).await;
            assert_eq!(count.unwrap(), 4);
            numbers.push(u32::from_be_bytes(bytes.try_into().unwrap()));
        }
        assert_eq!(numbers, (0..COUNT).collect::<Vec<_>>());
        connector.join().unwrap();
    });
}

#[test]
fn dropped_receives_lose_no_datagram() {
    everywhere(|ring| async move {
        // Fewer than the socket's buffer holds, should nobody read.
        const COUNT: u32 = 200;
        let any = "127.0.0.1:0".parse().unwrap();
        let socket = UdpSocket::bind(&ring, &any).unwrap();
        let address = socket.local_address().unwrap();
        let other = standard::UdpSocket::bind(any).unwrap();
        let from = other.local_addr().unwrap();
        let sender = std::thread::spawn(move || {
            for number in 0..COUNT {
                other.send_to(&number.to_be_bytes(), address).unwrap();
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        let mut random = fastrand::Rng::with_seed(4);
        for number in 0..COUNT {
            let BufResult(datagram, bytes) = loop {
                let receive = socket.recv_from(vec![0; 16]);
                if let Some(received) = try_for(receive, random.usize(..4)).await {
                    break received;
                }
            };
            let datagram = datagram.unwrap();
            assert_eq!((datagram.from, datagram.bytes), (from, 4));
            assert_eq!(bytes[..4], number.to_be_bytes());
        }
        sender.join().unwrap();
    });
}

/// Sends that are dropped: what was begun is sent whole, once, before what comes after it.
async fn send_and_drop(stream: TcpStream, total: usize, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut at = 0;
    while at < total {
        let len = random.usize(1..=300_000).min(total - at);
        let bytes = pattern(at, len);
        let mut send: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = match random.u8(..3) {
            0 => Box::pin(async { stream.send_all(bytes).await.0.unwrap() }),
            1 => Box::pin(async {
                let BufResult(result, _) = stream.send_all_vectored(vec![bytes, Vec::new()]).await;
                result.unwrap();
            }),
            // All of it at once: its future is always dropped, and says nothing of how much.
            _ => Box::pin(async {
                stream.flush().await.unwrap();
                let mut send = Box::pin(stream.send(bytes));
                assert!(poll_once(send.as_mut()).is_pending());
            }),
        };
        // It is begun by the first poll, unless one before it is still on its way: then nothing of
        // it is sent, so the line has to be free for it to count.
        stream.flush().await.unwrap();
        if poll_once(send.as_mut()).is_pending() {
            try_for(send, random.usize(..4)).await;
        }
        at += len;
    }
    stream.close().await.unwrap();
}

#[test]
fn dropped_sends_are_sent_whole_and_in_order() {
    everywhere(|ring| async move {
        const TOTAL: usize = 8 << 20;
        let (stream, mut other) = mixed_pair(&ring);
        let reader = std::thread::spawn(move || {
            let mut bytes: Vec<u8> = Vec::new();
            let mut random = fastrand::Rng::with_seed(5);
            let mut part = vec![0; 50_000];
            loop {
                let count = other.read(&mut part).unwrap();
                if count == 0 {
                    return bytes;
                }
                bytes.extend(&part[..count]);
                if random.u8(..10) == 0 {
                    std::thread::sleep(Duration::from_micros(300));
                }
            }
        });
        send_and_drop(stream, TOTAL, 6).await;
        let bytes = reader.join().unwrap();
        assert_eq!(bytes.len(), TOTAL);
        assert!(bytes == pattern(0, TOTAL));
    });
}

/// A send that waits for its turn was not begun: dropped then, nothing of it is sent.
#[test]
fn a_send_that_was_not_begun_is_not_sent() {
    everywhere(|ring| async move {
        const MUCH: usize = 16 << 20;
        let (stream, mut other) = mixed_pair(&ring);
        let mut first = Box::pin(stream.send_all(pattern(0, MUCH)));
        assert!(poll_once(first.as_mut()).is_pending());
        let mut second = Box::pin(stream.send_all(b"never".to_vec()));
        assert!(poll_once(second.as_mut()).is_pending());
        drop(second);
        let reader = std::thread::spawn(move || {
            let mut bytes: Vec<u8> = Vec::new();
            other.read_to_end(&mut bytes).unwrap();
            bytes
        });
        first.await.0.unwrap();
        stream.send_all(b"the end".to_vec()).await.0.unwrap();
        stream.close().await.unwrap();
        let bytes = reader.join().unwrap();
        assert!(bytes[..MUCH] == pattern(0, MUCH));
        assert_eq!(&bytes[MUCH..], b"the end");
    });
}

/// A send that fails when its future is gone is told to the next one, once.
#[test]
fn a_send_that_fails_unseen_is_told_to_the_next() {
    everywhere(|ring| async move {
        let (client, server) = pair(&ring).await;
        let mut send = Box::pin(client.send_all(vec![1; 64 << 20]));
        assert!(poll_once(send.as_mut()).is_pending());
        drop(send);
        server.set_reset_on_close().unwrap();
        server.close().await.unwrap();
        let error = client.flush().await.unwrap_err();
        assert!(matches!(error.errno(), libc::ECONNRESET | libc::EPIPE), "{error}");
        client.flush().await.unwrap();
    });
}

/// The kernel tells of a reset once, here to a receive whose future is gone before it looked.
#[test]
fn a_receive_that_fails_unseen_is_told_to_the_next() {
    everywhere(|ring| async move {
        let (client, server) = pair(&ring).await;
        let mut receive = Box::pin(client.recv(vec![0; 10]));
        assert!(poll_once(receive.as_mut()).is_pending());
        server.set_reset_on_close().unwrap();
        server.close().await.unwrap();
        // The counts are those of the last result that was handed out.
        loop {
            ring.submit(Operation::nop()).await.result().unwrap();
            if ring.stats().local.in_flight == 0 {
                break;
            }
            yield_now().await;
        }
        drop(receive);
        let BufResult(result, buffer) = client.recv(vec![7; 10]).await;
        assert_eq!(result.unwrap_err().errno(), libc::ECONNRESET);
        assert_eq!(buffer, [7; 10]);
        assert_eq!(client.recv(buffer).await.0.unwrap(), 0, "once");
    });
}

/// On one thread and without a runtime, a stream whose receive was dropped can be given back only
/// when that has ended.
#[test]
fn what_is_kept_is_not_given_away() {
    for builder in super::builders() {
        let ring = builder.build_ring().unwrap();
        let (stream, mut other) = mixed_pair(&ring);
        let mut receive = Box::pin(stream.recv(vec![0; 10]));
        assert!(poll_once(receive.as_mut()).is_pending());
        drop(receive);
        let stream = stream.into_std().expect_err("a receive may have taken something");
        other.write_all(b"x").unwrap();
        assert_eq!(within(LONG, stream.recv(vec![0; 10])).0.unwrap(), 1);
        assert!(stream.into_std().is_ok());
    }
}
