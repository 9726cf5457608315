//! `ringwise logd` among clients that mean it no good, or are in trouble themselves. An honest one is
//! served as if they were not there.

use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::harness::daemon;
use crate::harness::disk;
use crate::harness::siege;

use disk::{Device, Disk};

use daemon::{Daemon, ENGINES, ask, cat, count, wait_until};
use siege::{Attack, Episodes, Held, starve};

fn start(engine: &str, directory: &Path, flags: &[&str]) -> Option<Daemon> {
    let own = ["--dir", directory.to_str().unwrap()];
    Daemon::launch("logd", engine, &[&own, flags].concat())
}

/// A client that sends a line and waits for its acknowledgement, again and again.
struct Honest {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
    sent: u64,
}

impl Honest {
    fn new(daemon: &Daemon) -> Honest {
        let mut stream = daemon.connect();
        stream.write_all(b"LOGD 1\n").unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        assert_eq!(line, "H 1 durable\n");
        Honest { stream, answers, sent: 0 }
    }

    fn send(&mut self, count: u64) {
        for _ in 0..count {
            self.say(&format!("{{\"honest\":{}}}", self.sent + 1));
        }
    }

    /// Sends a line, and waits for its acknowledgement.
    fn say(&mut self, text: &str) {
        self.sent += 1;
        writeln!(self.stream, "{text}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line, format!("A {}\n", self.sent));
    }
}

/// Standard error is a pipe that is full and that nobody reads, as of a supervisor that was stopped.
#[test]
fn a_reader_of_remarks_that_stops_holds_up_nobody() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("stderr");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut options = OpenOptions::new();
        let mut kept =
            options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
        while kept.write(&[0; 4096]).is_ok() {}

        let script = format!("exec \"$@\" 2> '{}'", pipe.display());
        let mut command = Command::new("bash");
        command.args(["-c", &script, "bash", env!("CARGO_BIN_EXE_ringwise"), "logd", "--dir"]);
        command.arg(directory.path().join("data")).args([
            "--listen",
            "127.0.0.1:0",
            "--engine",
            engine,
        ]);
        let Some(daemon) = Daemon::spawn(&mut command, engine) else { continue };
        // Each makes a remark. The connections go to all threads.
        for _ in 0..8 {
            let mut browser = daemon.connect();
            browser.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            browser.read_to_end(&mut Vec::new()).unwrap();
        }
        for _ in 0..4 {
            Honest::new(&daemon).send(10);
        }
        daemon.end();
        drop(kept);
    }
}

/// What froze other collectors: a client that is stopped, with answers that it does not read.
#[test]
fn a_stopped_client_holds_up_nobody() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(daemon) = start(engine, directory.path(), &[]) else { continue };
        // Each of its lines is rejected, and told so.
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{}; echo 'LOGD 1' >&3; \
             x=$(printf 'x\\n%.0s' {{1..2000}}); while echo \"$x\" >&3; do :; done",
            daemon.address.port()
        );
        let Ok(mut client) = Command::new("bash").args(["-c", &script]).spawn() else {
            assert!(std::env::var_os("CI").is_none(), "no skips in CI: no bash");
            eprintln!("skipped: there is no bash here");
            return;
        };
        thread::sleep(Duration::from_millis(300));
        let stop = |name: &str| {
            let killed = Command::new("kill").args([name, &client.id().to_string()]).status();
            assert!(killed.unwrap().success());
        };
        stop("-STOP");
        let mut honest = Honest::new(&daemon);
        honest.send(100);
        assert!(daemon.resident_kib() < 100 << 10);
        client.kill().unwrap();
        client.wait().unwrap();
        honest.send(10);
        drop(honest);
        let output = daemon.end();
        assert!(count(&output, "rejected;") > 1000, "it did not get so far: {output}");
    }
}

#[test]
fn a_line_of_a_hundred_megabytes_costs_its_limit() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(daemon) = start(engine, directory.path(), &[]) else { continue };
        let mut honest = Honest::new(&daemon);
        let mut long = Honest::new(&daemon);
        let mut stream = long.stream.try_clone().unwrap();
        let began = Instant::now();
        let sender = thread::spawn(move || {
            let piece = vec![b'x'; 1 << 20];
            (0..100).for_each(|_| stream.write_all(&piece).unwrap());
            stream.write_all(b"\n{}\n").unwrap();
        });
        while !sender.is_finished() {
            honest.send(1);
        }
        sender.join().unwrap();
        let mut answers = String::new();
        while !answers.ends_with("A 2\n") {
            assert!(long.answers.read_line(&mut answers).unwrap() > 0, "{answers}");
        }
        assert!(answers.contains("N 1 too-long"), "{answers}");
        assert!(daemon.resident_kib() < 64 << 10);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        drop((honest, long));
        daemon.end();
    }
}

/// Who comes when others have filled the memory for unfinished lines had its own called too long.
#[test]
fn who_ends_lines_loses_none_to_those_who_end_none() {
    let flags = ["--budget", "4m", "--connection-budget", "1m", "--max-line", "1m"];
    // The memory is of one thread, and so is the figure.
    let flags = [&flags[..], &["--http", "127.0.0.1:0", "--threads", "1"]].concat();
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(mut daemon) = start(engine, directory.path(), &flags) else { continue };
        let page = daemon.line();
        let uncommitted = || {
            let text = ask(&page, "/metrics");
            let figure = text.lines().find(|line| line.starts_with("logd_uncommitted_bytes{"));
            let (_, bytes) = figure.unwrap().rsplit_once(' ').unwrap();
            bytes.parse::<u64>().unwrap()
        };
        // Of one that sends a few long ones, and of one that sends many.
        for (count, bytes) in [(8, 500_000), (200, 20_000)] {
            let hostile: Vec<TcpStream> = (0..count)
                .map(|_| {
                    let mut stream = daemon.connect();
                    stream.write_all(&vec![b'x'; bytes]).unwrap();
                    stream
                })
                .collect();
            wait_until("memory is filled", || uncommitted() > 1 << 20);
            let mut honest = Honest::new(&daemon);
            let text = "y".repeat(100_000);
            for number in 1..=20 {
                writeln!(honest.stream, "\"{text}\"").unwrap();
                let mut line = String::new();
                honest.answers.read_line(&mut line).unwrap();
                assert_eq!(line, format!("A {number}\n"), "{count} connections of {bytes} bytes");
            }
            assert!(uncommitted() > 1 << 20, "they gave up all: the test is void");
            drop((honest, hostile));
            wait_until("memory is free", || uncommitted() == 0);
        }
        let output = daemon.end();
        assert!(
            output.contains("unfinished lines of the clients that use the most memory"),
            "{output}"
        );
    }
}

/// With unread bytes in it a socket closes by a reset.
#[test]
fn resets_in_the_middle_of_lines_leave_nothing() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(daemon) = start(engine, directory.path(), &[]) else { continue };
        let mut honest = Honest::new(&daemon);
        let before = daemon.open_descriptors();
        for _ in 0..200 {
            let mut stream = daemon.connect();
            stream.write_all(b"LOGD 1\n{\"torn").unwrap();
            // The answer is there, and is not read.
            assert!(stream.peek(&mut [0]).unwrap() > 0);
        }
        wait_until("all are closed", || daemon.open_descriptors() <= before);
        honest.send(10);
        drop(honest);
        let output = daemon.end();
        assert_eq!(count(&output, "lines accepted"), 10, "{output}");
        assert_eq!(count(&output, "broken,"), 200, "{output}");
    }
}

#[test]
fn garbage_is_dead_letters_and_nothing_else() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(daemon) = start(engine, directory.path(), &["--max-line", "4k"]) else { continue };
        let mut honest = Honest::new(&daemon);
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..50 {
            let bytes: Vec<u8> = (0..20_000).map(|_| random.u8(..)).collect();
            let mut stream = daemon.connect();
            stream.write_all(&bytes).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut said = Vec::new();
            stream.read_to_end(&mut said).unwrap();
            assert_eq!(said, b"", "who does not ask is sent nothing");
        }
        honest.send(10);
        drop(honest);
        let output = daemon.end();
        // A digit between two line ends is JSON.
        assert!(count(&output, "lines accepted") < 60, "{output}");
        assert!(count(&output, "rejected;") > 1000, "{output}");
    }
}

/// The limit of descriptors is lowered under it: who is connected is served, who comes waits, and is
/// served when there is room. On epoll only: a ring's accept goes by the limit that there was when it
/// was asked for (io_uring/net.c, io_accept_prep), which is the one that the start made room under.
#[test]
fn without_descriptors_who_comes_waits() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = start("epoll", directory.path(), &[]).unwrap();
    let (mut honest, other) = (Honest::new(&daemon), Honest::new(&daemon));
    let limit = |count: usize| {
        let flags = [format!("--pid={}", daemon.child.id()), format!("--nofile={count}:20000")];
        Command::new("prlimit").args(flags).status().is_ok_and(|status| status.success())
    };
    honest.send(1);
    if !limit(daemon.open_descriptors()) {
        assert!(std::env::var_os("CI").is_none(), "no skips in CI: prlimit");
        eprintln!("skipped: prlimit is missing, or may not");
        return;
    }
    let mut late: Vec<TcpStream> = (0..20).map(|_| daemon.connect()).collect();
    for stream in &mut late {
        stream.write_all(b"LOGD 1\n").unwrap();
    }
    honest.send(20);
    // The first may find a number that was given back.
    let last = &mut late[19];
    last.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(last.read(&mut [0; 12]).is_err(), "there was room: the test is void");
    assert!(limit(20_000));
    // It is looked for room when a descriptor comes back.
    drop(other);
    for stream in &mut late {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"H 1 durable\n");
    }
    honest.send(1);
    drop((honest, late));
    daemon.end();
}

/// One EPERM, ENOBUFS or ENOMEM of an accept ended the daemon.
#[test]
fn accepts_that_fail_end_nothing() {
    for errno in ["EPERM", "ENOBUFS", "ENOMEM", "ENFILE", "ETIMEDOUT"] {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--dir", directory.path().to_str().unwrap(), "--http", "127.0.0.1:0"];
        let Some(mut daemon) = Daemon::launch_where_accepts_fail("logd", errno, &flags) else {
            return;
        };
        let page = daemon.line();
        let mut honest = Honest::new(&daemon);
        honest.send(10);
        let figures = ask(&page, "/metrics");
        assert!(figures.contains("logd_accept_failures_total{thread=\"0\"} 3\n"), "{figures}");
        drop(honest);
        let output = daemon.end();
        assert_eq!(count(&output, "failed accepts"), 3, "{errno}: {output}");
        assert_eq!(count(&output, "lines accepted"), 10, "{errno}: {output}");
    }
}

/// A body of HTTP was stored as lines, so that a page could write into the log.
#[test]
fn other_protocols_are_answered_and_store_nothing() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(daemon) = start(engine, directory.path(), &[]) else { continue };
        let ask = |bytes: &[u8]| {
            let mut stream = daemon.connect();
            stream.write_all(bytes).unwrap();
            let mut answer = Vec::new();
            // Not at its timeout: the other end closes.
            stream.read_to_end(&mut answer).unwrap();
            answer
        };
        let page = ask(b"POST / HTTP/1.1\r\nHost: logs\r\nContent-Length: 3\r\n\r\n{}\n");
        assert!(page.starts_with(b"HTTP/1.1 400 Bad Request\r\n"), "{page:?}");
        let others: [&[u8]; 5] = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"PROPFIND / HTTP/1.1\r\nHost: logs\r\n\r\n{\"forged\":1}\n",
            b"get / HTTP/1.1\r\n\r\n{\"forged\":2}\n",
            b"trace / http/1.0\n\n{\"forged\":3}\n",
            b"\r\nPOST / HTTP/1.1\r\n\r\n{\"forged\":4}\n",
        ];
        for request in others {
            let answer = ask(request);
            assert!(answer.starts_with(b"HTTP/1.1 400 "), "{request:?}: {answer:?}");
        }
        // Byte by byte up to the end of its first line.
        let mut stream = daemon.connect();
        for byte in b"PROPFIND /slow HTTP/1.1\r\n" {
            stream.write_all(&[*byte]).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{answer:?}");
        assert_eq!(ask(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01{}\n")[..2], [21, 3], "an alert");
        Honest::new(&daemon).send(1);
        let output = daemon.end();
        assert_eq!(count(&output, "misdirected"), 8, "{output}");
        let stored = |letters: &str| {
            let files =
                std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path());
            let files = files.filter(|file| {
                let name = file.file_name().unwrap().to_str().unwrap();
                name.starts_with(letters) && name.ends_with(".ndjson")
            });
            files.map(|file| std::fs::read_to_string(file).unwrap()).collect::<String>()
        };
        assert_eq!(stored("lines").trim_end(), "{\"honest\":1}");
        assert_eq!(stored("dead").trim_end(), "");
    }
}

/// A record for each line took 60 times its bytes.
#[test]
fn rejected_lines_take_at_most_twelve_times_their_bytes() {
    let texts: [&[u8]; 4] = [b"x\n{\n", b"\xff\n", b"1\nx\n", b"\xff\n1\n{\n"];
    for engine in ENGINES {
        for text in texts {
            let directory = tempfile::tempdir().unwrap();
            let Some(daemon) = start(engine, directory.path(), &["--threads", "1"]) else {
                continue;
            };
            let sent = text.repeat(200_000 / text.len());
            let mut stream = daemon.connect();
            stream.write_all(&sent).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
            let output = daemon.end();
            assert!(count(&output, "rejected;") >= 50_000, "{output}");
            let files = std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap);
            let dead = files.filter(|file| {
                let name = file.file_name().into_string().unwrap();
                name.starts_with("dead-") && name.ends_with(".ndjson")
            });
            let bytes: u64 = dead.map(|file| file.metadata().unwrap().len()).sum();
            let factor = bytes as f64 / sent.len() as f64;
            println!("{engine}: {text:?}: {factor:.2}");
            assert!(factor > 1.0 && factor <= 12.0, "{engine}: {text:?}: {factor}");
        }
    }
}

/// One client could take all places.
#[test]
fn an_address_has_so_many_connections_and_no_more() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--address-connections", "5", "--threads", "3"];
        let Some(daemon) = start(engine, directory.path(), &flags) else { continue };
        let mut honest: Vec<Honest> = (0..5).map(|_| Honest::new(&daemon)).collect();
        let mut beyond = daemon.connect();
        assert!(!matches!(beyond.read(&mut [0]), Ok(1..)), "it is closed");
        honest.iter_mut().for_each(|client| client.send(1));
        drop(honest.pop());
        wait_until("a place", || {
            let mut stream = daemon.connect();
            let _ = stream.write_all(b"LOGD 1\n");
            matches!(stream.read(&mut [0]), Ok(1))
        });
        drop(honest);
        let output = daemon.end();
        assert!(count(&output, "turned away") >= 1, "{output}");
    }
}

/// A daemon that was stopped, as by a machine that sleeps, took its own absence for its clients' silence.
#[test]
fn no_client_is_silent_while_the_daemon_is_stopped() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--idle", "2s"];
        let Some(daemon) = start(engine, directory.path(), &flags) else { continue };
        let mut honest = Honest::new(&daemon);
        honest.send(1);
        daemon.signal("-STOP");
        thread::sleep(Duration::from_secs(3));
        daemon.signal("-CONT");
        thread::sleep(Duration::from_millis(200));
        honest.send(1);
        drop(honest);
        daemon.end();
    }
}

/// A stolen name makes its owner skip lines, and one client took all the names that there are, for ever.
#[test]
fn names_need_an_identity_and_have_a_limit() {
    let ask = |daemon: &Daemon, name: &str| {
        let mut stream = daemon.connect();
        writeln!(stream, "LOGD 1 name={name}").unwrap();
        let mut answer = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut answer).unwrap();
        (answer, stream)
    };
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(daemon) = start(engine, directory.path(), &[]) else { continue };
        assert_eq!(ask(&daemon, "web").0, "E 1 identity\n");
        daemon.end();
        let flags = ["--names", "anyone", "--address-names", "3"];
        let daemon = start(engine, directory.path(), &flags).unwrap();
        let held: Vec<_> = ["a", "b", "c"].iter().map(|name| ask(&daemon, name)).collect();
        assert!(held.iter().all(|(answer, _)| answer.starts_with("H 1 durable 0 ")), "{held:?}");
        assert_eq!(ask(&daemon, "d").0, "E 1 names\n");
        assert_eq!(ask(&daemon, "a/b").0, "E 1 name\n");
        // Those without lines are forgotten with their connections.
        drop(held);
        wait_until("a place", || ask(&daemon, "d").0.starts_with("H 1 durable 0 "));
        let output = daemon.end();
        assert!(count(&output, "greetings refused") >= 2, "{output}");
    }
}

/// Attacks on a log.
const ATTACKS: [Attack; 6] = [
    // Lines that are none, and answers that are not read.
    |stream| {
        stream.write_all(b"LOGD 1\n")?;
        (0..200).try_for_each(|_| stream.write_all(&b"x\n".repeat(512)))
    },
    // Half a line, and a while to find it in memory.
    |stream| {
        stream.write_all(b"\"")?;
        stream.write_all(&b"x".repeat(100_000))?;
        thread::sleep(Duration::from_millis(50));
        Ok(())
    },
    // A line without an end.
    |stream| (0..64).try_for_each(|_| stream.write_all(&b"x".repeat(1 << 16))),
    |stream| {
        stream.write_all(b"POST / HTTP/1.1\r\n\r\n{\"forged\":1}\n")?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    },
    // TLS on the plain port.
    |stream| {
        stream.write_all(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00\n{\"forged\":2}\n")?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    },
    // Names by the thousand; one that has a line is kept.
    |stream| {
        stream.write_all(format!("LOGD 1 name=n{}\n", fastrand::u64(..)).as_bytes())?;
        if fastrand::u8(..) == 0 {
            stream.write_all(b"{\"named\":true}\n")?;
        }
        stream.read(&mut [0; 64]).map(drop)
    },
];

/// Fills a disk to so many bytes and frees it again, until some time.
fn fill_and_free(disk: &Disk, left: u64, until: Instant, full: &Episodes) {
    while Instant::now() < until {
        thread::sleep(Duration::from_secs(1));
        full.during(|| {
            let path = disk.path().join("ballast");
            let ballast = std::fs::File::create(&path).unwrap();
            let (flags, bytes) =
                (rustix::fs::FallocateFlags::empty(), disk.free().saturating_sub(left));
            // The daemon may have taken the space first.
            let _ = rustix::fs::fallocate(&ballast, flags, 0, bytes.max(1));
            thread::sleep(Duration::from_millis(200));
            std::fs::remove_file(path).unwrap();
        });
    }
}

/// What a siege left in a directory: of the lines that are not the hostile clients' own, those of each honest one.
fn honest_lines(directory: &Path, clients: usize) -> Vec<Vec<u64>> {
    let is_honest = |letter: &String| letter.contains("honest");
    assert!(
        !cat(&["--dead"], directory).iter().any(is_honest),
        "a dead letter of an honest client"
    );
    let mut found = vec![Vec::new(); clients];
    for line in cat(&[], directory).iter().filter(|line| *line != "{\"named\":true}") {
        let numbers = line.strip_prefix("{\"client\":").and_then(|rest| rest.strip_suffix('}'));
        let numbers = numbers.and_then(|rest| rest.split_once(",\"honest\":"));
        let (client, number) = numbers.unwrap_or_else(|| panic!("who sent {line}?"));
        found[client.parse::<usize>().unwrap()].push(number.parse().unwrap());
    }
    found
}

/// Honest clients that stay; one more comes anew for every line.
const STAYING: usize = 3;

/// What `--min-free` is in a siege, and how much of the disk is left when it is fullest: below that floor, so that
/// nothing is written, or nothing at all, so that writes fail.
const FLOORS: [(&str, u64); 2] = [("16m", 4 << 20), ("0", 0)];

/// All of it at once, four times for as long as RINGWISE_SOAK_SECONDS says, on a disk that fills and empties, with
/// accepts that fail: honest clients are served and lose nothing, memory stays within its limit, and when the
/// hostile ones have gone no descriptor and no thread is left of them.
#[test]
#[ignore = "slow: bash .ci/scheduled slow"]
fn a_long_siege_changes_nothing() {
    for (engine, (min_free, left)) in
        ENGINES.into_iter().flat_map(|engine| FLOORS.map(|floor| (engine, floor)))
    {
        println!("{engine}, --min-free {min_free}:");
        let Some(disk) = Disk::mount(Device::Roomy) else { return };
        let directory = disk.path().join("log");
        let flags = ["--budget", "8m", "--threads", "2", "--max-connections", "200"];
        let limits = ["--names", "anyone", "--address-names", "50", "--address-connections", "100"];
        // A busy machine can keep an honest client from its processor for a second. Silence that long is no attack.
        let sizes = [
            "--idle",
            "5s",
            "--segment-size",
            "4m",
            "--retain-dead",
            "32m",
            "--min-free",
            min_free,
        ];
        let flags = [&flags[..], &limits, &sizes].concat();
        let Some(daemon) = start(engine, &directory, &flags) else { continue };
        let sent = besiege(engine, &daemon, &disk, left);
        let output = daemon.end();
        assert!(count(&output, "failed accepts") > 0, "the test is void: {output}");
        println!("{engine}: {}", output.lines().last().unwrap());
        let mut found = honest_lines(&directory, STAYING + 1);
        // Its lines went to all threads, each of which has its own stream.
        found[STAYING].sort_unstable();
        for (sent, found) in sent.into_iter().zip(found) {
            assert!(found.into_iter().eq(1..=sent), "{engine}: once each, and in order");
        }
    }
}

/// The line of this number from an honest client.
fn say(honest: &mut Honest, client: usize, number: u64) {
    honest.say(&format!("{{\"client\":{client},\"honest\":{number}}}"));
}

/// Has the daemon do all that it does only when it has to: both threads open their files, those of dead letters
/// too, and it starts the thread that prints remarks.
fn warm_up(daemon: &Daemon) {
    let mut browser = daemon.connect();
    browser.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    browser.read_to_end(&mut Vec::new()).unwrap();
    for _ in 0..32 {
        let mut stream = daemon.connect();
        stream.write_all(b"LOGD 1\n{\"named\":true}\nx\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    thread::sleep(Duration::from_millis(200));
}

/// Gives how many lines each honest client sent.
fn besiege(engine: &str, daemon: &Daemon, disk: &Disk, left: u64) -> Vec<u64> {
    let mut honest: Vec<Honest> = (0..STAYING).map(|_| Honest::new(daemon)).collect();
    warm_up(daemon);
    let held = Held::now(daemon);
    let until = Instant::now() + siege::duration();
    // While there is no space or no descriptor for the next segment everybody waits.
    let missing = &Episodes::default();
    let stay = |client, honest: &mut Honest| {
        let mut times = Vec::new();
        while Instant::now() < until {
            times.extend(missing.time(|| say(honest, client, honest.sent + 1)));
        }
        times
    };
    let come = || {
        let (mut number, mut times) = (0, Vec::new());
        while Instant::now() < until {
            number += 1;
            times.extend(missing.time(|| say(&mut Honest::new(daemon), STAYING, number)));
        }
        (number, times)
    };
    let (sent, most_kib) = thread::scope(|scope| {
        scope.spawn(|| fill_and_free(disk, left, until, missing));
        scope.spawn(|| starve(daemon, until, missing));
        let attacks = [&siege::ATTACKS[..], &ATTACKS].concat();
        let count = attacks.len() * if siege::is_long() { 2 } else { 1 };
        siege::attack(scope, daemon, attacks.into_iter().cycle().take(count), until);
        let coming = scope.spawn(come);
        let stay = &stay;
        let staying: Vec<_> = (honest.iter_mut().enumerate())
            .map(|(client, honest)| scope.spawn(move || stay(client, honest)))
            .collect();
        let most_kib = siege::most_kib(daemon, until);
        let times: Vec<Duration> =
            staying.into_iter().flat_map(|one| one.join().unwrap()).collect();
        siege::assert_fast(&format!("{engine}, honest clients that stay"), times);
        let (sent, times) = coming.join().unwrap();
        siege::assert_fast(&format!("{engine}, honest clients that come"), times);
        (sent, most_kib)
    });
    println!("{engine}: {} MiB at most", most_kib >> 10);
    // The budget, and what docs/reference/logd.md says comes on top, of two threads.
    assert!(most_kib >> 10 < 8 + 2 * 37 + 24, "{engine}: {most_kib} KiB");
    let took = held.wait_for_return(daemon);
    println!("{engine}: {held:?} again after {took:?}");
    honest.iter().map(|one| one.sent).chain([sent]).collect()
}
