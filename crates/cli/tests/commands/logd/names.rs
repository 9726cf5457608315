//! Clients of `ringwise logd` that name themselves, and the daemon killed under them again and again:
//! each of their lines is stored once.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use crate::harness::daemon;

use daemon::{Daemon, ENGINES, cat, wait_until};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

/// How often the daemon is killed: more where asked for.
fn rounds() -> u64 {
    std::env::var("RINGWISE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

fn start(engine: &str, directory: &Path, flags: &[&str]) -> Option<Daemon> {
    let own = ["--names", "anyone", "--dir", directory.to_str().unwrap()];
    Daemon::launch("logd", engine, &[&own, flags].concat())
}

/// Comes with a name until it gets it; gives the last line that is stored.
fn join(daemon: &Daemon, name: &str) -> Option<(TcpStream, BufReader<TcpStream>, u64)> {
    loop {
        let mut stream = TcpStream::connect(daemon.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        writeln!(stream, "LOGD 1 name={name}").ok()?;
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).ok()?;
        if line != "E 1 busy\n" {
            let stored = line.strip_prefix("H 1 durable ")?;
            return Some((stream, answers, stored.split(' ').next()?.parse().unwrap()));
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Sends what comes after what is stored, until the daemon is gone; gives the last that was
/// acknowledged or told.
fn send(daemon: &Daemon, name: &str, progress: &AtomicU64) -> u64 {
    let Some((mut stream, mut answers, stored)) = join(daemon, name) else { return 0 };
    let owner = name.to_owned();
    let sender = thread::spawn(move || {
        for number in stored + 1..stored + 1_000_000 {
            // Every hundredth is a dead letter, which has a number too.
            let line = match number % 100 {
                0 => format!("{owner} {number}\n"),
                _ => format!("[\"{owner}\",{number},\"{}\"]\n", "x".repeat(80)),
            };
            if stream.write_all(line.as_bytes()).is_err() {
                return;
            }
        }
    });
    let mut last = stored;
    let mut line = String::new();
    while answers.read_line(&mut line).is_ok_and(|_| line.ends_with('\n')) {
        if let Some(told) = line.strip_prefix("A ") {
            last = told.trim_end().parse().unwrap();
            progress.fetch_add(1, Ordering::Relaxed);
        }
        line.clear();
    }
    let _ = answers.get_ref().shutdown(std::net::Shutdown::Both);
    sender.join().unwrap();
    last
}

#[test]
fn with_a_name_every_line_is_stored_once_whatever_happens() {
    const CLIENTS: [&str; 3] =
        ["web-1", "web-2", "a.name:that-is-longer-than-the-place-that-an-entry-has-for-one"];
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let mut acknowledged = [0; CLIENTS.len()];
        for _ in 0..rounds() {
            let flags = ["--segment-size", "256k", "--threads", "2"];
            let Some(mut daemon) = start(engine, directory.path(), &flags) else { return };
            let progress: [AtomicU64; CLIENTS.len()] = Default::default();
            thread::scope(|scope| {
                let (daemon, progress) = (&daemon, &progress);
                let clients: Vec<_> = (CLIENTS.iter().zip(progress))
                    .map(|(name, progress)| scope.spawn(move || send(daemon, name, progress)))
                    .collect();
                wait_until("all are acknowledged", || {
                    progress.iter().all(|count| count.load(Ordering::Relaxed) >= 3)
                });
                daemon.signal("-KILL");
                for (last, client) in acknowledged.iter_mut().zip(clients) {
                    let told = client.join().unwrap();
                    assert!(told >= *last, "{told} is told where {last} was acknowledged");
                    *last = told;
                }
            });
            daemon.child.wait().unwrap();
        }
        let daemon = start(engine, directory.path(), &[]).unwrap();
        for (name, last) in CLIENTS.iter().zip(acknowledged) {
            let (_, _, stored) = join(&daemon, name).unwrap();
            assert!(stored >= last, "{name}: {last} acknowledged, {stored} told");
            let start = format!("[\"{name}\",");
            let lines = cat(&[], directory.path());
            let own = lines.iter().filter_map(|line| line.strip_prefix(&start));
            let mut found: Vec<u64> =
                own.map(|rest| rest.split(',').next().unwrap().parse().unwrap()).collect();
            // Batches of two threads may have been committed in the same millisecond, by which they are merged.
            found.sort_unstable();
            let expected: Vec<u64> = (1..=stored).filter(|number| number % 100 != 0).collect();
            assert!(found == expected, "{engine}: {name}: {} of {}", found.len(), expected.len());
        }
        daemon.end();
    }
}

#[test]
fn who_comes_with_a_name_takes_it_over() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(daemon) = start(engine, directory.path(), &[]) else { continue };
        let (mut first, mut answers, stored) = join(&daemon, "web").unwrap();
        assert_eq!(stored, 0);
        first.write_all(b"1\n2\n3").unwrap();
        let mut line = String::new();
        while line != "A 2\n" {
            line.clear();
            answers.read_line(&mut line).unwrap();
        }
        // The first may be a connection that only seems to be there; half of a line holds up nobody.
        let (mut second, mut own, stored) = join(&daemon, "web").unwrap();
        assert_eq!(stored, 2);
        first.write_all(b"\n4\n").unwrap();
        line.clear();
        answers.read_line(&mut line).unwrap();
        assert_eq!(line, "E 1 taken\n");
        second.write_all(b"[3]\n").unwrap();
        line.clear();
        own.read_line(&mut line).unwrap();
        assert_eq!(line, "A 3\n");
        // Batches are merged by time, to the millisecond, and the second may have come to another thread.
        let mut found = cat(&[], directory.path());
        found.sort_unstable();
        assert_eq!(found, ["1", "2", "[3]"]);
    }
}

/// A token gives its client a tenant, whose names nobody else can take.
#[test]
fn a_token_is_an_identity_until_it_is_taken_out_of_the_file() {
    const TOKENS: &str = "web-token-0123456789abcdef web\ndb-token-0123456789abcdefg db\n";
    let ask = |daemon: &Daemon, words: &str| {
        let mut stream = daemon.connect();
        writeln!(stream, "LOGD 1 {words}\n{{\"by\":\"{}\"}}", words.split('-').next().unwrap())
            .unwrap();
        let mut answer = String::new();
        let mut answers = BufReader::new(stream);
        answers.read_line(&mut answer).unwrap();
        if answer.starts_with('H') {
            answers.read_line(&mut String::new()).unwrap();
        }
        answer
    };
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tokens");
        std::fs::write(&file, TOKENS).unwrap();
        let data = directory.path().join("data");
        let flags = ["--names", "certified", "--tokens", file.to_str().unwrap()];
        let own = ["--dir", data.to_str().unwrap()];
        let Some(daemon) = Daemon::launch("logd", engine, &[&own[..], &flags].concat()) else {
            continue;
        };
        assert_eq!(ask(&daemon, "name=a"), "E 1 identity\n");
        assert_eq!(ask(&daemon, "token=guess name=a"), "E 1 token\n");
        for greeting in
            ["token=web-token-0123456789abcdef name=a", "name=a token=db-token-0123456789abcdefg"]
        {
            assert!(ask(&daemon, greeting).starts_with("H 1 durable 0 "), "{greeting}");
        }
        assert_eq!(ask(&daemon, "token=web-token-0123456789abcdef"), "H 1 durable\n");
        assert_eq!(cat(&["--tenant", "web"], &data), ["{\"by\":\"token=web\"}"; 2]);
        std::fs::write(&file, "# none\n").unwrap();
        daemon.signal("-HUP");
        wait_until("it is read again", || {
            ask(&daemon, "token=web-token-0123456789abcdef") == "E 1 token\n"
        });
        daemon.end();
    }
}

/// A client that comes back with an expired name would store its lines a second time.
#[test]
fn an_expired_name_is_refused_and_another_takes_its_place() {
    let ask = |daemon: &Daemon, name: &str| {
        let mut stream = daemon.connect();
        writeln!(stream, "LOGD 1 name={name}").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer
    };
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--forget-names", "1s", "--address-names", "1"];
        let Some(daemon) = start(engine, directory.path(), &flags) else { continue };
        let (mut first, mut answers, _) = join(&daemon, "web").unwrap();
        first.write_all(b"1\n2\n").unwrap();
        let mut line = String::new();
        while line != "A 2\n" {
            line.clear();
            answers.read_line(&mut line).unwrap();
        }
        assert_eq!(ask(&daemon, "db"), "E 1 names\n");
        drop((first, answers));
        // While it is known, each question is a use of it.
        wait_until("its place is free", || ask(&daemon, "db").starts_with("H 1 durable 0 "));
        assert_eq!(ask(&daemon, "web"), "E 1 expired\n");
        daemon.end();
        let daemon = start(engine, directory.path(), &[]).unwrap();
        assert_eq!(ask(&daemon, "web"), "E 1 expired\n", "{engine}: also after a restart");
        assert_eq!(cat(&[], directory.path()), ["1", "2"]);
        daemon.end();
    }
}

/// Connects from that address of this machine.
fn connect_from(address: [u8; 4], daemon: &Daemon) -> TcpStream {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    bind(&socket, &SocketAddr::from((address, 0))).unwrap();
    connect(&socket, &daemon.address).unwrap();
    TcpStream::from(socket)
}

/// Who had brought as many names as it may brought as many again after each restart.
#[test]
fn the_limit_of_names_holds_over_restarts() {
    let store = |daemon: &Daemon, from: [u8; 4], name: &str| {
        let mut stream = connect_from(from, daemon);
        writeln!(stream, "LOGD 1 name={name}\n{{}}").unwrap();
        let mut answers = BufReader::new(stream).lines().map(Result::unwrap);
        let answer = answers.next().unwrap();
        if answer.starts_with('H') {
            assert!(answers.next().unwrap().starts_with("A "));
        }
        answer
    };
    let flags = ["--address-names", "3"];
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(mut daemon) = start(engine, directory.path(), &flags) else { continue };
        let (one, other) = ([127, 0, 0, 1], [127, 0, 0, 2]);
        for name in ["a", "b", "c"] {
            assert!(store(&daemon, one, name).starts_with("H 1 durable 0 "));
        }
        assert_eq!(store(&daemon, one, "d"), "E 1 names");
        // Killed first, and then ended: the second start has sealed segments alone.
        daemon.signal("-KILL");
        daemon.child.wait().unwrap();
        for start_number in 1..=2 {
            let daemon = start(engine, directory.path(), &flags).unwrap();
            assert_eq!(store(&daemon, one, "d"), "E 1 names", "{engine}: start {start_number}");
            let known = format!("H 1 durable {start_number} ");
            assert!(store(&daemon, one, "a").starts_with(&known), "{engine}");
            let new = format!("other-{start_number}");
            assert!(store(&daemon, other, &new).starts_with("H 1 durable 0 "), "{engine}");
            daemon.end();
        }
    }
}
