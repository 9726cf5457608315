//! A waker is a user's code: whatever a ring does with one, no lock of the ring's is held.
//!
//! # Safety
//!
//! The waker here is made of a leaked ring, which lives for ever.
#![allow(unsafe_code)]

use std::{
    future::Future,
    pin::pin,
    sync::mpsc::channel,
    task::{Context, RawWaker, RawWakerVTable, Waker},
    thread,
    time::Duration,
};

use ringwise::{
    BackendChoice, Local, Operation, Ring,
    net::{ListenOptions, TcpListener},
};

/// Longer than anything here takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(20);

/// A waker that asks its ring for statistics whenever it is cloned, woken or dropped.
fn curious(ring: &'static Ring) -> Waker {
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        |ring| {
            ask(ring);
            RawWaker::new(ring, &TABLE)
        },
        ask,
        ask,
        ask,
    );
    fn ask(ring: *const ()) {
        // SAFETY: made of a reference to a ring that is never freed.
        let ring = unsafe { &*ring.cast::<Ring>() };
        ring.stats();
        // What hands something in takes the same lock for longer.
        drop(ring.submit_all([Operation::nop()]));
    }
    // SAFETY: the functions accept what the others give, from any thread.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::from_ref(ring).cast(), &TABLE)) }
}

/// Polls a future to its end by a waker that uses the ring, with a new one each time.
fn drive<F: Future>(ring: &'static Ring, future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        let waker = curious(ring);
        if let std::task::Poll::Ready(output) =
            future.as_mut().poll(&mut Context::from_waker(&waker))
        {
            return output;
        }
        thread::sleep(Duration::from_micros(100));
    }
}

async fn use_everything(ring: &Ring) {
    ring.submit(Operation::timeout(Duration::from_millis(2))).await.result().unwrap();
    for pending in ring.submit_all([Operation::nop(), Operation::timeout(Duration::from_millis(1))])
    {
        pending.await.result().unwrap();
    }
    let (silent, _writer) = std::io::pipe().unwrap();
    let silent = ringwise::Descriptor::from(std::os::fd::OwnedFd::from(silent));
    let read = ring.submit(Operation::read_at(&silent, vec![0; 8], 0));
    read.deadline(Duration::from_millis(1)).await.result().unwrap_err();
    ring.register_pool(1, 100).await.unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = TcpListener::bind(ring, &any, &ListenOptions::default()).unwrap();
    let address = listener.local_address().unwrap();
    let mut incoming = listener.accept_multi(2);
    let client = thread::spawn(move || std::net::TcpStream::connect(address).unwrap());
    let (stream, _) = incoming.next().await.unwrap();
    drop(client.join().unwrap());
    assert_eq!(stream.recv(vec![0; 8]).await.unwrap().0, 0);
}

#[test]
fn a_waker_may_use_the_ring() {
    for choice in [BackendChoice::Uring, BackendChoice::Classic] {
        let builder = Local::builder().backend(choice).driver_thread(true);
        let ring = match builder.build_ring() {
            Ok(ring) => &*Box::leak(Box::new(ring)),
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "skipped in CI: {error}");
                println!("skipped: {error}");
                continue;
            }
        };
        let (tell, told) = channel();
        thread::spawn(move || {
            drive(ring, use_everything(ring));
            drive(ring, ring.shutdown(PATIENCE)).unwrap();
            tell.send(()).unwrap();
        });
        told.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{choice:?}: a lock was held"));
    }
}
