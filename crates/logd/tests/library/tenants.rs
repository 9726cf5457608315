//! Who sent which lines when, and what tenants may store.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    net::TcpStream,
    path::Path,
};

use serde_json::Value;

use crate::daemon::{Daemon, command, skip, tool, wait_until};

const ENGINES: [&str; 2] = ["uring", "epoll"];

/// A daemon of one thread that takes IPv4 and IPv6, or nothing where it has no such engine.
fn start(engine: &str, directory: &Path, flags: &[&str]) -> Option<Daemon> {
    let own: &[&str] =
        &["--threads", "1", "--dir", directory.to_str().unwrap(), "--engine", engine];
    let network = ["--listen", "[::]:0", "--http", "127.0.0.1:0"];
    match Daemon::start(command(&[], &[own, &network, flags].concat())) {
        Ok(daemon) => Some(daemon),
        Err(error) if engine == "uring" => {
            skip(&error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A client that asks for acknowledgements.
struct Client {
    stream: TcpStream,
    answers: Lines<BufReader<TcpStream>>,
    sent: u64,
}

impl Client {
    fn new(stream: TcpStream) -> Client {
        let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
        (&stream).write_all(b"LOGD 1\n").unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), "H 1 durable");
        Client { stream, answers, sent: 0 }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.stream, "{line}").unwrap();
        self.sent += 1;
    }

    fn is_acknowledged(&mut self) {
        assert_eq!(self.answers.next().unwrap().unwrap(), format!("A {}", self.sent));
    }

    fn store(&mut self, line: &str) {
        self.send(line);
        self.is_acknowledged();
    }

    fn address(&self) -> String {
        self.stream.local_addr().unwrap().to_string()
    }
}

/// What a tool prints, without what the test program says of itself.
fn printed(words: &[&str]) -> Vec<String> {
    let output = tool(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| line.starts_with('{')).map(str::to_owned).collect()
}

fn figure(daemon: &Daemon, name: &str, tenant: &str) -> u64 {
    let (_, page) = daemon.get("/metrics");
    let start = format!("logd_tenant_{name}{{tenant=\"{tenant}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("{start}: {page}")).parse().unwrap()
}

#[test]
fn each_line_has_its_time_peer_and_tenant() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        let before_ms = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
        // Each line ends the segment of the one before; the second is packed.
        let flags = ["--tenant", "web,from=127.0.0.0/8", "--segment-size", "1", "--pack", "1"];
        let Some(daemon) = start(engine, directory.path(), &flags) else { continue };
        let mut web = Client::new(daemon.connect_by("127.0.0.1"));
        let mut other = Client::new(daemon.connect_by("[::1]"));
        web.store("{\"a\":1}");
        other.store("{\"b\":1}");
        web.store("{\"a\":2}");
        wait_until("packing", || {
            std::fs::read_dir(path)
                .unwrap()
                .flatten()
                .any(|entry| entry.file_name().to_string_lossy().ends_with(".zst"))
        });
        let after_ms = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;

        let lines = printed(&["cat", path, "--with-origin"]);
        let lines: Vec<Value> =
            lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |name: &str| lines.iter().map(|line| line[name].clone()).collect::<Vec<_>>();
        let sent = [r#"{"a":1}"#, r#"{"b":1}"#, r#"{"a":2}"#];
        assert_eq!(of("line").iter().map(Value::to_string).collect::<Vec<_>>(), sent, "{engine}");
        let v4 = format!("[::ffff:{}]:{}", "127.0.0.1", web.stream.local_addr().unwrap().port());
        assert_eq!(of("peer"), [v4.clone(), other.address(), v4], "{engine}");
        assert_eq!(of("tenant"), [Value::from("web"), Value::Null, Value::from("web")]);
        for time_ms in of("time_ms") {
            let time_ms = time_ms.as_u64().unwrap();
            assert!((before_ms..=after_ms).contains(&time_ms), "{before_ms} {time_ms} {after_ms}");
        }

        let web_lines = [r#"{"a":1}"#, r#"{"a":2}"#];
        assert_eq!(printed(&["cat", path, "--tenant", "web"]), web_lines);
        assert_eq!(printed(&["tail", "--once", path, "--peer", "127.0.0.1"]), web_lines);
        assert_eq!(printed(&["cat", path, "--peer", &other.address()]), [r#"{"b":1}"#]);
        assert_eq!(printed(&["cat", path, "--since", "1h", "--until", "0s"]), sent);
        assert_eq!(printed(&["cat", path, "--until", "1h"]), [""; 0]);
        assert_eq!(printed(&["cat", path, "--since", "2100-01-01"]), [""; 0]);
        assert!(tool(&["verify", path]).output().unwrap().status.success());
        drop((web, other));
        daemon.end();
    }
}

/// Retention makes room after a while, and nothing was lost meanwhile.
#[test]
fn senders_of_a_tenant_wait_at_its_quota_and_others_do_not() {
    let line = format!("{{\"x\":\"{}\"}}", "x".repeat(91));
    assert_eq!(line.len() + 1, 100);
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--segment-age", "300ms", "--retain-age", "1h"];
        let tenant =
            ["--tenant", "web,from=127.0.0.1,quota=1000,retain-age=300ms", "--tenant", "b"];
        let flags = [&flags[..], &tenant[..]].concat();
        let Some(daemon) = start(engine, directory.path(), &flags) else { continue };
        let mut web = Client::new(daemon.connect_by("127.0.0.1"));
        (0..10).for_each(|_| web.store(&line));
        wait_until("the quota", || figure(&daemon, "quota_waits_total", "web") > 0);
        web.send(&line);
        // Retention removes the segment with the first ten, which nobody else has lines in.
        web.is_acknowledged();
        assert!(figure(&daemon, "stored_bytes", "web") <= 1000);
        let mut other = Client::new(daemon.connect_by("[::1]"));
        (0..20).for_each(|_| other.store(&line));
        assert_eq!(figure(&daemon, "accepted_lines_total", "web"), 11);
        assert_eq!(figure(&daemon, "accepted_bytes_total", "(others)"), 2000);
        assert_eq!(figure(&daemon, "quota_waits_total", "(others)"), 0);
        drop((web, other));
        daemon.end();

        // What is stored counts at the next start.
        let path = directory.path().to_str().unwrap();
        let left = printed(&["cat", path, "--tenant", "web"]).len() as u64 * 100;
        let flags = ["--tenant", "web,from=127.0.0.1,quota=1000"];
        let daemon = start(engine, directory.path(), &flags).unwrap();
        assert_eq!(figure(&daemon, "stored_bytes", "web"), left, "{engine}");
        assert_eq!(figure(&daemon, "stored_bytes", "(others)"), 2000, "{engine}");
    }
}

/// Whose network gives it a tenant may have names, and they are that tenant's.
#[test]
fn a_tenant_by_its_network_is_an_identity_for_names() {
    let greet = |stream: TcpStream| {
        (&stream).write_all(b"LOGD 1 name=main\n").unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
        let told = answers.next().unwrap().unwrap();
        (Client { stream, answers, sent: 0 }, told)
    };
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--tenant", "web,from=127.0.0.0/8"];
        let Some(daemon) = start(engine, directory.path(), &flags) else { continue };
        let (mut web, told) = greet(daemon.connect_by("127.0.0.1"));
        assert!(told.starts_with("H 1 durable 0 "), "{engine}: {told}");
        web.store("{\"a\":1}");
        web.store("{\"a\":2}");
        drop(web);
        assert_eq!(greet(daemon.connect_by("[::1]")).1, "E 1 identity", "{engine}");
        let (mut web, told) = greet(daemon.connect_by("127.0.0.1"));
        assert!(told.starts_with("H 1 durable 2 "), "{engine}: {told}");
        web.sent = 2;
        web.store("{\"a\":3}");
        let path = directory.path().to_str().unwrap();
        let lines = printed(&["cat", path, "--tenant", "web"]);
        assert_eq!(lines, [r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":3}"#], "{engine}");
        drop(web);
        daemon.end();
    }
}
