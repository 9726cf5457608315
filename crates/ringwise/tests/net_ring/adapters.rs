//! A ring's streams under the traits of tokio and of futures, and the examples that run over them.

use ringwise::net::{Buffered, TcpStream};

use super::{everywhere, pair, pattern};

const TOTAL: usize = 1 << 20;

/// Buffers smaller than most of what goes through them.
fn buffered(stream: TcpStream) -> Buffered {
    Buffered::with_capacity(stream, 700, 900)
}

#[cfg(feature = "tokio")]
mod for_tokio {
    use std::{pin::Pin, task::Poll};

    use ringwise::Ring;
    use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

    use super::{
        super::{http_hello, tls_echo, tokio_runtimes},
        *,
    };

    #[test]
    fn what_is_written_is_read() {
        everywhere(|ring| async move {
            let (client, server) = pair(&ring).await;
            let echo = async {
                let (mut reader, mut writer) = tokio::io::split(buffered(server));
                tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                writer.shutdown().await.unwrap();
            };
            let (mut reader, mut writer) = tokio::io::split(buffered(client));
            let ask = async {
                for at in (0..TOTAL).step_by(10_000) {
                    let len = 10_000.min(TOTAL - at);
                    writer.write_all(&pattern(at, len)).await.unwrap();
                }
                writer.shutdown().await.unwrap();
                writer.shutdown().await.unwrap();
                let refused = writer.write_all(b"more").await.unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::BrokenPipe);
            };
            let mut answer = Vec::new();
            let (_, _, read) = tokio::join!(echo, ask, reader.read_to_end(&mut answer));
            assert_eq!(read.unwrap(), TOTAL);
            assert!(answer == pattern(0, TOTAL));
        });
    }

    /// Nothing is flushed: what is written goes out by itself.
    #[test]
    fn a_write_needs_no_flush() {
        everywhere(|ring| async move {
            let (client, server) = pair(&ring).await;
            let (mut client, mut server) = (Buffered::new(client), Buffered::new(server));
            for round in 0..100 {
                client.write_all(&pattern(round, 100)).await.unwrap();
                let mut bytes = [0; 100];
                server.read_exact(&mut bytes).await.unwrap();
                assert_eq!(bytes, *pattern(round, 100));
                server.write_all(b"line\n").await.unwrap();
                let mut line = String::new();
                client.read_line(&mut line).await.unwrap();
                assert_eq!(line, "line\n");
            }
        });
    }

    /// The write was told to be done while a clone's send was under way. It had not begun, and never did if the stream
    /// was taken back or dropped.
    #[test]
    fn a_write_behind_another_send_takes_nothing_before_its_turn() {
        everywhere(|ring| async move {
            let (client, server) = pair(&ring).await;
            const MUCH: usize = 32 << 20;
            let other = client.clone();
            let mut send = Box::pin(async move { other.send_all(pattern(0, MUCH)).await.0 });
            assert!(super::super::poll_once(send.as_mut()).is_pending());
            let mut client = Buffered::new(client);
            let is_told = super::super::poll_once(Box::pin(client.write(b"more")).as_mut());
            assert!(is_told.is_pending(), "{is_told:?}");
            let mut server = Buffered::new(server);
            let mut received = Vec::new();
            let write = async {
                client.write_all(b"more").await.unwrap();
                client.into_inner().await.send_all(b" and last".to_vec()).await.0.unwrap();
            };
            let (sent, (), read) = tokio::join!(send, write, server.read_to_end(&mut received));
            sent.unwrap();
            assert_eq!(read.unwrap(), MUCH + 13);
            assert_eq!(received[MUCH..], *b"more and last");
        });
    }

    /// A flush is over when the socket has it all, so not while the other end does not read.
    #[test]
    fn a_flush_waits_for_what_is_in_flight() {
        everywhere(|ring| async move {
            let (client, server) = pair(&ring).await;
            const MUCH: usize = 32 << 20;
            let mut client = Buffered::with_capacity(client, 1, MUCH);
            assert_eq!(client.write(&pattern(0, MUCH)).await.unwrap(), MUCH);
            {
                let mut flush = Box::pin(client.flush());
                assert!(super::super::poll_once(flush.as_mut()).is_pending());
                // Nor is a second write taken meanwhile.
            }
            let mut write = Box::pin(client.write(b"more"));
            assert!(super::super::poll_once(write.as_mut()).is_pending());
            drop(write);
            let mut received = Vec::new();
            let mut server = Buffered::new(server);
            let read = async {
                server.read_to_end(&mut received).await.unwrap();
            };
            let end = async {
                client.flush().await.unwrap();
                client.shutdown().await.unwrap();
            };
            tokio::join!(read, end);
            assert!(received == pattern(0, MUCH));
        });
    }

    /// What is written and dropped is sent all the same; a read that is dropped loses nothing, nor
    /// does one that is polled once and never again.
    #[test]
    fn a_dropped_adapter_loses_nothing() {
        everywhere(|ring| async move {
            let (client, server) = pair(&ring).await;
            let mut writer = Buffered::with_capacity(client, 10, TOTAL);
            assert_eq!(writer.write(&pattern(0, TOTAL)).await.unwrap(), TOTAL);
            drop(writer);
            let mut stream = server;
            let mut received: Vec<u8> = Vec::new();
            for round in 0.. {
                let mut reader = Buffered::with_capacity(stream, 1000, 1);
                let mut bytes = [0; 300];
                let mut part = ReadBuf::new(&mut bytes);
                let polled = std::future::poll_fn(|context| {
                    Poll::Ready(Pin::new(&mut reader).poll_read(context, &mut part))
                });
                let has_ended = match polled.await {
                    Poll::Ready(read) => {
                        read.unwrap();
                        received.extend(part.filled());
                        part.filled().is_empty()
                    }
                    Poll::Pending if round % 3 == 0 => {
                        let count = reader.read(&mut bytes).await.unwrap();
                        received.extend(&bytes[..count]);
                        count == 0
                    }
                    Poll::Pending => false,
                };
                if has_ended {
                    break;
                }
                stream = reader.into_inner().await;
            }
            assert_eq!(received.len(), TOTAL);
            assert!(received == pattern(0, TOTAL));
        });
    }

    #[test]
    fn several_parts_are_written_at_a_time() {
        everywhere(|ring| async move {
            let (client, server) = pair(&ring).await;
            let (mut client, mut server) = (Buffered::new(client), Buffered::new(server));
            assert!(client.is_write_vectored());
            let parts = [b"one".as_slice(), b"", b"two"].map(std::io::IoSlice::new);
            assert_eq!(client.write_vectored(&parts).await.unwrap(), 6);
            let mut bytes = [0; 6];
            server.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"onetwo");
        });
    }

    /// What the socket takes at once makes no operation: one syscall for a write, however many parts it has.
    #[test]
    fn a_write_that_fits_makes_no_operation() {
        everywhere(|ring| async move {
            let (client, server) = pair(&ring).await;
            let mut client = Buffered::new(client);
            let before = ring.stats();
            client.write_all(&pattern(0, 20_000)).await.unwrap();
            let parts = [pattern(20_000, 100), pattern(20_100, 1000)];
            let parts = [&parts[0], &parts[1]].map(|part| std::io::IoSlice::new(part));
            assert_eq!(client.write_vectored(&parts).await.unwrap(), 1100);
            client.flush().await.unwrap();
            let after = ring.stats();
            assert_eq!(after.submitted, before.submitted);
            assert_eq!(after.inline_hits, before.inline_hits + 2);
            let mut received = vec![0; 21_100];
            Buffered::new(server).read_exact(&mut received).await.unwrap();
            assert!(received == pattern(0, 21_100));
        });
    }

    /// A send of the stream itself is in flight, or was dropped in flight.
    #[test]
    fn a_write_does_not_overtake_a_send() {
        // More than the sockets of both ends hold while nobody reads.
        const MUCH: usize = 8 << 20;
        for is_dropped in [false, true] {
            everywhere(move |ring| async move {
                let (client, server) = pair(&ring).await;
                let mut writer = Buffered::new(client.clone());
                let bytes = pattern(0, MUCH + 100_000);
                let mut send = Some(Box::pin(client.send_all(bytes[..MUCH].to_vec())));
                let polled = super::super::poll_once(send.as_mut().unwrap().as_mut());
                assert!(polled.is_pending());
                if is_dropped {
                    send = None;
                }
                let send = async {
                    if let Some(send) = send {
                        send.await.0.unwrap();
                    }
                };
                let write = async {
                    writer.write_all(&bytes[MUCH..]).await.unwrap();
                    writer.shutdown().await.unwrap();
                };
                let mut received = Vec::new();
                let mut server = Buffered::new(server);
                let (_, (), read) = tokio::join!(send, write, server.read_to_end(&mut received));
                assert_eq!(read.unwrap(), MUCH + 100_000);
                assert!(received == bytes);
            });
        }
    }

    /// After a receive that filled its buffer the rest is read into the caller's memory, in order.
    #[test]
    fn a_read_of_much_goes_on_without_the_ring() {
        everywhere(|ring| async move {
            const LEN: usize = 100_000;
            let (client, server) = pair(&ring).await;
            client.send_all(pattern(0, LEN)).await.0.unwrap();
            let mut server = Buffered::with_capacity(server, 700, 700);
            let before = ring.stats();
            let mut received = vec![0; LEN];
            // The first is less than the stream's own buffer, which holds the rest of that receive.
            server.read_exact(&mut received[..10]).await.unwrap();
            server.read_exact(&mut received[10..]).await.unwrap();
            assert!(received == pattern(0, LEN));
            assert!(ring.stats().inline_hits > before.inline_hits);
            // What is kept for the stream from a dropped receive comes first too: more than one buffer of it.
            let mut waiting = Box::pin(server.get_ref().recv(vec![0; 2000]));
            assert!(super::super::poll_once(waiting.as_mut()).is_pending());
            let before = ring.stats().local.completed;
            client.send_all(pattern(LEN, 2000)).await.0.unwrap();
            // The send and the receive.
            while ring.stats().local.completed < before + 2 {
                super::super::yield_now().await;
            }
            drop(waiting);
            client.send_all(pattern(LEN + 2000, LEN)).await.0.unwrap();
            client.shutdown(ringwise::net::Shutdown::Write).await.unwrap();
            let mut rest = vec![0; LEN + 2000];
            server.read_exact(&mut rest).await.unwrap();
            assert!(rest == pattern(LEN, LEN + 2000));
            assert_eq!(server.read(&mut rest).await.unwrap(), 0);
        });
    }

    /// A failure that the socket tells once is told by the write that meets it.
    #[test]
    fn a_write_tells_of_a_reset() {
        everywhere(|ring| async move {
            let (client, server) = pair(&ring).await;
            let mut client = Buffered::new(client);
            server.set_reset_on_close().unwrap();
            server.close().await.unwrap();
            let failed = loop {
                if let Err(error) = client.write_all(b"more").await {
                    break error;
                }
            };
            assert_eq!(failed.kind(), std::io::ErrorKind::ConnectionReset);
            let failed = client.write_all(b"more").await.unwrap_err();
            assert_eq!(failed.kind(), std::io::ErrorKind::BrokenPipe);
        });
    }

    /// Writes that never wait use up the task's budget, so that others run.
    #[test]
    fn a_task_that_need_not_wait_lets_others_run() {
        on_tokio(|ring| async move {
            let (client, _server) = pair(&ring).await;
            let mut client = Buffered::new(client);
            let written = std::future::poll_fn(|context| {
                for count in 0..1000 {
                    let written = Pin::new(&mut client).poll_write(context, b"x");
                    if written.is_pending() {
                        assert!(!tokio::task::coop::has_budget_remaining());
                        return Poll::Ready(count);
                    }
                }
                Poll::Ready(1000)
            });
            assert!((1..1000).contains(&written.await));
        });
    }

    #[test]
    fn tls_runs_over_it() {
        on_tokio(|ring| async move {
            let (acceptor, connector) = tls_echo::make_certificate().unwrap();
            let (listener, address) = super::super::listen(&ring);
            let server = tokio::spawn(tls_echo::serve(listener, acceptor));
            let asks = (0..8_usize).map(|number| {
                let (ring, connector) = (ring.clone(), connector.clone());
                tokio::spawn(async move {
                    let question = pattern(number, 100_000 * number + 1);
                    let answer = tls_echo::ask(&ring, address, &connector, &question).await;
                    assert!(answer.unwrap() == question, "connection {number}");
                })
            });
            for asked in asks.collect::<Vec<_>>() {
                asked.await.unwrap();
            }
            server.abort();
            let _ = server.await;
        });
    }

    #[test]
    fn http_runs_over_it() {
        use http_body_util::{BodyExt, Full};
        use hyper::{Request, body::Bytes, client::conn::http1};
        use hyper_util::rt::TokioIo;

        on_tokio(|ring| async move {
            let (listener, address) = super::super::listen(&ring);
            let server = tokio::spawn(http_hello::serve(listener));
            let stream = TcpStream::connect(&ring, address).await.unwrap();
            let stream = TokioIo::new(Buffered::new(stream));
            let (mut sender, connection) = http1::handshake(stream).await.unwrap();
            let connection = tokio::spawn(connection);
            // One connection for all of them.
            for round in 0..20_usize {
                let body = pattern(round, round * 10_000);
                let request = Request::post("/back").header("host", "localhost");
                let request = request.body(Full::new(Bytes::from(body.clone()))).unwrap();
                // The connection's task may not have seen yet that the last answer is whole.
                sender.ready().await.unwrap();
                let answer = sender.send_request(request).await.unwrap();
                assert_eq!(answer.status(), 200);
                assert!(answer.into_body().collect().await.unwrap().to_bytes() == body);
            }
            let request = Request::get("/you").header("host", "localhost");
            let request = request.body(Full::new(Bytes::new())).unwrap();
            sender.ready().await.unwrap();
            let answer = sender.send_request(request).await.unwrap();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, "hello, /you\n");
            drop(sender);
            connection.await.unwrap().unwrap();
            server.abort();
            let _ = server.await;
        });
    }

    /// On tokio's runtimes only, which what runs over the streams wants.
    fn on_tokio<F: Future<Output = ()> + Send + 'static>(test: impl Fn(Ring) -> F) {
        for builder in super::super::builders() {
            for runtime in tokio_runtimes() {
                runtime.block_on(async {
                    let ring = builder.clone().build_ring().unwrap();
                    let task = tokio::spawn(test(ring.clone()));
                    let limit = tokio::time::timeout(super::super::LONG, task);
                    limit.await.expect("it hangs").unwrap();
                });
            }
        }
    }
}

#[cfg(feature = "futures-io")]
mod for_futures {
    use futures::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        everywhere(|ring| async move {
            let (client, server) = pair(&ring).await;
            let echo = async {
                let (reader, mut writer) = buffered(server).split();
                futures::io::copy(reader, &mut writer).await.unwrap();
                writer.close().await.unwrap();
            };
            let (mut reader, mut writer) = buffered(client).split();
            let ask = async {
                writer.write_all(&pattern(0, TOTAL)).await.unwrap();
                writer.flush().await.unwrap();
                writer.close().await.unwrap();
            };
            let mut answer = Vec::new();
            let read = async {
                let mut first = [0; 10];
                reader.read_exact(&mut first).await.unwrap();
                answer.extend(first);
                reader.read_to_end(&mut answer).await.unwrap();
            };
            futures::future::join3(echo, ask, read).await;
            assert!(answer == pattern(0, TOTAL));
        });
    }

    /// Writes that never wait let other tasks run now and then.
    #[test]
    fn a_task_that_need_not_wait_lets_others_run() {
        use std::{pin::Pin, task::Poll};

        use futures::AsyncWrite;

        everywhere(|ring| async move {
            let (client, _server) = pair(&ring).await;
            let mut client = Buffered::new(client);
            let written = std::future::poll_fn(|context| {
                let mut write =
                    |_: &i32| Pin::new(&mut client).poll_write(context, b"x").is_pending();
                Poll::Ready((0..300).find(&mut write))
            });
            assert!(written.await.is_some_and(|count| count > 0));
            // The call that let others run has written nothing, and the next one goes on.
            client.write_all(b"x").await.unwrap();
        });
    }

    #[test]
    fn several_parts_and_lines() {
        everywhere(|ring| async move {
            let (client, server) = pair(&ring).await;
            let (mut client, mut server) = (buffered(client), buffered(server));
            let parts = [b"one\n".as_slice(), b"", b"two\n"].map(std::io::IoSlice::new);
            assert_eq!(client.write_vectored(&parts).await.unwrap(), 8);
            for wanted in ["one\n", "two\n"] {
                let mut line = String::new();
                server.read_line(&mut line).await.unwrap();
                assert_eq!(line, wanted);
            }
        });
    }
}
