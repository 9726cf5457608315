//! Lines over `--max-line` where they are refused (`--long-lines refuse`): answered, counted, said, and
//! stored nowhere.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
};

use super::{Client, Daemon, ENGINES, cat, count, figure, start, verify, wait_until};

const FLAGS: [&str; 4] = ["--long-lines", "refuse", "--max-line", "1k"];

fn long_line() -> String {
    format!("\"{}\"\n", "x".repeat(5000))
}

#[test]
fn they_are_answered_and_counted_and_stored_nowhere() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = [&FLAGS[..], &["--http", "127.0.0.1:0"]].concat();
        let Some(mut daemon) = start(engine, directory.path(), &flags) else { continue };
        let http = daemon.line();
        let mut client = Client::new(&daemon, "LOGD 1\n");
        // Alone, among others, and beside a dead letter.
        client.stream.write_all(long_line().as_bytes()).unwrap();
        assert_eq!(client.until(1), ["N 1 too-long", "A 1"]);
        client.stream.write_all(format!("1\n{}x\n2\n", long_line()).as_bytes()).unwrap();
        let told = client.until(5);
        let told: Vec<&String> = told.iter().filter(|answer| answer.starts_with('N')).collect();
        assert_eq!(told, ["N 3 too-long", "N 4 syntax"]);
        // Who did not ask is sent nothing, and goes on.
        let mut silent = daemon.connect();
        silent.write_all(format!("{}3\n{}", long_line(), long_line()).as_bytes()).unwrap();
        wait_until("all are counted", || figure(&http, "logd_refused_lines_total") == 4);
        assert_eq!(figure(&http, "logd_rejected_lines_total"), 1);
        assert_eq!(figure(&http, "logd_accepted_lines_total"), 3);
        let peer = silent.local_addr().unwrap().to_string();
        drop((client, silent));
        let output = daemon.end();
        assert_eq!(count(&output, "refused for their length"), 4, "{output}");
        let said = format!("{peer}: refused a line of 5002 bytes: it is longer than --max-line\n");
        assert!(output.contains(&said), "{output}");
        assert_eq!(cat(&[], directory.path()), ["1", "2", "3"]);
        assert_eq!(cat(&["--dead"], directory.path()).len(), 1);
    }
}

/// The last that a client is told to be stored.
fn stored(daemon: &Daemon) -> String {
    let mut client = daemon.connect();
    loop {
        client.write_all(b"LOGD 1 name=web\n").unwrap();
        let mut answer = [0; 64];
        let len = client.read(&mut answer).unwrap();
        match &answer[..len] {
            b"E 1 busy\n" => client = daemon.connect(),
            answer => return String::from_utf8_lossy(answer).trim_end().to_owned(),
        }
    }
}

/// A client that was told of a refused line goes on with the next, whatever became of the daemon: had
/// it forgotten the number, the next would have been taken for it.
#[test]
fn the_number_of_a_refused_line_is_as_durable_as_a_stored_ones() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let start = || start(engine, path, &FLAGS);
        let Some(daemon) = start() else { continue };
        let mut client = Client::new(&daemon, "LOGD 1 name=web\n");
        client.stream.write_all(long_line().as_bytes()).unwrap();
        assert_eq!(client.until(1), ["N 1 too-long", "A 1"]);
        client.stream.write_all(b"2\n").unwrap();
        client.until(2);
        client.stream.write_all(long_line().as_bytes()).unwrap();
        assert_eq!(client.until(3), ["N 3 too-long", "A 3"]);
        daemon.signal("-KILL");
        drop((daemon, client));
        // What ended it, another segment, and a clean end change nothing.
        let daemon = start().unwrap();
        assert!(stored(&daemon).starts_with("H 1 durable 3 "));
        let mut other = Client::new(&daemon, "LOGD 1\n");
        other.stream.write_all(b"4\n").unwrap();
        other.until(1);
        daemon.signal("-KILL");
        drop((daemon, other));
        let daemon = start().unwrap();
        assert!(stored(&daemon).starts_with("H 1 durable 3 "));
        daemon.end();
        let daemon = start().unwrap();
        assert!(stored(&daemon).starts_with("H 1 durable 3 "));
        daemon.end();
        assert_eq!(cat(&[], path), ["2", "4"]);
        assert_eq!(cat(&["--dead"], path), Vec::<String>::new());
        let verdict = verify(path);
        assert!(verdict.lines().all(|line| line.ends_with("sealed")), "{verdict}");
    }
}

/// Nothing is kept of what goes on and on, and others are served meanwhile.
#[test]
fn a_line_without_an_end_costs_nothing() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--long-lines", "refuse", "--max-line", "1m", "--budget", "4m"];
        let Some(daemon) = start(engine, directory.path(), &flags) else { continue };
        let mut endless: Vec<TcpStream> = (0..20).map(|_| daemon.connect()).collect();
        let mut client = Client::new(&daemon, "LOGD 1\n");
        for stream in &mut endless {
            stream.write_all(&vec![b'"'; 3 << 20]).unwrap();
        }
        client.stream.write_all(b"1\n").unwrap();
        client.until(1);
        drop((endless, client));
        let output = daemon.end();
        // Half a line is told as what it is: too long already.
        assert_eq!(count(&output, "refused for their length"), 20, "{output}");
        assert_eq!(cat(&[], directory.path()), ["1"]);
        assert_eq!(cat(&["--dead"], directory.path()), Vec::<String>::new());
    }
}

/// The generator's count of it: a run with refused lines is no good run, acknowledged or not.
#[test]
fn a_load_with_refused_lines_fails() {
    let directory = tempfile::tempdir().unwrap();
    let (log, file) = (directory.path().join("log"), directory.path().join("lines"));
    std::fs::write(&file, format!("[1]\n{}[3]\n", long_line())).unwrap();
    let daemon = start("epoll", &log, &FLAGS).unwrap();
    let load = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        command.args(["load", "log", "--target", &daemon.address.to_string(), "-c", "2"]);
        command.args(["-d", "200ms", "--rate", "500", "--lines"]).arg(&file);
        let output = command.args(more).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = load(&["--ack", "durable"]);
    assert!(said.contains("lines were rejected: line 2 of connection"), "{said}");
    assert!(said.trim_end().ends_with("too-long"), "{said}");
    let stored: &Path = &log;
    let said = load(&["--stored", stored.to_str().unwrap()]);
    assert!(said.contains("are not stored"), "{said}");
    daemon.end();
}
