//! Clients that send lines of JSON over TCP and are told nothing: `pino-socket` and `python-logstash-async`.
//!
//! What was on its way when the daemon was killed is lost: at most what the kernel's buffers on both sides had, and what
//! the client keeps nowhere else. It goes on after the restart.

use std::process::Command;

use serde_json::Value;

use crate::{
    RECORDS, Sender, free_address,
    harness::daemon::{Daemon, ENGINES},
    intake::{node, python},
    watch_over_a_kill,
};

fn send_over_a_kill(name: &str, client: impl Fn() -> Command, number: fn(&Value) -> Option<u64>) {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        let address = free_address();
        let launch = || {
            let flags = ["--listen", &address, "--dir", store.to_str().unwrap()];
            let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
            Daemon::spawn(command.args(["logd", "--engine", engine]).args(flags), engine)
        };
        let start = || {
            let mut command = client();
            Sender(command.args([&address, &RECORDS.to_string()]).spawn().unwrap())
        };
        let name = format!("{name} on {engine}");
        // Nothing is sent again.
        let found = watch_over_a_kill((&name, 0), &store, launch, start, number);
        let Some(found) = found else { continue };
        let last = found.keys().max().unwrap() + 1;
        assert_eq!(last, RECORDS as u64, "{name}: it goes on after the restart");
    }
}

#[test]
fn pino_socket() {
    let Some(directory) = crate::installed() else { return };
    let client = || node(&directory, "pino_socket.cjs");
    send_over_a_kill("pino-socket", client, |line| line["n"].as_u64());
}

#[test]
fn python_logstash_async() {
    let Some(directory) = crate::installed() else { return };
    let client = || python(&directory, "logstash_async_sender.py");
    send_over_a_kill("python-logstash-async", client, |line| line["extra"]["n"].as_u64());
}
