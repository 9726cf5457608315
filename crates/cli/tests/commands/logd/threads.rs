//! A daemon of several threads, which is what one is where nobody says how many: its streams are one
//! store for those who read it, for clients that come back to another thread, and for retention.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{Client, Daemon, ENGINES, cat, count, start, verify, wait_until};

/// Threads that take lines, by their names.
fn takers(daemon: &Daemon) -> usize {
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap();
    let names = threads.map(|one| std::fs::read_to_string(one.unwrap().path().join("comm")));
    let is_taker = |name: &String| {
        let number = name.trim_end().strip_prefix("logd-");
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    names.flatten().filter(is_taker).count()
}

/// It was one wherever it ran.
#[test]
fn there_are_as_many_threads_as_processors_it_may_use() {
    let processors = ringwise_measure::cpu::allowed_cpus().unwrap();
    let all = processors.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let first = processors[0].to_string();
    for (list, count) in [(&all, processors.len()), (&first, 1)] {
        let directory = tempfile::tempdir().unwrap();
        let daemon = |more: &[&str]| {
            let mut command = Command::new("taskset");
            command.args(["-c", list, env!("CARGO_BIN_EXE_ringwise"), "logd", "--engine", "epoll"]);
            command.args(["--listen", "127.0.0.1:0", "--dir"]).arg(directory.path()).args(more);
            command
        };
        let running = Daemon::spawn(&mut daemon(&[]), "epoll").unwrap();
        assert_eq!(takers(&running), count.min(256), "on processors {list}");
        running.end();
        let checked = daemon(&["--check"]).output().unwrap();
        let told = String::from_utf8(checked.stdout).unwrap();
        let right = format!("the options are right: {count} threads, ");
        assert!(told.starts_with(&right), "{told}");
    }
}

/// Comes with a name, sends a line, and says in which stream it is.
fn send(daemon: &Daemon, directory: &Path, number: u64) -> u32 {
    let mut client = loop {
        let mut stream = daemon.connect();
        stream.write_all(b"LOGD 1 name=web\n").unwrap();
        let mut client = Client { answers: BufReader::new(stream.try_clone().unwrap()), stream };
        let answer = client.answer();
        if answer != "E 1 busy" {
            assert!(answer.starts_with(&format!("H 1 durable {} ", number - 1)), "{answer}");
            break client;
        }
        thread::sleep(Duration::from_millis(1));
    };
    writeln!(client.stream, "{number}").unwrap();
    client.until(number);
    let is_there = |stream: &u32| {
        let name = format!("lines-{stream:03}-0000000000.ndjson");
        directory.join(name).exists()
            && cat(&["--stream", &stream.to_string()], directory).contains(&number.to_string())
    };
    (0..4).find(is_there).unwrap_or_else(|| panic!("{number} is in no stream"))
}

/// A client with a name comes back to other threads, and to daemons of more threads and of fewer: each
/// time it is told of the line that another thread stored last.
#[test]
fn who_comes_back_to_another_thread_is_told_of_its_last_line() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut next = 1;
        for (threads, is_killed) in [("4", true), ("1", true), ("3", false), ("2", true)] {
            let Some(mut daemon) = start(engine, path, &["--threads", threads]) else { return };
            let mut seen = BTreeSet::new();
            let until = Instant::now() + Duration::from_secs(20);
            while seen.len() < threads.parse::<usize>().unwrap().min(2) {
                assert!(Instant::now() < until, "always to the same thread");
                seen.insert(send(&daemon, path, next));
                next += 1;
            }
            daemon.signal(if is_killed { "-KILL" } else { "-TERM" });
            daemon.child.wait().unwrap();
        }
        start(engine, path, &[]).unwrap().end();
        let mut lines: Vec<u64> = cat(&[], path).iter().map(|line| line.parse().unwrap()).collect();
        lines.sort_unstable();
        assert_eq!(lines, (1..next).collect::<Vec<_>>(), "each once");
        let verdict = verify(path);
        assert!(verdict.lines().all(|line| line.ends_with("sealed")), "{verdict}");
    }
}

/// Sends a line to each of so many streams, and gives what was sent.
fn to_all(daemon: &Daemon, directory: &Path, streams: u32, first: u64) -> u64 {
    let mut next = first;
    let until = Instant::now() + Duration::from_secs(20);
    let has = |number: u32, lines: usize| {
        cat(&["--stream", &number.to_string()], directory).len() >= lines
    };
    let before: Vec<usize> = (0..streams)
        .map(|number| cat(&["--stream", &number.to_string()], directory).len())
        .collect();
    while !(0..streams).all(|number| has(number, before[number as usize] + 1)) {
        assert!(Instant::now() < until, "always to the same thread");
        let mut client = Client::new(daemon, "LOGD 1\n");
        writeln!(client.stream, "{next}").unwrap();
        client.until(1);
        next += 1;
        // The times of batches are in milliseconds.
        thread::sleep(Duration::from_millis(2));
    }
    next
}

/// A stream that was not there when `tail` began is followed too, and each can be had by itself.
#[test]
fn tools_read_all_streams_as_one_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let daemon = start("epoll", path, &["--threads", "3"]).unwrap();
    let mut tail = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    tail.args(["logd", "tail"]).arg(path).stdout(Stdio::piped());
    let mut tail = tail.spawn().unwrap();
    let next = to_all(&daemon, path, 3, 1);
    let mut told = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut lines: Vec<u64> =
        (1..next).map(|_| told.next().unwrap().unwrap().parse().unwrap()).collect();
    lines.sort_unstable();
    assert_eq!(lines, (1..next).collect::<Vec<_>>(), "tail");
    tail.kill().unwrap();
    tail.wait().unwrap();
    let all = cat(&[], path);
    let sent: Vec<String> = (1..next).map(|number| number.to_string()).collect();
    assert_eq!(all, sent, "cat merges the streams by the times of their batches");
    assert_eq!(verify(path).lines().filter(|line| line.contains(", open")).count(), 3);
    daemon.end();
}

/// What may be kept is of all streams together, those of threads that are no more among them, and of each
/// its oldest goes first.
#[test]
fn retention_is_of_all_streams_together() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let daemon = start("epoll", path, &["--threads", "3", "--segment-size", "1"]).unwrap();
    // Of each stream the last index stays: a third has to be more than three of these.
    (0..5).fold(1, |next, _| to_all(&daemon, path, 3, next));
    daemon.end();
    let streams = || ["0", "1", "2"].map(|stream| cat(&["--stream", stream], path));
    let before = streams();
    let bytes = || -> u64 {
        let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
        let files = files.filter(|file| file.file_name() != "directory.id");
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    };
    let kept = bytes() / 3;
    let daemon = start("epoll", path, &["--retain-size", &kept.to_string()]).unwrap();
    wait_until("two thirds to be removed", || bytes() <= kept);
    // No more than has to: a segment of a line is shorter.
    assert!(bytes() + 400 > kept, "{} of {kept}", bytes());
    daemon.end();
    let after = streams();
    let shorter = before.iter().zip(&after).filter(|(before, after)| {
        assert!(before.ends_with(after), "{before:?} {after:?}");
        after.len() < before.len()
    });
    assert!(shorter.count() >= 2, "{before:?} {after:?}");
    verify(path);
}

/// However the kernel spreads them: each thread had a share of its own, so that connections waited at one
/// while others had room.
#[test]
fn the_limit_of_connections_is_of_all_threads_together() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--threads", "4", "--max-connections", "4"];
        let Some(daemon) = start(engine, directory.path(), &flags) else { continue };
        let mut next = 0;
        let mut client = || {
            next += 1;
            let mut stream = daemon.connect();
            writeln!(stream, "LOGD 1\n{next}").unwrap();
            Client { answers: BufReader::new(stream.try_clone().unwrap()), stream }
        };
        let is_answered = |client: &mut Client, patience: Duration| {
            client.stream.set_read_timeout(Some(patience)).unwrap();
            let mut answer = String::new();
            client.answers.read_line(&mut answer).is_ok() && answer.starts_with("H 1 ")
        };
        // In one of eleven rounds they are spread evenly by chance.
        for _ in 0..8 {
            let mut clients: Vec<Client> = (0..4).map(|_| client()).collect();
            for client in &mut clients {
                assert!(is_answered(client, Duration::from_secs(10)), "{engine}: one waits");
                client.until(1);
            }
            // Who comes then waits, wherever it is, until any of them leaves.
            let mut others: Vec<Client> = (0..2).map(|_| client()).collect();
            for other in &mut others {
                assert!(!is_answered(other, Duration::from_millis(30)), "{engine}: beyond it");
            }
            drop(clients);
            for other in &mut others {
                assert!(is_answered(other, Duration::from_secs(10)), "{engine}: left to wait");
                other.until(1);
            }
        }
        let told = daemon.end();
        assert_eq!(count(&told, "lines accepted"), 8 * 6, "{told}");
    }
}

/// With as many connections as may be open, segments that wait for their seal and requests for the page had
/// no descriptors left.
#[test]
fn descriptors_are_kept_for_all_that_is_no_connection() {
    /// Segments that may wait for their seal, and those that each thread ends beyond that.
    const WAITING: usize = 16;
    const ENDED_EACH: usize = 2;
    const REQUESTS: usize = 16 + 16 + 1;
    /// Clients that follow lines, and searches. Each reads a segment of each stream, which has two descriptors if it
    /// is packed, and a search two more ahead.
    const FOLLOWERS: usize = 8;
    const SEARCHES: usize = 2;
    for threads in [1, 4] {
        let directory = tempfile::tempdir().unwrap();
        let number = threads.to_string();
        let ringwise = env!("CARGO_BIN_EXE_ringwise");
        let page = "--http 127.0.0.1:0 --max-connections 1000";
        let check = format!("{ringwise} logd --check --threads {threads} {page}");
        let mut command = Command::new("sh");
        let checked = command.args(["-c", &format!("ulimit -n 900; {check}")]).output().unwrap();
        let kept = count(&String::from_utf8(checked.stderr).unwrap(), "open descriptors") - 1000;
        for engine in ENGINES {
            let flags = ["--threads", &number, "--http", "127.0.0.1:0", "--segment-size", "1"];
            let Some(daemon) = start(engine, directory.path(), &flags) else { continue };
            for number in 0..20 * threads {
                let mut client = Client::new(&daemon, "LOGD 1\n");
                writeln!(client.stream, "{number}\nno line\n{number}").unwrap();
                client.until(3);
            }
            // When no other segments wait than the two of each thread that are begun.
            wait_until("enough descriptors are kept", || {
                let own = daemon.open_descriptors();
                let readers = FOLLOWERS * (2 + 2 * threads) + SEARCHES * (6 + 2 * threads);
                let needed = own + 2 * (WAITING + ENDED_EACH * threads) + REQUESTS + readers;
                println!("{engine}: {own} open, {needed} at most, {kept} kept");
                needed as u64 <= kept
            });
            daemon.end();
        }
    }
}
