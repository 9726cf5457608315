//! `ringwise lab log` as a user runs it: daemons side by side. Wrong ones are excluded, and
//! nothing is left behind.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Command, Output},
    thread,
};

use serde_json::Value;

use crate::harness::lab_results;

fn run(directory: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.args(["lab", "log", "--verbose"]).args(arguments.split_whitespace());
    command.args(["--repeats", "2", "--json", "r.json"]).current_dir(directory).output().unwrap()
}

/// The text of a run, and its document.
#[track_caller]
fn good(directory: &Path, arguments: &str) -> (String, Value) {
    lab_results::compared(directory, "r", || run(directory, arguments))
}

/// Answers the greeting, and line `number` by what `answer` says.
fn target(answer: fn(u64) -> String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.unwrap());
                let (mut line, mut number) = (String::new(), 0);
                while matches!(reader.read_line(&mut line), Ok(1..)) {
                    let text = match line.starts_with("LOGD 1") {
                        true => "H 1 durable\n".to_owned(),
                        false => {
                            number += 1;
                            answer(number)
                        }
                    };
                    line.clear();
                    if reader.get_mut().write_all(text.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn rows(results: &Value) -> impl Iterator<Item = &Value> {
    results["results"].as_array().unwrap().iter()
}

#[test]
fn a_rate_that_is_found_is_offered() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let arguments = "--engines epoll --guarantee none --rate auto --connections 3 --duration 250ms";
    let (text, results) = good(directory.path(), arguments);
    let offered = |row: &Value| row["offered_per_s"].as_u64();
    let found = rows(&results).find_map(offered).expect("a second section");
    for part in [
        "log, plain, no acknowledgement, as many lines as are taken, 150 bytes a line",
        &format!("{found} lines per second offered, 150 bytes a line, 3 connections"),
        "the rate is 0.3 of the slowest server's in a closed loop, rounded down",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert_eq!(rows(&results).count(), 4);
    for row in rows(&results).filter(|row| offered(row).is_some()) {
        let rate = row["ops_per_s"].as_f64().unwrap();
        assert!(row["void"].is_null() && rate < found as f64 * 1.1, "{row:#}");
    }
}

#[test]
fn daemons_are_compared_within_a_guarantee() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let arguments = "--engines uring,epoll,uring+sqpoll --guarantee none,durable --rate 3000 \
                     --connections 3 --duration 200ms";
    let (text, results) = good(directory.path(), arguments);
    for part in [
        "log, plain, no acknowledgement, 3000 lines per second offered, 150 bytes a line",
        "log, plain, acknowledged when durable, 3000 lines per second offered",
        "every line found in the daemon's files once",
        "connections 3: ",
        "CPU per line ",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert_eq!(rows(&results).count(), 8);
    for row in rows(&results) {
        let is_ring = row["engine"].as_str().unwrap().starts_with("uring");
        if is_ring && !row["void"].is_null() && std::env::var_os("CI").is_none() {
            eprintln!("skipped: no ring here: {}", row["void"]);
            continue;
        }
        assert!(row["void"].is_null(), "{row:#}");
        assert!(row["cpu_ns_per_op"].as_f64().unwrap() > 0.0, "{row:#}");
        let offered = row["ops_per_s"].as_f64().unwrap();
        assert!(offered < 3100.0, "the schedule is kept: {offered}");
        let figures = &row["figures"];
        assert!(figures["lines_per_commit"].as_f64().unwrap() >= 1.0, "{row:#}");
        let syncs = figures["syncs_per_s"].as_f64();
        let is_durable = row["guarantee"] == "durable";
        assert!(!is_durable || syncs > Some(0.0), "{row:#}");
        // A poller that never sleeps takes ticks enough for kinds of CPU time to be told apart.
        if row["engine"] == "uring+sqpoll" {
            let kind_ns = |kind: &str| row["cpu"][kind].as_f64();
            assert!(kind_ns("sqpoll_ns") > kind_ns("user_ns"), "{row:#}");
            assert!(!is_durable || kind_ns("write_back_ns") > Some(0.0), "{row:#}");
        }
    }
}

#[test]
fn a_target_that_acknowledges_too_much_is_void() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let wrong = target(|number| format!("A {}\n", number + 1));
    let arguments = format!(
        "--engines epoll --target wrong={wrong} --target gone=127.0.0.1:1 --guarantee durable \
         --rate 500 --connections 2 --duration 300ms"
    );
    let (text, results) = good(directory.path(), &arguments);
    let void = |name: &str| {
        let row = rows(&results).find(|row| row["engine"] == name).unwrap();
        row["void"].as_str().unwrap_or_default().to_owned()
    };
    if ringwise_measure::cpu::allowed_cpus().unwrap().len() > 1 {
        // Its process may run anywhere, which is looked at first.
        assert!(void("wrong").contains("pin it with taskset"), "{text}");
    } else {
        assert!(void("wrong").contains("was acknowledged when"), "{text}");
    }
    assert!(
        void("gone").contains("Connection refused; start a server there, or name another address"),
        "{text}"
    );
    assert_eq!(void("epoll"), "");
}

#[test]
#[ignore = "slow: bash .ci/scheduled slow"]
fn other_daemons_take_part_where_they_are_installed() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let arguments = "--engines epoll,rsyslog-imtcp,rsyslog-imptcp,rsyslog-relp,syslog-ng \
                     --guarantee durable --rate 500 --connections 2 --duration 300ms";
    let (text, results) = good(directory.path(), arguments);
    // The two are not installed beside each other, but one may be unpacked somewhere.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| {
        let found = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
        found.map(|directory| directory.join(name)).any(|path| path.exists())
    };
    for row in rows(&results) {
        let engine = row["engine"].as_str().unwrap();
        let program = if engine == "syslog-ng" { "syslog-ng" } else { "rsyslogd" };
        if engine == "epoll" || (is_there(program) && engine != "rsyslog-relp") {
            assert!(row["void"].is_null(), "{row:#}\n{text}");
        } else if !is_there(program) {
            let in_ci = std::env::var_os("CI").is_some();
            assert!(!in_ci || program == "syslog-ng", "no skips in CI: {program}");
            eprintln!("skipped: {program} is not installed");
            let void = row["void"].as_str().unwrap();
            assert_eq!(void, format!("not measurable here: {program} is not installed"));
        }
    }
}

#[test]
fn wrong_usage_is_one_line_that_says_what_is_right() {
    for (arguments, part) in [
        (
            "--guarantee maybe",
            "--guarantee: invalid value 'maybe': expected none, written, durable",
        ),
        ("--rate fast", "--rate: invalid value 'fast': expected 1 to 100000000"),
        ("--transport udp", "--transport: invalid value 'udp': expected plain, tls"),
        (
            "--engines nginx",
            "--engines: invalid value 'nginx': expected uring, epoll, rsyslog-imtcp",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let output = run(directory.path(), arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
        assert!(text.contains(part), "{text}");
    }
}
