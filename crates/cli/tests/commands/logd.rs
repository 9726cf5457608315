//! `ringwise logd` from outside: what it stores, what it acknowledges, and how it ends. Every test
//! runs on each engine; the ring is skipped with a reason where there is none, and never in CI.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    path::Path,
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    harness::{daemon, disk},
    intake,
};

mod away;
mod forbidden;
mod gathered;
mod limits;
mod long;
mod names;
mod reload;
mod storage;
mod submission;
mod threads;
mod time;
pub mod tls;
mod unit;
mod upload;

use daemon::{Daemon, ENGINES, ask, cat, count, wait_until};

/// Starts a daemon; nothing where this machine has no ring. Of one thread unless the flags say otherwise:
/// most tests look at a stream, and with several the kernel chooses which.
fn start(engine: &str, directory: &Path, flags: &[&str]) -> Option<Daemon> {
    let directory = ["--names", "anyone", "--dir", directory.to_str().unwrap()];
    let one = if flags.contains(&"--threads") { &[][..] } else { &["--threads", "1"] };
    Daemon::launch("logd", engine, &[&directory, one, flags].concat())
}

pub fn logd(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.arg("logd").args(arguments).arg(directory).output().unwrap()
}

pub fn verify(directory: &Path) -> String {
    let output = logd(&["verify"], directory);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A client that asked for acknowledgements.
struct Client {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Client {
    fn new(daemon: &Daemon, greeting: &str) -> Client {
        let mut stream = daemon.connect();
        stream.write_all(greeting.as_bytes()).unwrap();
        let mut client = Client { answers: BufReader::new(stream.try_clone().unwrap()), stream };
        let answer = client.answer();
        assert!(answer.starts_with("H 1 "), "{answer}");
        client
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Answers up to the acknowledgement of a line.
    fn until(&mut self, sequence: u64) -> Vec<String> {
        let mut answers = Vec::new();
        loop {
            let answer = self.answer();
            assert!(!answer.is_empty(), "it ended after {answers:?}");
            let is_last = answer == format!("A {sequence}");
            answers.push(answer);
            if is_last {
                return answers;
            }
        }
    }
}

/// A figure of a daemon's only thread; `page` is the line in which it told its status page.
fn figure(page: &str, name: &str) -> u64 {
    let text = ask(page, "/metrics");
    let start = format!("{name}{{thread=\"0\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&start));
    value.unwrap_or_else(|| panic!("no {name}: {text}")).parse().unwrap()
}

#[test]
fn what_is_acknowledged_is_stored_as_it_came() {
    for engine in ENGINES {
        for guarantee in ["durable", "written"] {
            let directory = tempfile::tempdir().unwrap();
            let Some(daemon) = start(engine, directory.path(), &["--ack", guarantee]) else {
                continue;
            };
            let mut client = Client::new(&daemon, "LOGD 1\n");
            client.stream.write_all(b"{\"a\" :1 }\r\n\n[2]\n\"\xff\"\n3 4\nnull\n").unwrap();
            let answers = client.until(5);
            let told: Vec<&String> =
                answers.iter().filter(|answer| !answer.starts_with('A')).collect();
            assert_eq!(told, ["N 3 utf8", "N 4 trailing"]);
            assert_eq!(cat(&[], directory.path()), ["{\"a\" :1 }", "[2]", "null"]);
            let letters = cat(&["--dead"], directory.path());
            assert_eq!(letters.len(), 1, "they share a record: {letters:?}");
            let letter: serde_json::Value = serde_json::from_str(&letters[0]).unwrap();
            assert_eq!(letter["sequence"], 3);
            let expected = serde_json::json!([["utf8", 1, ["22ff22"]], ["trailing", 2, "3 4"]]);
            assert_eq!(letter["letters"], expected);
            let peer = client.stream.local_addr().unwrap().to_string();
            assert_eq!(letter["peer"], peer);
            drop(client);
            let output = daemon.end();
            assert_eq!(count(&output, "lines accepted"), 3, "{output}");
            assert!(verify(directory.path()).contains("3 lines, sealed"));
        }
    }
}

#[test]
fn who_does_not_ask_is_sent_nothing_and_stored_all_the_same() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(daemon) = start(engine, directory.path(), &["--ack", "none"]) else {
            continue;
        };
        let mut stream = daemon.connect();
        let lines: String = (0..100_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
        stream.write_all(lines.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answers = Vec::new();
        stream.read_to_end(&mut answers).unwrap();
        assert_eq!(answers, b"");
        let output = daemon.end();
        assert_eq!(count(&output, "lines accepted"), 100_000, "{output}");
        let expected: Vec<&str> = lines.lines().collect();
        assert!(cat(&[], directory.path()) == expected);
        assert_eq!(cat(&["--from", "99999"], directory.path()), ["{\"n\":99999}"]);
    }
}

#[test]
fn nobody_is_promised_more_than_is_so() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = start("epoll", directory.path(), &["--ack", "written"]).unwrap();
    let mut stream = daemon.connect();
    stream.write_all(b"LOGD 1 ack=durable\n{}\n").unwrap();
    let mut answer = String::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    reader.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "E 1 weaker written\n");
    drop((stream, reader));
    daemon.end();
    assert_eq!(cat(&[], directory.path()), Vec::<String>::new());
}

/// Hostile clients: one that never reads its answers, one that never ends a line, many that say
/// nothing, some that reset. An honest one is served as if they were not there.
#[test]
fn who_is_slow_or_hostile_holds_up_nobody() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--max-line", "64k", "--connection-budget", "256k", "--budget", "1m"];
        let Some(daemon) = start(engine, directory.path(), &flags) else { continue };
        let idle: Vec<TcpStream> = (0..100).map(|_| daemon.connect()).collect();
        let mut deaf = Client::new(&daemon, "LOGD 1\n").stream;
        deaf.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        // A rejection for each of its lines, none of which it reads.
        while deaf.write_all(&b"x\n".repeat(10_000)).is_ok() {}
        let mut endless: Vec<TcpStream> = (0..20).map(|_| daemon.connect()).collect();
        for stream in &mut endless {
            stream.write_all(&vec![b'"'; 1 << 20]).unwrap();
        }
        for _ in 0..50 {
            let mut stream = daemon.connect();
            stream.write_all(b"{\"torn").unwrap();
            end_early(&stream);
        }
        let mut honest = Client::new(&daemon, "LOGD 1\n");
        for sequence in 1..=200 {
            writeln!(honest.stream, "{{\"honest\":{sequence}}}").unwrap();
            honest.until(sequence);
        }
        let memory = daemon.resident_kib();
        assert!(memory < 100 << 10, "{memory} KiB");
        drop((idle, deaf, endless, honest));
        daemon.end();
        let lines = cat(&[], directory.path());
        assert_eq!(lines.len(), 200, "{:?}", &lines[..lines.len().min(3)]);
        let letters = cat(&["--dead"], directory.path());
        assert!(
            letters.iter().any(
                |letter| letter.contains("\"too-long\"") || letter.contains("\"unterminated\"")
            )
        );
    }
}

/// A thread that has drained before the others does not keep the second signal from them, and who
/// comes after the first is refused.
#[test]
fn a_second_signal_ends_every_thread_at_once() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--drain", "30s", "--threads", "4"];
        let Some(mut daemon) = start(engine, directory.path(), &flags) else { continue };
        // It asked, and then neither reads nor ends: the drain waits for it.
        let mut stays = Client::new(&daemon, "LOGD 1\n");
        stays.stream.write_all(b"1\n").unwrap();
        stays.until(1);
        daemon.signal("-TERM");
        wait_until("nobody is let in", || TcpStream::connect(daemon.address).is_err());
        assert_eq!(stays.answer(), "", "the daemon ends its side");
        let asked = Instant::now();
        daemon.signal("-TERM");
        daemon.output();
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    }
}

#[test]
fn closed_connections_leave_no_descriptor() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(daemon) = start(engine, directory.path(), &[]) else { continue };
        let warm = |number: u64| {
            let mut client = Client::new(&daemon, "LOGD 1\n");
            writeln!(client.stream, "{number}").unwrap();
            client.until(1);
        };
        warm(0);
        let before = daemon.open_descriptors();
        (1..200).for_each(warm);
        wait_until("all connections close", || daemon.open_descriptors() <= before);
        daemon.end();
    }
}

/// Ends both directions in the middle of a line.
fn end_early(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}

#[test]
fn an_end_takes_what_was_sent_and_acknowledges_it() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(mut daemon) = start(engine, directory.path(), &["--threads", "2"]) else {
            continue;
        };
        let mut clients: Vec<Client> =
            (0..8).map(|_| Client::new(&daemon, "LOGD 1 ack=durable\n")).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let lines: String = (0..5000).map(|n| format!("[{number},{n}]\n")).collect();
            client.stream.write_all(lines.as_bytes()).unwrap();
        }
        daemon.signal("-TERM");
        for client in &mut clients {
            client.until(5000);
            assert_eq!(client.answer(), "", "the daemon ends its side");
        }
        drop(clients);
        let output = daemon.output();
        assert_eq!(count(&output, "lines accepted"), 40_000, "{output}");
        assert_eq!(cat(&[], directory.path()).len(), 40_000);
        let verdict = verify(directory.path());
        assert!(!verdict.contains("open"), "{verdict}");
    }
}

#[test]
fn segments_roll_and_the_next_run_goes_on() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let mut sent = 0;
        for _ in 0..2 {
            let flags = ["--segment-size", "4k"];
            let Some(daemon) = start(engine, directory.path(), &flags) else { continue };
            let mut client = Client::new(&daemon, "LOGD 1\n");
            for sequence in 1..=20 {
                writeln!(client.stream, "[{sent},\"{}\"]", "x".repeat(1000)).unwrap();
                client.until(sequence);
                sent += 1;
            }
            drop(client);
            daemon.end();
        }
        let verdict = verify(directory.path());
        let lines = cat(&[], directory.path());
        assert_eq!(lines.len(), sent);
        for (number, line) in lines.iter().enumerate() {
            assert!(line.starts_with(&format!("[{number},")), "{line}");
        }
        if sent > 0 {
            assert!(verdict.lines().count() >= 8, "{verdict}");
            assert!(verdict.lines().all(|line| line.contains("sealed")), "{verdict}");
            // A spoilt byte is found.
            let names = std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().path());
            let data = names.filter(|path| path.extension().is_some_and(|e| e == "ndjson"));
            let path = data.min().unwrap();
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[10] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            let output = logd(&["verify"], directory.path());
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1));
            assert!(error.contains("damaged after 0 whole batches"), "{error}");
        }
    }
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = start("epoll", directory.path(), &[]).unwrap();
    let path = directory.path().to_str().unwrap();
    let taken = daemon.address.to_string();
    for (arguments, status, word) in [
        (
            vec!["--dir", path],
            1,
            "another daemon uses this directory; stop it, or name another directory",
        ),
        (
            vec!["--dir", "/proc/nowhere"],
            1,
            "--dir /proc/nowhere: cannot be made: No such file or directory; name a directory on a writable",
        ),
        (vec!["--dir", "/proc/version"], 1, "--dir /proc/version: File exists; name a directory"),
        (vec!["--listen", "nowhere"], 2, "such as 127.0.0.1:9000"),
        (vec!["--listen", &taken, "--dir", "DIRECTORY"], 1, "another program listens"),
        (vec!["--ack", "maybe"], 2, "durable"),
        (vec!["--require", "a:text"], 2, "NAME:TYPE"),
        (vec!["--max-line", "0"], 2, "1g"),
        (vec!["--max-line", "100m", "--check"], 2, "--connection-budget"),
        (vec!["--max-connections", "1000000", "--check"], 1, "--max-connections"),
        (
            vec!["--idle", "0", "--check"],
            2,
            "--idle: invalid value '0': expected more than 0, such as 10s",
        ),
        (
            vec!["--retain-age", "0", "--check"],
            2,
            "--retain-age: invalid value '0': expected more than 0; leave the option out to keep segments",
        ),
        (vec!["--retain-size", "0", "--check"], 2, "leave the option out to keep segments"),
        (vec!["--tenant", "a,retain-size=0", "--check"], 2, "retain-size: expected more than 0"),
        (vec!["--config", "/no/such.toml", "--check"], 1, "--config /no/such.toml: "),
        (vec!["--tls-cert", "x"], 2, "--tls-cert"),
        (vec!["tail", path, "--from", "x"], 2, "expected the number of a line, from 0"),
        (vec!["cat", "/no/such"], 1, "/no/such: No such file or directory; name an existing path"),
    ] {
        let other = tempfile::tempdir().unwrap();
        let other = other.path().to_str().unwrap();
        let arguments: Vec<&str> =
            arguments.iter().map(|word| if *word == "DIRECTORY" { other } else { word }).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        let output = command.arg("logd").args(&arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
        assert!(error.contains(word), "{arguments:?}: {error}");
    }
}

/// It was said as of a flag, which nobody had typed.
#[test]
fn what_a_file_asks_for_and_cannot_be_is_said_by_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let (log, config) = (directory.path().join("log"), directory.path().join("logd.toml"));
    let daemon = start("epoll", &log, &[]).unwrap();
    let (log, taken) = (log.to_str().unwrap(), daemon.address);
    for (text, told) in [
        (format!("dir = \"{log}\""), format!("dir {log}: another daemon uses this directory")),
        ("dir = \"/proc/nowhere\"".to_owned(), "dir /proc/nowhere: ".to_owned()),
        (format!("listen = \"{taken}\""), "listen: ".to_owned()),
        (format!("http = \"{taken}\""), format!("http {taken}: Address already in use")),
        ("max-connections = 1000000".to_owned(), "max-connections 1000000 needs".to_owned()),
        ("tokens = \"no-such\"".to_owned(), "tokens no-such: No such file".to_owned()),
    ] {
        std::fs::write(&config, &text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        // Where no directory is named, one is made here.
        command.current_dir(directory.path()).args(["logd", "--config", "logd.toml"]);
        if !text.starts_with("listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}: {error}");
        let begin = format!("ringwise: logd: --config logd.toml: {told}");
        assert!(error.starts_with(&begin) && error.lines().count() == 1, "{text}: {error}");
        // The same as a flag, beside a file that has nothing to do with it.
        std::fs::write(&config, "drain = \"1s\"").unwrap();
        let (key, value) = text.split_once(" = ").unwrap();
        let flag = format!("--{key}={}", value.trim_matches('"'));
        let output = command.arg(flag).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.starts_with(&format!("ringwise: logd: --{told}")), "{text}: {error}");
    }
}

#[test]
fn tail_goes_on_as_lines_are_stored() {
    let directory = tempfile::tempdir().unwrap();
    let Some(daemon) = start("epoll", directory.path(), &["--segment-size", "1"]) else {
        return;
    };
    let mut client = Client::new(&daemon, "LOGD 1\n");
    client.stream.write_all(b"1\n2\n").unwrap();
    client.until(2);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.args(["logd", "tail"]).arg(directory.path()).stdout(Stdio::piped());
    let mut tail = command.spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    for expected in ["1", "2"] {
        assert_eq!(lines.next().unwrap().unwrap(), expected);
    }
    for number in 3..8_u64 {
        writeln!(client.stream, "{number}").unwrap();
        client.until(number);
        assert_eq!(lines.next().unwrap().unwrap(), number.to_string());
    }
    // Many segments between two looks.
    daemon::signal(&tail, "-STOP");
    for number in 8..28_u64 {
        writeln!(client.stream, "{number}").unwrap();
        client.until(number);
    }
    daemon::signal(&tail, "-CONT");
    for number in 8..28_u64 {
        assert_eq!(lines.next().unwrap().unwrap(), number.to_string());
    }
    tail.kill().unwrap();
    tail.wait().unwrap();
}

/// `verify` took a mistyped directory for a good one: its exit status was 0. A daemon that just started has no
/// segments either, so tools that print lines do not fail.
#[test]
fn a_directory_without_segments_is_told_and_no_good_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display();
    let told = format!(
        "ringwise: logd: {path}: no segments; name the directory that the daemon's --dir names\n"
    );
    for (tool, status) in
        [(&["verify"][..], 1), (&["cat"], 0), (&["tail", "--once"], 0), (&["query"], 0)]
    {
        let output = logd(tool, directory.path());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said), (Some(status), told.clone()), "{tool:?}");
        assert!(output.stdout.is_empty(), "{tool:?}");
    }
}

#[test]
fn tail_says_what_is_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let Some(daemon) = start("epoll", directory.path(), &["--segment-size", "1"]) else {
        return;
    };
    let mut client = Client::new(&daemon, "LOGD 1\n");
    for number in 1..=5_u64 {
        writeln!(client.stream, "{number}").unwrap();
        client.until(number);
    }
    drop(client);
    daemon.end();
    for number in [1, 2] {
        let name = format!("lines-000-000000000{number}.ndjson");
        std::fs::remove_file(directory.path().join(name)).unwrap();
    }
    let output = logd(&["tail", "--once", "--from", "0"], directory.path());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "1\n4\n5\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "ringwise: logd: lines-000: lines 1 to 2 are missing\n");
}

/// The daemon is killed under load, again and again: every acknowledged line is there, once, in
/// order, whole; and no other than was sent.
#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    for engine in ENGINES {
        for guarantee in ["durable", "written"] {
            let directory = tempfile::tempdir().unwrap();
            let flags = ["--ack", guarantee, "--segment-size", "64k", "--pack", "1"];
            let flags = [&flags[..], &["--threads", "2"]].concat();
            let start = |flags: &[&str]| start(engine, directory.path(), flags);
            let load = |(daemon, ()): &(_, _), place, seen: &_| load(daemon, place, seen);
            let all = intake::kill_under_load(|| Some((start(&flags)?, ())), 3, load);
            let Some(all) = all else { return };
            // A start cuts what is torn.
            start(&[]).unwrap().end();
            verify(directory.path());
            let none = "nothing was acknowledged: the test proves nothing";
            assert!(all.iter().all(|told| told.answered > 0), "{none}");
            let lines = cat(&[], directory.path());
            // The first line has the number 1.
            let place = |line: &String| {
                let (numbers, _) = line.rsplit_once(",\"").unwrap();
                let (round, number, sequence) = intake::place(&format!("{numbers}]"));
                (round, number, sequence - 1)
            };
            let places: Vec<_> = lines.iter().map(place).collect();
            intake::check_once_and_in_order(engine, &all, 1, &places);
            assert!(lines.iter().all(|line| line.ends_with("\"]")), "none is torn");
        }
    }
}

/// Sends lines until the daemon is gone; gives the last that was acknowledged.
fn load(daemon: &Daemon, (round, number): (usize, usize), answers: &AtomicUsize) -> usize {
    let mut client = Client::new(daemon, "LOGD 1\n");
    let mut stream = client.stream.try_clone().unwrap();
    let sender = thread::spawn(move || {
        // Far more than is sent before the kill, and no full disk where there is none.
        for sequence in 1..2_000_000_u64 {
            let line = format!("[{round},{number},{sequence},\"{}\"]\n", "x".repeat(100));
            if stream.write_all(line.as_bytes()).is_err() {
                return;
            }
        }
    });
    let mut last = 0;
    let until = Instant::now() + Duration::from_secs(20);
    let mut line = String::new();
    while Instant::now() < until {
        line.clear();
        // An acknowledgement that was cut short is none.
        match client.answers.read_line(&mut line) {
            Ok(_) if line.ends_with('\n') => {
                let told = line.strip_prefix("A ").and_then(|told| told.trim_end().parse().ok());
                last = told.unwrap_or_else(|| panic!("{line}"));
                answers.fetch_add(1, Ordering::Relaxed);
            }
            _ => break,
        }
    }
    drop(client);
    sender.join().unwrap();
    last
}
