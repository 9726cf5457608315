//! Real clients of other protocols send to `ringwise logd`, which is killed while they do: all that a client was told is
//! stored has to be there.
//!
//! `.ci/scheduled clients` installs the clients and names their directory by `RINGWISE_CLIENTS`. Without it these tests
//! do nothing. A client is a program in this directory. It takes an address, a number of records, and a file, into which
//! it writes a line `FIRST END` as soon as it was told that the records from FIRST up to END are stored. It sends others
//! again until they are. A record has its number in a field `n`.

#[path = "../harness/harness.rs"]
mod harness;
mod intake;
mod syslog;
mod unacknowledged;

use std::{
    collections::HashMap,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::{Duration, Instant},
};

use harness::daemon::{Daemon, ENGINES, cat, wait_until};
use serde_json::Value;

/// How many records a client sends.
const RECORDS: usize = 100_000;
/// How many records a client sends before it waits for their acknowledgement: those may be stored twice.
const BATCH: usize = 500;
/// How long a client may take for all of them.
const PATIENCE: Duration = Duration::from_secs(240);

/// Where clients are installed.
pub fn installed() -> Option<PathBuf> {
    let directory = std::env::var_os("RINGWISE_CLIENTS").map(PathBuf::from);
    if directory.is_none() {
        eprintln!("skipped: no RINGWISE_CLIENTS: see .ci/scheduled");
    }
    directory
}

/// A client that is ended with the test.
pub struct Sender(Child);

impl Sender {
    fn wait_until(&mut self, mut is_done: impl FnMut(&mut Child) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_done(&mut self.0) {
            assert!(Instant::now() < until, "the client is not done in time");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lets a client send to the port of an option, and kills the daemon in the middle, on each engine. `number` finds a
/// record's number in a line.
pub fn send_over_a_kill(
    name: &str,
    option: &str,
    flags: &[&str],
    client: impl Fn() -> Command,
    number: fn(&Value) -> Option<u64>,
) {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        let told = directory.path().join("told");
        let address = free_address();
        let launch = || {
            let own = ["--dir", store.to_str().unwrap(), option, &address];
            let mut daemon = Daemon::launch("logd", engine, &[&own[..], flags].concat())?;
            daemon.line();
            Some(daemon)
        };
        let Some(daemon) = launch() else { continue };
        let mut command = client();
        command.args([&address, &RECORDS.to_string()]).arg(&told);
        let mut sender = Sender(command.spawn().unwrap());
        sender.wait_until(|_| stored(&told).len() > RECORDS / 3);
        daemon.signal("-KILL");
        drop(daemon);
        let before = stored(&told).len();
        assert!(before < RECORDS, "it was killed too late");
        let daemon = launch().unwrap();
        let mut status = None;
        sender.wait_until(|sender| {
            status = sender.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.is_some_and(|status| status.success()), "{name}: {status:?}");
        daemon.end();
        let found =
            count(&store, |line| Some(number(line).unwrap_or_else(|| panic!("no number: {line}"))));
        let lost = stored(&told).iter().filter(|number| !found.contains_key(number)).count();
        assert_eq!((stored(&told).len(), lost), (RECORDS, 0), "{name} on {engine}");
        let twice: usize = found.values().map(|count| count - 1).sum();
        println!("{name} on {engine}: killed after {before} records; none lost, {twice} twice");
        assert!(twice <= BATCH, "{name} on {engine}: {twice} twice");
    }
}

/// How often each record is stored. `number` finds its number in a line, unless the line is the client's own.
pub fn count(store: &Path, number: impl Fn(&Value) -> Option<u64>) -> HashMap<u64, usize> {
    let mut found = HashMap::new();
    for line in cat(&[], store) {
        let line: Value = serde_json::from_str(&line).unwrap();
        if let Some(number) = number(&line) {
            *found.entry(number).or_default() += 1;
        }
    }
    found
}

/// Waits until nothing more is stored for a while, or all records are.
fn wait_for_all(store: &Path, number: fn(&Value) -> Option<u64>) -> HashMap<u64, usize> {
    let (until, mut before) = (Instant::now() + PATIENCE, (0, Instant::now()));
    loop {
        let found = count(store, number);
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

/// Lets a client send that says nothing of what it was told, and kills the daemon in the middle; gives the records that
/// are stored. At most `twice_max` may be stored twice.
pub fn watch_over_a_kill(
    (name, twice_max): (&str, usize),
    store: &Path,
    launch: impl Fn() -> Option<Daemon>,
    start: impl FnOnce() -> Sender,
    number: fn(&Value) -> Option<u64>,
) -> Option<HashMap<u64, usize>> {
    let daemon = launch()?;
    let sender = start();
    wait_until("a tenth", || cat(&[], store).len() > RECORDS / 10);
    daemon.signal("-KILL");
    drop(daemon);
    let daemon = launch().unwrap();
    let before = count(store, number).len();
    let found = wait_for_all(store, number);
    drop(sender);
    daemon.end();
    let lost = RECORDS - found.len();
    let twice: usize = found.values().map(|count| count - 1).sum();
    println!("{name}: killed after {before} records; {lost} lost, {twice} twice");
    assert!(twice <= twice_max, "{name}: {twice} twice");
    Some(found)
}

/// The records that a client was told are stored.
fn stored(told: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(told).unwrap_or_default();
    // The last line may be half of one.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let ranges = whole.lines().filter_map(|line| line.split_once(' '));
    ranges.flat_map(|(first, end)| first.parse::<u64>().unwrap()..end.parse().unwrap()).collect()
}

/// An address that a daemon can have again after its end.
pub fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}
