//! rsyslog as a sender: over RELP, which is acknowledged, and over TCP, which is not.

use std::{
    collections::HashMap,
    io::Write,
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    RECORDS, Sender, free_address,
    harness::daemon::{Daemon, ENGINES, wait_until},
    installed, watch_over_a_kill,
};

/// Starts rsyslogd, with a queue that has room for all records and one action.
fn rsyslog(directory: &Path, input: &str, action: &str) -> Sender {
    let port = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
    let configuration = format!(
        "global(workDirectory=\"{}\" maxMessageSize=\"64k\")\n\
         module(load=\"imptcp\")\nmodule(load=\"omrelp\")\n\
         input(type=\"imptcp\" address=\"127.0.0.1\" port=\"{}\")\n\
         action({action} action.resumeRetryCount=\"-1\" action.resumeInterval=\"1\"\n    \
         queue.type=\"LinkedList\" queue.size=\"{}\" queue.dequeueBatchSize=\"128\")\n",
        directory.display(),
        port(input),
        2 * RECORDS,
    );
    let path = directory.join("rsyslog.conf");
    std::fs::write(&path, configuration).unwrap();
    let mut command = Command::new("rsyslogd");
    command.args(["-n", "-f"]).arg(path).arg("-i").arg(directory.join("rsyslog.pid"));
    let sender = Sender(command.stderr(Stdio::null()).spawn().unwrap());
    wait_until("rsyslog", || TcpStream::connect(input).is_ok());
    sender
}

/// Gives all records to rsyslog, no faster than a slow daemon stores them: the kernel's buffers have room for all.
fn feed(input: &str) {
    const BATCH: usize = 500;
    let mut stream = TcpStream::connect(input).unwrap();
    for first in (0..RECORDS).step_by(BATCH) {
        let mut text = Vec::new();
        for number in first..first + BATCH {
            writeln!(text, "<13>Oct 11 22:14:15 web app[1]: record {number}").unwrap();
        }
        stream.write_all(&text).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
}

/// The number of a record, which comes wrapped, with what rsyslog makes of its header.
fn number(line: &Value) -> Option<u64> {
    // rsyslog says itself when it starts, and when a connection fails.
    let number = line["message"].as_str()?.trim_start().strip_prefix("record ")?;
    assert_eq!(
        (&line["host"], &line["app_name"], &line["procid"]),
        (&"web".into(), &"app".into(), &"1".into())
    );
    Some(number.parse().unwrap())
}

/// Lets rsyslog send to an address of the daemon, and kills that in the middle; gives the records that are stored.
fn send_over_a_kill(engine: &str, flags: &[&str], action: &str) -> Option<HashMap<u64, usize>> {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let launch = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        command.args(["logd", "--engine", engine, "--wrap", "syslog", "--dir"]).arg(&store);
        Daemon::spawn(command.args(flags), engine)
    };
    let start = || {
        let input = free_address();
        let sender = rsyslog(directory.path(), &input, action);
        thread::spawn(move || feed(&input));
        sender
    };
    let name = format!("rsyslog, {action} on {engine}");
    // omrelp sends again what was not answered, a window of 128; omfwd knows of no answers.
    let twice_max = if action.contains("omrelp") { 128 } else { 0 };
    watch_over_a_kill((&name, twice_max), &store, launch, start, number)
}

#[test]
fn omrelp_of_rsyslog() {
    if installed().is_none() {
        return;
    }
    for engine in ENGINES {
        let address = free_address();
        let port = address.rsplit_once(':').unwrap().1;
        let flags = ["--listen", "127.0.0.1:0", "--relp-intake", &address];
        let action = format!("type=\"omrelp\" target=\"127.0.0.1\" port=\"{port}\"");
        let Some(found) = send_over_a_kill(engine, &flags, &action) else { continue };
        assert_eq!(found.len(), RECORDS, "{engine}");
    }
}

/// It has no acknowledgements, so what was on its way when the daemon was killed is lost: at most what the kernel's
/// buffers on both sides had.
#[test]
fn omfwd_of_rsyslog() {
    if installed().is_none() {
        return;
    }
    for engine in ENGINES {
        for (framing, own) in [("octet-counted", "octet-counting"), ("traditional", "lines")] {
            let address = free_address();
            let port = address.rsplit_once(':').unwrap().1;
            let flags = ["--listen", &address, "--framing", own];
            let action = format!(
                "type=\"omfwd\" target=\"127.0.0.1\" port=\"{port}\" protocol=\"tcp\" tcp_framing=\"{framing}\""
            );
            let Some(found) = send_over_a_kill(engine, &flags, &action) else { continue };
            let last = found.keys().max().unwrap() + 1;
            assert_eq!(last, RECORDS as u64, "{engine}: it goes on after the restart");
        }
    }
}
