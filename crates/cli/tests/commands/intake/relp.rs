//! `ringwise logd --relp-intake`, from outside: frames as bytes, on each engine. `tests/clients` has rsyslog.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    harness::daemon::{self, Daemon, ENGINES, cat, connect, count, wait_until},
    intake,
};

/// What omrelp of rsyslog 8 says first.
const OPEN: &str = "1 open 86 relp_version=0\nrelp_software=librelp,1.11.0,http://librelp.adiscon.com\n\
                    commands=syslog\n";

/// A daemon that takes RELP, and where.
fn start(engine: &str, directory: &Path, flags: &[&str]) -> Option<(Daemon, SocketAddr)> {
    intake::start(("--relp-intake", "taking RELP on "), engine, directory, flags)
}

/// A session.
pub struct Client(pub BufReader<TcpStream>);

impl Client {
    /// A connection without a session.
    fn silent(address: SocketAddr) -> Client {
        Client(BufReader::new(connect(address)))
    }

    pub fn new(address: SocketAddr) -> Client {
        let mut client = Client::silent(address);
        client.send(OPEN.as_bytes()).unwrap();
        let mut answer = String::new();
        while !answer.ends_with("commands=syslog\n") {
            assert!(client.0.read_line(&mut answer).unwrap() > 0, "{answer}");
        }
        assert!(answer.starts_with("1 rsp 65 200 OK\nrelp_version=0\n"), "{answer}");
        client
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// The next line of answers; nothing at the end.
    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(_) => line,
            Err(error) => panic!("{error} after {line:?}"),
        }
    }

    /// All answers to the end.
    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.0.read_to_string(&mut rest).unwrap();
        rest
    }
}

/// A frame with a message.
pub fn message(txnr: usize, text: &str) -> String {
    format!("{txnr} syslog {} {text}\n", text.len())
}

#[test]
fn messages_are_stored_before_they_are_answered() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some((daemon, address)) = start(engine, directory.path(), &[]) else { continue };
        let mut client = Client::new(address);
        // JSON, an end of a line in it, no JSON, and nothing: each is answered, whatever becomes of it.
        let texts = ["{ \"a\": 1}", "{\"a\":\n2}", "plain", "", "[3]\n"];
        let frames: Vec<String> =
            texts.iter().enumerate().map(|(at, text)| message(at + 2, text)).collect();
        client.send(frames.concat().as_bytes()).unwrap();
        for txnr in 2..7 {
            assert_eq!(client.answer(), format!("{txnr} rsp 6 200 OK\n"), "{engine}");
        }
        daemon.signal("-KILL");
        drop(daemon);
        let (daemon, address) = start(engine, directory.path(), &["--wrap", "syslog"]).unwrap();
        assert_eq!(cat(&[], directory.path()), ["{ \"a\": 1}", "[3]"]);
        let dead = cat(&["--dead"], directory.path()).concat();
        assert!(dead.contains("line-end") && dead.contains("\"plain\""), "{dead}");
        // Wrapped, a byte at a time.
        let mut client = Client::new(address);
        let text = "<13>2026-01-31T12:00:00Z web app[1]: a\nb";
        for byte in message(999_999_999, text).bytes() {
            client.send(&[byte]).unwrap();
        }
        assert_eq!(client.answer(), "999999999 rsp 6 200 OK\n");
        client.send(b"1 close 0\n2 syslog 1 1\n").unwrap();
        assert_eq!(client.rest(), "1 rsp 0\n0 serverclose 0\n");
        let said = daemon.end();
        assert!(said.contains("intake: 1 connections"), "{said}");
        let lines = cat(&[], directory.path());
        let expected = "{\"facility\":\"user\",\"severity\":\"notice\",\"timestamp\":\"2026-01-31T12:00:00Z\",\
                        \"host\":\"web\",\"app_name\":\"app\",\"procid\":\"1\",\"message\":\"a\\nb\"}";
        assert_eq!(lines[2..], [expected]);
    }
}

#[test]
fn a_message_that_is_not_utf_8_is_answered_and_a_dead_letter_unless_it_is_wrapped() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--http", "127.0.0.1:0"];
        let Some((mut daemon, address)) = start(engine, directory.path(), &flags) else { continue };
        let page = daemon.line();
        let frames = b"2 syslog 3 [1]\n3 syslog 3 \"\xff\"\n4 syslog 3 [2]\n5 close 0\n";
        let mut client = Client::new(address);
        client.send(frames).unwrap();
        let answers = "2 rsp 6 200 OK\n3 rsp 6 200 OK\n4 rsp 6 200 OK\n5 rsp 0\n0 serverclose 0\n";
        assert_eq!(client.rest(), answers, "{engine}");
        let figures = daemon::ask(&page, "/metrics");
        for figure in
            ["rejected_lines_total{thread=\"1\"} 1", "accepted_lines_total{thread=\"1\"} 2"]
        {
            assert!(figures.contains(&format!("logd_{figure}\n")), "{figures}");
        }
        daemon.end();
        assert_eq!(cat(&[], directory.path()), ["[1]", "[2]"]);
        let dead = cat(&["--dead"], directory.path());
        let letter: serde_json::Value = serde_json::from_str(&dead[0]).unwrap();
        let told = ["sequence", "reason", "offset", "line_hex"].map(|name| letter[name].clone());
        assert_eq!(dead.len(), 1, "{dead:?}");
        assert_eq!(
            serde_json::json!(told),
            serde_json::json!([2, "utf8", 1, "22ff22"]),
            "{engine}"
        );
        let (daemon, address) = start(engine, directory.path(), &["--wrap", "raw"]).unwrap();
        let mut client = Client::new(address);
        client.send(frames).unwrap();
        assert_eq!(client.rest(), answers, "{engine}");
        daemon.end();
        let wrapped = "{\"message\":\"\\\"\u{fffd}\\\"\",\"message_hex\":\"22ff22\"}";
        assert_eq!(cat(&[], directory.path())[2..], ["[1]", wrapped, "[2]"]);
    }
}

#[test]
fn what_is_wrong_is_answered_closed_and_counted_and_nothing_of_it_is_stored() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--max-line", "64k", "--connection-budget", "128k"];
    let Some((daemon, address)) = start("epoll", directory.path(), &flags) else { return };
    let cases: [(&str, &str); 10] = [
        // A length beyond the limit, one that is none, and others that are not right.
        (
            "3 syslog 200000 x",
            "3 rsp 57 500 a message is too long (--connection-budget, --budget)\n",
        ),
        ("3 syslog x x\n", ""),
        ("3 syslog -1 x\n", ""),
        ("3 syslog 9999999999 x\n", ""),
        ("3 syslog 3 [1]]\n", ""),
        // No number, and a wrong command.
        ("x syslog 1 1\n", ""),
        ("3 rsp 6 200 OK\n", "3 rsp 28 500 the command is not known\n"),
        (OPEN, "1 rsp 31 500 the session is open already\n"),
        // Other protocols.
        ("GET / HTTP/1.1\r\n\r\n", ""),
        ("\u{16}\u{3}\u{1}", ""),
    ];
    for (at, (wrong, said)) in cases.into_iter().enumerate() {
        let mut client = Client::new(address);
        client.send(format!("{}{wrong}", message(2, &format!("[{at}]"))).as_bytes()).unwrap();
        // What came before is stored.
        assert_eq!(client.rest(), format!("2 rsp 6 200 OK\n{said}0 serverclose 0\n"), "{wrong}");
    }
    // Before open.
    let mut client = Client::silent(address);
    client.send(message(1, "[100]").as_bytes()).unwrap();
    assert_eq!(client.rest(), "1 rsp 30 500 a message came before open\n0 serverclose 0\n");
    // The connection ends within a frame.
    let mut client = Client::new(address);
    client.send(b"2 syslog 100 [101]").unwrap();
    client.0.get_ref().shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest(), "0 serverclose 0\n");
    // And after one: it is answered all the same.
    let mut client = Client::new(address);
    client.send(message(2, "[10]").as_bytes()).unwrap();
    client.0.get_ref().shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest(), "2 rsp 6 200 OK\n");
    let said = daemon.end();
    assert_eq!(count(&said, "broken"), 12, "{said}");
    assert!(said.contains(": a frame begins with no number; closed"), "{said}");
    assert_eq!(cat(&[], directory.path()), (0..11).map(|at| format!("[{at}]")).collect::<Vec<_>>());
    assert!(cat(&["--dead"], directory.path()).is_empty());
}

#[test]
fn long_messages_wait_for_memory_and_all_are_stored() {
    let directory = tempfile::tempdir().unwrap();
    // The intake has half of the budget, and messages that are not whole half of that: two at a time, each twice.
    let flags = ["--budget", "8m", "--max-line", "600k", "--connection-budget", "600k"];
    let Some((daemon, address)) = start("epoll", directory.path(), &flags) else { return };
    let text = format!("\"{}\"", "x".repeat(500 << 10));
    let frame = message(2, &text);
    let (most, last) = frame.split_at(frame.len() - 1);
    let mut clients: Vec<Client> = (0..6).map(|_| Client::new(address)).collect();
    let before_kib = daemon.resident_kib();
    thread::scope(|scope| {
        // Two have the memory and end their messages late. The others wait.
        let (first, others) = clients.split_at_mut(2);
        for client in &mut *first {
            client.send(most.as_bytes()).unwrap();
        }
        thread::sleep(Duration::from_millis(200));
        for client in others {
            let frame = &frame;
            scope.spawn(move || {
                client.send(frame.as_bytes()).unwrap();
                assert_eq!(client.answer(), "2 rsp 6 200 OK\n");
            });
        }
        thread::sleep(Duration::from_millis(300));
        // Two buffers, and what is received without memory of the budget.
        let taken_kib = daemon.resident_kib().saturating_sub(before_kib);
        assert!(taken_kib < 2200, "{taken_kib} KiB");
        assert!(cat(&[], directory.path()).is_empty());
        for client in first {
            client.send(last.as_bytes()).unwrap();
            assert_eq!(client.answer(), "2 rsp 6 200 OK\n");
        }
    });
    daemon.end();
    assert_eq!(cat(&[], directory.path()), vec![text; 6]);
}

#[test]
fn the_end_waits_for_no_client_and_loses_nothing_that_was_answered() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some((daemon, address)) = start(engine, directory.path(), &[]) else { continue };
        // One is silent, one sends half of a frame, and one reads no answers.
        let mut silent = Client::new(address);
        let mut slow = Client::new(address);
        slow.send(b"2 syslog 100 [").unwrap();
        let mut deaf = Client::new(address);
        // The kernel would keep answers to hundreds of thousands.
        rustix::net::sockopt::set_socket_recv_buffer_size(deaf.0.get_ref(), 4096).unwrap();
        deaf.0.get_ref().set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut frames = 0;
        while deaf.send(message(frames % 1000 + 2, "[0]").repeat(1000).as_bytes()).is_ok() {
            frames += 1;
            assert!(frames < 100_000, "the daemon reads for ever from a client that does not");
        }
        let mut busy = Client::new(address);
        let sending = busy.0.get_ref().try_clone().unwrap();
        let load = thread::spawn(move || {
            let mut stream = sending;
            for txnr in 2.. {
                if stream.write_all(message(txnr, &format!("[{txnr}]")).as_bytes()).is_err() {
                    return;
                }
            }
        });
        assert_eq!(busy.answer(), "2 rsp 6 200 OK\n");
        let begun = Instant::now();
        daemon.end();
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        let mut answered = 2;
        loop {
            let mut line = String::new();
            match busy.0.read_line(&mut line) {
                Ok(1..) if line.ends_with(" rsp 6 200 OK\n") => answered += 1,
                _ => break,
            }
        }
        load.join().unwrap();
        assert_eq!(silent.rest(), "0 serverclose 0\n");
        let lines = cat(&[], directory.path());
        let own: Vec<&String> = lines.iter().filter(|line| *line != "[0]").collect();
        assert!(own.len() + 1 >= answered, "{answered} answered, {} stored", own.len());
        assert!(own.iter().enumerate().all(|(at, line)| **line == format!("[{}]", at + 2)));
    }
}

#[test]
fn silent_sessions_end_if_the_operator_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let Some((daemon, address)) = start("epoll", directory.path(), &["--idle", "300ms"]) else {
        return;
    };
    assert_eq!(Client::new(address).rest(), "0 serverclose 0\n");
    let said = daemon.end();
    assert_eq!(count(&said, "ended for silence"), 1, "{said}");
}

/// A session that is silent may have lost its client: the kernel asks for it.
#[test]
fn a_silent_session_has_a_timer_of_keepalives() {
    let directory = tempfile::tempdir().unwrap();
    let Some((daemon, address)) = start("epoll", directory.path(), &[]) else { return };
    let client = Client::new(address);
    let peer = client.0.get_ref().local_addr().unwrap().port();
    let (own, peer) = (format!(":{:04X} ", address.port()), format!(":{peer:04X} "));
    // Its acknowledgement of the answer ends the timer of retransmissions.
    wait_until("the timer", || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let line = table.lines().find(|line| {
            line.find(&own).zip(line.find(&peer)).is_some_and(|(own, peer)| own < peer)
        });
        // proc_net_tcp.rst: the timer that is active, 02 for that of keepalives.
        line.unwrap().split_whitespace().nth(5).unwrap().starts_with("02:")
    });
    daemon.end();
}

/// Sends messages, a window of 128 at a time, until the daemon is gone; gives how many were answered.
fn load(address: SocketAddr, (round, number): (usize, usize), seen: &AtomicUsize) -> usize {
    let mut client = Client::new(address);
    let (mut sent, mut answered) = (0, 0);
    loop {
        while sent < answered + 128 {
            let text = format!("[{round},{number},{sent}]");
            if client.send(message(sent + 2, &text).as_bytes()).is_err() {
                break;
            }
            sent += 1;
        }
        let mut line = String::new();
        if !matches!(client.0.read_line(&mut line), Ok(1..)) || !line.ends_with('\n') {
            return answered;
        }
        assert_eq!(line, format!("{} rsp 6 200 OK\n", answered + 2));
        answered += 1;
        seen.store(answered, Ordering::Relaxed);
    }
}

#[test]
fn messages_that_were_answered_are_there_after_a_kill() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--segment-size", "64k", "--pack", "1"];
        let start = |flags: &[&str]| start(engine, directory.path(), flags);
        let load = |(_, address): &(_, _), place, seen: &_| load(*address, place, seen);
        let Some(all) = intake::kill_under_load(|| start(&flags), 500, load) else { return };
        // A start cuts what is torn.
        start(&[]).unwrap().0.end();
        let lines = cat(&[], directory.path());
        let places: Vec<_> = lines.iter().map(|line| intake::place(line)).collect();
        intake::check_once_and_in_order(engine, &all, 1, &places);
    }
}

#[test]
fn a_tenant_without_room_is_told_to_come_again() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--tenant", "web,from=127.0.0.0/8,quota=1k", "--http", "127.0.0.1:0"];
    let Some((mut daemon, address)) = start("epoll", directory.path(), &flags) else { return };
    let page = daemon.line();
    let mut client = Client::new(address);
    let text = format!("\"{}\"", "x".repeat(2000));
    client.send(message(2, &text).as_bytes()).unwrap();
    assert_eq!(client.answer(), "2 rsp 6 200 OK\n");
    // It is not answered, so its client keeps it.
    client.send(message(3, "[1]").as_bytes()).unwrap();
    assert_eq!(client.rest(), "0 serverclose 0\n");
    let metrics = daemon::ask(&page, "/metrics");
    assert!(metrics.contains("logd_connections_broken_total{thread=\"1\"} 1\n"), "{metrics}");
    daemon.end();
    assert_eq!(cat(&["--tenant", "web"], directory.path()), [text]);
}
