//! Sockets of a simulation: each fault and what it leaves alone, time, and a server under all of them.

use std::{
    collections::BTreeMap,
    io::{ErrorKind as StdKind, Read, Write},
    net::SocketAddr,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use futures::executor::block_on;
use ringwise::{
    BufResult, BufferGroup, Completion, Descriptor, Local, Opcode, Operation,
    net::{self, Address, KeepAlive, ListenOptions, TcpListener, TcpStream, UdpSocket},
    sim::{Fault, Outside, Simulation, When},
};

use crate::{SEEDS, count, local, rings::in_child, with};

const SECOND: Duration = Duration::from_secs(1);

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn errno(local: &mut Local, operation: Operation) -> i32 {
    local.run(operation).unwrap().result().unwrap_err().errno()
}

fn next(local: &mut Local) -> Completion {
    local.submit_and_wait(1).unwrap();
    local.next_completion().expect("one was waited for")
}

fn is_silent(local: &mut Local) -> bool {
    local.submit_and_wait_timeout(1, SECOND).unwrap() == 0
}

fn numbers(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// What the program has sent by now.
fn read_all(outside: &mut Outside) -> Vec<u8> {
    let mut got = Vec::new();
    let mut part = [0; 4096];
    loop {
        match outside.read(&mut part) {
            Ok(0) => return got,
            Ok(count) => got.extend_from_slice(&part[..count]),
            Err(error) => {
                assert_eq!(error.kind(), StdKind::WouldBlock);
                return got;
            }
        }
    }
}

#[test]
fn nothing_waits_for_what_is_outside() {
    let simulation = Simulation::new(1);
    assert_eq!(simulation.connect(any()).unwrap_err().kind(), StdKind::ConnectionRefused);
    let listener = simulation.listen_tcp(&any(), &ListenOptions::default()).unwrap();
    let address = net::local_address(&listener).unwrap();
    let full = simulation.listen_tcp(&address.ip().unwrap(), &ListenOptions::default());
    assert_eq!(full.unwrap_err().kind(), StdKind::AddrInUse);
    let mut outside = simulation.connect(&address).unwrap();
    assert_eq!(outside.read(&mut [0; 8]).unwrap_err().kind(), StdKind::WouldBlock);
    // A byte for each that fits, before anybody has accepted it.
    let mut sent = 0;
    while let Ok(count) = outside.write(&[1; 1000]) {
        sent += count;
    }
    assert!((100_000..1_000_000).contains(&sent), "{sent}");
    drop(listener);
    assert_eq!(outside.read(&mut [0; 8]).unwrap_err().kind(), StdKind::ConnectionReset);
}

/// Nobody tells the simulation of a descriptor that the program closes.
#[test]
fn an_outside_that_waits_notices_a_close() {
    let simulation = Simulation::new(1);
    let (own, mut outside) = simulation.connection().unwrap();
    outside.set_patience(Duration::from_secs(60));
    let start = Instant::now();
    let waits = std::thread::spawn(move || outside.read(&mut [0; 8]).unwrap());
    std::thread::sleep(Duration::from_millis(50));
    drop(own);
    assert_eq!(waits.join().unwrap(), 0);
    assert!(start.elapsed() < Duration::from_secs(20), "after {:?}", start.elapsed());
}

#[test]
fn a_full_backlog_keeps_the_next_waiting() {
    let simulation = Simulation::new(1);
    let mut local = local(&simulation);
    let options = ListenOptions::default().backlog(1);
    let listener = simulation.listen_tcp(&any(), &options).unwrap();
    let address = net::local_address(&listener).unwrap();
    let _first = simulation.connect(&address).unwrap();
    assert_eq!(simulation.connect(&address).unwrap_err().kind(), StdKind::WouldBlock);
    let client = simulation.stream_socket(&address).unwrap();
    local.push(Operation::connect(&client, &address), 1).unwrap();
    assert!(is_silent(&mut local));
    local.push(Operation::accept(&listener), 2).unwrap();
    let tags = [next(&mut local).tag(), next(&mut local).tag()];
    assert!(tags == [1, 2] || tags == [2, 1], "{tags:?}");
}

#[test]
fn receives_and_sends_are_short() {
    let (simulation, mut local) = with(Fault::ShortRead, When::nth(1).of(Opcode::Receive));
    simulation.inject(Fault::ShortWrite, When::nth(1).of(Opcode::Send));
    let (own, mut outside) = simulation.connection().unwrap();
    outside.write_all(&numbers(1000)).unwrap();
    let short = count(&mut local, Operation::recv(&own, vec![0; 600]));
    assert!((1..600).contains(&short), "{short}");
    let done = local.run(Operation::recv(&own, vec![0; 1000])).unwrap();
    assert_eq!(done.result().unwrap(), 1000 - short, "nothing was lost");
    let rest = done.into_buffer().unwrap().into_vec().unwrap();
    assert_eq!(rest[..1000 - short], numbers(1000)[short..]);
    // A send of all may be short too: an error comes in between.
    let short = count(&mut local, Operation::send_all(&own, numbers(1000)));
    assert!((1..1000).contains(&short), "{short}");
    assert_eq!(read_all(&mut outside), numbers(short));
    assert_eq!(count(&mut local, Operation::send_all(&own, numbers(1000))), 1000);
}

#[test]
fn what_is_interrupted_moved_nothing() {
    for (fault, expected) in [(Fault::Interrupted, libc::EINTR), (Fault::Again, libc::EAGAIN)] {
        let (simulation, mut local) = with(fault, When::nth(1).of(Opcode::Receive));
        simulation.inject(fault, When::nth(1).of(Opcode::Send));
        let (own, mut outside) = simulation.connection().unwrap();
        outside.write_all(b"x").unwrap();
        assert_eq!(errno(&mut local, Operation::recv(&own, vec![0; 8])), expected);
        assert_eq!(count(&mut local, Operation::recv(&own, vec![0; 8])), 1);
        assert_eq!(errno(&mut local, Operation::send(&own, b"x".to_vec())), expected);
        assert!(read_all(&mut outside).is_empty());
    }
}

#[test]
fn a_stream_that_ends_goes_on_by_itself() {
    let (simulation, mut local) = with(Fault::MultishotEnds, When::rate(0.5));
    let group = BufferGroup::new(&mut local, 4, 16).unwrap();
    let (own, mut outside) = simulation.connection().unwrap();
    local.push(Operation::recv_multi(&own, &group), 1).unwrap();
    let mut got = Vec::new();
    outside.write_all(&numbers(1000)).unwrap();
    while got.len() < 1000 {
        let done = next(&mut local);
        assert!(done.has_more(), "its user does not notice");
        got.extend_from_slice(&done.into_received().unwrap());
    }
    assert_eq!(got, numbers(1000));
    assert!(simulation.trace().contains("MultishotEnds"));
    let listener = simulation.listen_tcp(&any(), &ListenOptions::default()).unwrap();
    let address = net::local_address(&listener).unwrap();
    local.push(Operation::accept_multi(&listener), 2).unwrap();
    let outsiders: Vec<_> = (0..20).map(|_| simulation.connect(&address).unwrap()).collect();
    for _ in &outsiders {
        let done = next(&mut local);
        assert_eq!((done.tag(), done.has_more()), (2, true));
        done.into_descriptor().unwrap();
    }
}

#[test]
fn without_a_buffer_a_receive_waits_for_one() {
    let (simulation, mut local) = with(Fault::NoBuffers, When::nth(1));
    let group = BufferGroup::new(&mut local, 4, 16).unwrap();
    let (own, mut outside) = simulation.connection().unwrap();
    local.push(Operation::recv_multi(&own, &group), 1).unwrap();
    outside.write_all(b"first").unwrap();
    let lease = next(&mut local).into_received().unwrap();
    outside.write_all(b"second").unwrap();
    assert!(is_silent(&mut local), "the others are out, they say");
    assert!(simulation.trace().contains("NoBuffers"));
    drop(lease);
    let done = next(&mut local);
    assert_eq!(&*done.into_received().unwrap(), b"second");
    assert_eq!(group.available(), 4);
}

/// In a process of its own: any descriptor that closes in one may be what is waited for.
#[test]
fn without_a_descriptor_a_connection_waits() {
    in_child("network::without_a_descriptor_a_connection_waits", accept_without_a_descriptor);
}

fn accept_without_a_descriptor() {
    let (simulation, mut local) = with(Fault::NoDescriptors, When::nth(2));
    simulation.inject(Fault::ConnectionAborted, When::nth(2));
    let listener = simulation.listen_tcp(&any(), &ListenOptions::default()).unwrap();
    let address = net::local_address(&listener).unwrap();
    local.push(Operation::accept_multi(&listener), 1).unwrap();
    let mut outsiders: Vec<_> = (0..3).map(|_| simulation.connect(&address).unwrap()).collect();
    let first = next(&mut local).into_descriptor().unwrap();
    assert!(is_silent(&mut local));
    drop(first);
    // The second is gone before it is accepted, and nobody is told but its other end.
    let third = next(&mut local).into_descriptor().unwrap();
    assert_eq!(net::peer_address(&third).unwrap(), outsiders[2].local_address().unwrap());
    assert_eq!(outsiders[1].read(&mut [0]).unwrap_err().kind(), StdKind::ConnectionReset);
    // A single accept says it.
    simulation.inject(Fault::NoDescriptors, When::nth(1));
    let other = simulation.listen_tcp(&any(), &ListenOptions::default()).unwrap();
    let _waits = simulation.connect(net::local_address(&other).unwrap()).unwrap();
    assert_eq!(errno(&mut local, Operation::accept(&other)), libc::EMFILE);
    assert!(local.run(Operation::accept(&other)).unwrap().into_descriptor().is_ok());
}

#[test]
fn an_accept_that_is_refused_leaves_its_connection_where_it_is() {
    for (fault, wanted) in [
        (Fault::NoDescriptors, libc::EMFILE),
        (Fault::NoFiles, libc::ENFILE),
        (Fault::NoMemory, libc::ENOMEM),
        (Fault::NoSocketMemory, libc::ENOBUFS),
        (Fault::Forbidden, libc::EPERM),
    ] {
        let (simulation, mut local) = with(fault, When::nth(1));
        let listener = simulation.listen_tcp(&any(), &ListenOptions::default()).unwrap();
        let outside = simulation.connect(net::local_address(&listener).unwrap()).unwrap();
        assert_eq!(errno(&mut local, Operation::accept(&listener)), wanted, "{fault:?}");
        let accepted = local.run(Operation::accept(&listener)).unwrap().into_descriptor().unwrap();
        assert_eq!(net::peer_address(&accepted).unwrap(), outside.local_address().unwrap());
    }
    // One that goes on is not told of what concerns one connection.
    let (simulation, mut local) = with(Fault::ConnectionAborted, When::nth(1));
    let listener = simulation.listen_tcp(&any(), &ListenOptions::default()).unwrap();
    local.push(Operation::accept_multi(&listener), 1).unwrap();
    let _outside = [(); 2].map(|()| simulation.connect(net::local_address(&listener).unwrap()));
    assert!(next(&mut local).into_descriptor().is_ok());
    assert!(simulation.trace().contains("ConnectionAborted"));
    // A rule that forbids one may forbid all: the loop would ask for ever.
    let (simulation, mut local) = with(Fault::Forbidden, When::always());
    let listener = simulation.listen_tcp(&any(), &ListenOptions::default()).unwrap();
    local.push(Operation::accept_multi(&listener), 1).unwrap();
    let _outside = simulation.connect(net::local_address(&listener).unwrap()).unwrap();
    let done = next(&mut local);
    assert_eq!((done.result().unwrap_err().errno(), done.has_more()), (libc::EPERM, false));
}

/// A process that is started meanwhile has every descriptor until its program begins, and none of it counts.
#[test]
fn a_child_process_keeps_nothing_open() {
    use std::os::unix::process::CommandExt;
    let simulation = Simulation::new(1);
    let mut local = local(&simulation);
    let listener = simulation.listen_tcp(&any(), &ListenOptions::default()).unwrap();
    let address = net::local_address(&listener).unwrap();
    let mut waits = simulation.connect(&address).unwrap();
    let (own, mut outside) = simulation.connection().unwrap();
    let (kept, mut other) = simulation.connection().unwrap();
    let duplicate = kept.as_fd().try_clone_to_owned().unwrap();
    let (mut told, mut tells) = std::io::pipe().unwrap();
    let (mut begun, mut begins) = std::io::pipe().unwrap();
    let child = std::thread::spawn(move || {
        let mut command = std::process::Command::new("true");
        // SAFETY: the child reads and writes a byte, and allocates nothing.
        let command = unsafe {
            command.pre_exec(move || {
                begins.write_all(b"x")?;
                told.read_exact(&mut [0])
            })
        };
        command.status().unwrap()
    });
    begun.read_exact(&mut [0]).unwrap();
    // The child has them all.
    drop((listener, own, kept));
    let ends = [waits.read(&mut [0; 8]), outside.read(&mut [0; 8]), other.read(&mut [0; 8])];
    let again = simulation.listen_tcp(&address.ip().unwrap(), &ListenOptions::default());
    // More than the child keeps in the set of what is open.
    let opened: Vec<_> = (0..200).map(|_| simulation.connection().unwrap()).collect();
    let sent: Vec<_> = opened
        .iter()
        .map(|(own, _)| local.run(Operation::send(own, b"x".to_vec())).unwrap().result())
        .collect();
    tells.write_all(b"x").unwrap();
    assert!(child.join().unwrap().success());

    let [waits, outside, with_duplicate] = ends.map(|read| read.map_err(|error| error.kind()));
    assert_eq!(waits, Err(StdKind::ConnectionReset));
    assert_eq!(outside, Ok(0));
    assert!(again.is_ok());
    // A duplicate in this process is one of its descriptors.
    assert_eq!(with_duplicate, Err(StdKind::WouldBlock));
    assert_eq!(count(&mut local, Operation::send(Descriptor::from(duplicate), b"x".to_vec())), 1);
    assert_eq!(read_all(&mut other), b"x");
    assert_eq!(other.read(&mut [0; 8]).unwrap(), 0);
    // What was opened meanwhile is open.
    for ((_, outside), sent) in opened.iter().zip(sent) {
        assert_eq!(sent.unwrap(), 1);
        let mut outside = outside;
        assert_eq!(outside.read(&mut [0; 8]).unwrap(), 1);
    }
}

#[test]
fn a_reset_is_told_once() {
    let (simulation, mut local) = with(Fault::Reset, When::nth(2).of(Opcode::Receive));
    let (own, mut outside) = simulation.connection().unwrap();
    outside.write_all(b"before").unwrap();
    assert_eq!(count(&mut local, Operation::recv(&own, vec![0; 8])), 6);
    assert_eq!(errno(&mut local, Operation::recv(&own, vec![0; 8])), libc::ECONNRESET);
    assert_eq!(count(&mut local, Operation::recv(&own, vec![0; 8])), 0);
    assert_eq!(errno(&mut local, Operation::send(&own, b"x".to_vec())), libc::EPIPE);
    assert_eq!(outside.read(&mut [0]).unwrap_err().kind(), StdKind::ConnectionReset);
}

#[test]
fn a_fault_makes_the_other_end_vanish() {
    let (simulation, mut local) = with(Fault::PeerVanishes, When::nth(2).of(Opcode::Send));
    let (own, mut outside) = simulation.connection().unwrap();
    assert_eq!(count(&mut local, Operation::send(&own, b"heard".to_vec())), 5);
    assert_eq!(count(&mut local, Operation::send(&own, b"lost".to_vec())), 4);
    assert_eq!(read_all(&mut outside), b"heard");
    drop(outside);
    let end = errno(&mut local, Operation::recv(&own, vec![0; 8]));
    assert_eq!((end, simulation.elapsed().as_secs()), (libc::ETIMEDOUT, 924));
    // A full socket keeps a send waiting until then.
    let (own, outside) = simulation.connection().unwrap();
    outside.vanish();
    let done = local.run(Operation::send_all(&own, vec![0; 1 << 20])).unwrap();
    assert!(done.result().unwrap() < 1 << 20, "what was taken is told");
    assert_eq!(errno(&mut local, Operation::send(&own, b"x".to_vec())), libc::EPIPE);
}

/// What was taken by a socket whose other end has closed is lost, and that is told afterwards.
#[test]
fn a_send_to_nobody_succeeds_once() {
    let simulation = Simulation::new(1);
    let mut local = local(&simulation);
    let (own, outside) = simulation.connection().unwrap();
    drop(outside);
    assert_eq!(count(&mut local, Operation::recv(&own, vec![0; 8])), 0);
    assert_eq!(count(&mut local, Operation::send(&own, b"lost".to_vec())), 4);
    assert_eq!(errno(&mut local, Operation::send(&own, b"x".to_vec())), libc::ECONNRESET);
    assert_eq!(errno(&mut local, Operation::send(&own, b"x".to_vec())), libc::EPIPE);
}

/// Keepalive and the user's timeout end a silence, each at its time.
#[test]
fn a_peer_that_vanishes_is_found_out_by_time() {
    let keepalive = KeepAlive { idle: 10 * SECOND, interval: SECOND, count: 5 };
    type Set = fn(&Descriptor, KeepAlive);
    let ways: [(Set, bool, u64); 4] = [
        (|own, keepalive| net::set_keepalive(own, Some(keepalive)).unwrap(), false, 15),
        (|own, _| net::set_user_timeout(own, 7 * SECOND).unwrap(), true, 7),
        (|_, _| {}, true, 924),
        // Nothing was sent, and nobody asks: for ever.
        (|own, _| net::set_user_timeout(own, 7 * SECOND).unwrap(), false, u64::MAX),
    ];
    for (set, sends, expected) in ways {
        let simulation = Simulation::new(1);
        let mut local = local(&simulation);
        let (own, outside) = simulation.connection().unwrap();
        set(&own, keepalive);
        outside.vanish();
        if sends {
            assert_eq!(count(&mut local, Operation::send(&own, b"anybody?".to_vec())), 8);
        }
        local.push(Operation::recv(&own, vec![0; 8]), 1).unwrap();
        if expected == u64::MAX {
            assert_eq!(local.submit_and_wait_timeout(1, 10_000 * SECOND).unwrap(), 0);
            continue;
        }
        let error = next(&mut local).result().unwrap_err();
        assert_eq!(error.errno(), libc::ETIMEDOUT);
        assert_eq!(simulation.elapsed().as_secs(), expected);
    }
}

#[test]
fn a_late_cancel_leaves_a_receive_where_it_is() {
    let (simulation, mut local) = with(Fault::CancelLate, When::nth(1));
    let (own, mut outside) = simulation.connection().unwrap();
    let ticket = local.push(Operation::recv(&own, vec![0; 8]), 1).unwrap();
    local.submit().unwrap();
    assert_eq!(errno(&mut local, Operation::cancel(ticket)), libc::EALREADY);
    outside.write_all(b"x").unwrap();
    assert_eq!(next(&mut local).result().unwrap(), 1);
}

#[test]
fn a_crash_takes_the_connections() {
    let simulation = Simulation::new(1);
    let mut local = local(&simulation);
    let (own, mut outside) = simulation.connection().unwrap();
    local.push(Operation::recv(&own, vec![0; 8]), 1).unwrap();
    local.submit().unwrap();
    simulation.crash();
    assert_eq!(next(&mut local).result().unwrap_err().errno(), libc::EIO);
    assert_eq!(errno(&mut local, Operation::send(&own, b"x".to_vec())), libc::EIO);
    assert_eq!(outside.read(&mut [0]).unwrap_err().kind(), StdKind::ConnectionReset);
}

#[test]
fn a_descriptor_that_is_taken_out_closes_its_end_too() {
    let simulation = Simulation::new(1);
    let mut local = local(&simulation);
    let (own, mut outside) = simulation.connection().unwrap();
    assert_eq!(count(&mut local, Operation::send(&own, b"x".to_vec())), 1);
    let second = own.clone();
    drop(own);
    assert_eq!(read_all(&mut outside), b"x");
    assert_eq!(outside.read(&mut [0]).unwrap_err().kind(), StdKind::WouldBlock, "a clone has it");
    drop(second.into_owned().unwrap());
    assert_eq!(outside.read(&mut [0]).unwrap(), 0);
    let (own, mut outside) = simulation.connection().unwrap();
    local.run(Operation::close(own)).unwrap().result().unwrap();
    assert_eq!(outside.read(&mut [0]).unwrap(), 0);
}

/// A datagram to nobody is lost, and so is what the receiver has no room for.
#[test]
fn datagrams_are_lost() {
    let simulation = Simulation::new(1);
    let mut local = local(&simulation);
    let own = simulation.udp_bind(&any()).unwrap();
    let to = net::local_address(&own).unwrap();
    let outside = simulation.datagrams_outside(&any()).unwrap();
    let nobody: SocketAddr = "127.0.0.1:9".parse().unwrap();
    assert_eq!(outside.send_to(b"lost", nobody).unwrap(), 4);
    for number in 0..300_u32 {
        outside.send_to(&number.to_ne_bytes(), &to).unwrap();
    }
    let mut got = 0;
    local.push(Operation::recv_from(&own, vec![0; 8]), 0).unwrap();
    while local.submit_and_wait_timeout(1, SECOND).unwrap() > 0 {
        drop(local.next_completion().unwrap());
        got += 1;
        local.push(Operation::recv_from(&own, vec![0; 8]), 0).unwrap();
    }
    assert_eq!(got, 256);
    assert_eq!(errno(&mut local, Operation::send_to(&own, vec![0; 70_000], &to)), libc::EMSGSIZE);
}

/// The types of `net` on a ring that is simulated are on its network.
#[test]
fn a_rings_sockets_are_simulated() {
    let simulation = Simulation::new(1);
    let ring = Local::builder().simulation(&simulation).build_ring().unwrap();
    block_on(async {
        let listener = TcpListener::bind(&ring, &any(), &ListenOptions::default()).unwrap();
        let address = listener.local_address().unwrap();
        let mut outside = simulation.connect(address).unwrap();
        outside.write_all(b"from outside").unwrap();
        let (server, from) = listener.accept().await.unwrap();
        assert_eq!(Address::Ip(from), outside.local_address().unwrap());
        let BufResult(count, bytes) = server.recv(vec![0; 64]).await;
        assert_eq!(&bytes[..count.unwrap()], b"from outside");
        server.send_all(b"answer".to_vec()).await.0.unwrap();
        server.shutdown(net::Shutdown::Write).await.unwrap();
        assert_eq!(read_all(&mut outside), b"answer");
        // A receive that waits sees what another thread brings.
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            outside.write_all(b"late").unwrap();
            outside
        });
        assert_eq!(server.recv(vec![0; 64]).await.0.unwrap(), 4);
        drop(other.join().unwrap());

        let theirs = simulation.listen_outside(any()).unwrap();
        let to = theirs.local_address().unwrap().ip().unwrap();
        let client = TcpStream::connect(&ring, to).await.unwrap();
        client.send_all(b"hello".to_vec()).await.0.unwrap();
        assert_eq!(read_all(&mut theirs.accept().unwrap()), b"hello");

        let datagrams = UdpSocket::bind(&ring, &any()).unwrap();
        let peer = simulation.datagrams_outside(&any()).unwrap();
        peer.send_to(b"datagram", datagrams.local_address().unwrap()).unwrap();
        assert_eq!(datagrams.recv(vec![0; 64]).await.0.unwrap(), 8);
    });
}

/// An echo server as a user writes one: what it received is sent, all of it, in order; one that is
/// broken is dropped. Written against what the library promises, so that any fault it does not expect
/// shows as bytes that differ or a run that does not end.
struct Echo {
    local: Local,
    group: BufferGroup,
    connections: BTreeMap<u64, Connection>,
    accepted: u64,
}

struct Connection {
    socket: Descriptor,
    unsent: Vec<u8>,
    sends: bool,
    has_ended: bool,
}

const ACCEPT: u64 = u64::MAX;
const SEND: u64 = 1 << 32;

impl Echo {
    fn take(&mut self, done: Completion) {
        let (tag, result, more) = (done.tag(), done.result(), done.has_more());
        if tag == ACCEPT {
            let socket = done.into_descriptor().expect("single connections do not end it");
            let number = self.accepted;
            self.accepted += 1;
            self.local.push(Operation::recv_multi(&socket, &self.group), number).unwrap();
            let connection =
                Connection { socket, unsent: Vec::new(), sends: false, has_ended: false };
            self.connections.insert(number, connection);
            return;
        }
        let Some(connection) = self.connections.get_mut(&(tag & !SEND)) else { return };
        let errno = result.as_ref().err().map(ringwise::Error::errno);
        if tag & SEND != 0 {
            connection.sends = false;
            match errno {
                None => drop(connection.unsent.drain(..result.unwrap())),
                Some(libc::EINTR | libc::EAGAIN) => {}
                Some(_) => connection.has_ended = true,
            }
        } else {
            connection.has_ended |= !more;
            if let Some(received) = done.into_received() {
                connection.unsent.extend_from_slice(&received);
            }
        }
        let is_broken = errno.is_some_and(|errno| errno != libc::EINTR && errno != libc::EAGAIN);
        if !connection.unsent.is_empty() && !connection.sends && !is_broken {
            connection.sends = true;
            let send = Operation::send_all(&connection.socket, connection.unsent.clone());
            self.local.push(send, tag | SEND).unwrap();
        } else if is_broken || (connection.has_ended && !connection.sends) {
            // A receive that is still in flight holds the socket; a shutdown ends it.
            let _ = net::shutdown(&connection.socket, net::Shutdown::Both);
            self.connections.remove(&(tag & !SEND));
        }
    }

    fn turn(&mut self) {
        while self.local.submit_and_wait_timeout(1, SECOND).is_err() {}
        while let Some(done) = self.local.next_completion() {
            self.take(done);
        }
    }
}

/// Clients that send and read in pieces; what comes back is what was sent, up to where the connection
/// broke, if it did. Gives the trace and how many were served to their end.
fn serve(seed: u64) -> (String, usize) {
    let mut builder = Simulation::builder(seed);
    for fault in [
        Fault::Delay,
        Fault::ShortRead,
        Fault::ShortWrite,
        Fault::Interrupted,
        Fault::Again,
        Fault::MultishotEnds,
        Fault::NoBuffers,
        Fault::ConnectionAborted,
        Fault::PartialSubmit,
        Fault::SubmitRefused,
    ] {
        builder = builder.fault(fault, When::rate(0.1));
    }
    let simulation = builder.fault(Fault::Reset, When::rate(0.002)).build();
    let mut local = local(&simulation);
    let group = BufferGroup::new(&mut local, 4, 64).unwrap();
    let listener = simulation.listen_tcp(&any(), &ListenOptions::default()).unwrap();
    let address = net::local_address(&listener).unwrap();
    local.push(Operation::accept_multi(&listener), ACCEPT).unwrap();
    let mut echo = Echo { local, group, connections: BTreeMap::new(), accepted: 0 };

    let sent = numbers(2000);
    let mut clients: Vec<(Outside, usize, Vec<u8>, bool)> =
        (0..6).map(|_| (simulation.connect(&address).unwrap(), 0, Vec::new(), false)).collect();
    let mut turns = 0;
    while !clients.iter().all(|(.., is_over)| *is_over) {
        turns += 1;
        assert!(turns < 20_000, "seed {seed}: it does not end\n{}", simulation.trace());
        for (outside, at, got, is_over) in &mut clients {
            let to = sent.len().min(*at + 100);
            match outside.write(&sent[*at..to]) {
                Ok(count) => *at += count,
                Err(error) => *is_over |= error.kind() != StdKind::WouldBlock,
            }
            let mut part = [0; 256];
            match outside.read(&mut part) {
                Ok(0) => *is_over = true,
                Ok(count) => got.extend_from_slice(&part[..count]),
                Err(error) => *is_over |= error.kind() != StdKind::WouldBlock,
            }
            *is_over |= got.len() == sent.len();
        }
        echo.turn();
    }
    for (_, _, got, _) in &clients {
        assert_eq!(got[..], sent[..got.len()], "seed {seed}");
    }
    let whole = clients.iter().filter(|(_, _, got, _)| got.len() == sent.len()).count();
    drop(clients);
    simulation.heal();
    while echo.local.in_flight() > 1 {
        echo.turn();
    }
    assert_eq!(echo.group.available(), 4, "seed {seed}: buffers come back");
    (simulation.trace(), whole)
}

#[test]
fn a_server_stands_what_goes_wrong() {
    let whole: usize = (0..SEEDS).map(|seed| serve(seed).1).sum();
    assert!(whole as u64 > SEEDS, "{whole} of {} connections were served to their end", 6 * SEEDS);
    assert_eq!(serve(3).0, serve(3).0, "the same seed does the same");
    assert_ne!(serve(3).0, serve(4).0);
}
