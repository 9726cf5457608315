//! `ringwise logd` as time goes by: under a clock that jumps, and for long.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::harness::daemon;

use daemon::{Daemon, ENGINES, count, wait_until};

fn ringwise(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringwise")).args(arguments).output().unwrap()
}

#[track_caller]
fn good(arguments: &[&str]) -> String {
    let output = ringwise(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Debian's libfaketime, which is loaded before the C library.
fn fake_clock() -> Option<PathBuf> {
    let found = fs::read_dir("/usr/lib").unwrap().find_map(|entry| {
        let library = entry.unwrap().path().join("faketime/libfaketime.so.1");
        library.exists().then_some(library)
    });
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "no skips in CI: no libfaketime");
        eprintln!("skipped: libfaketime is not installed");
    }
    found
}

/// A daemon whose wall clock is so far from the machine's as the file `clock` says, and which says
/// what it has to say to the file `said`.
fn start_under(library: &Path, engine: &str, directory: &Path) -> Option<Daemon> {
    let flags = "--listen 127.0.0.1:0 --threads 1 --dir log --segment-age 60m --retain-age 60m";
    let program = env!("CARGO_BIN_EXE_ringwise");
    let script = format!("exec '{program}' logd {flags} --engine {engine} 2> said");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(directory);
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", directory.join("clock"));
    command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Daemon::spawn(&mut command, engine)
}

struct Client {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
    sent: u64,
}

impl Client {
    fn new(daemon: &Daemon) -> Client {
        let mut stream = daemon.connect();
        stream.write_all(b"LOGD 1\n").unwrap();
        let mut client =
            Client { answers: BufReader::new(stream.try_clone().unwrap()), stream, sent: 0 };
        assert_eq!(client.answer(), "H 1 durable\n");
        client
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line
    }

    /// Sends a line and one that is none, and waits until both are stored.
    fn send(&mut self, line: u64) {
        writeln!(self.stream, "{line}\nx").unwrap();
        self.sent += 2;
        let mut answers = String::new();
        while !answers.ends_with(&format!("A {}\n", self.sent)) {
            answers = self.answer();
            assert!(!answers.is_empty(), "it ended");
        }
    }
}

/// A segment of an earlier run, one that is open, a clock ten years ahead and one twenty years
/// behind: nothing is lost, nothing ends, and it goes on.
#[test]
fn a_clock_that_jumps_changes_nothing() {
    let Some(library) = fake_clock() else { return };
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let (directory, log) = (directory.path(), directory.path().join("log"));
        let set = |shift: &str| fs::write(directory.join("clock"), shift).unwrap();
        let start = || start_under(&library, engine, directory);
        let lines = || good(&["logd", "cat", log.to_str().unwrap()]);
        set("+0");
        let Some(daemon) = start() else { continue };
        Client::new(&daemon).send(1);
        daemon.end();

        let daemon = start().unwrap();
        let mut client = Client::new(&daemon);
        client.send(2);
        set("+3650d");
        client.send(3);
        wait_until("the jump is seen", || {
            let said = fs::read_to_string(directory.join("said")).unwrap();
            said.contains("s forward; no segment expires earlier because of it")
        });
        assert_eq!(lines(), "1\n2\n3\n");
        set("-7300d");
        client.send(4);
        client.send(5);
        // A seal bears the time of its clock, by which the next run tells its age.
        set("+0");
        drop(client);
        daemon.end();
        assert_eq!(lines(), "1\n2\n3\n4\n5\n");
        let path = log.to_str().unwrap();
        assert!(good(&["logd", "verify", path]).contains("sealed"));
        let letters = good(&["logd", "cat", "--dead", path]);
        let times: Vec<u64> = letters
            .lines()
            .map(|letter| {
                serde_json::from_str::<Value>(letter).unwrap()["time_ms"].as_u64().unwrap()
            })
            .collect();
        let year_ms = 365 * 24 * 3_600_000;
        // Each is the clock's own, so the jumps are to be seen there and nowhere else.
        assert_eq!(times.len(), 5);
        assert!(
            times[2] > times[1] + 9 * year_ms && times[3] < times[1] - 18 * year_ms,
            "{times:?}"
        );
        let daemon = start().unwrap();
        Client::new(&daemon).send(6);
        daemon.end();
        assert_eq!(lines(), "1\n2\n3\n4\n5\n6\n");
    }
}

/// How long each engine is under load: ten minutes by `RINGWISE_SOAK_SECONDS=600`.
fn soak_seconds() -> Option<u64> {
    std::env::var("RINGWISE_SOAK_SECONDS").ok().map(|text| text.parse().unwrap())
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    resident_kib: u64,
    descriptors: usize,
}

impl Usage {
    fn of(daemon: &Daemon) -> Usage {
        Usage { resident_kib: daemon.resident_kib(), descriptors: daemon.open_descriptors() }
    }

    fn most(all: &[Usage]) -> Usage {
        all.iter().fold(Usage::default(), |most, one| Usage {
            resident_kib: most.resident_kib.max(one.resident_kib),
            descriptors: most.descriptors.max(one.descriptors),
        })
    }
}

/// At 60 % of what it takes (or, where no time is asked for, at a few lines), with clients that
/// come, send half a line and go, and segments that end and are removed: what it holds in the
/// second half is what it held in the first.
#[test]
fn memory_and_descriptors_stay_what_they_were() {
    for engine in ENGINES {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let flags = ["--dir", directory.path().to_str().unwrap(), "--retain-size", "256m"];
        let flags =
            [&flags[..], &["--segment-size", "8m", "--segment-age", "100ms", "--threads", "2"]]
                .concat();
        let Some(daemon) = Daemon::launch("logd", engine, &flags) else { continue };
        let before = Usage::of(&daemon);
        let target = daemon.address.to_string();
        let load = ["load", "log", "--target", &target, "--connections", "16", "--ack", "durable"];
        let rate = match soak_seconds() {
            Some(_) => {
                let found = good(&[&load[..], &["--duration", "5s", "--json"]].concat());
                let found: Value = serde_json::from_str(&found).unwrap();
                (found["ops_per_s"].as_f64().unwrap() * 0.6) as u64
            }
            None => 1000,
        };
        let seconds = soak_seconds().unwrap_or(2);
        let (rate, time) = (rate.to_string(), format!("{seconds}s"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        command.args(load).args(["--rate", &rate, "--duration", &time, "--warm-up", "0s"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let seen = watch(&daemon, Duration::from_secs(seconds));
        let output = child.wait_with_output().unwrap();
        // Where others use the disk too a short run may have nothing in its time; a long one has.
        let is_done = output.status.success() || soak_seconds().is_none();
        assert!(is_done, "{}", String::from_utf8_lossy(&output.stderr));
        let (first, second) = seen.split_at(seen.len() / 2);
        let (first, second) = (Usage::most(first), Usage::most(second));
        eprintln!("{engine}: {rate} lines/s for {time}: {first:?}, then {second:?}");
        // What is on its way has three copies at most, of the generator's window (10 MB) rounded
        // up: a disk that is slow for once takes as much, and that is no leak.
        assert!(second.resident_kib < first.resident_kib + (64 << 10), "{first:?} {second:?}");
        // What is left: two open segments for each thread, and one that is sealed.
        wait_until("descriptors come back", || {
            Usage::of(&daemon).descriptors < before.descriptors + 12
        });
        assert_eq!(count(&daemon.end(), "dead segments"), 0);
    }
}

/// Looks forty times at what it has, and bothers it meanwhile.
fn watch(daemon: &Daemon, time: Duration) -> Vec<Usage> {
    let look = |_| {
        for _ in 0..4 {
            let mut stream = daemon.connect();
            stream.write_all(b"LOGD 1\n{\"half\":").unwrap();
        }
        thread::sleep(time / 40);
        Usage::of(daemon)
    };
    (0..40).map(look).collect()
}
