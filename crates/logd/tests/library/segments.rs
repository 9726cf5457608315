//! Segments from outside: in which order they are sealed and packed, and what is done where there is no
//! descriptor for the next; and how a tool that follows them ends.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
    time::Duration,
};

use crate::daemon::{Daemon, command, stored, tool, wait_until};

/// How much old segments are written from, and in how many parts. Packing one of them takes a quarter of a second or so,
/// and many times that on a busy machine.
const PARTS: u64 = 8;
const PART_BYTES: usize = 1 << 20;

fn start(directory: &Path, flags: &[&str]) -> Daemon {
    // The segments of one thread are looked at.
    let own = ["--threads", "1", "--dir", directory.to_str().unwrap(), "--engine", "epoll"];
    Daemon::start(command(&[], &[&own, flags].concat())).unwrap()
}

/// The names of files that end so.
fn names(directory: &Path, ending: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(ending)).collect()
}

fn is_sealed(directory: &Path, serial: u64) -> bool {
    let path = directory.join(format!("lines-000-{serial:010}.index"));
    let Ok(index) = std::fs::File::open(path) else { return false };
    let mut kind = [0; 4];
    let last = index.metadata().unwrap().len().checked_sub(64);
    last.is_some_and(|last| index.read_exact_at(&mut kind, last).is_ok()) && &kind == b"RLS1"
}

/// What waits for its seal has two descriptors open, and packing all that there is may take hours.
#[test]
fn what_is_to_be_sealed_does_not_wait_for_all_that_is_to_be_packed() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let size = (PART_BYTES / 2).to_string();
    // All of it is stored, however slow the disk is.
    let daemon = start(directory, &["--segment-size", &size, "--drain", "60s"]);
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..PARTS {
        let mut lines = Vec::with_capacity(PART_BYTES + 100);
        while lines.len() < PART_BYTES {
            let (id, level) = (random.u64(..), random.u8(..));
            writeln!(lines, "{{\"id\":{id},\"level\":{level},\"message\":\"hello\"}}").unwrap();
        }
        let mut stream = daemon.connect();
        stream.write_all(&lines).unwrap();
    }
    daemon.end();
    let old = names(directory, ".ndjson");
    assert!(old.len() > 3, "{old:?}");
    let next = old.len() as u64;

    let daemon = start(directory, &["--segment-size", "1", "--pack", "19"]);
    wait_until("the first is being packed", || !names(directory, ".part").is_empty());
    // Each line ends the segment of the one before.
    daemon.store(1, 3);
    wait_until("the seals", || is_sealed(directory, next) && is_sealed(directory, next + 1));
    let plain = old.iter().filter(|name| directory.join(name).exists()).count();
    assert!(plain > 1, "all {} were packed before", old.len());
    let packed = names(directory, ".zst").len();
    wait_until("packing to go on", || names(directory, ".zst").len() > packed);
    daemon.end();
}

/// Segments that wait for their seal have descriptors, and may have all. A daemon that found none for the
/// next segment three times ended, with an error, where it had only to wait.
#[test]
fn without_a_descriptor_for_its_segment_a_batch_waits() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = start(directory.path(), &[]);
    let mut stream = daemon.connect();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut answer = String::new();
    stream.write_all(b"LOGD 1\n").unwrap();
    answers.read_line(&mut answer).unwrap();
    let limit = |files: &str| {
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--pid", &daemon.id().to_string(), &format!("--nofile={files}:")]);
        assert!(prlimit.status().unwrap().success());
    };
    // Of the numbers below none is free.
    limit("3");
    stream.write_all(b"1\n").unwrap();
    // It tries again and again.
    stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    answer.clear();
    let early = answers.read_line(&mut answer);
    assert!(early.is_err(), "{early:?} {answer:?} and it is not stored, or the end");
    limit("100");
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    answers.read_line(&mut answer).unwrap();
    assert_eq!(answer, "A 1\n");
    drop((stream, answers));
    let output = daemon.end();
    assert!(output.contains("Too many open files") && output.contains("ulimit -n"), "{output}");
    assert!(output.contains("storing and acknowledging again"), "{output}");
    assert_eq!(stored(directory.path()), ["1"]);
}

/// `logd tail DIRECTORY | head -1` went on for ever where no more lines came.
#[test]
fn tail_ends_when_nobody_reads_it() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = start(directory.path(), &[]);
    daemon.store(1, 1);
    let mut command = tool(&["tail", directory.path().to_str().unwrap()]);
    let mut tail = command.spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "1"));
    drop(lines);
    wait_until("its end", || tail.try_wait().unwrap().is_some());
    daemon.end();
}
