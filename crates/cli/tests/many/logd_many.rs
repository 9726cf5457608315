//! `ringwise logd` and thousands of connections, most of which say nothing.
//!
//! `RINGWISE_CONNECTIONS` says how many speak the protocol of lines; without it 2,000.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::harness::daemon;
use crate::harness::disk;

use daemon::{Daemon, ENGINES, ask, count, wait_until};
use disk::{Device, Disk};

/// Those that send.
const SENDERS: usize = 20;

fn connections() -> usize {
    let wanted = std::env::var("RINGWISE_CONNECTIONS").ok();
    wanted.map_or(2000, |count| count.parse().expect("RINGWISE_CONNECTIONS is a number"))
}

/// Connections that are open, of all threads.
fn open(page: &str) -> usize {
    let text = ask(page, "/metrics");
    let own = text.lines().filter(|line| line.starts_with("logd_connections_open{"));
    own.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}

/// All are let in and stay, the lines of those that send are acknowledged and stored once, and a silent
/// one takes less than the 32 KiB that one over TLS may.
#[test]
fn thousands_stay_and_those_that_send_lose_nothing() {
    let idle = connections() - SENDERS;
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let stored = directory.path().to_str().unwrap();
        let flags = ["--dir", stored, "--http", "127.0.0.1:0"];
        let Some(mut daemon) = Daemon::launch("logd", engine, &flags) else { continue };
        let page = daemon.line();
        // It raises its own limit of open descriptors, as the daemon does.
        let mut load = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        load.args(["load", "log", "--target", &daemon.address.to_string(), "--ack", "durable"]);
        load.args(["--connections", &SENDERS.to_string(), "--idle", &idle.to_string()]);
        load.args(["--rate", "5000", "--duration", "1s", "--warm-up", "0s", "--stored", stored]);
        load.args(["--server-pid", &daemon.child.id().to_string(), "--json"]);
        let load = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("all to be open", || open(&page) == idle + SENDERS);
        let output = load.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{engine}: {told}");
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(result["sent"].as_u64().unwrap() >= 4000, "{result:#}");
        assert_eq!(result["sent"], result["received"], "{result:#}");
        let bytes = result["server"]["bytes_per_idle_connection"].as_f64().unwrap();
        println!("{engine}: {bytes:.0} B for each of {idle} idle connections");
        assert!(bytes < f64::from(32 << 10), "{engine}: {bytes} B");
        let output = daemon.end();
        assert_eq!(count(&output, "broken"), 0, "{output}");
        assert_eq!(count(&output, "connections"), (idle + SENDERS) as u64, "{output}");
    }
}

/// However fast they come, most of those that have sent a request have no buffers when they are silent again.
#[test]
fn idle_connections_of_http_take_little_memory() {
    const CLIENTS: usize = 8000;
    const REQUEST: &[u8] =
        b"POST /ingest HTTP/1.1\r\nHost: logd\r\nContent-Type: application/x-ndjson\r\n\
                             Content-Length: 2\r\n\r\n1\n";
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let stored = directory.path().to_str().unwrap();
    let most = (CLIENTS + 100).to_string();
    let flags = ["--dir", stored, "--http-intake", "127.0.0.1:0", "--intake-connections", &most];
    let mut daemon = Daemon::launch("logd", "epoll", &flags).unwrap();
    let told = daemon.line();
    let address = told.split("http://").nth(1).unwrap().split('/').next().unwrap();
    let before = daemon.resident_kib();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS / 100 {
        let ask = |_| {
            let mut stream = daemon::connect(address.parse().unwrap());
            stream.write_all(REQUEST).unwrap();
            stream
        };
        let asking: Vec<TcpStream> = (0..100).map(ask).collect();
        for mut stream in &asking {
            let mut answer = [0; 512];
            let count = stream.read(&mut answer).unwrap();
            assert!(answer[..count].starts_with(b"HTTP/1.1 200"));
        }
        clients.extend(asking);
    }
    let bytes = (daemon.resident_kib() - before) * 1024 / CLIENTS as u64;
    println!("{bytes} B for each of {CLIENTS} connections");
    // With the buffers of all it was 15 KiB.
    assert!(bytes < 8 << 10, "{bytes} B for each idle connection");
    drop(clients);
    daemon.end();
}

/// So much each of them sends at most, in bytes.
const SENT_MAX: usize = 256 << 10;

/// Senders that never wait, until nobody takes anything any more; gives how much each has sent.
fn send_all_that_is_taken(clients: &mut [TcpStream], text: &[u8]) -> Vec<usize> {
    let mut sent = vec![0; clients.len()];
    let mut quiet_since = Instant::now();
    while quiet_since.elapsed() < Duration::from_millis(700) {
        for (client, sent) in clients.iter_mut().zip(&mut sent) {
            let rest = &text[*sent % text.len()..];
            if *sent < SENT_MAX
                && let Ok(count) = client.write(rest)
            {
                *sent += count;
                quiet_since = Instant::now();
            }
        }
    }
    sent
}

/// What a daemon is given whose disk is too full.
const TIGHT: [&str; 6] = ["--budget", "8m", "--threads", "1", "--http", "127.0.0.1:0"];

/// If nothing can be stored, all senders wait, and the daemon keeps no more than its budget. It kept a buffer and
/// more for each connection: 1.5 GiB of 6,000. When there is space again, all that was sent is stored.
fn the_budget_holds_without_space(engine: &str, daemon: &mut Daemon, stored: &Path, full: Full) {
    const CLIENTS: usize = 400;
    let line = format!("\"{}\"\n", "x".repeat(253));
    let text = line.repeat(256);
    let page = daemon.line();
    let before = daemon.resident_kib();
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| daemon.connect()).collect();
    clients.iter().for_each(|client| client.set_nonblocking(true).unwrap());
    let sent = send_all_that_is_taken(&mut clients, text.as_bytes());
    let grown = (daemon.resident_kib() - before) >> 10;
    println!("{engine}: {grown} MiB more than at the start");
    assert!(grown < 32, "{engine}: {grown} MiB");
    full.end(daemon);
    let mut lines = 0;
    for (mut client, sent) in clients.into_iter().zip(sent) {
        client.set_nonblocking(false).unwrap();
        // The rest of the line that was cut.
        let rest = sent.next_multiple_of(line.len()) - sent;
        client.write_all(&line.as_bytes()[line.len() - rest..]).unwrap();
        lines += (sent + rest) / line.len();
    }
    wait_until("all to be taken", || open(&page) == 0);
    let mut cat = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    let output = cat.args(["logd", "cat"]).arg(stored).output().unwrap();
    let is_all = output.stdout == line.repeat(lines).as_bytes();
    assert!(
        is_all,
        "{engine}: {} bytes of {lines} lines that were sent are stored",
        output.stdout.len()
    );
}

/// Why there is no space: a configuration file that asks for more than there is, or a file that takes it all.
enum Full {
    Floor(PathBuf),
    Ballast(PathBuf),
}

impl Full {
    fn end(self, daemon: &Daemon) {
        match self {
            Full::Floor(config) => {
                std::fs::write(config, "min-free = \"1m\"\n").unwrap();
                daemon.signal("-HUP");
            }
            Full::Ballast(file) => std::fs::remove_file(file).unwrap(),
        }
    }
}

#[test]
fn without_space_the_budget_holds_and_senders_wait() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let (stored, config) = (directory.path().join("log"), directory.path().join("logd.toml"));
        std::fs::write(&config, "min-free = \"900000g\"\n").unwrap();
        let own = ["--dir", stored.to_str().unwrap(), "--config", config.to_str().unwrap()];
        let flags = [&TIGHT[..], &own].concat();
        let Some(mut daemon) = Daemon::launch("logd", engine, &flags) else { continue };
        the_budget_holds_without_space(engine, &mut daemon, &stored, Full::Floor(config));
        daemon.end();
    }
}

#[test]
fn on_a_full_disk_the_budget_holds_and_senders_wait() {
    for engine in ENGINES {
        let Some(disk) = Disk::mount(Device::Roomy) else { return };
        let (stored, ballast) = (disk.path().join("log"), disk.path().join("ballast"));
        let own = ["--dir", stored.to_str().unwrap(), "--min-free", "0"];
        let flags = [&TIGHT[..], &own].concat();
        let Some(mut daemon) = Daemon::launch("logd", engine, &flags) else { continue };
        let mut fill = std::fs::File::create(&ballast).unwrap();
        while fill.write_all(&[1; 1 << 20]).is_ok() {}
        while fill.write_all(&[1; 512]).is_ok() {}
        // An open file keeps its space when its name is gone.
        drop(fill);
        assert_eq!(disk.free(), 0);
        the_budget_holds_without_space(engine, &mut daemon, &stored, Full::Ballast(ballast));
        let output = daemon.end();
        assert!(count(&output, "stalls") > 0, "the disk was never too full: {output}");
    }
}

/// Who does not read its answers is ended where they take the memory of those who do.
#[test]
#[ignore = "slow: bash .ci/scheduled slow"]
fn answers_that_nobody_reads_hold_up_nobody() {
    const CLIENTS: usize = 8;
    // Nothing of such a line is stored, and each has an answer.
    let garbage = format!("{}\n", "x".repeat(65)).repeat(1000);
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--budget", "256k", "--connection-budget", "64k", "--max-line", "64"];
        let flags = [&flags[..], &["--long-lines", "refuse", "--threads", "1"]].concat();
        let flags = [&flags[..], &["--dir", directory.path().to_str().unwrap()]].concat();
        let Some(daemon) = Daemon::launch("logd", engine, &flags) else { continue };
        let mut clients: Vec<TcpStream> = (0..CLIENTS)
            .map(|_| {
                let mut client = daemon.connect();
                client.write_all(b"LOGD 1\n").unwrap();
                client.set_nonblocking(true).unwrap();
                client
            })
            .collect();
        let mut honest = daemon.connect();
        honest.set_nodelay(true).unwrap();
        honest.write_all(b"LOGD 1\n").unwrap();
        let mut answers = BufReader::new(honest.try_clone().unwrap()).lines();
        assert_eq!(answers.next().unwrap().unwrap(), "H 1 durable");
        let until = Instant::now() + Duration::from_secs(20);
        let (mut number, mut left) = (0, CLIENTS);
        while left == CLIENTS {
            assert!(Instant::now() < until, "{engine}: {number} honest lines, and nobody is ended");
            clients.retain_mut(|client| match client.write(garbage.as_bytes()) {
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
                Ok(_) => true,
            });
            left = clients.len();
            number += 1;
            writeln!(honest, "{number}").unwrap();
            assert_eq!(answers.next().unwrap().unwrap(), format!("A {number}"), "{engine}");
        }
        println!("{engine}: {number} honest lines");
        drop(clients);
        assert!(daemon.end().contains("those with the most unread answers"));
    }
}
