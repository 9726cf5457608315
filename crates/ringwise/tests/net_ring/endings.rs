//! What was accepted to be sent is sent, whatever ends first: the thread that began it, the runtime, the
//! stream, or the wait for it.

use std::io::Read;

use super::*;
use futures::future::poll_immediate;
use ringwise::{Descriptor, Operation};

/// More than sockets take before they are read.
const MUCH: usize = 4 << 20;

/// A stream socket and its other end, with little room between the two.
fn pair() -> (Descriptor, std::os::unix::net::UnixStream) {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    (Descriptor::from(std::os::fd::OwnedFd::from(ours)), theirs)
}

/// Reads slowly to the end; gives how many bytes came, all of them as they were sent.
fn read_slowly(mut theirs: impl Read + Send + 'static) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        let mut count = 0;
        loop {
            let read = theirs.read(&mut bytes).unwrap();
            if read == 0 {
                return count;
            }
            assert!(bytes[..read] == pattern(count, read), "at {count}");
            count += read;
            std::thread::sleep(Duration::from_micros(200));
        }
    })
}

/// Rings that a runtime drives: any thread submits, and may end.
fn shared_rings() -> Vec<(Runtime, Ring)> {
    let mut rings = Vec::new();
    for choice in [BackendChoice::Uring, BackendChoice::Classic] {
        // One whose threads run though nobody is inside.
        let [runtime, _] = tokio_runtimes();
        let context = runtime.enter();
        let ring = Local::builder().backend(choice).driver_thread(false).build_ring();
        drop(context);
        match ring {
            Ok(ring) => rings.push((runtime, ring)),
            Err(error) => skip(&error.to_string()),
        }
    }
    rings
}

/// The kernel ends a send with the thread that handed it over, and calls what was sent by then a success.
#[test]
fn a_thread_that_began_a_send_ends() {
    for (_runtime, ring) in shared_rings() {
        for vectored in [false, true] {
            let (ours, theirs) = pair();
            let send = match vectored {
                false => Operation::send_all(&ours, pattern(0, MUCH)),
                true => {
                    let halves = [pattern(0, MUCH / 2), pattern(MUCH / 2, MUCH / 2)];
                    Operation::send_all_vectored(&ours, halves.map(Into::into).into())
                }
            };
            drop(ours);
            let pending = ring.submit(send);
            let begin = std::thread::spawn(move || {
                let mut pending = pending;
                assert!(block_on(poll_immediate(&mut pending)).is_none());
                pending
            });
            let pending = begin.join().unwrap();
            let reader = read_slowly(theirs);
            let done = within(LONG, pending);
            assert_eq!(done.result().unwrap(), MUCH);
            let lengths = done.into_buffers().iter().map(|buffer| buffer.selected().len()).sum();
            assert_eq!((reader.join().unwrap(), MUCH), (MUCH, lengths));
        }
    }
}

/// Nobody waits for it, and nobody sends anything after it.
#[test]
fn a_send_that_nobody_waits_for_is_sent_whole() {
    for (runtime, ring) in shared_rings() {
        let (ours, theirs) = pair();
        let mut pending = ring.submit(Operation::send_all(ours, pattern(0, MUCH)));
        std::thread::spawn(move || drop(block_on(poll_immediate(&mut pending)))).join().unwrap();
        let reader = read_slowly(theirs);
        drop(runtime);
        within(LONG, end(ring));
        assert_eq!(reader.join().unwrap(), MUCH);
    }
}

/// A ring that is shut down meanwhile waits for it.
#[test]
fn a_ring_that_closes_sends_the_rest() {
    for (_runtime, ring) in shared_rings() {
        let (ours, theirs) = pair();
        let mut pending = ring.submit(Operation::send_all(ours, pattern(0, MUCH)));
        let closing = ring.clone();
        std::thread::spawn(move || {
            assert!(block_on(poll_immediate(&mut pending)).is_none());
            let _ = block_on(poll_immediate(Box::pin(closing.shutdown(LONG))));
        })
        .join()
        .unwrap();
        let reader = read_slowly(theirs);
        within(LONG, ring.shutdown(LONG)).unwrap();
        assert_eq!(reader.join().unwrap(), MUCH);
    }
}

/// As many bytes as a write said Ok to, by streams of this library and of tokio in one harness.
#[cfg(feature = "tokio")]
#[test]
fn what_was_written_with_ok_arrives() {
    use ringwise::net::Buffered;
    use tokio::io::{AsyncWrite, AsyncWriteExt};

    async fn write_all_of(mut stream: impl AsyncWrite + Unpin, flushes: bool) -> usize {
        let mut written = 0;
        while written < MUCH {
            let part = pattern(written, 4096);
            written += stream.write(&part).await.unwrap();
        }
        if flushes {
            stream.shutdown().await.unwrap();
        }
        written
    }

    for driver_thread in [Some(true), Some(false), None] {
        for flushes in [false, true] {
            for runtime in tokio_runtimes() {
                let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
                let reader = read_slowly(theirs);
                let ring = runtime.block_on(async {
                    let builder = Local::builder();
                    match driver_thread {
                        Some(on) => builder.driver_thread(on).build_ring().unwrap(),
                        None => Ring::new().unwrap(),
                    }
                });
                let stream = UnixStream::from_std(&ring, ours).unwrap();
                // The last handle goes with the stream, and the thread and its runtime end.
                drop(ring);
                let written = std::thread::spawn(move || {
                    runtime.block_on(async {
                        let write = write_all_of(Buffered::new(stream), flushes);
                        tokio::spawn(write).await.unwrap()
                    })
                });
                assert_eq!(written.join().unwrap(), reader.join().unwrap());

                let runtime = tokio_runtimes().into_iter().next().unwrap();
                let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
                ours.set_nonblocking(true).unwrap();
                let reader = read_slowly(theirs);
                let written = runtime.block_on(async {
                    write_all_of(tokio::net::UnixStream::from_std(ours).unwrap(), flushes).await
                });
                assert_eq!(written, reader.join().unwrap());
            }
        }
    }
}

/// Waits until the other end has closed.
fn wait_for_close(theirs: &std::os::unix::net::UnixStream) {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut closed = [PollFd::new(theirs, PollFlags::empty())];
    let time = LONG.try_into().unwrap();
    assert_eq!(poll(&mut closed, Some(&time)).unwrap(), 1, "it stays open");
    assert!(closed[0].revents().contains(PollFlags::HUP));
}

/// It stayed open for a peer that read nothing, with its descriptor.
#[test]
fn a_dropped_stream_closes_although_nobody_reads() {
    let ends = builders().into_iter().map(|builder| {
        std::thread::spawn(move || {
            let ring = builder.build_ring().unwrap();
            let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let stream = UnixStream::from_std(&ring, ours).unwrap();
            let mut send = Box::pin(stream.send_all(pattern(0, MUCH)));
            assert!(poll_once(send.as_mut()).is_pending());
            drop(send);
            drop(stream);
            wait_for_close(&theirs);
            let mut received = Vec::new();
            theirs.read_to_end(&mut received).unwrap();
            assert!(!received.is_empty() && received.len() < MUCH, "{} bytes", received.len());
            assert!(received == pattern(0, received.len()));
            within(LONG, end(ring));
        })
    });
    ends.collect::<Vec<_>>().into_iter().for_each(|ended| ended.join().unwrap());
}

/// The same of what a `Buffered` had taken, in a runtime and by the last handle of its ring.
#[cfg(feature = "tokio")]
#[test]
fn a_dropped_adapter_closes_although_nobody_reads() {
    use ringwise::net::Buffered;
    use tokio::io::AsyncWriteExt;

    let ends = builders().into_iter().map(|builder| {
        std::thread::spawn(move || {
            let [runtime, _] = tokio_runtimes();
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            runtime.block_on(async {
                let ring = builder.build_ring().unwrap();
                let stream = UnixStream::from_std(&ring, ours).unwrap();
                let mut writer = Buffered::with_capacity(stream, 1, MUCH);
                assert_eq!(writer.write(&pattern(0, MUCH)).await.unwrap(), MUCH);
            });
            wait_for_close(&theirs);
        })
    });
    ends.collect::<Vec<_>>().into_iter().for_each(|ended| ended.join().unwrap());
}

/// It waited for a clone's receive or accept, which may never end.
#[test]
fn a_close_beside_a_clone_that_waits_is_refused() {
    everywhere(|ring| async move {
        let (stream, _other) = mixed_pair(&ring);
        let clone = stream.clone();
        let mut receive = Box::pin(clone.recv(vec![0; 10]));
        assert!(poll_once(receive.as_mut()).is_pending());
        assert_eq!(stream.close().await.unwrap_err().errno(), libc::EBUSY);

        let (listener, _) = listen(&ring);
        let clone = listener.clone();
        let mut accept = Box::pin(clone.accept());
        assert!(poll_once(accept.as_mut()).is_pending());
        assert_eq!(listener.close().await.unwrap_err().errno(), libc::EBUSY);
    });
}
