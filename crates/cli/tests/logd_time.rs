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

#[path = "harness/daemon.rs"]
mod daemon;

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

/// A daemon whose wall clock is so far from the machine's as a file says.
fn start_under(clock: &Path, library: &Path, engine: &str, log: &Path) -> Option<Daemon> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.args(["logd", "--listen", "127.0.0.1:0", "--engine", engine, "--dir"]).arg(log);
    command.args(["--segment-age", "60m", "--retain-age", "60m"]);
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", clock);
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

/// A segment of an earlier run, one that is open, a clock ten years ahead and one twenty years behind:
/// nothing is lost, nothing ends, and it goes on.
#[test]
fn a_clock_that_jumps_changes_nothing() {
    let Some(library) = fake_clock() else { return };
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let (clock, log) = (directory.path().join("clock"), directory.path().join("log"));
        let set = |clock: &Path, shift: &str| fs::write(clock, shift).unwrap();
        let lines = || good(&["logd", "cat", log.to_str().unwrap()]);
        set(&clock, "+0");
        let Some(daemon) = start_under(&clock, &library, engine, &log) else { continue };
        Client::new(&daemon).send(1);
        daemon.end();

        let daemon = start_under(&clock, &library, engine, &log).unwrap();
        let mut client = Client::new(&daemon);
        client.send(2);
        set(&clock, "+3650d");
        client.send(3);
        // It looks each second whether anything is to go.
        thread::sleep(Duration::from_millis(1300));
        assert_eq!(lines(), "1\n2\n3\n");
        set(&clock, "-7300d");
        client.send(4);
        thread::sleep(Duration::from_millis(1100));
        client.send(5);
        // A seal bears the time of its clock, by which the next run tells its age.
        set(&clock, "+0");
        drop(client);
        let output = daemon.end();
        assert!(output.contains("s forward: no segment is older for that"), "{output}");
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
        let daemon = start_under(&clock, &library, engine, &log).unwrap();
        Client::new(&daemon).send(6);
        daemon.end();
        assert_eq!(lines(), "1\n2\n3\n4\n5\n6\n");
    }
}

/// How long each engine is under load: ten minutes by `RINGWISE_SOAK_SECONDS=600`.
fn soak_time() -> Duration {
    let seconds = std::env::var("RINGWISE_SOAK_SECONDS").map_or(2, |text| text.parse().unwrap());
    Duration::from_secs(seconds)
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

/// At 60 % of what it takes, with clients that come, send half a line and go, and segments that end
/// and are removed: what it holds in the second half is what it held in the first.
#[test]
fn memory_and_descriptors_stay_what_they_were() {
    for engine in ENGINES {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let flags = ["--dir", directory.path().to_str().unwrap(), "--segment-size", "8m"];
        let flags = [&flags[..], &["--retain-size", "256m"]].concat();
        let Some(daemon) = Daemon::launch("logd", engine, &flags) else { continue };
        let target = daemon.address.to_string();
        let load = ["load", "log", "--target", &target, "--connections", "16", "--ack", "durable"];
        let found = good(&[&load[..], &["--duration", "500ms", "--json"]].concat());
        let found: Value = serde_json::from_str(&found).unwrap();
        let rate = (found["ops_per_s"].as_f64().unwrap() * 0.6) as u64;
        let (rate, time) = (rate.to_string(), format!("{}s", soak_time().as_secs()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        command.args(load).args(["--rate", &rate, "--duration", &time]).stdout(Stdio::piped());
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        let seen = watch(&daemon, soak_time());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let (first, second) = seen.split_at(seen.len() / 2);
        let (first, second) = (Usage::most(first), Usage::most(second));
        eprintln!("{engine}: {rate} lines/s for {time}: {first:?}, then {second:?}");
        // What is on its way has three copies at most, of the generator's window (10 MB) rounded up: a
        // disk that is slow for once takes as much, and that is no leak. Nor are segments to be sealed.
        assert!(second.resident_kib < first.resident_kib + (64 << 10), "{first:?} {second:?}");
        assert!(second.descriptors < first.descriptors + 16, "{first:?} {second:?}");
        wait_until("clients leave", || Usage::of(&daemon).descriptors < first.descriptors);
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
