//! Peers that vanish without a word, on the real kernel: keepalive and `TCP_USER_TIMEOUT` find them
//! out, and nothing else does. The simulated network has the same in `simulation/network.rs`.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use ringwise::{
    BackendChoice, BufferGroup, Descriptor, Local, Operation,
    net::{self, KeepAlive, ListenOptions},
};

#[path = "../shared/deaf.rs"]
mod deaf;

use self::deaf::deafen;

/// Longer than any of it takes.
const PATIENCE: Duration = Duration::from_secs(20);

const SILENT: u64 = 0;
const UNANSWERED: u64 = 1;
const UNWATCHED: u64 = 2;
const ALIVE: u64 = 3;

fn connection(local: &mut Local, listener: &Descriptor) -> (Descriptor, TcpStream) {
    let address = net::local_address(listener).unwrap().ip().unwrap();
    let peer = TcpStream::connect(address).unwrap();
    let own = local.run(Operation::accept(listener)).unwrap().into_descriptor().unwrap();
    (own, peer)
}

/// What ends within a time: tags, results, and when.
fn ended(local: &mut Local, count: usize, within: Duration) -> Vec<(u64, i32, Duration)> {
    let (began, mut ended) = (Instant::now(), Vec::new());
    while ended.len() < count && began.elapsed() < within {
        let left = within.saturating_sub(began.elapsed());
        local.submit_and_wait_timeout(1, left).unwrap();
        while let Some(done) = local.next_completion() {
            assert!(!done.has_more(), "{done:?}");
            ended.push((done.tag(), done.raw_result(), began.elapsed()));
        }
    }
    ended.sort_unstable();
    ended
}

fn vanished_peers_are_found_out(choice: BackendChoice) {
    let mut local = match Local::builder().backend(choice).build() {
        Ok(local) => local,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "skipped in CI: {error}");
            return println!("skipped: {error}");
        }
    };
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = net::listen_tcp(&any, &ListenOptions::default()).unwrap();
    let group = BufferGroup::new(&mut local, 8, 64).unwrap();
    let mut pairs: Vec<(Descriptor, TcpStream)> =
        (0..4).map(|_| connection(&mut local, &listener)).collect();
    let second = Duration::from_secs(1);
    let keepalive = KeepAlive { idle: second, interval: second, count: 1 };
    for tag in [SILENT, ALIVE] {
        net::set_keepalive(&pairs[tag as usize].0, Some(keepalive)).unwrap();
    }
    for tag in [UNANSWERED, ALIVE] {
        net::set_user_timeout(&pairs[tag as usize].0, second / 2).unwrap();
    }
    for tag in [SILENT, UNANSWERED, UNWATCHED] {
        deafen(&pairs[tag as usize].1);
    }
    for (tag, (own, _)) in pairs.iter().enumerate() {
        local.push(Operation::recv_multi(own, &group), tag as u64).unwrap();
    }
    // The kernel takes it, and nobody acknowledges it.
    for tag in [UNANSWERED, UNWATCHED] {
        let sent = local.run(Operation::send(&pairs[tag as usize].0, b"lost".to_vec())).unwrap();
        assert_eq!(sent.raw_result(), 4);
    }
    let found = ended(&mut local, 2, PATIENCE);
    let told: Vec<(u64, i32)> = found.iter().map(|&(tag, result, _)| (tag, result)).collect();
    assert_eq!(told, [(SILENT, -libc::ETIMEDOUT), (UNANSWERED, -libc::ETIMEDOUT)]);
    // Not before it had been asked, nor before the time for an acknowledgement was over.
    assert!(found[0].2 > second && found[1].2 > second / 2, "{found:?}");
    let after = local.run(Operation::send(&pairs[UNANSWERED as usize].0, b"more".to_vec()));
    assert_eq!(after.unwrap().raw_result(), -libc::EPIPE);
    // Who is not watched stays, and who is there answers all the while.
    assert_eq!(ended(&mut local, 1, second / 2), []);
    let (own, peer) = &mut pairs[ALIVE as usize];
    let sent = local.run(Operation::send(&*own, b"here".to_vec())).unwrap();
    assert_eq!(sent.raw_result(), 4);
    let mut heard = [0; 4];
    peer.read_exact(&mut heard).unwrap();
    peer.write_all(&heard).unwrap();
    local.submit_and_wait_timeout(1, PATIENCE).unwrap();
    let answer = local.next_completion().unwrap();
    assert_eq!((answer.tag(), answer.raw_result()), (ALIVE, 4));
}

#[test]
fn a_ring_finds_vanished_peers_out() {
    vanished_peers_are_found_out(BackendChoice::Uring);
}

#[test]
fn classic_calls_find_vanished_peers_out() {
    vanished_peers_are_found_out(BackendChoice::Classic);
}
