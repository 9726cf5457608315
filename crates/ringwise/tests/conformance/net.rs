//! Sockets: every operation, and what can go wrong with each.

use std::{
    io::{ErrorKind as StdKind, Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    time::{Duration, Instant},
};

use ringwise::{
    Buffer, BufferGroup, Completion, Descriptor, ErrorKind, Local, Operation, Ticket,
    net::{self, Address},
};

use crate::{
    disk::Disk,
    loops::{Loop, counted, next, run},
    peers::{
        Peer, PeerDatagrams, PeerListener, connect, connection, listen, listen_unix, stream_socket,
        udp_bind,
    },
    streams::processor_time,
};

/// Waits until a condition holds that something else brings about.
fn eventually(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "it never came about");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn nothing_comes(local: &mut Local, time: Duration) {
    assert_eq!(local.submit_and_wait_timeout(1, time).unwrap(), 0);
    assert!(local.next_completion().is_none());
}

pub fn a_connection_is_made_and_accepted(way: Loop) {
    let mut local = way.build();
    let (listener, address) = listen(way);
    local.push(Operation::accept(&listener), 1).unwrap();
    let client = stream_socket(way, &address.into());
    local.push(Operation::connect(&client, address), 2).unwrap();
    let mut server = None;
    for _ in 0..2 {
        let done = next(&mut local);
        assert_eq!(done.result().unwrap(), 0);
        assert!(!done.has_more());
        if done.tag() == 1 {
            server = Some(done.into_descriptor().unwrap());
        }
    }
    let server = server.unwrap();
    assert_eq!(net::peer_address(&client).unwrap(), Address::Ip(address));
    assert_eq!(net::peer_address(&server).unwrap(), net::local_address(&client).unwrap());
    let inherited = rustix::io::fcntl_getfd(&server).unwrap();
    assert!(inherited.contains(rustix::io::FdFlags::CLOEXEC));

    let done = run(&mut local, Operation::send(&client, b"hello".to_vec()));
    assert_eq!(done.result().unwrap(), 5);
    assert_eq!(done.into_buffer().unwrap().as_slice(), b"hello");
    let done = run(&mut local, Operation::recv(&server, vec![0; 64]));
    assert_eq!(done.result().unwrap(), 5);
    assert_eq!(&done.into_buffer().unwrap().as_slice()[..5], b"hello");
}

pub fn a_refused_connection_is_an_error(way: Loop) {
    let mut local = way.build();
    let (listener, address) = listen(way);
    drop(listener);
    let client = stream_socket(way, &address.into());
    let error = run(&mut local, Operation::connect(&client, address)).result().unwrap_err();
    assert_eq!(error.errno(), libc::ECONNREFUSED, "{error}");
}

pub fn a_receive_waits_and_is_cancelled(way: Loop) {
    let mut local = way.build();
    let (own, mut peer) = connection(way);
    let ticket = local.push(Operation::recv(&own, vec![0; 8]), 1).unwrap();
    nothing_comes(&mut local, Duration::from_millis(20));
    assert_cancelled(&mut local, ticket, 1);
    peer.write_all(b"later").unwrap();
    let done = run(&mut local, Operation::recv(&own, vec![0; 8]));
    assert_eq!(done.result().unwrap(), 5, "the cancelled receive took nothing");
}

/// Cancels an operation that waits; it and the cancel come, in any order.
fn assert_cancelled(local: &mut Local, ticket: Ticket, tag: u64) {
    local.push(Operation::cancel(ticket), 999).unwrap();
    for _ in 0..2 {
        let done = next(local);
        assert!(!done.has_more());
        if done.tag() == 999 {
            done.result().unwrap();
        } else {
            assert_eq!((done.tag(), done.ticket()), (tag, ticket));
            assert_eq!(done.result().unwrap_err().kind(), ErrorKind::Cancelled);
        }
    }
    assert_eq!(local.in_flight(), 0);
}

pub fn accepts_of_many(way: Loop) {
    let mut local = way.build();
    let (listener, address) = listen(way);
    let ticket = local.push(Operation::accept_multi(&listener), 7).unwrap();
    let mut peers = Vec::new();
    for _ in 0..3 {
        let batch: Vec<_> = (0..10).map(|_| connect(way, address).unwrap()).collect();
        let mut accepted = Vec::new();
        while accepted.len() < batch.len() {
            let done = next(&mut local);
            assert_eq!((done.tag(), done.ticket()), (7, ticket));
            assert!(done.has_more());
            assert_eq!(done.result().unwrap(), 0);
            accepted.push(done.into_descriptor().unwrap());
        }
        // Each is a connection of its own.
        let mut ours: Vec<_> =
            accepted.iter().map(|own| net::peer_address(own).unwrap().ip().unwrap()).collect();
        let mut theirs: Vec<_> =
            batch.iter().map(|peer| peer.local_address().ip().unwrap()).collect();
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours, theirs);
        peers.push((batch, accepted));
    }
    assert_eq!(local.in_flight(), 1);
    assert_cancelled(&mut local, ticket, 7);
}

pub fn a_stream_is_received_in_leases(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 4, 512).unwrap();
    let (own, mut peer) = connection(way);
    let ticket = local.push(Operation::recv_multi(&own, &group), 3).unwrap();
    nothing_comes(&mut local, Duration::from_millis(10));
    assert_eq!(group.available(), 4, "a silent socket keeps no buffer");
    for round in 0..20_u8 {
        peer.write_all(&[round; 100]).unwrap();
        let mut got = 0;
        while got < 100 {
            let done = next(&mut local);
            assert_eq!((done.tag(), done.ticket()), (3, ticket));
            assert!(done.has_more());
            let count = done.result().unwrap();
            let received = done.into_received().unwrap();
            assert_eq!(received.len(), count);
            assert!(received.iter().all(|byte| *byte == round));
            got += count;
        }
        assert_eq!(got, 100);
    }
    assert_eq!(group.available(), 4);
    peer.shutdown(net::Shutdown::Write);
    let done = next(&mut local);
    assert_eq!(done.result().unwrap(), 0);
    assert!(!done.has_more());
    assert!(done.into_received().is_none());
    assert_eq!(local.in_flight(), 0);
    // Half of the connection is still there.
    assert_eq!(run(&mut local, Operation::send_all(&own, b"bye".to_vec())).result().unwrap(), 3);
    net::shutdown(&own, net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"bye");
}

/// Everything that a sender sends arrives once and in order, whatever the buffers are.
pub fn a_long_stream_is_whole(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 8, 1000).unwrap();
    let (own, mut peer) = connection(way);
    let sent = counted(2_000_000);
    let copy = sent.clone();
    let sender = std::thread::spawn(move || {
        peer.write_all(&copy).unwrap();
    });
    local.push(Operation::recv_multi(&own, &group), 0).unwrap();
    let mut got = Vec::new();
    let mut kept = Vec::new();
    loop {
        local.submit_and_wait(1).unwrap();
        let mut last = false;
        while let Some(done) = local.next_completion() {
            last |= !done.has_more();
            done.result().unwrap();
            if let Some(received) = done.into_received() {
                got.extend_from_slice(&received);
                kept.push(received);
            }
        }
        if last {
            break;
        }
        kept.clear();
    }
    sender.join().unwrap();
    assert!(got == sent, "{} of {} bytes, or not the same", got.len(), sent.len());
}

/// An operation that is waited for alone leaves the order of what streams bring meanwhile.
pub fn a_stream_keeps_its_order_beside_a_run(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 16, 500).unwrap();
    let pairs: Vec<_> = (0..4).map(|_| connection(way)).collect();
    let sent = counted(400_000);
    let (sockets, peers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let senders: Vec<_> = peers
        .into_iter()
        .map(|mut peer| {
            let copy = sent.clone();
            std::thread::spawn(move || peer.write_all(&copy).unwrap())
        })
        .collect();
    for (tag, socket) in sockets.iter().enumerate() {
        local.push(Operation::recv_multi(socket, &group), tag as u64).unwrap();
    }
    let mut got = vec![Vec::new(); sockets.len()];
    let mut open = sockets.len();
    while open > 0 {
        local.submit_and_wait(1).unwrap();
        let mut taken = 0;
        while let Some(done) = local.next_completion() {
            open -= usize::from(!done.has_more());
            done.result().unwrap();
            let stream: &mut Vec<u8> = &mut got[done.tag() as usize];
            if let Some(received) = done.into_received() {
                stream.extend_from_slice(&received);
            }
            taken += 1;
            // In the middle of what is there, too.
            match taken % 4 {
                0 => {
                    let pause = Operation::timeout(Duration::from_micros(50));
                    local.run(pause).unwrap().result().unwrap();
                }
                // At once: what comes with it comes after it.
                1 => drop(local.run(Operation::nop()).unwrap()),
                _ => {}
            }
        }
    }
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    for stream in got {
        assert!(stream == sent, "{} of {} bytes, or not in order", stream.len(), sent.len());
    }
}

/// What was received before a cancel comes before the end that the cancel makes.
pub fn the_end_of_a_parked_stream_comes_after_its_data(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 2, 100).unwrap();
    let (own, mut peer) = connection(way);
    peer.write_all(&counted(1000)).unwrap();
    let receive = local.push(Operation::recv_multi(&own, &group), 1).unwrap();
    // Both buffers are filled and not taken; the receive waits for one.
    local.submit_and_wait(2).unwrap();
    local.submit_and_wait_timeout(3, Duration::from_millis(50)).unwrap();
    local.push(Operation::cancel(receive), 2).unwrap();
    local.submit_and_wait(4).unwrap();
    let mut got = 0;
    let mut ended = false;
    while let Some(done) = local.next_completion() {
        if done.tag() == 1 {
            assert!(!ended, "data after the end");
            ended = !done.has_more();
            got += done.into_received().map_or(0, |received| received.len());
        }
    }
    assert_eq!((got, ended), (200, true));
}

/// With all buffers out a receive once ended with ENOBUFS; it waits for one to come back.
pub fn buffers_run_out_and_come_back(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 2, 16).unwrap();
    let (own, mut peer) = connection(way);
    peer.write_all(&counted(64)).unwrap();
    let ticket = local.push(Operation::recv_multi(&own, &group), 0).unwrap();
    let mut leases = Vec::new();
    while leases.len() < 2 {
        let done = next(&mut local);
        assert!(done.has_more());
        leases.push(done.into_received().unwrap());
    }
    assert_eq!(group.available(), 0);
    nothing_comes(&mut local, Duration::from_millis(20));
    // One comes back on this thread.
    let mut got = leases[0].to_vec();
    leases.remove(0);
    let done = next(&mut local);
    assert_eq!(done.ticket(), ticket);
    leases.push(done.into_received().unwrap());
    nothing_comes(&mut local, Duration::from_millis(20));
    // And one on another, while the loop sleeps.
    got.extend_from_slice(&leases.remove(0));
    let last = leases.remove(0);
    got.extend_from_slice(&last);
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        drop(last);
    });
    let done = next(&mut local);
    other.join().unwrap();
    got.extend_from_slice(&done.into_received().unwrap());
    assert_eq!(got, counted(64));
    drop(peer);
    let done = next(&mut local);
    assert_eq!((done.result().unwrap(), done.has_more()), (0, false));
}

/// A receive that found no buffer would find none at once again: it is asked for by nobody until one
/// comes back.
pub fn a_parked_receive_costs_nothing(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 1, 16).unwrap();
    let (own, mut peer) = connection(way);
    peer.write_all(&counted(32)).unwrap();
    local.push(Operation::recv_multi(&own, &group), 5).unwrap();
    let lease = next(&mut local).into_received().unwrap();
    costs_nothing(&mut local);
    drop(lease);
    assert_eq!(&*next(&mut local).into_received().unwrap(), &counted(32)[16..]);
}

/// Waits for a while in which nothing but the end of the wait comes.
fn costs_nothing(local: &mut Local) {
    let (start, before) = (Instant::now(), processor_time());
    local.push(Operation::timeout(Duration::from_millis(300)), 7).unwrap();
    let done = next(local);
    assert_eq!(done.tag(), 7);
    let (waited, used) = (start.elapsed(), processor_time() - before);
    assert!(used < Duration::from_millis(75), "{used:?} of the processor in {waited:?}");
}

pub fn a_parked_receive_is_cancelled(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 1, 16).unwrap();
    let (own, mut peer) = connection(way);
    peer.write_all(&counted(32)).unwrap();
    let ticket = local.push(Operation::recv_multi(&own, &group), 5).unwrap();
    let lease = next(&mut local).into_received().unwrap();
    nothing_comes(&mut local, Duration::from_millis(20));
    assert_cancelled(&mut local, ticket, 5);
    // What was not received is still there.
    let done = run(&mut local, Operation::recv(&own, vec![0; 64]));
    assert_eq!(done.result().unwrap(), 16);
    drop(lease);
    assert_eq!(group.available(), 1);
}

/// That the buffers ran out is known to the kernel, or to the set, before the loop has seen it: a
/// cancel that comes in between must not be lost, or the receive would go on for ever.
pub fn a_receive_that_is_about_to_be_parked_is_cancelled(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 1, 16).unwrap();
    let (own, mut peer) = connection(way);
    let ticket = local.push(Operation::recv_multi(&own, &group), 5).unwrap();
    local.submit().unwrap();
    peer.write_all(&counted(32)).unwrap();
    if way.shows_work() {
        eventually(|| local.has_work());
    }
    // A full queue is handed over to make room for the cancel.
    for _ in 0..16 {
        local.push(Operation::nop(), 0).unwrap();
    }
    local.push(Operation::cancel(ticket), 999).unwrap();
    let (mut lease, mut ends) = (None, Vec::new());
    while local.submit_and_wait_timeout(1, Duration::from_secs(2)).unwrap() > 0 {
        while let Some(done) = local.next_completion() {
            if done.tag() == 0 {
                continue;
            }
            if !done.has_more() {
                ends.push((done.tag(), done.raw_result()));
            }
            lease = done.into_received().or(lease);
        }
        if local.in_flight() == 0 {
            break;
        }
    }
    // Whether there was something left to cancel is the cancel's own result.
    ends.sort_unstable();
    assert_eq!((ends.len(), ends[0]), (2, (5, -libc::ECANCELED)), "{ends:?}");
    assert_eq!(local.in_flight(), 0);
}

/// A socket whose turn ended with more to come is forgotten with its last call.
pub fn a_cancelled_flood_leaves_nothing_to_do(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 256, 16).unwrap();
    let (own, mut peer) = connection(way);
    peer.write_all(&counted(4096)).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let ticket = local.push(Operation::recv_multi(&own, &group), 5).unwrap();
    local.submit().unwrap();
    local.push(Operation::cancel(ticket), 6).unwrap();
    let mut ends = 0;
    while ends < 2 {
        ends += usize::from(!next(&mut local).has_more());
    }
    costs_nothing(&mut local);
}

/// Over a high mark a user cancels, under a low one it receives again; nothing is lost in between.
pub fn a_stopped_receive_loses_nothing(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 16, 256).unwrap();
    let (own, mut peer) = connection(way);
    let sent = counted(300_000);
    let copy = sent.clone();
    let sender = std::thread::spawn(move || {
        peer.write_all(&copy).unwrap();
        peer
    });
    let mut got = Vec::new();
    while got.len() < sent.len() {
        let ticket = local.push(Operation::recv_multi(&own, &group), 1).unwrap();
        let mut cancelled = false;
        let mut ends = 0;
        while ends < if cancelled { 2 } else { 1 } {
            local.submit_and_wait(1).unwrap();
            while let Some(done) = local.next_completion() {
                ends += usize::from(!done.has_more());
                if let Some(received) = done.into_received() {
                    got.extend_from_slice(&received);
                }
            }
            if !cancelled && ends == 0 {
                local.push(Operation::cancel(ticket), 2).unwrap();
                cancelled = true;
            }
        }
    }
    sender.join().unwrap();
    assert!(got == sent, "{} of {} bytes, or not the same", got.len(), sent.len());
    assert_eq!(group.available(), 16);
}

pub fn a_lease_outlives_group_and_loop(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 2, 64).unwrap();
    let (own, mut peer) = connection(way);
    peer.write_all(b"kept").unwrap();
    local.push(Operation::recv_multi(&own, &group), 0).unwrap();
    let mut lease = next(&mut local).into_received().unwrap();
    drop(group);
    drop(local);
    assert_eq!(&*lease, b"kept");
    lease.fill(b'x');
    let lease = std::thread::spawn(move || lease).join().unwrap();
    assert_eq!(&*lease, b"xxxx");
}

pub fn what_was_received_is_sent_as_it_is(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 2, 64).unwrap();
    let (own, mut peer) = connection(way);
    peer.write_all(b"echo").unwrap();
    local.push(Operation::recv_multi(&own, &group), 0).unwrap();
    let lease = next(&mut local).into_received().unwrap();
    assert_eq!(group.available(), 1);
    let done = run(&mut local, Operation::send_all(&own, lease));
    assert_eq!(done.result().unwrap(), 4);
    drop(done);
    assert_eq!(group.available(), 2);
    let mut answer = [0; 4];
    peer.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"echo");
}

/// By its place in the ring's table, which holds it open when nobody else does.
pub fn a_registered_socket_is_a_socket(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 4, 64).unwrap();
    let (own, mut peer) = connection(way);
    let fixed = local.register_file(&own).unwrap();
    drop(own);
    let receive = local.push(Operation::recv_multi(fixed, &group), 0).unwrap();
    for round in 0..20_u8 {
        peer.write_all(&[round; 10]).unwrap();
        let lease = next(&mut local).into_received().unwrap();
        if round % 2 == 0 {
            local.push(Operation::send_quiet(fixed, lease), 1).unwrap();
            assert_eq!(local.submit().unwrap(), 0);
        } else {
            local.push(Operation::send_all(fixed, lease), 1).unwrap();
            assert_eq!(next(&mut local).result().unwrap(), 10);
        }
        let mut answer = [0; 10];
        peer.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [round; 10]);
    }
    // It closes after its last operation.
    local.unregister_file(fixed).unwrap();
    peer.write_all(b"still").unwrap();
    assert_eq!(&*next(&mut local).into_received().unwrap(), b"still");
    assert_cancelled(&mut local, receive, 0);
    assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
    let stale = local.run(Operation::recv(fixed, vec![0; 8])).unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::BadDescriptor);
}

pub fn another_loops_group_is_refused(way: Loop) {
    let mut other = way.build();
    let group = BufferGroup::new(&mut other, 2, 64).unwrap();
    let mut local = way.build();
    let (own, _peer) = connection(way);
    let refused = local.push(Operation::recv_multi(&own, &group), 0).unwrap_err();
    assert!(refused.to_string().contains("another loop"), "{refused}");
    for (count, bytes) in [(0, 64), (3, 64), (65_536, 64), (1, 0), (2, usize::MAX), (2, 1 << 30)] {
        assert_eq!(BufferGroup::new(&mut local, count, bytes).unwrap_err().errno(), libc::EINVAL);
    }
}

/// More than the socket holds, to a peer that reads late.
pub fn a_whole_send_waits_for_its_reader(way: Loop) {
    let mut local = way.build();
    let (own, mut peer) = connection(way);
    net::set_send_buffer(&own, 16_384).unwrap();
    let sent = counted(4 << 20);
    local.push(Operation::send_all(&own, sent.clone()), 0).unwrap();
    nothing_comes(&mut local, Duration::from_millis(50));
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; 4 << 20];
        peer.read_exact(&mut got).unwrap();
        got
    });
    let done = next(&mut local);
    assert_eq!(done.result().unwrap(), sent.len());
    assert!(reader.join().unwrap() == sent);
}

/// Vectored, a send that goes on after a part goes on at the right byte.
pub fn a_whole_vectored_send_waits_for_its_reader(way: Loop) {
    let mut local = way.build();
    let (own, mut peer) = connection(way);
    net::set_send_buffer(&own, 16_384).unwrap();
    let sent = counted(3 << 20);
    let buffers = sent.chunks(100_001).map(|part| Buffer::from(part.to_vec())).collect();
    local.push(Operation::send_all_vectored(&own, buffers), 0).unwrap();
    nothing_comes(&mut local, Duration::from_millis(50));
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; 3 << 20];
        peer.read_exact(&mut got).unwrap();
        got
    });
    let done = next(&mut local);
    assert_eq!(done.result().unwrap(), sent.len());
    assert_eq!(done.into_buffers().len(), 32);
    assert!(reader.join().unwrap() == sent);
}

pub fn a_send_takes_what_fits(way: Loop) {
    let mut local = way.build();
    let (own, mut peer) = connection(way);
    net::set_send_buffer(&own, 16_384).unwrap();
    let done = run(&mut local, Operation::send(&own, counted(4 << 20)));
    let count = done.result().unwrap();
    assert!(count > 0 && count < 4 << 20, "{count}");
    let mut got = vec![0; count];
    peer.read_exact(&mut got).unwrap();
    assert!(got == counted(count));
    let buffers = vec![Buffer::from(b"ab".to_vec()), Buffer::from(&b"cd"[..])];
    let done = run(&mut local, Operation::send_vectored(&own, buffers));
    assert_eq!(done.result().unwrap(), 4);
}

pub fn a_send_that_waits_is_cancelled(way: Loop) {
    let mut local = way.build();
    let (own, mut peer) = connection(way);
    let ticket = local.push(Operation::send_all(&own, counted(32 << 20)), 1).unwrap();
    nothing_comes(&mut local, Duration::from_millis(50));
    local.push(Operation::cancel(ticket), 2).unwrap();
    let mut taken = 0;
    for _ in 0..2 {
        let done = next(&mut local);
        if done.tag() == 1 {
            taken = done.result().expect("a part was sent, and its count is the result");
        }
    }
    assert!(taken > 0 && taken < 32 << 20);
    drop(own);
    let mut got = Vec::new();
    peer.read_to_end(&mut got).unwrap();
    assert!(got == counted(taken), "{} bytes arrived, {taken} were told", got.len());
}

/// Silence means that all was sent; where the socket is full, the count says how much. Not a byte
/// may be missing or twice.
pub fn a_quiet_send_is_exact(way: Loop) {
    let mut local = way.build();
    let (own, mut peer) = connection(way);
    net::set_send_buffer(&own, 16_384).unwrap();
    let message = counted(5_000);
    let mut expected = message.clone();
    let mut next_part = Buffer::from(message.clone());
    let mut rest = None;
    for _ in 0..100_000 {
        let len = next_part.selected().len();
        local.push(Operation::send_quiet(&own, next_part), 4).unwrap();
        local.submit().unwrap();
        if let Some(done) = local.next_completion() {
            assert_eq!((done.tag(), done.has_more()), (4, false));
            let count = done.result().unwrap();
            assert!(count < len);
            let buffer = done.into_buffer().unwrap();
            assert_eq!(buffer.as_slice(), message);
            next_part = buffer.slice(message.len() - len + count..);
            if count == 0 {
                // It is full to the last byte, which is no error.
                rest = Some(next_part);
                break;
            }
            continue;
        }
        assert_eq!(local.in_flight(), 0, "neither a completion nor an end");
        expected.extend_from_slice(&message);
        next_part = Buffer::from(message.clone());
    }
    let rest = rest.expect("a socket that nobody reads is full at last");
    local.push(Operation::send_all(&own, rest), 5).unwrap();
    local.submit().unwrap();
    let len = expected.len();
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; len];
        peer.read_exact(&mut got).unwrap();
        (got, peer)
    });
    let done = next(&mut local);
    done.result().unwrap();
    let (got, peer) = reader.join().unwrap();
    assert!(got == expected, "what arrived is not what was sent");

    // An error has a completion.
    net::shutdown(&own, net::Shutdown::Write).unwrap();
    local.push(Operation::send_quiet(&own, b"x".to_vec()), 6).unwrap();
    let done = next(&mut local);
    assert_eq!(done.result().unwrap_err().errno(), libc::EPIPE);
    drop(peer);
    assert!(local.run(Operation::send_quiet(&own, b"x".to_vec())).is_err());
}

/// A socket to which nothing can be sent.
fn broken(way: Loop) -> (Descriptor, Peer) {
    let (own, peer) = connection(way);
    net::shutdown(&own, net::Shutdown::Write).unwrap();
    (own, peer)
}

/// What the completions that are ready say of the operation with this tag.
fn told_of(local: &mut Local, tag: u64) -> Vec<i32> {
    let done = std::iter::from_fn(|| local.next_completion());
    done.filter(|done| done.tag() == tag).map(|done| done.raw_result()).collect()
}

/// A receive that fills the completion queue does not hide what became of a send.
pub fn a_flood_hides_no_quiet_send(way: Loop) {
    for is_behind in [true, false] {
        let mut local = way.builder().entries(4).build().unwrap();
        let group = BufferGroup::new(&mut local, 64, 16).unwrap();
        let (own, mut peer) = connection(way);
        let (first, second) = (broken(way), broken(way));
        peer.write_all(&counted(1024)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let receive = Operation::recv_multi(&own, &group);
        if is_behind {
            local.push(receive, 1).unwrap();
            local.push(Operation::send_quiet(&first.0, b"x".to_vec()), 2).unwrap();
            local.push(Operation::send_quiet(&second.0, b"x".to_vec()), 2).unwrap();
        } else {
            local.push(Operation::send_quiet(&first.0, b"x".to_vec()), 2).unwrap();
            local.push(Operation::send_quiet(&second.0, b"x".to_vec()), 2).unwrap();
            local.push(receive, 1).unwrap();
        }
        local.submit().unwrap();
        assert_eq!(told_of(&mut local, 2), [-libc::EPIPE; 2]);
        assert_eq!(local.in_flight(), 1);
        local.submit().unwrap();
    }
}

/// Nor does what was ready before the submit.
pub fn what_is_ready_hides_no_quiet_send(way: Loop) {
    let mut local = way.build();
    let (own, mut peer) = connection(way);
    local.push(Operation::recv(&own, vec![0; 8]), 1).unwrap();
    local.submit().unwrap();
    peer.write_all(b"x").unwrap();
    if way.shows_work() {
        eventually(|| local.has_work());
    }
    let (other, _peer) = broken(way);
    local.push(Operation::send_quiet(&other, b"x".to_vec()), 2).unwrap();
    local.submit().unwrap();
    assert_eq!(told_of(&mut local, 2), [-libc::EPIPE]);
}

/// The buffer of a quiet send is in use until the submit, and free after it.
pub fn a_quiet_send_gives_its_buffer_back(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 4, 64).unwrap();
    let (own, mut peer) = connection(way);
    local.push(Operation::recv_multi(&own, &group), 0).unwrap();
    for round in 0..50_u8 {
        peer.write_all(&[round; 10]).unwrap();
        let done = next(&mut local);
        let lease = done.into_received().unwrap();
        local.push(Operation::send_quiet(&own, lease), 1).unwrap();
        assert_eq!(local.in_flight(), 2);
        assert_eq!(local.submit().unwrap(), 0);
        assert_eq!(local.in_flight(), 1);
        assert_eq!(group.available(), 4);
        let mut answer = [0; 10];
        peer.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [round; 10]);
    }
}

/// A wait with nothing in flight but quiet sends ends: they have no completion to wait for.
pub fn a_wait_for_quiet_sends_ends(way: Loop) {
    let mut local = way.build();
    let (own, _peer) = connection(way);
    local.push(Operation::send_quiet(&own, b"x".to_vec()), 1).unwrap();
    assert_eq!(local.submit_and_wait(1).unwrap(), 0);
    // And a loop that is dropped with one lets it go out.
    let (own, mut peer) = connection(way);
    local.push(Operation::send_quiet(&own, b"last".to_vec()), 1).unwrap();
    drop((local, own));
    let mut got = Vec::new();
    peer.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"last");
}

pub fn a_send_without_a_copy_arrives(way: Loop) {
    let mut local = way.build();
    let (own, mut peer) = connection(way);
    let sent = counted(200_000);
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; 200_000];
        peer.read_exact(&mut got).unwrap();
        got
    });
    let done = run(&mut local, Operation::send_zero_copy(&own, sent.clone()));
    assert_eq!((done.result().unwrap(), done.has_more()), (sent.len(), false));
    assert_eq!(done.into_buffer().unwrap().as_slice(), sent);
    assert!(reader.join().unwrap() == sent);
    // A Unix socket cannot do it; the bytes arrive all the same.
    let (own, mut peer) = UnixStream::pair().unwrap();
    let own = Descriptor::from(OwnedFd::from(own));
    let done = run(&mut local, Operation::send_zero_copy(&own, b"copied".to_vec()));
    assert_eq!(done.result().unwrap(), 6);
    let mut got = [0; 6];
    peer.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"copied");
}
/// A Unix socket copies; what waits there is still found when the loop ends.
pub fn a_send_with_a_copy_after_all_ends_with_its_loop(way: Loop) {
    let mut local = way.build();
    let (own, _peer) = UnixStream::pair().unwrap();
    let own = Descriptor::from(OwnedFd::from(own));
    local.push(Operation::send_zero_copy(&own, vec![0; 8 << 20]), 1).unwrap();
    nothing_comes(&mut local, Duration::from_millis(20));
    local.shutdown(Duration::from_millis(50)).unwrap();
}

pub fn a_reset_is_an_error_and_no_more(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 2, 64).unwrap();
    let (own, peer) = connection(way);
    let (quiet, mut other) = connection(way);
    local.push(Operation::recv_multi(&own, &group), 1).unwrap();
    local.push(Operation::recv_multi(&quiet, &group), 2).unwrap();
    nothing_comes(&mut local, Duration::from_millis(10));
    peer.reset();
    let done = next(&mut local);
    assert_eq!((done.tag(), done.has_more()), (1, false));
    assert_eq!(done.result().unwrap_err().errno(), libc::ECONNRESET);
    let error = run(&mut local, Operation::send_all(&own, b"x".to_vec())).result().unwrap_err();
    assert_eq!(error.errno(), libc::EPIPE);
    // The other connection does not notice.
    other.write_all(b"x").unwrap();
    let done = next(&mut local);
    assert_eq!((done.tag(), done.result().unwrap(), done.has_more()), (2, 1, true));
}

/// What came together with the end is received before the end, and the end is.
pub fn the_end_comes_after_the_data(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 8, 4096).unwrap();
    for _ in 0..20 {
        let (own, mut peer) = connection(way);
        local.push(Operation::recv_multi(&own, &group), 1).unwrap();
        local.submit().unwrap();
        peer.write_all(b"last words").unwrap();
        drop(peer);
        let mut got = Vec::new();
        loop {
            let done = next(&mut local);
            let more = done.has_more();
            done.result().unwrap();
            got.extend(done.into_received().iter().flat_map(|received| received.to_vec()));
            if !more {
                break;
            }
        }
        assert_eq!(got, b"last words");
        assert_eq!(local.in_flight(), 0);
    }
}

/// A receive that is pushed after its data and its end came finds both.
pub fn what_came_before_the_receive_is_there(way: Loop) {
    let mut local = way.build();
    let (own, mut peer) = connection(way);
    // Once, so that a loop that watches sockets watches this one.
    local.push(Operation::recv(&own, vec![0; 8]), 0).unwrap();
    nothing_comes(&mut local, Duration::from_millis(10));
    for _ in 0..3 {
        peer.write_all(b"abc").unwrap();
        let done = next(&mut local);
        assert_eq!(done.result().unwrap(), 3);
        local.push(Operation::recv(&own, vec![0; 8]), 0).unwrap();
        local.submit().unwrap();
    }
    peer.write_all(b"end").unwrap();
    let done = next(&mut local);
    assert_eq!(done.result().unwrap(), 3);
    peer.write_all(b"more").unwrap();
    drop(peer);
    let mut got = Vec::new();
    loop {
        let done = run(&mut local, Operation::recv(&own, vec![0; 2]));
        match done.result().unwrap() {
            0 => break,
            count => got.extend_from_slice(&done.into_buffer().unwrap().as_slice()[..count]),
        }
    }
    assert_eq!(got, b"more");
}

pub fn two_receives_keep_their_order(way: Loop) {
    let mut local = way.build();
    let (own, mut peer) = connection(way);
    for tag in 0..4 {
        local.push(Operation::recv(&own, vec![0; 1]), tag).unwrap();
    }
    nothing_comes(&mut local, Duration::from_millis(10));
    peer.write_all(b"0123").unwrap();
    let mut got: Vec<u8> = (0..4)
        .map(|_| {
            let done = next(&mut local);
            assert_eq!(done.result().unwrap(), 1);
            done.into_buffer().unwrap().as_slice()[0]
        })
        .collect();
    got.sort_unstable();
    assert_eq!(got, b"0123");
}

pub fn datagrams_have_a_sender(way: Loop) {
    let mut local = way.build();
    let (own, address) = udp_bind(way);
    let peer = PeerDatagrams::bind(way);
    local.push(Operation::recv_from(&own, vec![0; 8]), 0).unwrap();
    nothing_comes(&mut local, Duration::from_millis(10));
    peer.send_to(b"ping", &address);
    let done = next(&mut local);
    assert_eq!(done.result().unwrap(), 4);
    assert!(!done.is_truncated());
    assert_eq!(done.address(), Some(peer.address()));
    let back = done.address().unwrap();
    assert_eq!(&done.into_buffer().unwrap().as_slice()[..4], b"ping");
    let done = run(&mut local, Operation::send_to(&own, b"pong".to_vec(), back));
    assert_eq!(done.result().unwrap(), 4);
    assert_eq!(peer.recv_from(), (b"pong".to_vec(), address.clone()));
    // Datagrams keep their bounds, and one that is too long says so.
    for len in [2, 20, 0, 3] {
        peer.send_to(&counted(len), &address);
    }
    for (count, truncated) in [(2, false), (8, true), (0, false), (3, false)] {
        let done = run(&mut local, Operation::recv_from(&own, vec![0; 8]));
        assert_eq!((done.result().unwrap(), done.is_truncated()), (count, truncated));
    }
}

/// A datagram that is shorter than the buffer does not mean that it was the last.
pub fn datagrams_are_received_as_they_come(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 8, 64).unwrap();
    let (own, address) = udp_bind(way);
    let peer = PeerDatagrams::bind(way);
    let ticket = local.push(Operation::recv_multi(&own, &group), 1).unwrap();
    nothing_comes(&mut local, Duration::from_millis(10));
    for round in 0..5_u8 {
        for part in 0..4_u8 {
            peer.send_to(&[round, part], &address);
        }
        for part in 0..4_u8 {
            let done = next(&mut local);
            assert!(done.has_more());
            assert_eq!(&*done.into_received().unwrap(), [round, part]);
        }
    }
    assert_cancelled(&mut local, ticket, 1);
}

pub fn unix_sockets_are_sockets(way: Loop) {
    let mut local = way.build();
    let directory = Disk::real();
    let path = directory.path().join("socket");
    let listener = listen_unix(way, &path).unwrap();
    assert_eq!(net::local_address(&listener).unwrap(), Address::Unix(path.clone()));
    local.push(Operation::accept_multi(&listener), 1).unwrap();
    let mut peer = connect(way, path.as_path()).unwrap();
    let own = next(&mut local).into_descriptor().unwrap();
    assert_eq!(net::peer_address(&own).unwrap(), Address::UnixUnnamed);
    let group = BufferGroup::new(&mut local, 2, 64).unwrap();
    local.push(Operation::recv_multi(&own, &group), 2).unwrap();
    for _ in 0..3 {
        peer.write_all(b"ping").unwrap();
        let lease = next(&mut local).into_received().unwrap();
        assert_eq!(&*lease, b"ping");
        local.push(Operation::send_quiet(&own, lease), 3).unwrap();
        local.submit().unwrap();
        let mut answer = [0; 4];
        peer.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ping");
    }
    // And as the one who connects.
    let path = directory.path().join("theirs");
    let theirs = PeerListener::unix(way, &path);
    let client = stream_socket(way, &theirs.address());
    let connected = local.run(Operation::connect(&client, path.as_path())).unwrap();
    assert_eq!(connected.result().unwrap(), 0);
    theirs.accept();
    let long = Address::Unix("x".repeat(200).into());
    assert!(local.push(Operation::connect(&client, long), 0).is_err());
    assert_eq!(listen_unix(way, &path).unwrap_err(), libc::EADDRINUSE);
}

/// A socket is a file too.
pub fn a_socket_is_read_and_written(way: Loop) {
    let mut local = way.build();
    let (own, mut peer) = connection(way);
    local.push(Operation::read_at(&own, vec![0; 8], 0), 0).unwrap();
    nothing_comes(&mut local, Duration::from_millis(10));
    peer.write_all(b"in").unwrap();
    assert_eq!(next(&mut local).result().unwrap(), 2);
    assert_eq!(run(&mut local, Operation::write_at(&own, b"out".to_vec(), 0)).result().unwrap(), 3);
    let mut got = [0; 3];
    peer.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"out");
}

pub fn a_file_is_no_socket(way: Loop) {
    let mut local = way.build();
    let file = Descriptor::from(tempfile::tempfile().unwrap());
    let error = run(&mut local, Operation::recv(&file, vec![0; 8])).result().unwrap_err();
    assert_eq!(error.errno(), libc::ENOTSOCK);
    let error = run(&mut local, Operation::send_all(&file, vec![0; 8])).result().unwrap_err();
    assert_eq!(error.errno(), libc::ENOTSOCK);
    local.push(Operation::accept_multi(&file), 0).unwrap();
    let done = next(&mut local);
    assert_eq!(done.result().unwrap_err().errno(), libc::ENOTSOCK);
    assert!(!done.has_more());
    let refused = local.push(Operation::recv(&file, Buffer::from(&b"static"[..])), 0).unwrap_err();
    assert!(refused.to_string().contains("static"), "{refused}");
}

/// A number is used again by the next socket; what was known of the last one must not stick to it.
pub fn a_number_used_again_is_another_socket(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 4, 64).unwrap();
    let (listener, address) = listen(way);
    local.push(Operation::accept_multi(&listener), 0).unwrap();
    for round in 0..30_u8 {
        let mut peer = connect(way, address).unwrap();
        let own = next(&mut local).into_descriptor().unwrap();
        local.push(Operation::recv_multi(&own, &group), 1).unwrap();
        local.submit().unwrap();
        peer.write_all(&[round; 20]).unwrap();
        let done = next(&mut local);
        assert_eq!(&*done.into_received().unwrap(), [round; 20]);
        drop(peer);
        let done = next(&mut local);
        assert_eq!((done.tag(), done.result().unwrap()), (1, 0));
    }
}

/// One after the other, so that each is heard among all.
pub fn a_thousand_connections(way: Loop) {
    // The simulation looks at all sockets in each of its steps.
    let (count, entries) = if way.is_simulated() { (250, 256) } else { (1000, 1024) };
    if !has_descriptors(2 * count + 100) {
        return crate::loops::skip("fewer than 2100 descriptors are allowed");
    }
    let mut local = way.builder().entries(entries).build().unwrap();
    let group = BufferGroup::new(&mut local, entries as usize / 16, 256).unwrap();
    let (listener, address) = listen(way);
    local.push(Operation::accept_multi(&listener), u64::MAX).unwrap();
    let mut peers = Vec::new();
    let mut owns = Vec::new();
    while owns.len() < count {
        let wanted = (owns.len() + 100).min(count);
        while peers.len() < wanted {
            peers.push(connect(way, address).unwrap());
        }
        while owns.len() < wanted {
            let own = next(&mut local).into_descriptor().unwrap();
            local.push(Operation::recv_multi(&own, &group), owns.len() as u64).unwrap();
            owns.push(own);
        }
    }
    for round in 0..2_u8 {
        for peer in &mut peers {
            peer.write_all(&[round; 10]).unwrap();
        }
        let mut answered = 0;
        while answered < count {
            local.submit_and_wait(1).unwrap();
            while let Some(done) = local.next_completion() {
                assert!(done.has_more());
                let at = done.tag() as usize;
                let lease = done.into_received().unwrap();
                assert_eq!(*lease, [round; 10]);
                local.push(Operation::send_quiet(&owns[at], lease), 0).unwrap();
                answered += 1;
            }
        }
        local.submit().unwrap();
        for peer in &mut peers {
            let mut answer = [0; 10];
            peer.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [round; 10]);
        }
    }
    drop(peers);
    for _ in 0..count {
        let done = next(&mut local);
        assert_eq!((done.result().unwrap(), done.has_more()), (0, false));
    }
    assert_eq!(local.in_flight(), 1);
    assert_eq!(local.stats().overflows, 0);
}

fn has_descriptors(count: usize) -> bool {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    limit.current.is_none_or(|most| most >= count as u64)
}

/// A receive with much to come took all buffers whenever some came back, because it was handed over first. The other
/// got none until all of that had come.
pub fn a_few_buffers_go_round(way: Loop) {
    const PIECES: usize = 100;
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 2, 16).unwrap();
    let (much, mut fast) = connection(way);
    let (little, mut slow) = connection(way);
    fast.write_all(&[7; 16 * PIECES]).unwrap();
    slow.write_all(b"little").unwrap();
    local.push(Operation::recv_multi(&much, &group), 1).unwrap();
    local.push(Operation::recv_multi(&little, &group), 2).unwrap();
    let (mut pieces, mut is_served) = (0, false);
    while !is_served {
        local.submit_and_wait(1).unwrap();
        let done: Vec<_> = std::iter::from_fn(|| local.next_completion()).collect();
        pieces += done.len();
        is_served = done.iter().any(|done| done.tag() == 2);
    }
    assert!(pieces <= PIECES / 10, "it had to wait for {pieces} pieces");
}

/// One that never reads and one that always sends do not keep the others waiting.
pub fn a_flood_leaves_room_for_others(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 8, 512).unwrap();
    let (flooded, mut flooder) = connection(way);
    let (own, mut peer) = connection(way);
    local.push(Operation::recv_multi(&flooded, &group), 1).unwrap();
    local.push(Operation::recv_multi(&own, &group), 2).unwrap();
    let flood = std::thread::spawn(move || {
        // Until it is told to stop by a reset.
        while flooder.write_all(&[7; 65_536]).is_ok() {}
    });
    let mut flood_bytes = 0;
    for round in 0..20_u8 {
        peer.write_all(&[round]).unwrap();
        let start = Instant::now();
        let mut is_answered = false;
        while !is_answered || flood_bytes == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "starved in round {round}");
            local.submit_and_wait(1).unwrap();
            while let Some(done) = local.next_completion() {
                let tag = done.tag();
                let received = done.into_received().unwrap();
                flood_bytes += if tag == 1 { received.len() } else { 0 };
                is_answered |= tag == 2 && received[..] == [round];
            }
        }
    }
    // Without this, the flooder may wait two minutes until it asks again whether the window is still closed.
    net::set_reset_on_close(&flooded).unwrap();
    net::shutdown(&flooded, net::Shutdown::Both).unwrap();
    drop((flooded, local));
    flood.join().unwrap();
}

/// The loop goes with everything in flight; the other ends notice and no descriptor is left.
pub fn a_dropped_loop_lets_go_of_its_sockets(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 1, 16).unwrap();
    let (listener, address) = listen(way);
    let (own, mut peer) = connection(way);
    let (parked, mut parked_peer) = connection(way);
    let (waiting, mut waiting_peer) = connection(way);
    parked_peer.write_all(&counted(64)).unwrap();
    local.push(Operation::recv_multi(&parked, &group), 0).unwrap();
    let lease = next(&mut local).into_received().unwrap();
    local.push(Operation::accept_multi(&listener), 1).unwrap();
    local.push(Operation::accept(&listener), 2).unwrap();
    local.push(Operation::recv(&waiting, vec![0; 8]), 4).unwrap();
    local.push(Operation::recv_multi(&own, &group), 3).unwrap();
    local.submit().unwrap();
    drop((listener, own, parked, waiting));
    assert_eq!(local.shutdown(Duration::from_secs(10)), Ok(()));
    drop(lease);
    for peer in [&mut peer, &mut parked_peer, &mut waiting_peer] {
        // A reset where something was not received.
        match peer.read(&mut [0; 8]) {
            Ok(count) => assert_eq!(count, 0),
            Err(error) => assert_eq!(error.kind(), StdKind::ConnectionReset),
        }
    }
    assert!(connect(way, address).is_err(), "nobody listens any more");
}

/// What comes is seen without a submit that waits, and what does not come is not.
pub fn work_is_seen_before_it_is_waited_for(way: Loop) {
    let mut local = way.build();
    let group = BufferGroup::new(&mut local, 2, 64).unwrap();
    let (own, mut peer) = connection(way);
    local.push(Operation::recv_multi(&own, &group), 1).unwrap();
    local.submit().unwrap();
    if way.shows_work() {
        assert!(!local.has_work());
    }
    // A receive that a simulation delays is under way after that.
    nothing_comes(&mut local, Duration::from_millis(10));
    peer.write_all(b"x").unwrap();
    eventually(|| local.has_work());
    assert_eq!(local.submit().unwrap(), 1);
    let done: Completion = local.next_completion().unwrap();
    assert_eq!(done.result().unwrap(), 1);
    drop(done);
    assert!(!local.has_work());
}

pub fn an_empty_buffer_is_received_into_within_its_capacity(way: Loop) {
    let (mut local, (own, mut peer)) = (way.build(), connection(way));
    peer.write_all(b"something").unwrap();
    let done = run(&mut local, Operation::recv(&own, Vec::with_capacity(4)));
    assert_eq!(done.into_buffer().unwrap().into_vec().unwrap(), b"some");
    let buffers = vec![Vec::with_capacity(3).into(), Vec::with_capacity(64).into()];
    let done = run(&mut local, Operation::recv_vectored(&own, buffers));
    let bytes: Vec<_> =
        done.into_buffers().into_iter().map(|buffer| buffer.into_vec().unwrap()).collect();
    assert_eq!(bytes, [&b"thi"[..], b"ng"]);
    let (own, address) = udp_bind(way);
    PeerDatagrams::bind(way).send_to(b"datagram", &address);
    let done = run(&mut local, Operation::recv_from(&own, Vec::with_capacity(64)));
    assert_eq!(done.into_buffer().unwrap().into_vec().unwrap(), b"datagram");
}
