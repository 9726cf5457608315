//! rsyslog as a sender: over RELP, which is acknowledged, and over TCP, which is not.

use std::{
    collections::HashMap,
    io::Write,
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    PATIENCE, RECORDS, Sender, free_address,
    harness::daemon::{Daemon, ENGINES, cat, wait_until},
    installed,
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

/// Gives all records to rsyslog.
fn feed(input: &str) {
    let mut stream = TcpStream::connect(input).unwrap();
    let mut text = Vec::new();
    for number in 0..RECORDS {
        writeln!(text, "<13>Oct 11 22:14:15 web app[1]: record {number}").unwrap();
    }
    stream.write_all(&text).unwrap();
}

/// How often each record is stored. They come wrapped, with what rsyslog makes of the header.
fn found(store: &Path) -> HashMap<usize, usize> {
    let mut found = HashMap::new();
    for line in cat(&[], store) {
        let line: Value = serde_json::from_str(&line).unwrap();
        // rsyslog says itself when it starts, and when a connection fails.
        let Some(number) = line["message"].as_str().unwrap().trim_start().strip_prefix("record ")
        else {
            continue;
        };
        assert_eq!(
            (&line["host"], &line["app_name"], &line["procid"]),
            (&"web".into(), &"app".into(), &"1".into())
        );
        *found.entry(number.parse().unwrap()).or_default() += 1;
    }
    found
}

/// Waits until nothing more is stored for a while, or all records are.
fn wait_for_all(store: &Path) -> HashMap<usize, usize> {
    let (until, mut before) = (Instant::now() + PATIENCE, (0, Instant::now()));
    loop {
        let found = found(store);
        if found.len() != before.0 {
            before = (found.len(), Instant::now());
        }
        if found.len() == RECORDS || before.1.elapsed() > Duration::from_secs(10) {
            return found;
        }
        assert!(Instant::now() < until, "only {} are stored", found.len());
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Lets rsyslog send to an address of the daemon, and kills that in the middle; gives the records that are stored.
fn send_over_a_kill(engine: &str, flags: &[&str], action: &str) -> Option<HashMap<usize, usize>> {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let launch = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        command.args(["logd", "--engine", engine, "--wrap", "syslog", "--dir"]).arg(&store);
        Daemon::spawn(command.args(flags), engine)
    };
    let daemon = launch()?;
    let input = free_address();
    let sender = rsyslog(directory.path(), &input, action);
    feed(&input);
    wait_until("a tenth", || cat(&[], &store).len() > RECORDS / 10);
    daemon.signal("-KILL");
    drop(daemon);
    let daemon = launch().unwrap();
    let before = found(&store).len();
    let found = wait_for_all(&store);
    drop(sender);
    daemon.end();
    let lost = RECORDS - found.len();
    let twice: usize = found.values().map(|count| count - 1).sum();
    println!(
        "rsyslog, {action} on {engine}: killed after {before} records; {lost} lost, {twice} twice"
    );
    Some(found)
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
            assert_eq!(last, RECORDS, "{engine}: it goes on after the restart");
        }
    }
}
