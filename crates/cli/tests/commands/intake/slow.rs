//! What each protocol of the intake does with a request or a message that does not come to its end.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use super::{
    fluent::{acknowledgement, chunk, event, line, packed},
    http::{self, start},
    next_address,
    protocols::{LOKI_JSON, OTLP_JSON},
    relp::{self, message},
};
use crate::harness::daemon::{ask, cat, connect};

/// Nothing came yet, and neither did the end.
#[track_caller]
fn has_nothing(stream: &TcpStream) {
    stream.set_nonblocking(true).unwrap();
    assert_eq!(stream.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
}

/// Requests with half of their bodies.
fn requests(address: SocketAddr) -> [http::Client; 5] {
    ["POST /_bulk", OTLP_JSON, LOKI_JSON, "POST /ingest", "POST /ingest"].map(|head| {
        let (line, headers) = head.split_once('\n').unwrap_or((head, "X: x"));
        let head = format!("{line} HTTP/1.1\r\nHost: x\r\n{headers}\r\nContent-Length: 1000\r\n");
        let mut client = http::Client::new(address);
        client.send(format!("{head}\r\n[1]\n").as_bytes()).unwrap();
        client
    })
}

/// Sessions with a whole message and half of one.
fn sessions(address: SocketAddr) -> [relp::Client; 3] {
    let halves =
        [message(3, &"[2]".repeat(40_000)), message(3, "[3]"), message(3, &" ".repeat(999))];
    halves.map(|frame| {
        let mut client = relp::Client::new(address);
        client.send(format!("{}{}", message(2, "[4]"), &frame[..14]).as_bytes()).unwrap();
        assert_eq!(client.answer(), "2 rsp 6 200 OK\n");
        client
    })
}

/// Connections with a whole message, and the first 30 bytes of another.
fn forwards(address: SocketAddr, half: &[u8]) -> [TcpStream; 2] {
    [(); 2].map(|()| {
        let mut stream = connect(address);
        stream.write_all(&[&packed(&event(6), &chunk("whole")), &half[..30]].concat()).unwrap();
        let mut answer = acknowledgement("whole");
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, acknowledgement("whole"));
        stream
    })
}

/// Some send nothing more, and some a byte each second: the time is that of the whole.
#[test]
#[ignore = "slow: bash .ci/scheduled slow"]
fn what_does_not_come_whole_in_30_s_is_ended_and_counted_and_nothing_of_it_is_stored() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--relp-intake", "127.0.0.1:0", "--fluent-intake", "127.0.0.1:0"];
    let flags = [&flags[..], &["--http", "127.0.0.1:0"]].concat();
    let Some((mut daemon, http)) = start("epoll", directory.path(), &flags) else { return };
    let relp = next_address(&mut daemon, "taking RELP on ");
    let fluent = next_address(&mut daemon, "taking Fluent Forward on ");
    let page = daemon.line();
    // The last one of each protocol goes on slowly.
    let requests = requests(http);
    let mut sessions = sessions(relp);
    let half = packed(&event(5).repeat(50), &chunk("half"));
    let mut forwards = forwards(fluent, &half);
    let begun = Instant::now();
    for second in 1..28 {
        thread::sleep(Duration::from_secs(second).saturating_sub(begun.elapsed()));
        requests[4].0.get_ref().write_all(b" ").unwrap();
        sessions[2].send(b" ").unwrap();
        forwards[1].write_all(&half[29 + second as usize..][..1]).unwrap();
    }
    requests.iter().for_each(|client| has_nothing(client.0.get_ref()));
    sessions.iter().for_each(|client| has_nothing(client.0.get_ref()));
    forwards.iter().for_each(has_nothing);
    for (mut client, status) in requests.into_iter().zip([503, 503, 503, 408, 408]) {
        let answer = client.answer().unwrap();
        let told = String::from_utf8_lossy(&answer.bytes);
        assert_eq!(answer.status, status, "{told}");
        assert!(told.contains("the body did not come within 30 s"), "{told}");
        assert!(answer.head.contains("\r\nretry-after: 5\r\n"), "{}", answer.head);
        assert_eq!(client.0.read(&mut [0]).unwrap(), 0);
    }
    for client in &mut sessions {
        assert_eq!(client.rest(), "0 serverclose 0\n");
    }
    for stream in &mut forwards {
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(35), "{took:?}");
    let figures = ask(&page, "/metrics");
    for figure in
        ["connections_broken_total{thread=\"1\"} 5", "refused_requests_total{thread=\"1\"} 5"]
    {
        assert!(figures.contains(&format!("logd_{figure}\n")), "{figures}");
    }
    let said = daemon.end();
    let why = "the rest of a message did not come within 30 s; closed";
    assert_eq!(said.matches(why).count(), 5, "{said}");
    let mut stored = cat(&[], directory.path());
    stored.sort();
    assert_eq!(stored, ["[4]", "[4]", "[4]", &line(6)]);
    assert!(cat(&["--dead"], directory.path()).is_empty());
}
