//! Each count that a loop and a ring keep of themselves, against a number that is known.

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use crate::rings::{places, real_places, skip};
use futures::executor::block_on;
use ringwise::{
    Backend, BackendChoice, Builder, Descriptor, Local, Opcode, OpenOptions, Operation, Ring,
};

const KINDS: [BackendChoice; 2] = [BackendChoice::Uring, BackendChoice::Classic];

/// A loop of this kind; a skip where there is none.
fn local(builder: Builder) -> Option<Local> {
    builder.build().map_err(|error| skip(&error.to_string())).ok()
}

/// The loop's counts are as of the last results, so that one more brings them up to date.
fn refresh(ring: &Ring) {
    assert_eq!(block_on(ring.submit(Operation::nop())).result().unwrap(), 0);
}

fn pipe() -> (Descriptor, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Descriptor::from(OwnedFd::from(reader)), writer)
}

/// Submitted, delivered, reclaimed and in flight, of which one is a read that waits.
#[test]
fn what_is_handed_in_comes_back_or_is_in_flight() {
    for place in real_places() {
        let (reader, _writer) = pipe();
        for _ in 0..5 {
            refresh(&place.ring);
        }
        let counts = || {
            let stats = place.ring.stats();
            (stats.submitted, stats.delivered, stats.reclaimed, stats.local.in_flight)
        };
        assert_eq!(counts(), (5, 5, 0, 0), "{}", place.name);
        {
            let mut read = pin!(place.ring.submit(Operation::read_at(&reader, vec![0; 8], 0)));
            let mut context = Context::from_waker(Waker::noop());
            assert!(read.as_mut().poll(&mut context).is_pending());
            refresh(&place.ring);
            assert_eq!(counts(), (7, 6, 0, 1), "{}", place.name);
        }
        block_on(place.ring.shutdown(Duration::from_secs(5))).unwrap();
        assert_eq!(counts(), (7, 6, 1, 0), "{}", place.name);
    }
}

/// One enter for as many as were pushed; none where there is no ring.
#[test]
fn operations_per_enter_are_those_of_a_batch() {
    for choice in KINDS {
        let Some(mut local) = local(Local::builder().entries(64).backend(choice)) else { continue };
        assert_eq!(local.stats().operations_per_enter(), None);
        for round in 1..4 {
            for tag in 0..32 {
                local.push(Operation::nop(), tag).unwrap();
            }
            assert_eq!(local.submit_and_wait(32).unwrap(), 32);
            while let Some(done) = local.next_completion() {
                done.result().unwrap();
            }
            let stats = local.stats();
            assert_eq!((stats.submitted, stats.completed), (32 * round, 32 * round));
            let (enters, per_enter) = (stats.enters, stats.operations_per_enter());
            match choice {
                BackendChoice::Classic => assert_eq!((enters, per_enter), (0, None)),
                _ => assert_eq!((enters, per_enter), (round, Some(32.0))),
            }
        }
    }
}

/// What threads of the loop make is counted, and is nothing that the ring made.
#[test]
fn operations_of_threads_are_counted() {
    for choice in KINDS {
        let builder = Local::builder().backend(choice).avoid(&[Opcode::Statx]);
        let Some(mut local) = local(builder) else { continue };
        for _ in 0..3 {
            local.run(Operation::statx("/")).unwrap().metadata().unwrap();
        }
        for _ in 0..4 {
            local.run(Operation::nop()).unwrap().result().unwrap();
        }
        let stats = local.stats();
        assert_eq!((stats.submitted, stats.fallback_operations), (7, 3), "{choice:?}");
        let by_ring = stats.operations_per_enter().map(|each| each * stats.enters as f64);
        assert_eq!(by_ring, (choice == BackendChoice::Uring).then_some(4.0));
    }
}

/// Reads of what is in memory are the caller's thread's, and no operation of the ring.
#[test]
fn inline_hits_are_counted_and_nothing_else_with_them() {
    for place in places() {
        place.write("file", &[5; 5000]);
        block_on(async {
            let file = place.open("file", OpenOptions::new().read(true)).await;
            let before = place.ring.stats();
            assert_eq!(before.inline_hits, 0);
            for _ in 0..10 {
                file.read_exact_at(vec![0; 500], 1000).await.0.unwrap();
            }
            let after = place.ring.stats();
            let by_ring = after.submitted - before.submitted;
            // A simulated disk has no cache to look into.
            let expected = if place.is_simulated() { (0, 10) } else { (10, 0) };
            assert_eq!((after.inline_hits, by_ring), expected, "{}", place.name);
        });
    }
}

/// A multishot of more connections than the completion queue holds; what it holds is no overflow.
#[test]
fn overflows_are_seen_and_nothing_is_lost() {
    const CONNECTIONS: usize = 12;
    let builder = Local::builder().entries(2).backend(BackendChoice::Uring);
    let Some(mut local) = local(builder) else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let listener = Descriptor::from(OwnedFd::from(listener));
    local.push(Operation::accept_multi(&listener), 0).unwrap();
    local.submit().unwrap();
    let mut peers = vec![TcpStream::connect(address).unwrap()];
    let mut accepted = 0;
    let mut take = |local: &mut Local, count: usize| {
        while accepted < count {
            local.submit_and_wait(1).unwrap();
            while let Some(done) = local.next_completion() {
                drop(done.into_descriptor().unwrap());
                accepted += 1;
            }
        }
    };
    take(&mut local, 1);
    assert_eq!(local.stats().overflows, 0);
    peers.extend((1..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()));
    take(&mut local, CONNECTIONS);
    let stats = local.stats();
    assert!(stats.overflows > 0, "{stats:?}");
    assert_eq!(stats.stale_completions, 0);
}

#[test]
fn the_backend_is_told_and_why() {
    for place in places() {
        let stats = place.ring.stats();
        let (backend, reason) = match place.name {
            "simulated" => (Backend::Simulated, None),
            name if name.starts_with("uring") => (Backend::Uring, None),
            _ => (Backend::Classic, Some("classic calls were chosen")),
        };
        assert_eq!(stats.backend, backend, "{}", place.name);
        let told = stats.fallback.map(|reason| reason.to_string());
        assert_eq!(told.as_deref(), reason, "{}", place.name);
    }
}
