//! `ringwise logd --http-intake`, from outside: lines by HTTP requests, on each engine.

use std::{
    fmt::Write as _,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    harness::daemon::{Daemon, ENGINES, ask, cat, connect, count, wait_until},
    intake,
    logd::verify,
};

/// The option, and what the daemon prints before the address.
pub const PORT: (&str, &str) = ("--http-intake", "taking requests on http://");

/// A daemon that takes requests, and where.
pub fn start(engine: &str, directory: &Path, flags: &[&str]) -> Option<(Daemon, SocketAddr)> {
    intake::start(PORT, engine, directory, flags)
}

/// A connection that is kept.
pub struct Client(pub BufReader<TcpStream>);

/// An answer: its status, its headers in lower case, and its body, as it came and as JSON.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub bytes: Vec<u8>,
    pub body: Value,
}

impl Client {
    pub fn new(address: SocketAddr) -> Client {
        Client(BufReader::new(connect(address)))
    }

    /// Sends bytes as they stand.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    pub fn answer(&mut self) -> io::Result<Answer> {
        let mut answer = self.answer_without_body()?;
        let length = answer.head.lines().find_map(|line| line.strip_prefix("content-length: "));
        answer.bytes = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.0.read_exact(&mut answer.bytes)?;
        answer.body = serde_json::from_slice(&answer.bytes).unwrap_or_default();
        Ok(answer)
    }

    /// An answer to HEAD, or what stands before a body.
    pub fn answer_without_body(&mut self) -> io::Result<Answer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let head = head.to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Ok(Answer { status, head, bytes: Vec::new(), body: Value::Null })
    }

    /// Sends lines with more headers.
    fn post(&mut self, headers: &str, body: &[u8]) -> io::Result<Answer> {
        let length = body.len();
        let head = format!(
            "POST /ingest HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        self.send(&[head.as_bytes(), body].concat())?;
        self.answer()
    }
}

#[test]
fn lines_are_stored_before_they_are_answered_and_rejected_ones_are_named() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some((daemon, address)) = start(engine, directory.path(), &["--require", "a"]) else {
            continue;
        };
        let mut client = Client::new(address);
        let answer =
            client.post("", b"{\"a\":1}\n{\"b\":1}\n{\"a\":\"\xff\"}\r\n\n{\"a\":2}").unwrap();
        let expected = serde_json::json!({
            "lines": 4, "rejected_lines": 2, "guarantee": "durable",
            "rejected": [{"line": 2, "reason": "missing-field"}, {"line": 3, "reason": "utf8"}],
        });
        assert_eq!((answer.status, &answer.body), (200, &expected));
        // Killed at once: what was answered is there.
        daemon.signal("-KILL");
        drop(daemon);
        let (daemon, address) = start(engine, directory.path(), &[]).unwrap();
        assert_eq!(cat(&[], directory.path()), ["{\"a\":1}", "{\"a\":2}"]);
        let dead = cat(&["--dead"], directory.path());
        let letter: Value = serde_json::from_str(&dead[0]).unwrap();
        let letters = serde_json::json!([
            ["missing-field", 0, "{\"b\":1}"],
            // What is no text is there in hexadecimal digits.
            ["utf8", 6, ["7b2261223a22ff227d"]],
        ]);
        assert_eq!((dead.len(), &letter["letters"]), (1, &letters), "{letter}");
        // In chunks, packed, and without a line.
        let mut client = Client::new(address);
        let chunks = "POST /ingest HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                      4\r\n{\"a\"\r\n5\r\n:3}\n\n\r\n0\r\n\r\n";
        client.send(chunks.as_bytes()).unwrap();
        assert_eq!(client.answer().unwrap().body["lines"], 1);
        let packed = intake::gzip(b"{\"a\":4}\n");
        assert_eq!(client.post("Content-Encoding: gzip\r\n", &packed).unwrap().body["lines"], 1);
        let empty = client.post("Content-Type: application/x-ndjson\r\n", b"\n").unwrap();
        assert_eq!((empty.status, &empty.body["lines"]), (200, &0.into()));
        let said = daemon.end();
        assert!(said.contains("intake: 1 connections"), "{said}");
        assert_eq!(cat(&[], directory.path())[2..], ["{\"a\":3}", "{\"a\":4}"]);
    }
}

#[test]
fn what_cannot_be_taken_has_the_status_of_its_protocol() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    let token = "0123456789abcdefghijklmn";
    std::fs::write(&tokens, format!("{token} web\n")).unwrap();
    let flags = ["--tokens", tokens.to_str().unwrap(), "--max-line", "64k"];
    let flags = [&flags[..], &["--connection-budget", "128k"]].concat();
    let store = directory.path().join("store");
    let Some((daemon, address)) = start("epoll", &store, &flags) else { return };
    let of = |head: &str, body: &[u8]| {
        let mut client = Client::new(address);
        let length = body.len();
        let head = format!("{head}\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        client.send(&[head.as_bytes(), body].concat()).unwrap();
        client.answer().unwrap()
    };
    let post = "POST /ingest HTTP/1.1";
    for (head, body, status, header) in [
        ("POST /other HTTP/1.1", &b"{}\n"[..], 404, "connection: close"),
        ("GET /ingest HTTP/1.1", b"", 405, "allow: post"),
        (&format!("{post}\r\nOrigin: http://x"), b"{}\n", 403, "connection: close"),
        (&format!("{post}\r\nContent-Type: text/html"), b"{}\n", 415, "connection: close"),
        (&format!("{post}\r\nContent-Encoding: br"), b"{}\n", 415, "accept-encoding: gzip"),
        (&format!("{post}\r\nContent-Encoding: gzip"), b"{}\n", 400, "content-type"),
        (
            &format!("{post}\r\nAuthorization: Bearer wrong"),
            b"{}\n",
            401,
            "www-authenticate: bearer",
        ),
        (&format!("{post}\r\nAuthorization: Basic {token}"), b"{}\n", 401, "www-authenticate"),
        (post, &[b' '; 200 << 10][..], 413, "connection: close"),
    ] {
        let answer = of(head, body);
        assert_eq!(answer.status, status, "{head}: {}", answer.body);
        assert!(answer.head.contains(header), "{head}: {}", answer.head);
        assert!(answer.body["error"].is_string(), "{}", answer.body);
    }
    // Longer than it may be, whatever it claims.
    let mut client = Client::new(address);
    client
        .send(b"POST /ingest HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        .unwrap();
    assert_eq!(client.answer().unwrap().status, 413);
    // Its token is known: the tenant's line is stored.
    let answer = of(&format!("{post}\r\nAuthorization: Bearer {token}"), b"{\"good\":1}");
    assert_eq!(answer.status, 200, "{}", answer.body);
    daemon.end();
    assert_eq!(cat(&[], &store), ["{\"good\":1}"]);
    let who = cat(&["--tenant", "web"], &store);
    assert_eq!(who, ["{\"good\":1}"]);
}

#[test]
fn what_is_no_http_is_answered_and_counted_and_stored_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--http", "127.0.0.1:0", "--idle", "1s"];
    let Some((mut daemon, address)) = start("epoll", directory.path(), &flags) else { return };
    let page = daemon.line();
    // One that says nothing, one that stops within the head of a request, and one that was answered.
    let silent = [connect(address), connect(address), connect(address)];
    let mut answered = Client(BufReader::new(silent[2].try_clone().unwrap()));
    assert_eq!(answered.post("", b"").unwrap().body["lines"], 0);
    (&silent[1]).write_all(b"POST /ingest HT").unwrap();
    let head = "POST /ingest HTTP/1.1\r\nHost: x\r\n";
    // So long that the client still sends when it is answered.
    let long = format!("{head}X: {}\r\n\r\n", "x".repeat(16 << 20));
    let chunk = format!("{head}Transfer-Encoding: chunked\r\n\r\nnone\r\n");
    let short = format!("{head}Content-Length: 100\r\n\r\n{{\"cut\":1}}\n");
    for (bytes, status) in
        [("{\"a\":1}\n\r\n\r\n", 400), (&*long, 431), (&*chunk, 400), (&*short, 400)]
    {
        let mut client = Client::new(address);
        client.send(bytes.as_bytes()).unwrap();
        client.0.get_ref().shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.answer_without_body().unwrap().status, status, "{bytes:.80}");
    }
    // Half of a head and the end. One that only ends is no error.
    for bytes in ["POST /ingest HT", ""] {
        let mut client = Client::new(address);
        client.send(bytes.as_bytes()).unwrap();
        client.0.get_ref().shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        client.0.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "{bytes}: {}", rest.escape_ascii());
    }
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    let figures = ask(&page, "/metrics");
    for (figure, count) in
        [("connections_broken_total", 3), ("refused_requests_total", 2), ("idle_ended_total", 3)]
    {
        assert!(figures.contains(&format!("logd_{figure}{{thread=\"1\"}} {count}\n")), "{figures}");
    }
    let said = daemon.end();
    assert_eq!(said.matches(": no HTTP: ").count(), 2, "{said}");
    assert_eq!(
        said.matches(": the connection ended within the head of a request; closed").count(),
        1,
        "{said}"
    );
    assert!(cat(&[], directory.path()).is_empty());
}

#[test]
fn many_bytes_at_a_time_are_asked_to_come_again() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--budget", "4m", "--max-line", "64k", "--connection-budget", "1m"];
    let Some((daemon, address)) = start("epoll", directory.path(), &flags) else { return };
    // The intake has half of the budget, as the thread has: two bodies of 1 MiB.
    let head = format!("POST /ingest HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 1 << 20);
    let line = b"{\"a\":1}\n";
    let body = line.repeat((1 << 20) / line.len());
    let (most, last) = body.split_at(body.len() - line.len());
    let mut clients: Vec<Client> = (0..4).map(|_| Client::new(address)).collect();
    thread::scope(|scope| {
        for client in &mut clients {
            let head = head.as_bytes();
            scope.spawn(move || client.send(&[head, most].concat()).unwrap());
        }
    });
    // Of four at least two are refused, and at least one has its memory.
    let mut refused = 0;
    for client in &mut clients {
        client.0.get_ref().set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        match client.answer() {
            Ok(answer) => {
                assert_eq!(answer.status, 429, "{}", answer.body);
                assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
                refused += 1;
            }
            Err(_) => {
                client.send(last).unwrap();
                client.0.get_ref().set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                assert_eq!(client.answer().unwrap().body["lines"], (1 << 20) / line.len());
            }
        }
    }
    assert!((2..4).contains(&refused), "{refused} refused");
    assert_eq!(Client::new(address).post("", &line.repeat(1000)).unwrap().status, 200);
    daemon.end();
}

#[test]
fn without_space_requests_are_refused_and_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--min-free", "900t"];
    let Some((daemon, address)) = start("epoll", directory.path(), &flags) else { return };
    let mut answer = None;
    wait_until("it has looked", || {
        answer = Client::new(address).post("", b"").ok();
        answer.as_ref().is_some_and(|answer| answer.status == 503)
    });
    let answer = answer.unwrap();
    assert!(answer.head.contains("retry-after: 5"), "{}", answer.head);
    assert!(answer.body["error"].as_str().unwrap().contains("disk is full"), "{}", answer.body);
    daemon.end();
    assert!(cat(&[], directory.path()).is_empty());
}

#[test]
fn the_end_waits_for_no_client_that_sends_slowly() {
    let directory = tempfile::tempdir().unwrap();
    let Some((daemon, address)) = start("epoll", directory.path(), &[]) else { return };
    let head = "POST /ingest HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n";
    let mut clients: Vec<Client> = (0..3).map(|_| Client::new(address)).collect();
    clients[0].send(&head.as_bytes()[..30]).unwrap();
    clients[1].send(format!("{head}[1]").as_bytes()).unwrap();
    // Its other half is closed: it is answered all the same.
    clients[2].send(format!("{head}[2]\n").as_bytes()).unwrap();
    clients[2].0.get_ref().shutdown(Shutdown::Write).unwrap();
    assert_eq!(clients[2].answer().unwrap().status, 200);
    // Fails unless the status is 0.
    daemon.end();
    // Half of a head is no request, and half of a body is to be sent again.
    assert_eq!(clients[0].0.read(&mut [0]).unwrap(), 0);
    let answer = clients[1].answer().unwrap();
    let words = "the daemon is ending: send it again later";
    assert_eq!((answer.status, &answer.body["error"]), (503, &words.into()));
    assert!(answer.head.contains("\r\nretry-after: 5\r\n"), "{}", answer.head);
    assert_eq!(clients[1].0.read(&mut [0]).unwrap(), 0);
    assert_eq!(cat(&[], directory.path()), ["[2]"]);
}

#[test]
fn an_idle_connection_gives_up_its_buffers_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--intake-connections", "1200"];
    let Some((daemon, address)) = start("epoll", directory.path(), &flags) else { return };
    // How much memory 500 connections take that have sent a request.
    let taken_kib = |clients: &mut Vec<Client>| {
        let before_kib = daemon.resident_kib();
        for _ in 0..500 {
            let mut client = Client::new(address);
            assert_eq!(client.post("", b"[0]").unwrap().status, 200);
            clients.push(client);
        }
        daemon.resident_kib().saturating_sub(before_kib)
    };
    let mut clients = Vec::new();
    let first_kib = taken_kib(&mut clients);
    thread::sleep(Duration::from_millis(2500));
    // They have the buffers of the first ones: with some of their own they would take 16 KiB more, each.
    let second_kib = taken_kib(&mut clients);
    assert!(second_kib < 500 * 8, "{first_kib} KiB, then {second_kib} KiB");
    // Half of a request before, half of it after that time, and two requests at once.
    let request = "POST /ingest HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n[1]";
    let (first, second) = request.split_at(30);
    clients[0].send(first.as_bytes()).unwrap();
    thread::sleep(Duration::from_millis(2500));
    clients[0].send([second, request].concat().as_bytes()).unwrap();
    for _ in 0..2 {
        assert_eq!(clients[0].answer().unwrap().body["lines"], 1);
    }
    for client in &mut clients[1..] {
        assert_eq!(client.post("", b"[2]").unwrap().status, 200);
    }
    daemon.end();
    assert_eq!(cat(&[], directory.path()).len(), 1000 + 2 + 999);
}

/// Sends requests of 100 lines until the daemon is gone; gives how many were answered with 200.
fn load(address: SocketAddr, (round, number): (usize, usize), seen: &AtomicUsize) -> usize {
    let mut client = Client::new(address);
    for request in 0.. {
        let mut body = String::new();
        for line in 0..100 {
            writeln!(body, "[{round},{number},{}]", request * 100 + line).unwrap();
        }
        match client.post("", body.as_bytes()) {
            Ok(answer) => assert_eq!((answer.status, &answer.body["lines"]), (200, &100.into())),
            Err(_) => return request,
        }
        seen.fetch_add(1, Ordering::Relaxed);
    }
    unreachable!("the daemon is killed")
}

#[test]
fn requests_that_were_answered_are_there_after_a_kill() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--segment-size", "64k", "--pack", "1"];
        let start = |flags: &[&str]| start(engine, directory.path(), flags);
        let load = |(_, address): &(_, _), place, seen: &_| load(*address, place, seen);
        let Some(all) = intake::kill_under_load(|| start(&flags), 3, load) else { return };
        // A start cuts what is torn.
        start(&[]).unwrap().0.end();
        let lines = cat(&[], directory.path());
        let places: Vec<_> = lines.iter().map(|line| intake::place(line)).collect();
        intake::check_once_and_in_order(engine, &all, 100, &places);
    }
}

/// A client that wants an answer of ten MiB and reads nothing of it.
fn unread(address: SocketAddr) -> Client {
    let actions = "{\"index\":{}}\n1\n".repeat(150_000);
    let head = "POST /a/_bulk HTTP/1.1\r\nHost: x\r\n";
    let mut client = Client::new(address);
    let length = actions.len();
    client.send(format!("{head}Content-Length: {length}\r\n\r\n{actions}").as_bytes()).unwrap();
    client
}

#[test]
fn a_client_that_does_not_read_its_answers_is_closed_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--idle", "1s", "--connection-budget", "64m", "--http", "127.0.0.1:0"];
    let Some((mut daemon, address)) = start("epoll", directory.path(), &flags) else { return };
    let page = daemon.line();
    let _client = unread(address);
    let has = |figure: &str| ask(&page, "/metrics").contains(&format!("logd_{figure}\n"));
    wait_until("it is closed", || has("connections_broken_total{thread=\"1\"} 1"));
    assert!(has("connections_open{thread=\"1\"} 0"));
    daemon.end();
    // Neither does the end wait for it, although it may be silent for long.
    let flags = ["--connection-budget", "64m", "--drain", "1m"];
    let (daemon, address) = start("epoll", directory.path(), &flags).unwrap();
    let _client = unread(address);
    let stored = || cat(&[], directory.path()).len();
    wait_until("its lines are stored", || stored() == 300_000);
    let begun = std::time::Instant::now();
    let said = daemon.end();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(said.contains("does not read its answers"), "{said}");
}

#[test]
fn an_address_has_its_limit_and_the_signal_for_statistics_has_requests() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--address-connections", "2", "--http", "127.0.0.1:0"];
    let Some((mut daemon, address)) = start("epoll", directory.path(), &flags) else { return };
    let page = daemon.line();
    // One on the port for lines counts too.
    let lines = daemon.connect();
    let mut client = Client::new(address);
    assert_eq!(client.post("", b"1\n2\n").unwrap().status, 200);
    assert!(Client::new(address).post("", b"3").is_err());
    assert!(ask(&page, "/metrics").contains("logd_turned_away_total{thread=\"1\"} 1\n"));
    drop(lines);
    wait_until("its place is free", || {
        Client::new(address).post("", b"4").is_ok_and(|answer| answer.status == 200)
    });
    daemon.signal("-USR1");
    daemon.signal("-TERM");
    let said = daemon.output();
    let told = said.lines().find(|line| line.contains("lines accepted")).unwrap();
    assert_eq!(count(told, "lines accepted"), 3, "{said}");
}

#[test]
fn a_request_is_taken_whole_or_not_at_all_for_want_of_quota() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--tenant", "web,from=127.0.0.0/8,quota=1m"];
    let Some((daemon, address)) = start("epoll", directory.path(), &flags) else { return };
    // So many rejected lines are not looked at in one go, and before the next the quota is used up.
    let body = [b"{\"a\":1}\n".repeat(150_000), b"x\n".repeat(10_000)].concat();
    let mut client = Client::new(address);
    // What did not fit would wait for 30 s, and then be refused.
    let answer = client.post("", &body).unwrap();
    let told = (answer.status, &answer.body["lines"], &answer.body["rejected_lines"]);
    assert_eq!(told, (200, &160_000.into(), &10_000.into()), "{}", answer.body);
    assert_eq!(client.post("", b"1").unwrap().status, 429);
    daemon.end();
}

#[test]
fn threads_fewer_than_before_leave_no_stream_behind() {
    let directory = tempfile::tempdir().unwrap();
    let Some((daemon, address)) = start("epoll", directory.path(), &[]) else { return };
    assert_eq!(Client::new(address).post("", b"1\n2\n").unwrap().status, 200);
    daemon.signal("-KILL");
    drop(daemon);
    // Without the intake nobody has its stream: it is recovered all the same.
    let own = ["--dir", directory.path().to_str().unwrap(), "--threads", "1"];
    Daemon::launch("logd", "epoll", &own).unwrap().end();
    verify(directory.path());
    assert_eq!(cat(&[], directory.path()), ["1", "2"]);
}
