//! A ring's thread in the kernel (`--sqpoll`): that it is there and works, that its time is the daemon's,
//! and what is said where it cannot be.

use std::{
    fs,
    io::Write,
    os::unix::{fs::chown, process::CommandExt},
    path::Path,
    process::Command,
    time::Duration,
};

use ringwise_measure::{Sources, cpu::ForeignProcess};

use super::{Client, Daemon, cat, figure, logd, start, verify, wait_until};

fn has_thread(daemon: &Daemon) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap();
    let names = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")));
    names.flatten().any(|name| name.starts_with("iou-sqp-"))
}

/// Nothing is sent meanwhile: what spins is the thread, whose time is to be found with the daemon's.
#[test]
fn a_thread_takes_what_is_asked_for_and_its_time_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--sqpoll", "20s", "--http", "127.0.0.1:0"];
    let Some(mut daemon) = start("uring", directory.path(), &flags) else { return };
    assert!(has_thread(&daemon));
    let http = daemon.line();
    assert_eq!(figure(&http, "logd_sqpoll"), 1);
    let mut client = Client::new(&daemon, "LOGD 1\n");
    for number in 1..=50 {
        writeln!(client.stream, "{number}").unwrap();
        client.until(number);
    }
    let sources = Sources::default();
    let look = || ForeignProcess::read(&sources, daemon.child.id());
    let before = look();
    let used = || look().since(&before).cpu_ns.known().copied().unwrap_or(0);
    wait_until("the thread has spun", || Duration::from_nanos(used()).as_millis() > 200);
    drop(client);
    let output = daemon.end();
    assert!(!output.contains("SQPOLL"), "{output}");
    assert_eq!(cat(&[], directory.path()).len(), 50);
    let directory = tempfile::tempdir().unwrap();
    let mut plain = start("uring", directory.path(), &["--http", "127.0.0.1:0"]).unwrap();
    assert!(!has_thread(&plain), "who does not ask has none");
    let http = plain.line();
    assert_eq!(figure(&http, "logd_sqpoll"), 0);
}

/// A daemon of a user of whom nobody else is, who may have so many threads.
fn start_limited(directory: &Path, engine: &str, write: &str, threads: u32) -> Option<Daemon> {
    let user = 1 << 30 | std::process::id();
    if let Err(error) = chown(directory, Some(user), Some(user)) {
        assert!(std::env::var_os("CI").is_none(), "no skips in CI: {error}");
        eprintln!("skipped: not root: {error}");
        return None;
    }
    let mut command = Command::new("prlimit");
    command.arg(format!("--nproc={threads}:{threads}")).arg(env!("CARGO_BIN_EXE_ringwise"));
    command.args(["logd", "--listen", "127.0.0.1:0", "--engine", engine, "--sqpoll", "10ms"]);
    command.args(["--threads", "1", "--write", write, "--dir"]).arg(directory).uid(user).gid(user);
    // Not by the engine's name: that there is no ring is no reason to pass here.
    Daemon::spawn(&mut command, "limited")
}

/// The thread that was one too many was the end of a daemon that was to be on a ring, and kept one that
/// was to choose from it. The kernel may have no thread for its own work either.
#[test]
fn a_ring_that_is_refused_its_thread_is_a_ring() {
    if start("uring", tempfile::tempdir().unwrap().path(), &[]).is_none() {
        return;
    }
    // The daemon's own are three: the first, the one that seals, and the one that stores.
    // In memory a write needs no thread of the kernel's, and its sync does.
    let (disk, memory) = (std::env::temp_dir(), Path::new("/dev/shm").to_owned());
    for (engine, place, write, threads) in [
        ("uring", &disk, "direct", 3),
        ("auto", &disk, "buffered", 3),
        ("uring", &memory, "buffered", 3),
        ("uring", &disk, "direct", 8),
    ] {
        let directory = tempfile::tempdir_in(place).unwrap();
        let daemon = start_limited(directory.path(), engine, write, threads);
        let Some(daemon) = daemon else { return };
        assert_eq!(has_thread(&daemon), threads > 3);
        let mut client = Client::new(&daemon, "LOGD 1 ack=durable\n");
        for number in 1..=50 {
            writeln!(client.stream, "{number}").unwrap();
            client.until(number);
        }
        // The next start ends what this one leaves.
        daemon.signal("-KILL");
        drop((client, daemon));
        let daemon = start_limited(directory.path(), engine, write, threads).unwrap();
        let mut client = Client::new(&daemon, "LOGD 1 ack=durable\n");
        client.stream.write_all(b"51\n").unwrap();
        client.until(1);
        drop(client);
        let output = daemon.end();
        let refused = "ringwise: logd: without SQPOLL: a submission thread was refused: io_uring_setup: \
                       Resource temporarily unavailable";
        assert_eq!(output.contains(refused), threads == 3, "{output}");
        // Nor has the kernel one for a sync, which would be acknowledged and not made.
        let made = "the kernel has no thread for its writes and syncs";
        assert_eq!(output.contains(made), threads == 3, "{}: {output}", place.display());
        assert!(!output.contains("is dead"), "{output}");
        assert_eq!(cat(&[], directory.path()).len(), 51);
        verify(directory.path());
    }
}

#[test]
fn epoll_has_no_such_thread() {
    let directory = tempfile::tempdir().unwrap();
    let check = |flags: &[&str]| logd(&[flags, &["--check", "--dir"]].concat(), directory.path());
    let refused = check(&["--engine", "epoll", "--sqpoll", "10ms"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    assert!(text.ends_with(": --sqpoll needs io_uring: use --engine uring or auto\n"), "{text}");
    let file = directory.path().join("logd.toml");
    fs::write(&file, "sqpoll = \"10ms\"\n").unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(check(&["--config", file, "--engine", "epoll"]).status.code(), Some(2));
    assert!(check(&["--config", file]).status.success());
}
