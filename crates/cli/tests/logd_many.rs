//! `ringwise logd` and thousands of connections, most of which say nothing.
//!
//! `RINGWISE_CONNECTIONS` says how many; without it 2,000.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

#[path = "harness/daemon.rs"]
mod daemon;

use daemon::{Daemon, ENGINES, count, wait_until};

/// Those that send.
const SENDERS: usize = 20;

fn connections() -> usize {
    let wanted = std::env::var("RINGWISE_CONNECTIONS").ok();
    wanted.map_or(2000, |count| count.parse().expect("RINGWISE_CONNECTIONS is a number"))
}

/// Connections that are open, of all threads.
fn open(page: &str) -> usize {
    let address = page.trim_end().trim_end_matches('/').rsplit('/').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
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
