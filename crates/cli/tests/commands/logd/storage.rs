//! Segments from outside: how they end, what becomes of them, and disks that fail.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::Shutdown,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use super::{
    Client, ENGINES, cat, count,
    disk::{Device, Disk},
    logd, start, verify, wait_until,
};

/// Names of files in a directory that end so.
fn names(directory: &Path, ending: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(ending)).collect()
}

/// That nothing is acknowledged for a while.
fn hears_nothing(client: &mut Client) {
    client.stream.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
    let mut early = String::new();
    assert!(client.answers.read_line(&mut early).is_err(), "{early} and it is not stored");
    client.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
}

#[test]
fn a_segment_ends_by_age_without_a_line_is_packed_and_removed_in_its_time() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let flags = ["--segment-age", "100ms", "--pack", "3"];
        let Some(daemon) = start(engine, path, &flags) else { continue };
        let mut client = Client::new(&daemon, "LOGD 1\n");
        client.stream.write_all(b"1\n\xff\n2\n").unwrap();
        client.until(3);
        // The dead letter's segment too.
        wait_until("packed segments", || {
            names(path, ".zst").len() == 2 && names(path, ".ndjson").is_empty()
        });
        client.stream.write_all(b"3\n").unwrap();
        client.until(4);
        assert_eq!(cat(&[], path), ["1", "2", "3"]);
        assert_eq!(cat(&["--from", "1"], path), ["2", "3"]);
        assert_eq!(cat(&["--dead"], path).len(), 1);
        drop(client);
        daemon.end();
        let verdict = verify(path);
        assert!(verdict.contains("0000000000.ndjson.zst: 1 batches, 2 lines, sealed"), "{verdict}");

        let daemon = start(engine, path, &["--retain-age", "1ms"]).unwrap();
        wait_until("the removal", || {
            names(path, ".zst").is_empty() && names(path, ".ndjson").is_empty()
        });
        // Of the last segment of each stream the index is left, and the count goes on.
        assert_eq!(cat(&[], path), Vec::<String>::new());
        assert_eq!(verify(path).lines().count(), 2);
        daemon.end();
        let daemon = start(engine, path, &[]).unwrap();
        let mut client = Client::new(&daemon, "LOGD 1\n");
        client.stream.write_all(b"4\n").unwrap();
        client.until(1);
        assert_eq!(cat(&["--from", "3"], path), ["4"]);
        verify(path);
        drop(client);
        daemon.end();
    }
}

/// It looks every second, whether a line comes or not: what was young at the start goes in its time, not
/// before, and so does what is stored after that.
#[test]
fn retention_looks_again_and_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let age = Duration::from_millis(1500);
    let flags = ["--segment-age", "1ms", "--retain-age", "1500ms"];
    let daemon = start("epoll", path, &flags).unwrap();
    for number in 1..=2 {
        let began = Instant::now();
        let mut client = Client::new(&daemon, "LOGD 1\n");
        writeln!(client.stream, "{number}").unwrap();
        client.until(1);
        drop(client);
        wait_until("the line to go", || cat(&[], path).is_empty());
        assert!(began.elapsed() > age, "{:?}", began.elapsed());
    }
    let output = daemon.end();
    assert_eq!(output.matches("removed, by retention").count(), 2, "{output}");
    verify(path);
}

/// What retention removed is told from what was lost, also where the daemon ran meanwhile: it took the
/// index of lost lines for one of a removal that was cut short, and removed it.
#[test]
fn lost_lines_are_no_removed_ones() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let store = |flags: &[&str], number: u64| {
        let daemon = start("epoll", path, flags).unwrap();
        let mut client = Client::new(&daemon, "LOGD 1 name=web\n");
        writeln!(client.stream, "{number}").unwrap();
        client.until(number);
        drop(client);
        daemon
    };
    let data = |serial: u64| path.join(format!("lines-000-{serial:010}.ndjson"));
    let said = || {
        let output = logd(&["verify"], path);
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), text.concat())
    };
    store(&["--retain-age", "1ms"], 1).end();
    let daemon = start("epoll", path, &["--retain-age", "1ms"]).unwrap();
    wait_until("the removal", || !data(0).exists());
    daemon.end();
    let (status, text) = said();
    assert!(status == Some(0) && text.contains("removed, by retention"), "{text}");
    for number in 2..=4 {
        store(&[], number).end();
    }
    std::fs::remove_file(data(2)).unwrap();
    // It looks as it starts, and every second.
    let daemon = store(&["--retain-size", "1g"], 5);
    thread::sleep(Duration::from_millis(1200));
    daemon.end();
    let (status, text) = said();
    let lost = "lines-000-0000000002.ndjson: the file is gone, and retention did not remove it: it had \
                the lines 2 to 2";
    assert!(status == Some(1) && text.contains(lost), "{text}");
    let lines = logd(&["cat"], path);
    assert_eq!(lines.status.code(), Some(1));
    assert_eq!(String::from_utf8(lines.stdout).unwrap(), "2\n4\n5\n");
    // Of one that was killed the entry of the second batch tells that the first was there.
    let daemon = store(&[], 6);
    let mut client = Client::new(&daemon, "LOGD 1\n");
    client.stream.write_all(b"\"second\"\n").unwrap();
    client.until(1);
    daemon.signal("-KILL");
    drop(daemon);
    std::fs::remove_file(data(5)).unwrap();
    // Its client is told of it all the same: it was, and has dropped the line.
    store(&[], 7).end();
    let (_, text) = said();
    assert!(text.contains("0000000005.ndjson: the file is gone"), "{text}");
}

#[test]
fn what_is_over_the_size_goes_and_the_open_segment_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let flags = ["--segment-size", "1", "--retain-size", "100"];
    let Some(daemon) = start("epoll", path, &flags) else { return };
    let mut client = Client::new(&daemon, "LOGD 1\n");
    for sequence in 1..=5 {
        writeln!(client.stream, "{sequence}").unwrap();
        client.until(sequence);
    }
    wait_until("the removal of all but the last", || names(path, ".index").len() == 1);
    assert_eq!(cat(&[], path), ["5"], "it is over the size too, and open");
    writeln!(client.stream, "6").unwrap();
    client.until(6);
    assert!(cat(&[], path).ends_with(&["6".to_owned()]));
    drop(client);
    daemon.end();
    verify(path);
}

/// Dead letters took the disk of lines: one client that sends garbage could fill it.
#[test]
fn dead_letters_have_a_limit_of_their_own_and_lines_stay() {
    const LINES: u64 = 20;
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let flags = ["--segment-size", "1", "--retain-dead", "1k"];
        let Some(daemon) = start(engine, path, &flags) else { continue };
        let mut client = Client::new(&daemon, "LOGD 1\n");
        for number in 1..=LINES {
            writeln!(client.stream, "{number}\nx{number}").unwrap();
            client.until(2 * number);
        }
        wait_until("the removal", || {
            let output = logd(&["cat", "--dead"], path);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8(output.stdout).unwrap();
            // The newest segment is open, and does not count.
            let newest = text.lines().last().map_or(0, str::len);
            text.len() - newest <= 1024
        });
        drop(client);
        daemon.end();
        let letters = cat(&["--dead"], path);
        assert!(!letters.is_empty() && letters.len() < LINES as usize, "{engine}: {letters:?}");
        let last: serde_json::Value = serde_json::from_str(letters.last().unwrap()).unwrap();
        assert_eq!(last["line"], format!("x{LINES}"), "{engine}: the oldest go");
        let lines: Vec<String> = (1..=LINES).map(|number| number.to_string()).collect();
        assert_eq!(cat(&[], path), lines, "{engine}");
        verify(path);
    }
}

/// All segments were opened before the first line, and those of 42 days were more than there may be descriptors.
#[test]
#[ignore = "slow: bash .ci/scheduled slow"]
fn cat_opens_segments_when_their_turn_comes() {
    const SEGMENTS: u64 = 2000;
    // Output is written when there are 64 KiB.
    let line = |number: u64| format!("{number:01000}");
    let traced = Command::new("strace").args(["-e", "trace=none", "true"]).output();
    if !traced.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "no skips in CI: strace");
        eprintln!("skipped: no strace");
        return;
    }
    // In memory: each segment is synced.
    let Some(disk) = Disk::mount(Device::Roomy) else { return };
    let log = disk.path().join("log");
    let flags = ["--segment-size", "1", "--min-free", "0"];
    let daemon = start("epoll", &log, &flags).unwrap();
    let mut client = Client::new(&daemon, "LOGD 1\n");
    for number in 1..=SEGMENTS {
        writeln!(client.stream, "\"{}\"", line(number)).unwrap();
        client.until(number);
    }
    drop(client);
    daemon.end();
    assert!(names(&log, ".ndjson").len() >= SEGMENTS as usize);
    let trace = disk.path().join("trace");
    let mut command = Command::new("strace");
    command.args(["-qq", "-e", "trace=openat,write", "-o"]).arg(&trace);
    command.args(["prlimit", "--nofile=32", env!("CARGO_BIN_EXE_ringwise"), "logd", "cat"]);
    let output = command.arg(&log).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: String = (1..=SEGMENTS).map(|number| format!("\"{}\"\n", line(number))).collect();
    assert!(output.stdout == lines.as_bytes());
    let trace = std::fs::read_to_string(trace).unwrap();
    let before = trace.lines().take_while(|call| !call.starts_with("write(1,"));
    let opened: Vec<&str> = before.filter(|call| call.contains("lines-000-")).collect();
    // Three files for each of 66 lines, and those of the next segment.
    let count = opened.len();
    assert!((1..=202).contains(&count), "{count} files were opened before the first output");
}

/// A file system that fills up: nothing is acknowledged that is not stored, and it goes on when there
/// is space again.
#[test]
fn without_space_nothing_is_acknowledged() {
    for (engine, device) in
        [(ENGINES[0], Device::Memory), (ENGINES[1], Device::Memory), (ENGINES[0], Device::Loop)]
    {
        let Some(disk) = Disk::mount(device) else { continue };
        let log = disk.path().join("log");
        let Some(daemon) = start(engine, &log, &["--min-free", "0"]) else { continue };
        let mut client = Client::new(&daemon, "LOGD 1\n");
        client.stream.write_all(b"1\n").unwrap();
        client.until(1);
        let ballast = disk.fill(0);
        let line = format!("\"{}\"\n", "x".repeat(100_000));
        client.stream.write_all(line.as_bytes()).unwrap();
        hears_nothing(&mut client);
        std::fs::remove_file(&ballast).unwrap();
        client.until(2);
        drop(client);
        let output = daemon.end();
        assert!(output.contains("No space left"), "{output}");
        assert!(output.contains("storing and acknowledging again"), "{output}");
        assert_eq!(cat(&[], &log).len(), 2);
        verify(&log);
    }
}

/// The floor is met before the disk is full, and what came meanwhile is stored when it is left.
#[test]
fn below_the_floor_nothing_is_acknowledged() {
    for engine in ENGINES {
        let Some(disk) = Disk::mount(Device::Memory) else { return };
        let log = disk.path().join("log");
        let Some(mut daemon) = start(engine, &log, &["--min-free", "256k"]) else { continue };
        let mut errors = BufReader::new(daemon.child.stderr.take().unwrap()).lines();
        let mut client = Client::new(&daemon, "LOGD 1\n");
        client.stream.write_all(b"1\n").unwrap();
        client.until(1);
        let ballast = disk.fill(200 << 10);
        // It looks without being sent anything.
        let told = errors.next().unwrap().unwrap();
        assert!(told.contains("--min-free"), "{told}");
        client.stream.write_all(b"2\n").unwrap();
        hears_nothing(&mut client);
        assert!(disk.free() > 100 << 10, "it is not full");
        std::fs::remove_file(&ballast).unwrap();
        client.until(2);
        let told = errors.next().unwrap().unwrap();
        assert!(told.contains("storing continues"), "{told}");
        daemon.signal("-TERM");
        assert!(daemon.child.wait().unwrap().success());
        assert_eq!(cat(&[], &log), ["1", "2"]);
    }
}

/// A device whose writes fail: the segment is dead, and what it had on its way is in another when the
/// device is well again, once.
#[test]
fn a_failed_sync_ends_the_segment_and_loses_nothing() {
    for engine in ENGINES {
        let Some(disk) = Disk::mount(Device::Failing) else { return };
        let log = disk.path().join("log");
        let Some(daemon) = start(engine, &log, &["--min-free", "0"]) else { continue };
        let mut client = Client::new(&daemon, "LOGD 1 ack=durable\n");
        client.stream.write_all(b"1\n").unwrap();
        client.until(1);
        disk.fail(true);
        client.stream.write_all(b"2\n").unwrap();
        let (dead, second) = ("lines-000-0000000000.ndjson", "lines-000-0000000001.ndjson");
        wait_until("another segment", || log.join(second).exists());
        disk.fail(false);
        client.until(2);
        client.stream.write_all(b"3\n").unwrap();
        client.until(3);
        drop(client);
        let output = daemon.end();
        assert!(output.contains(&format!("{dead} is dead")), "{output}");
        assert!(count(&output, "dead segments") >= 1, "{output}");
        assert_eq!(cat(&[], &log), ["1", "2", "3"], "once each");
        verify(&log);
    }
}

#[test]
fn a_device_that_goes_on_failing_ends_the_daemon_with_an_error() {
    for engine in ENGINES {
        let Some(disk) = Disk::mount(Device::Failing) else { return };
        let log = disk.path().join("log");
        let Some(mut daemon) = start(engine, &log, &["--min-free", "0"]) else { continue };
        let mut client = Client::new(&daemon, "LOGD 1 ack=durable\n");
        client.stream.write_all(b"1\n").unwrap();
        client.until(1);
        disk.fail(true);
        client.stream.write_all(b"2\n").unwrap();
        assert_eq!(client.answer(), "", "no acknowledgement, and the end");
        let error = failed(&mut daemon);
        assert!(error.contains("Input/output error"), "{error}");
        disk.fail(false);
        // The next start finds what was acknowledged.
        start(engine, &log, &["--min-free", "0"]).unwrap().end();
        let lines = cat(&[], &log);
        assert!(lines == ["1"] || lines == ["1", "2"], "{lines:?}");
        verify(&log);
    }
}

#[test]
fn a_file_system_that_goes_read_only_ends_the_daemon_with_an_error() {
    for engine in ENGINES {
        let Some(disk) = Disk::mount(Device::Memory) else { return };
        let log = disk.path().join("log");
        let flags = ["--min-free", "0", "--segment-age", "1ms"];
        let Some(mut daemon) = start(engine, &log, &flags) else { continue };
        let mut client = Client::new(&daemon, "LOGD 1\n");
        client.stream.write_all(b"1\n").unwrap();
        client.until(1);
        // What is open for writing would be in the way.
        wait_until("the seal", || verify(&log).contains("sealed"));
        disk.remount("ro");
        client.stream.write_all(b"2\n").unwrap();
        assert_eq!(client.answer(), "");
        let error = failed(&mut daemon);
        assert!(error.contains("Read-only file system"), "{error}");
        disk.remount("rw");
        start(engine, &log, &["--min-free", "0"]).unwrap().end();
        assert_eq!(cat(&[], &log), ["1"]);
        assert_eq!(logd(&["verify"], &log).status.code(), Some(0));
    }
}

/// Waits for a daemon that fails; gives what it said.
fn failed(daemon: &mut super::Daemon) -> String {
    let mut error = String::new();
    daemon.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!(daemon.child.wait().unwrap().code(), Some(1), "{error}");
    error
}

/// While a commit is on its way a full batch takes nothing more in: what came waits, nothing of it
/// is lost, and each sender's lines keep their order.
#[test]
fn a_full_batch_waits_for_the_one_before() {
    const SENDERS: usize = 20;
    const LINES: usize = 60;
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--ack", "written", "--commit-size", "1"];
        let Some(daemon) = start(engine, directory.path(), &flags) else { continue };
        thread::scope(|scope| {
            for sender in 0..SENDERS {
                let mut stream = daemon.connect();
                scope.spawn(move || {
                    for line in 0..LINES {
                        stream.write_all(format!("[{sender},{line}]\n").as_bytes()).unwrap();
                    }
                    // Whoever is not accepted yet when the daemon ends has nothing stored.
                    stream.shutdown(Shutdown::Write).unwrap();
                    stream.read_to_end(&mut Vec::new()).unwrap();
                });
            }
        });
        let output = daemon.end();
        let lines = cat(&[], directory.path());
        for sender in 0..SENDERS {
            let prefix = format!("[{sender},");
            let stored = lines.iter().filter(|line| line.starts_with(&prefix));
            let sent = (0..LINES).map(|line| format!("{prefix}{line}]"));
            assert!(stored.eq(sent.collect::<Vec<_>>().iter()), "{engine}: sender {sender}");
        }
        // Each of one receive.
        let (commits, receives) = (count(&output, "commits"), count(&output, "receives"));
        assert!(commits + 20 > receives, "{engine}: {output}");
    }
}
