//! What is fetched from a bucket is what was acknowledged, whatever failed meanwhile.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    harness::daemon::{Daemon, ask, cat, connect, not_uploaded, rounds},
    server::{Gate, Protocol, Server},
};

const BUCKET: &str = "logs";
/// Larger than a part of 8 MiB, also when it is packed.
const LARGE: [&str; 2] = ["--segment-size", "24m"];
/// Lines between two acknowledgements that the client waits for.
const BLOCK: u64 = 1000;

/// A server, the way to it, and the directory of a daemon.
struct Scene {
    server: Server,
    gate: Gate,
    directory: tempfile::TempDir,
}

impl Scene {
    fn new(protocol: Protocol) -> Scene {
        let server = Server::start(protocol, BUCKET);
        let gate = Gate::before(server.address());
        Scene { server, gate, directory: tempfile::tempdir().unwrap() }
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The command, as a client of the server.
    fn ringwise(&self) -> Command {
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT,TERM,USR1,USR2", "--"]);
        command.arg(env!("CARGO_BIN_EXE_ringwise"));
        command.envs(self.server.protocol.variables(self.gate.address));
        command
    }

    /// A daemon of one thread that uploads and removes, and its status page.
    fn start(&self, more: &[&str]) -> (Daemon, String) {
        let mut command = self.ringwise();
        command.args(["logd", "--listen", "127.0.0.1:0", "--engine", "epoll", "--threads", "1"]);
        command.args(["--names", "anyone", "--http", "127.0.0.1:0", "--dir"]).arg(self.directory());
        command.args(["--retain-age", "1s", "--upload", self.server.protocol.url()]).args(more);
        let mut daemon = Daemon::spawn(&mut command, "epoll").unwrap();
        let page = daemon.line();
        (daemon, page)
    }

    /// Waits until all sealed segments are uploaded.
    #[track_caller]
    fn wait_until_uploaded(&self, page: &str) {
        wait_long("uploads", page, || not_uploaded(self.directory()).is_empty());
    }

    /// Fetches into a new directory.
    fn fetch(&self) -> tempfile::TempDir {
        let fetched = tempfile::tempdir().unwrap();
        let url = self.server.protocol.url();
        let output = self.ringwise().args(["logd", "fetch", url]).arg(fetched.path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fetched
    }
}

fn figure(page: &str, name: &str) -> u64 {
    let (text, start) = (ask(page, "/metrics"), format!("logd_upload_{name} "));
    let value = text.lines().find_map(|line| line.strip_prefix(&start));
    value.unwrap_or_else(|| panic!("no {name}: {text}")).parse().unwrap()
}

/// A line that packs badly. Its number tells its content.
fn line(number: u64) -> String {
    let mut random = fastrand::Rng::with_seed(number);
    let words: String = (0..25).map(|_| format!("{:016x}", random.u64(..))).collect();
    format!("[{number},\"{words}\"]")
}

/// Sends lines as one client with a name, to whichever daemon runs, until `count` are acknowledged.
fn send(address: &Mutex<SocketAddr>, count: u64, acknowledged: &AtomicU64) {
    while acknowledged.load(Ordering::Relaxed) < count {
        // A daemon that is killed ends the connection anywhere.
        if attempt(address, count, acknowledged).is_none() {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn attempt(address: &Mutex<SocketAddr>, count: u64, acknowledged: &AtomicU64) -> Option<()> {
    let address = *address.lock().unwrap();
    std::net::TcpStream::connect(address).ok()?;
    let mut stream = connect(address);
    let mut answers = BufReader::new(stream.try_clone().ok()?).lines();
    stream.write_all(b"LOGD 1 name=web\n").ok()?;
    let hello = answers.next()?.ok()?;
    let mut stored: u64 = hello.strip_prefix("H 1 durable ")?.split(' ').next()?.parse().ok()?;
    while stored < count {
        let end = count.min(stored + BLOCK);
        let text: String = (stored..end).map(|number| line(number) + "\n").collect();
        stream.write_all(text.as_bytes()).ok()?;
        // The lines of a name are numbered across connections.
        while stored < end {
            stored = answers.next()?.ok()?.strip_prefix("A ")?.parse().ok()?;
            acknowledged.store(stored, Ordering::Relaxed);
        }
    }
    Some(())
}

/// Waits for what may take as long as the retries of a store.
#[track_caller]
fn wait_long(what: &str, page: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(600);
    while !done() {
        assert!(Instant::now() < until, "waited in vain: {what}: {}", ask(page, "/metrics"));
        thread::sleep(Duration::from_millis(100));
    }
}

fn compare(directory: &Path, count: u64) {
    let lines = cat(&[], directory);
    assert_eq!(lines.len() as u64, count);
    for (number, found) in lines.iter().enumerate() {
        assert_eq!(*found, line(number as u64));
    }
}

/// The daemon is killed, and the server is cut off and hangs, while lines are stored, uploaded and removed.
fn acknowledged_lines_are_there_whatever_fails(protocol: Protocol) {
    let scene = Scene::new(protocol);
    let Scene { server, gate, .. } = &scene;
    let (mut daemon, mut page) = scene.start(&LARGE);
    let (address, acknowledged) = (Mutex::new(daemon.address), AtomicU64::new(0));
    let count = 60_000 * rounds() as u64;
    let (mut kills, mut errors) = (0, 0);
    thread::scope(|scope| {
        let sender = scope.spawn(|| send(&address, count, &acknowledged));
        let mut random = fastrand::Rng::new();
        while !sender.is_finished() || kills < rounds() {
            thread::sleep(Duration::from_millis(random.u64(500..4000)));
            match random.u8(..3) {
                0 => {
                    gate.shut();
                    thread::sleep(Duration::from_millis(random.u64(100..4000)));
                    gate.open();
                }
                1 => server.hang(Duration::from_millis(random.u64(100..8000))),
                _ => {
                    errors += figure(&page, "errors_total");
                    daemon.signal("-KILL");
                    daemon.child.wait().unwrap();
                    kills += 1;
                    let packs = if kills % 2 == 0 { "none" } else { "1" };
                    let flags = [&LARGE[..], &["--pack", packs]].concat();
                    (daemon, page) = scene.start(&flags);
                    *address.lock().unwrap() = daemon.address;
                }
            }
        }
        sender.join().unwrap();
    });
    assert_eq!(acknowledged.load(Ordering::Relaxed), count);
    // The end seals what is open, and the next start uploads it.
    daemon.end();
    (daemon, page) = scene.start(&[]);
    scene.wait_until_uploaded(&page);
    assert_eq!(figure(&page, "lost_segments_total"), 0);
    errors += figure(&page, "errors_total");
    daemon.end();
    let left = cat(&[], scene.directory()).len();
    let fetched = scene.fetch();
    compare(fetched.path(), count);
    println!(
        "{protocol:?}: {count} lines came back; {kills} kills, {errors} failed uploads, {left} lines left in the directory"
    );
    assert!(left < count as usize, "nothing was removed");
    let parts = server.parts(BUCKET);
    let largest = parts.iter().max().unwrap();
    println!("{} objects, the largest of {largest} parts", parts.len());
    assert!(*largest > 1, "no object was sent in parts: {parts:?}");
}

#[test]
fn acknowledged_lines_are_in_a_bucket_of_s3_whatever_fails() {
    acknowledged_lines_are_there_whatever_fails(Protocol::S3);
}

#[test]
fn acknowledged_lines_are_in_a_bucket_of_gcs_whatever_fails() {
    acknowledged_lines_are_there_whatever_fails(Protocol::Gcs);
}

#[test]
fn acknowledged_lines_are_in_a_container_of_azure_whatever_fails() {
    acknowledged_lines_are_there_whatever_fails(Protocol::Azure);
}

/// The server is gone for longer than a store retries by itself. Lines are acknowledged all the same, and are kept.
#[test]
fn a_server_that_is_gone_for_long_holds_nothing_up_and_is_told_once() {
    let scene = Scene::new(Protocol::S3);
    scene.gate.shut();
    let (daemon, page) = scene.start(&["--segment-size", "1m"]);
    let (address, acknowledged, count) = (Mutex::new(daemon.address), AtomicU64::new(0), 20_000);
    send(&address, count / 2, &acknowledged);
    wait_long("a failure", &page, || figure(&page, "away") == 1);
    let since = Instant::now();
    send(&address, count, &acknowledged);
    let sent = since.elapsed();
    wait_long("segments that wait", &page, || figure(&page, "waiting_segments") > 5);
    assert!(figure(&page, "oldest_seconds") > 1 && figure(&page, "away") == 1);
    compare(scene.directory(), count);
    scene.gate.open();
    scene.wait_until_uploaded(&page);
    assert_eq!((figure(&page, "away"), figure(&page, "lost_segments_total")), (0, 0));
    let output = daemon.end();
    for told in ["segments stay here, and logd tries again", "it works again"] {
        assert_eq!(output.matches(told).count(), 1, "{output}");
    }
    let (daemon, page) = scene.start(&[]);
    scene.wait_until_uploaded(&page);
    daemon.end();
    compare(scene.fetch().path(), count);
    println!("{} lines were stored in {sent:?} while the server was away", count / 2);
}
