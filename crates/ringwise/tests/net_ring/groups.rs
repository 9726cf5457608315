//! Few buffers for several connections: each gets its bytes, whoever keeps a buffer and wherever it comes back.
//!
//! The rings are driven by a thread of their own or by the runtime, of one thread or of two.

use std::{
    future::Future,
    io::{Read, Write},
    net as standard,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    time::Duration,
};

use futures::future::join;
use ringwise::{BackendChoice, BufResult, Buffer, BufferGroup, Local, Ring, net::TcpStream};

use super::{LONG, end, mixed_pair, pattern, rings::skip, tokio_runtimes, yield_now};

const CONNECTIONS: usize = 6;
/// A few pieces, more than a socket holds at first, and much more.
const SIZES: [usize; 3] = [1 << 10, 64 << 10, 256 << 10];
/// What a client asks with, in bytes. It fits into one buffer.
const REQUEST: usize = 57;

/// Runs a test as a task of each runtime, with each ring.
fn in_runtimes<F>(test: fn(Ring) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    for choice in [BackendChoice::Uring, BackendChoice::Classic] {
        let builder = Local::builder().backend(choice).entries(64);
        if let Err(error) = builder.clone().build() {
            skip(&error.to_string());
            continue;
        }
        for has_thread in [true, false] {
            for runtime in tokio_runtimes() {
                let flavor = runtime.handle().runtime_flavor();
                let what = format!("{choice:?}, {flavor:?}, driver_thread({has_thread})");
                let builder = builder.clone().driver_thread(has_thread);
                in_time(&what, move || {
                    runtime.block_on(async {
                        let ring = builder.build_ring().unwrap();
                        tokio::spawn(test(ring.clone())).await.unwrap();
                        end(ring).await;
                    });
                });
            }
        }
    }
}

/// Runs it on a thread of its own, for so long at most. A runtime that hangs could not tell.
fn in_time(what: &str, run: impl FnOnce() + Send + 'static) {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        run();
        let _ = tell.send(());
    });
    if told.recv_timeout(LONG) == Err(RecvTimeoutError::Timeout) {
        panic!("it hangs: {what}");
    }
    assert!(thread.join().is_ok(), "it failed: {what}");
}

/// Gives a buffer back: at once, from a thread that is no task's, or from another task.
fn release(piece: Buffer, number: usize, thread: &Sender<Buffer>) {
    match number % 3 {
        0 => drop(piece),
        1 => thread.send(piece).unwrap(),
        _ => {
            tokio::spawn(async move {
                yield_now().await;
                drop(piece);
            });
        }
    }
}

async fn receive(stream: TcpStream, group: BufferGroup, number: usize, thread: Sender<Buffer>) {
    let mut pieces = stream.recv_multi(&group, 2);
    let mut at = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece.unwrap();
        let len = piece.selected().len();
        assert!(piece.selected() == pattern(at, len), "connection {number}, at {at}");
        at += len;
        release(piece, number, &thread);
    }
    assert!(SIZES.contains(&at), "connection {number} ends at {at}");
}

/// Every receive finds no buffer again and again, and goes on when one comes back.
#[test]
fn fast_senders_share_a_few_buffers() {
    in_runtimes(|ring| async move {
        let (thread, pieces) = mpsc::channel::<Buffer>();
        let dropper = std::thread::spawn(move || {
            for piece in pieces {
                std::thread::sleep(Duration::from_micros(20));
                drop(piece);
            }
        });
        for buffers in [2, 4] {
            let group = ring.buffer_group(buffers, 1000).await.unwrap();
            for bytes in SIZES {
                let (mut senders, mut receivers) = (Vec::new(), Vec::new());
                for number in 0..CONNECTIONS {
                    let (stream, mut other) = mixed_pair(&ring);
                    let send = move || other.write_all(&pattern(0, bytes)).unwrap();
                    senders.push(std::thread::spawn(send));
                    let receive = receive(stream, group.clone(), number, thread.clone());
                    receivers.push(tokio::spawn(receive));
                }
                for receiver in receivers {
                    receiver.await.unwrap();
                }
                senders.into_iter().for_each(|sender| sender.join().unwrap());
            }
            while group.available() < buffers {
                yield_now().await;
            }
        }
        drop(thread);
        dropper.join().unwrap();
    });
}

fn ask(mut stream: standard::TcpStream, bytes: usize) {
    let (expected, mut answer) = (pattern(0, bytes), vec![0; bytes]);
    for _ in 0..10 {
        stream.write_all(&[7; REQUEST]).unwrap();
        stream.read_exact(&mut answer).unwrap();
        assert!(answer == expected);
    }
}

/// Answers each request, and waits for the next one meanwhile, as a server of HTTP does.
async fn answer(stream: TcpStream, group: BufferGroup, bytes: usize) {
    let body = pattern(0, bytes);
    let mut pieces = stream.recv_multi(&group, 4);
    let mut received = 0;
    let mut piece = pieces.next().await;
    while let Some(part) = piece {
        received += part.unwrap().selected().len();
        if received < REQUEST {
            piece = pieces.next().await;
            continue;
        }
        received -= REQUEST;
        let send = stream.send_all(body.clone());
        let (BufResult(sent, _), next) = join(send, pieces.next()).await;
        sent.unwrap();
        piece = next;
    }
}

#[test]
fn requests_into_a_few_buffers_are_answered() {
    in_runtimes(|ring| async move {
        let group = ring.buffer_group(2, 64).await.unwrap();
        for bytes in SIZES {
            let (mut clients, mut servers) = (Vec::new(), Vec::new());
            for _ in 0..CONNECTIONS {
                let (stream, other) = mixed_pair(&ring);
                clients.push(std::thread::spawn(move || ask(other, bytes)));
                servers.push(tokio::spawn(answer(stream, group.clone(), bytes)));
            }
            for server in servers {
                server.await.unwrap();
            }
            clients.into_iter().for_each(|client| client.join().unwrap());
        }
        assert_eq!(group.available(), 2);
    });
}

/// A dropped stream of pieces kept those that nobody had taken in buffers of the group. The other streams of the
/// group found none and waited, until somebody received from that connection again.
#[test]
fn pieces_that_nobody_takes_keep_no_buffer() {
    in_runtimes(|ring| async move {
        let group = ring.buffer_group(2, 16).await.unwrap();
        let (left, mut sender) = mixed_pair(&ring);
        let (asked, mut asker) = mixed_pair(&ring);
        sender.write_all(&pattern(0, 40)).unwrap();
        let mut pieces = left.recv_multi(&group, 2);
        let first = pieces.next().await.unwrap().unwrap();
        while group.available() > 0 {
            yield_now().await;
        }
        drop(pieces);
        asker.write_all(b"a question").unwrap();
        let question = asked.recv_multi(&group, 1).next().await.unwrap().unwrap();
        assert_eq!(question.selected(), b"a question");
        drop((first, question));
        // They come to the next receive, in order.
        let mut rest = Vec::new();
        while rest.len() < 24 {
            let BufResult(count, bytes) = left.recv(vec![0; 100]).await;
            rest.extend_from_slice(&bytes[..count.unwrap()]);
        }
        assert!(rest == pattern(16, 24));
        left.close().await.unwrap();
        assert_eq!(group.available(), 2);
    });
}
