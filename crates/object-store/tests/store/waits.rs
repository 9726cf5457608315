//! File systems and files that wait for others: no thread of the runtime waits with them.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use object_store::{ObjectStore, ObjectStoreExt};
use ringwise_object_store::RingFileSystem;
use tempfile::TempDir;

use crate::{content, path, store};

/// A file system in a process (FUSE) that can be stopped. It has one file, `nbd`.
struct Server {
    directory: TempDir,
    process: Child,
}

impl Server {
    fn mount() -> Option<Server> {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("place");
        std::fs::create_dir(&place).unwrap();
        let mut command = Command::new("nbdfuse");
        command.arg(&place).args(["--command", "nbdkit", "-s", "--exit-with-parent"]);
        command.args(["memory", "1M"]).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().ok()?;
        let mut server = Server { directory, process };
        let begin = Instant::now();
        while !place.join("nbd").exists() {
            let is_over = server.process.try_wait().unwrap().is_some();
            if is_over || begin.elapsed() > Duration::from_secs(20) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    fn place(&self) -> PathBuf {
        self.directory.path().join("place")
    }

    fn send(&self, signal: &str) {
        let process = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.send("-CONT");
        let _ = Command::new("umount").arg("-l").arg(self.place()).status();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How long a runtime of one thread is stopped by a get of an object whose file system does not answer for a while.
fn stopped_by_get(server: &Server, store: &RingFileSystem, location: &str) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let location = path(location);
    runtime.block_on(async {
        // From now on the kernel has the name in memory, for a second.
        store.get_ranges(&location, &[0..8]).await.unwrap();
        server.send("-STOP");
        let process = server.process.id().to_string();
        let goes_on = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(3));
            assert!(Command::new("kill").args(["-CONT", &process]).status().unwrap().success());
        });
        let begin = Instant::now();
        let get = store.get_ranges(&location, &[0..8]);
        let short = tokio::time::sleep(Duration::from_millis(10));
        tokio::select! {
            biased;
            read = get => assert_eq!(read.unwrap()[0].len(), 8),
            () = short => {}
        }
        let stopped = begin.elapsed();
        goes_on.join().unwrap();
        stopped
    })
}

/// The thread that polled opened the file.
fn no_runtime_is_stopped(place_of_store: fn(&Server) -> PathBuf, location: &str) {
    let Some(server) = Server::mount() else {
        assert!(std::env::var_os("CI").is_none(), "no skips in CI: nbdfuse mounts nothing");
        crate::skip("nbdfuse mounts nothing");
        return;
    };
    let store = RingFileSystem::new_with_prefix(place_of_store(&server)).unwrap();
    let stopped = stopped_by_get(&server, &store, location);
    assert!(stopped < Duration::from_secs(2), "{stopped:?}");
}

#[test]
fn a_file_system_that_does_not_answer_stops_no_runtime() {
    no_runtime_is_stopped(Server::place, "nbd");
}

#[test]
fn a_file_system_below_the_store_that_does_not_answer_stops_no_runtime() {
    no_runtime_is_stopped(|server| server.directory.path().to_owned(), "place/nbd");
}

/// Takes a write lease of a file. Gives it up a while after somebody opens the file.
const HOLDER: &str = "
import fcntl, os, signal, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
def give_up(*_):
    time.sleep(0.2)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
signal.signal(signal.SIGIO, give_up)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('ready', flush=True)
while True:
    signal.pause()
";

/// An open that does not wait is refused with EAGAIN then. It was repeated until the lease was given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_a_lease_is_read_when_the_lease_is_given_up() {
    let (store, directory) = store();
    store.put(&path("object"), "content".into()).await.unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", HOLDER]).arg(directory.path().join("object"));
    let started = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut holder) = started else {
        crate::skip("no python3");
        return;
    };
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let read = if line == "ready\n" { Some(content(&store, "object").await) } else { None };
    holder.kill().unwrap();
    holder.wait().unwrap();
    match read {
        Some(read) => assert_eq!(read, "content"),
        None => crate::skip("no lease can be taken"),
    }
}
