//! A receive may end before the socket is empty: at descriptors that were sent with what comes next,
//! and at the mark of urgent data. What lies behind comes all the same. (Simulated sockets have
//! neither.)

use std::{
    io::{IoSlice, Write},
    net::{TcpListener, TcpStream},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use ringwise::{BufferGroup, Descriptor, Local, Operation};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};

use crate::loops::Loop;

/// Receives while `send` sends; gives all that came within the time that none should need.
fn received(way: Loop, own: impl Into<OwnedFd>, is_multi: bool, send: impl FnOnce()) -> Vec<u8> {
    let mut local = way.build();
    let own = Descriptor::from(own.into());
    let group = BufferGroup::new(&mut local, 8, 64).unwrap();
    let receive = |local: &mut Local| {
        let one = || Operation::recv(&own, vec![0; 64]);
        let operation = if is_multi { Operation::recv_multi(&own, &group) } else { one() };
        local.push(operation, 1).unwrap();
    };
    receive(&mut local);
    assert_eq!(local.submit().unwrap(), 0);
    send();
    let mut all = Vec::new();
    while all.len() < 4 {
        if local.submit_and_wait_timeout(1, Duration::from_secs(5)).unwrap() == 0 {
            return all;
        }
        let done = local.next_completion().unwrap();
        let len = done.result().unwrap();
        if is_multi {
            all.extend_from_slice(&done.into_received().unwrap());
        } else {
            all.extend_from_slice(&done.into_buffer().unwrap().as_slice()[..len]);
            receive(&mut local);
        }
    }
    all
}

pub fn what_lies_behind_descriptors_is_received(way: Loop) {
    if way.is_simulated() {
        return;
    }
    for is_multi in [false, true] {
        let (own, mut peer) = UnixStream::pair().unwrap();
        let all = received(way, own, is_multi, || {
            let sent = std::io::stdin();
            let sent = [sent.as_fd()];
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&sent)));
            let bytes = [IoSlice::new(b"ab")];
            assert_eq!(sendmsg(&peer, &bytes, &mut ancillary, SendFlags::empty()), Ok(2));
            peer.write_all(b"cd").unwrap();
        });
        assert_eq!(all, b"abcd");
    }
}

/// Not with a submission thread: there one such receive in 50 was still waiting after five seconds, its
/// bytes readable and the thread asleep (Linux 6.18; docs/reference/kernels.md).
pub fn what_lies_behind_urgent_data_is_received(way: Loop) {
    if way.is_simulated() || matches!(way, Loop::UringSqpoll) {
        return;
    }
    for is_multi in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peer.set_nodelay(true).unwrap();
        let (own, _) = listener.accept().unwrap();
        let all = received(way, own, is_multi, || {
            peer.write_all(b"ab").unwrap();
            assert_eq!(send(&peer, b"!", SendFlags::OOB), Ok(1));
            peer.write_all(b"cd").unwrap();
        });
        assert_eq!(all, b"abcd", "without the urgent byte");
    }
}
