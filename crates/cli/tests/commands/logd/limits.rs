//! What is around a daemon and holds it up: a limit on the size of files, what a run with more threads
//! left, a lock that others may take, an address that is still in use, clients that do not go.

use std::{
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use super::{
    Client, Daemon, ENGINES, cat,
    disk::{Device, Disk},
    start, verify, wait_until,
};

/// A daemon whose files may have so many blocks of 512 bytes.
fn start_limited(engine: &str, directory: &Path, blocks: u32) -> Option<Daemon> {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -f {blocks}; exec \"$@\""), "sh"]);
    command.args([env!("CARGO_BIN_EXE_ringwise"), "logd", "--listen", "127.0.0.1:0"]);
    command.args(["--engine", engine, "--dir"]).arg(directory);
    Daemon::spawn(&mut command, engine)
}

/// It was killed by SIGXFSZ, and without that had tried the same segment again for ever.
#[test]
fn where_a_file_may_not_grow_the_next_begins() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(daemon) = start_limited(engine, directory.path(), 200) else { continue };
        let mut client = Client::new(&daemon, "LOGD 1\n");
        let line = format!("\"{}\"\n", "x".repeat(30_000));
        for number in 1..=12 {
            client.stream.write_all(line.as_bytes()).unwrap();
            client.until(number);
        }
        drop(client);
        let output = daemon.end();
        assert!(output.contains("File too large"), "{output}");
        assert!(!output.contains("is dead"), "{output}");
        assert_eq!(cat(&[], directory.path()).len(), 12);
        let verdict = verify(directory.path());
        assert!(verdict.lines().all(|line| line.ends_with("sealed")), "{verdict}");
        assert_eq!(verdict.lines().count(), 4, "three to a segment: {verdict}");
    }
}

/// All segments were open at once: of a quiet daemon that ends one each hour the tools failed after 42
/// days.
#[test]
fn tools_open_one_segment_after_the_other() {
    const LINES: u64 = 120;
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--threads", "1", "--segment-size", "1"];
    let daemon = start("epoll", directory.path(), &flags).unwrap();
    let mut client = Client::new(&daemon, "LOGD 1 ack=written\n");
    for number in 1..=LINES {
        writeln!(client.stream, "{number}").unwrap();
        client.until(number);
    }
    drop(client);
    daemon.end();
    for tool in [&["cat"][..], &["verify"], &["tail", "--once", "--from", "0"]] {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "ulimit -n 30; exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_ringwise"),
            "logd",
        ]);
        let output = command.args(tool).arg(directory.path()).output().unwrap();
        let (out, errors) = (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned());
        assert!(output.status.success() && errors.is_empty(), "{tool:?}: {errors}");
        let lines = String::from_utf8(out).unwrap().lines().count() as u64;
        assert!(lines >= LINES, "{tool:?}: {lines} lines");
    }
}

#[test]
fn a_batch_that_no_file_may_have_ends_the_daemon_with_an_error() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(mut daemon) = start_limited(engine, directory.path(), 64) else { continue };
        let mut client = Client::new(&daemon, "LOGD 1\n");
        let line = format!("\"{}\"\n", "x".repeat(60_000));
        client.stream.write_all(line.as_bytes()).unwrap();
        assert_eq!(client.answer(), "", "no acknowledgement, and the end");
        let mut error = String::new();
        daemon.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert_eq!(daemon.child.wait().unwrap().code(), Some(1), "{error}");
        assert!(error.contains("LimitFSIZE"), "{error}");
    }
}

/// Their last segments stayed open, and were neither packed nor removed.
#[test]
fn what_more_threads_left_is_ended_by_fewer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let daemon = start("epoll", path, &["--threads", "3"]).unwrap();
    let mut sent = 0;
    wait_until("lines in all streams", || {
        let mut client = Client::new(&daemon, "LOGD 1\n");
        client.stream.write_all(b"1\n").unwrap();
        client.until(1);
        sent += 1;
        (0..3).all(|number| path.join(format!("lines-00{number}-0000000000.ndjson")).exists())
    });
    daemon.signal("-KILL");
    drop(daemon);
    assert!(verify(path).lines().all(|line| line.contains(", open")));
    start("epoll", path, &["--threads", "1"]).unwrap();
    let verdict = verify(path);
    assert!(verdict.lines().all(|line| line.ends_with("sealed")), "{verdict}");
    assert_eq!(cat(&[], path).len(), sent);
}

#[test]
fn the_lock_is_nobody_elses_to_take() {
    let directory = tempfile::tempdir().unwrap();
    let lock = directory.path().join("lock");
    for before in [None, Some(0o644)] {
        if let Some(mode) = before {
            std::fs::set_permissions(&lock, PermissionsExt::from_mode(mode)).unwrap();
        }
        start("epoll", directory.path(), &[]).unwrap();
        assert_eq!(lock.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

/// A ring's listener may outlive its process for a moment.
#[test]
fn an_address_that_is_free_soon_is_waited_for() {
    for threads in ["1", "2"] {
        let directory = tempfile::tempdir().unwrap();
        let before = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = before.local_addr().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
        command.args(["logd", "--listen", &address.to_string(), "--engine", "epoll"]);
        command.args(["--threads", threads, "--dir"]).arg(directory.path());
        let ends = thread::spawn(move || {
            thread::sleep(Duration::from_millis(400));
            drop(before);
        });
        let daemon = Daemon::spawn(&mut command, "epoll").unwrap();
        assert_eq!(daemon.address, address);
        ends.join().unwrap();
    }
}

/// Without space the torn end could not be kept, and the daemon did not start.
#[test]
fn a_torn_end_on_a_full_disk_does_not_keep_it_from_its_start() {
    let Some(disk) = Disk::mount(Device::Memory) else { return };
    let log = disk.path().join("log");
    let flags = ["--min-free", "0", "--write", "buffered"];
    let daemon = start("epoll", &log, &flags).unwrap();
    let mut client = Client::new(&daemon, "LOGD 1\n");
    client.stream.write_all(b"1\n").unwrap();
    client.until(1);
    daemon.signal("-KILL");
    drop(daemon);
    let data = log.join("lines-000-0000000000.ndjson");
    let mut file = std::fs::File::options().append(true).open(&data).unwrap();
    file.write_all(&[b'x'; 100_000]).unwrap();
    disk.fill(0);
    let output = start("epoll", &log, &flags).unwrap().end();
    assert!(output.contains("100000 bytes") && output.contains("no space to keep"), "{output}");
    assert_eq!(std::fs::read(&data).unwrap(), b"1\n");
    assert_eq!(cat(&[], &log), ["1"]);
    verify(&log);
}

/// Both held their places for ever.
#[test]
fn who_was_refused_or_is_silent_is_ended_in_time() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(daemon) = start(engine, directory.path(), &["--idle", "1s"]) else { continue };
        let begin = Instant::now();
        let mut refused = daemon.connect();
        refused.write_all(b"LOGD 9\n").unwrap();
        let mut silent = daemon.connect();
        // Goes on if a stop of the whole machine interrupts it.
        assert_eq!(silent.read_to_end(&mut Vec::new()).unwrap(), 0);
        assert!(begin.elapsed() >= Duration::from_secs(1), "it has its time");
        wait_until("that who was refused is gone", || {
            thread::sleep(Duration::from_millis(50));
            refused.write_all(b"more\n").is_err()
        });
        daemon.end();
    }
}
