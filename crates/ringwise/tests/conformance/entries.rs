//! Every operation through every entry point: what can be made must come back, and what an entry does
//! not take must be refused with the operation in hand. The operations are looked up by the list of
//! opcodes, so that a new one without an example fails here.

use std::{io::Write, os::fd::OwnedFd, path::PathBuf, time::Duration};

use futures::{executor::block_on, future::join_all};
use ringwise::{
    AllocateMode, Buffer, BufferGroup, Completion, Descriptor, ErrorKind, Local, Opcode,
    OpenOptions, Operation, PushRefusal, Ring, Ticket,
};

use crate::{
    disk::Disk,
    loops::Loop,
    peers::{Peer, PeerDatagrams, connect, connection, listen, stream_socket, udp_bind},
};

/// What an operation works on, made anew for each. Fields keep the other ends open.
struct Scene {
    way: Loop,
    disk: Disk,
    peers: Vec<Peer>,
    datagrams: Vec<PeerDatagrams>,
    /// A ticket that names nothing in flight.
    ticket: Ticket,
}

/// How an operation ends, by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With one success.
    Success,
    /// There is nothing to be cancelled.
    NothingToCancel,
    /// With several completions, or none: only a push takes it.
    Several,
    /// With one success, and no chain takes it.
    SuccessAlone,
}

type Make = fn(&mut Scene, Option<&mut Local>) -> Option<Operation>;

impl Scene {
    fn new(way: Loop) -> Scene {
        // Of another loop, so it names nothing in this one, whichever way that is.
        let mut local = Loop::Classic.build();
        let ticket = local.push(Operation::nop(), 0).unwrap();
        local.submit_and_wait(1).unwrap();
        while local.next_completion().is_some() {}
        Scene { way, disk: way.disk(), peers: Vec::new(), datagrams: Vec::new(), ticket }
    }

    fn file(&self) -> Descriptor {
        let path = self.disk.counted_file(4096);
        self.disk.open_with(path, OpenOptions::new().read(true).write(true))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.disk.path().join(name)
    }

    /// A socket with something to be received.
    fn socket(&mut self) -> Descriptor {
        let (own, mut peer) = connection(self.way);
        peer.write_all(b"something").unwrap();
        self.peers.push(peer);
        own
    }

    /// A listener with a connection that waits.
    fn listener(&mut self) -> Descriptor {
        let (listener, address) = listen(self.way);
        self.peers.push(connect(self.way, address).unwrap());
        listener
    }

    /// A datagram socket with something to be received.
    fn datagram_socket(&mut self) -> Descriptor {
        let (own, address) = udp_bind(self.way);
        let peer = PeerDatagrams::bind(self.way);
        peer.send_to(b"something", &address);
        self.datagrams.push(peer);
        own
    }
}

/// At least one example of every opcode.
const EXAMPLES: &[(Opcode, End, Make)] = &[
    (Opcode::Nop, End::Success, |_, _| Some(Operation::nop())),
    (Opcode::Read, End::Success, |scene, _| Some(Operation::read_at(scene.file(), buffer(), 0))),
    (Opcode::Read, End::Success, |scene, _| {
        Some(Operation::read_at(scene.socket(), vec![0; 9], 0))
    }),
    (Opcode::Write, End::Success, |scene, _| Some(Operation::write_at(scene.file(), buffer(), 0))),
    (Opcode::Write, End::Success, |scene, _| {
        Some(Operation::write_at(scene.socket(), buffer(), 0))
    }),
    (Opcode::ReadVectored, End::Success, |scene, _| {
        Some(Operation::read_vectored_at(scene.file(), buffers(), 0))
    }),
    (Opcode::WriteVectored, End::Success, |scene, _| {
        Some(Operation::write_vectored_at(scene.file(), buffers(), 0))
    }),
    (Opcode::Sync, End::Success, |scene, _| Some(Operation::sync_all(scene.file()))),
    (Opcode::Sync, End::Success, |scene, _| Some(Operation::sync_data(scene.file()))),
    (Opcode::Open, End::Success, |scene, _| {
        Some(Operation::open(scene.disk.counted_file(1), OpenOptions::new().read(true)))
    }),
    (Opcode::Open, End::SuccessAlone, |scene, _| {
        let path = scene.disk.counted_file(1);
        Some(Operation::open_registered(path, OpenOptions::new().read(true)))
    }),
    (Opcode::Statx, End::Success, |scene, _| Some(Operation::statx(scene.disk.path()))),
    (Opcode::Allocate, End::Success, |scene, _| {
        Some(Operation::allocate(scene.file(), AllocateMode::Extend, 0, 8192))
    }),
    (Opcode::SetLen, End::Success, |scene, _| Some(Operation::set_len(scene.file(), 100))),
    (Opcode::Close, End::SuccessAlone, |scene, _| Some(Operation::close(scene.file()))),
    (Opcode::Unlink, End::Success, |scene, _| Some(Operation::unlink(scene.disk.counted_file(1)))),
    (Opcode::CreateDirectory, End::Success, |scene, _| {
        Some(Operation::create_dir(scene.path("directory"), 0o700))
    }),
    (Opcode::Rename, End::Success, |scene, _| {
        Some(Operation::rename(scene.disk.counted_file(1), scene.path("renamed")))
    }),
    (Opcode::Link, End::Success, |scene, _| {
        Some(Operation::link(scene.disk.counted_file(1), scene.path("linked")))
    }),
    (Opcode::Symlink, End::Success, |scene, _| {
        Some(Operation::symlink("nowhere", scene.path("link")))
    }),
    (Opcode::ReadLink, End::Success, |scene, _| {
        scene.disk.symlink("nowhere".as_ref(), &scene.path("link"));
        Some(Operation::read_link(scene.path("link")))
    }),
    (Opcode::SetMode, End::Success, |scene, _| {
        Some(Operation::set_mode(scene.disk.counted_file(1), 0o600))
    }),
    (Opcode::SetMode, End::Success, |scene, _| {
        Some(Operation::set_mode_descriptor(&scene.file(), 0o600))
    }),
    (Opcode::ReadDirectory, End::Success, |scene, _| {
        Some(Operation::read_directory(&scene.disk.open(scene.disk.path()), vec![0; 1024]))
    }),
    (Opcode::Timeout, End::Success, |_, _| Some(Operation::timeout(Duration::from_millis(1)))),
    (Opcode::Cancel, End::NothingToCancel, |scene, _| Some(Operation::cancel(scene.ticket))),
    (Opcode::Accept, End::Success, |scene, _| Some(Operation::accept(scene.listener()))),
    (Opcode::AcceptMulti, End::Several, |scene, _| Some(Operation::accept_multi(scene.listener()))),
    (Opcode::Connect, End::Success, |scene, _| {
        let (listener, address) = listen(scene.way);
        // The other end is taken by nobody, and goes with the test.
        std::mem::forget(listener);
        let socket = stream_socket(scene.way, &address.into());
        Some(Operation::connect(socket, address))
    }),
    (Opcode::Receive, End::Success, |scene, _| Some(Operation::recv(scene.socket(), vec![0; 9]))),
    (Opcode::ReceiveMulti, End::Several, |scene, local| {
        let group = BufferGroup::new(local?, 2, 64).unwrap();
        Some(Operation::recv_multi(scene.socket(), &group))
    }),
    (Opcode::ReceiveMessage, End::Success, |scene, _| {
        Some(Operation::recv_from(scene.datagram_socket(), vec![0; 64]))
    }),
    (Opcode::ReceiveMessage, End::Success, |scene, _| {
        Some(Operation::recv_vectored(scene.datagram_socket(), vec![vec![0; 9].into()]))
    }),
    (Opcode::Send, End::Success, |scene, _| Some(Operation::send(scene.socket(), buffer()))),
    (Opcode::Send, End::Success, |scene, _| Some(Operation::send_all(scene.socket(), buffer()))),
    (Opcode::Send, End::Several, |scene, _| Some(Operation::send_quiet(scene.socket(), buffer()))),
    // A loop may give its completion in two results; a caller sees one.
    (Opcode::SendZeroCopy, End::SuccessAlone, |scene, _| {
        Some(Operation::send_zero_copy(scene.socket(), buffer()))
    }),
    (Opcode::SendMessage, End::Success, |scene, _| {
        Some(Operation::send_vectored(scene.socket(), buffers()))
    }),
    (Opcode::SendMessage, End::Success, |scene, _| {
        Some(Operation::send_all_vectored(scene.socket(), buffers()))
    }),
    (Opcode::SendMessage, End::Success, |scene, _| {
        let peer = PeerDatagrams::bind(scene.way);
        let address = peer.address();
        scene.datagrams.push(peer);
        let (own, _) = udp_bind(scene.way);
        Some(Operation::send_to(own, buffer(), address))
    }),
];

fn buffer() -> Vec<u8> {
    vec![7; 9]
}

fn buffers() -> Vec<Buffer> {
    vec![buffer().into(), buffer().into()]
}

/// Holds what came of an operation against what it is to come to.
fn judge(end: End, done: &Completion, what: &str) {
    let result = done.result();
    match end {
        End::NothingToCancel => {
            let kind = result.unwrap_err().kind();
            assert_eq!(kind, ErrorKind::NothingToCancel, "{what}");
        }
        End::Success | End::SuccessAlone | End::Several => {
            result.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
}

/// Takes so many completions, or fails.
fn take(local: &mut Local, count: usize, what: &str) -> Vec<Completion> {
    let mut taken = Vec::new();
    for _ in 0..1000 {
        taken.extend(std::iter::from_fn(|| local.next_completion()));
        if taken.len() >= count {
            taken.sort_by_key(Completion::tag);
            return taken;
        }
        local.submit_and_wait_timeout(1, Duration::from_millis(20)).unwrap();
    }
    panic!("{what}: {} of {count} completions came", taken.len());
}

pub fn every_opcode_has_an_example(_: Loop) {
    for opcode in Opcode::ALL {
        assert!(EXAMPLES.iter().any(|(example, ..)| *example == opcode), "none for {opcode:?}");
    }
    for (opcode, _, make) in EXAMPLES {
        let mut local = Loop::Classic.build();
        let mut scene = Scene::new(Loop::Classic);
        assert_eq!(make(&mut scene, Some(&mut local)).unwrap().opcode(), *opcode);
    }
}

fn loop_of(way: Loop) -> Local {
    way.builder().registered_files(4).build().unwrap()
}

pub fn every_operation_is_pushed(way: Loop) {
    for (at, (opcode, end, make)) in EXAMPLES.iter().enumerate() {
        let what = format!("push of {opcode:?}, example {at}");
        let (mut local, mut scene) = (loop_of(way), Scene::new(way));
        let operation = make(&mut scene, Some(&mut local)).unwrap();
        let is_silent = operation.opcode() == Opcode::Send && *end == End::Several;
        local.push(operation, 1).unwrap_or_else(|refused| panic!("{what}: {refused}"));
        if is_silent {
            local.submit().unwrap();
            assert!(local.next_completion().is_none(), "{what}");
            continue;
        }
        let taken = take(&mut local, 1, &what);
        judge(*end, &taken[0], &what);
    }
}

pub fn every_operation_is_run(way: Loop) {
    for (at, (opcode, end, make)) in EXAMPLES.iter().enumerate() {
        let what = format!("run of {opcode:?}, example {at}");
        let (mut local, mut scene) = (loop_of(way), Scene::new(way));
        let operation = make(&mut scene, Some(&mut local)).unwrap();
        match (end, local.run(operation)) {
            (End::Several, done) => {
                assert_eq!(done.unwrap_err().errno(), libc::EINVAL, "{what}");
            }
            (_, done) => judge(*end, &done.unwrap(), &what),
        }
    }
}

/// Alone, first, last and in the middle.
pub fn every_operation_is_linked(way: Loop) {
    for (at, (opcode, end, make)) in EXAMPLES.iter().enumerate() {
        for (before, after) in [(0, 0), (0, 1), (1, 0), (2, 2)] {
            let what = format!("{opcode:?}, example {at}, after {before}, before {after}");
            let (mut local, mut scene) = (loop_of(way), Scene::new(way));
            let operation = make(&mut scene, Some(&mut local)).unwrap();
            let mut chain: Vec<_> = (0..before).map(|at| (Operation::nop(), at)).collect();
            chain.push((operation, before));
            chain.extend((0..after).map(|at| (Operation::nop(), before + 1 + at)));
            let count = chain.len();
            let linked = local.push_linked(chain);
            if matches!(end, End::Several | End::SuccessAlone) {
                let refused = linked.unwrap_err();
                assert_eq!(refused.operations.len(), count, "{what}");
                let PushRefusal::Rejected(error) = refused.reason else { panic!("{what}") };
                assert_eq!(error.errno(), libc::EOPNOTSUPP, "{what}");
                assert_eq!(local.in_flight(), 0, "{what}");
                continue;
            }
            linked.unwrap_or_else(|refused| panic!("{what}: {:?}", refused.reason));
            let taken = take(&mut local, count, &what);
            judge(*end, &taken[before as usize], &what);
            for (place, done) in taken.iter().enumerate() {
                let kind = done.result().err().map(|error| error.kind());
                let is_behind = *end == End::NothingToCancel && place > before as usize;
                let expected = is_behind.then_some(ErrorKind::Cancelled);
                assert!(place == before as usize || kind == expected, "{what}: {kind:?}");
            }
        }
    }
}

/// Through a ring with a driver of its own, and through one that a runtime drives.
pub fn every_operation_is_submitted(way: Loop) {
    submit_all_ways(
        way,
        &way.builder().registered_files(4).driver_thread(true).build_ring().unwrap(),
    );
    #[cfg(feature = "tokio")]
    {
        let mut settings = tokio::runtime::Builder::new_multi_thread();
        let runtime = settings.worker_threads(1).enable_all().build().unwrap();
        let context = runtime.enter();
        let ring = way.builder().registered_files(4).build_ring().unwrap();
        drop(context);
        submit_all_ways(way, &ring);
    }
}

fn submit_all_ways(way: Loop, ring: &Ring) {
    for (at, (opcode, end, make)) in EXAMPLES.iter().enumerate() {
        for entry in ["submit", "submit_all", "submit_linked"] {
            let what = format!("{entry} of {opcode:?}, example {at}");
            let mut scene = Scene::new(way);
            // A group of buffers belongs to the ring's own loop.
            let operation = match make(&mut scene, None) {
                Some(operation) => operation,
                None => {
                    let group = block_on(ring.buffer_group(2, 64)).unwrap();
                    Operation::recv_multi(scene.socket(), &group)
                }
            };
            let around = [Operation::nop(), operation, Operation::nop()];
            let done = block_on(async {
                match entry {
                    "submit" => join_all(around.map(|operation| ring.submit(operation))).await,
                    "submit_all" => join_all(ring.submit_all(around)).await,
                    _ => join_all(ring.submit_linked(around)).await,
                }
            });
            let is_refused =
                *end == End::Several || (*end == End::SuccessAlone && entry == "submit_linked");
            if is_refused {
                let error = done[1].result().unwrap_err();
                assert_eq!(error.errno(), libc::EOPNOTSUPP, "{what}");
            } else {
                judge(*end, &done[1], &what);
            }
            for neighbour in [&done[0], &done[2]].into_iter().filter(|_| entry != "submit_linked") {
                neighbour.result().unwrap_or_else(|error| panic!("{what}: {error}"));
            }
        }
    }
}

/// A socket that was made by the standard library is one like others in a chain.
pub fn a_chain_over_a_socket_is_made_in_order(way: Loop) {
    let (mut local, (own, peer)) = (way.build(), connection(way));
    let reply: OwnedFd = match peer {
        Peer::Tcp(peer) => peer.into(),
        // Nothing in a simulation has a number of the kernel's.
        Peer::Unix(_) | Peer::Simulated(_) => return,
    };
    let reply = Descriptor::from(reply);
    let chain = vec![
        (Operation::send_all(&own, b"question".to_vec()), 0),
        (Operation::recv(&reply, vec![0; 8]), 1),
        (Operation::send_all(&reply, b"answer".to_vec()), 2),
        (Operation::recv(&own, vec![0; 6]), 3),
    ];
    local.push_linked(chain).unwrap();
    let taken = take(&mut local, 4, "the chain");
    let moved: Vec<usize> = taken.iter().map(|done| done.result().unwrap()).collect();
    assert_eq!(moved, [8, 8, 6, 6]);
    let mut buffers = taken.into_iter().filter_map(Completion::into_buffer);
    assert_eq!(buffers.nth(3).unwrap().as_slice(), b"answer");
}
