//! When `/readyz` is red, and when it is no more: what a load balancer goes by. And where it is asked.

use std::io::{BufRead, BufReader, Write};

use crate::daemon::{Daemon, command, skip, stored, wait_until};
use crate::disk::{Device, Disk};

const ENGINES: [&str; 2] = ["uring", "epoll"];

/// Nothing where this machine has no such engine.
fn start(engine: &str, disk: &Disk, flags: &[&str]) -> Option<Daemon> {
    let log = disk.path().join("log");
    // The segments of one thread are looked at.
    let own = ["--threads", "1", "--dir", log.to_str().unwrap(), "--engine", engine];
    let own = [&own[..], &["--http", "127.0.0.1:0"]].concat();
    match Daemon::start(command(&[], &[&own, flags].concat())) {
        Ok(daemon) => Some(daemon),
        Err(error) if engine == "uring" => {
            skip(&error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Waits until it is red for this reason. It lives all the while.
#[track_caller]
fn is_red(daemon: &Daemon, reason: &str) {
    wait_until(reason, || daemon.get("/readyz").0 == 503);
    let told = daemon.get("/readyz").1;
    assert!(told.contains(reason), "{told}");
    assert_eq!(daemon.get("/livez"), (200, "ok\n".to_owned()));
    let page = daemon.get("/").1;
    assert!(page.contains("class=\"bad\"") && page.contains(reason), "{page}");
    assert!(daemon.get("/metrics").1.contains("logd_ready 0\n"));
}

#[track_caller]
fn is_green(daemon: &Daemon) {
    wait_until("it is ready", || daemon.get("/readyz") == (200, "ok\n".to_owned()));
    assert!(daemon.get("/metrics").1.contains("logd_ready 1\n"));
}

#[test]
fn below_the_floor_it_is_red_until_there_is_space() {
    for engine in ENGINES {
        let Some(disk) = Disk::mount(Device::Memory) else { return };
        let Some(daemon) = start(engine, &disk, &["--min-free", "256k"]) else { continue };
        is_green(&daemon);
        // Nobody sends anything.
        let ballast = disk.fill(200 << 10);
        is_red(&daemon, "--min-free");
        std::fs::remove_file(&ballast).unwrap();
        is_green(&daemon);
        daemon.store(1, 1);
        daemon.end();
    }
}

/// A small loop file system that is full: red while what came cannot be stored, and green again.
#[test]
fn on_a_full_disk_it_is_red_until_it_stores() {
    for engine in ENGINES {
        let Some(disk) = Disk::mount(Device::Loop) else { return };
        let Some(daemon) = start(engine, &disk, &["--min-free", "0"]) else { continue };
        daemon.store(1, 1);
        is_green(&daemon);
        let ballast = disk.fill(0);
        let mut stream = daemon.connect();
        stream.write_all(b"LOGD 1 ack=durable\n").unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        writeln!(stream, "\"{}\"", "x".repeat(100_000)).unwrap();
        is_red(&daemon, "cannot store");
        std::fs::remove_file(&ballast).unwrap();
        answer.clear();
        answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "A 1\n");
        is_green(&daemon);
        drop((stream, answers));
        daemon.end();
    }
}

/// It was red until a restart, so that one bad second took a daemon out of service for good.
#[test]
fn with_a_failing_disk_it_is_red_until_writes_succeed_again() {
    for engine in ENGINES {
        let Some(disk) = Disk::mount(Device::Failing) else { return };
        let Some(daemon) = start(engine, &disk, &["--min-free", "0"]) else { continue };
        daemon.store(1, 1);
        is_green(&daemon);
        disk.fail(true);
        let mut stream = daemon.connect();
        stream.write_all(b"LOGD 1 ack=durable\n2\n").unwrap();
        is_red(&daemon, "cannot store");
        disk.fail(false);
        let mut answers = BufReader::new(stream).lines().map(Result::unwrap);
        assert!(answers.any(|answer| answer == "A 1"));
        is_green(&daemon);
        daemon.store(3, 3);
        is_green(&daemon);
        drop(answers);
        daemon.end();
        assert_eq!(stored(&disk.path().join("log")), ["1", "2", "3"]);
    }
}

/// A disk that takes no new file holds the thread that wants one: it answers nobody, and what asks whether
/// the daemon lives has to hear so, and be heard itself.
fn where_a_thread_hangs_it_neither_is_ready_nor_lives(engine: &str) {
    let Some(disk) = Disk::mount(Device::Loop) else { return };
    let Some(daemon) = start(engine, &disk, &["--min-free", "0"]) else { return };
    is_green(&daemon);
    let frozen = disk.freeze();
    let mut stream = daemon.connect();
    stream.write_all(b"LOGD 1 ack=durable\n1\n").unwrap();
    wait_until("it does not live", || daemon.get("/livez").0 == 503);
    assert_eq!(daemon.get("/livez").1, "1 threads do not answer\n");
    assert!(daemon.get("/readyz").1.contains("do not answer"));
    drop(frozen);
    let mut answers = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(answers.any(|answer| answer == "A 1"));
    assert_eq!(daemon.get("/livez"), (200, "ok\n".to_owned()));
    is_green(&daemon);
    drop(answers);
    daemon.end();
}

#[test]
fn where_a_thread_of_a_ring_hangs_it_neither_is_ready_nor_lives() {
    where_a_thread_hangs_it_neither_is_ready_nor_lives("uring");
}

#[test]
fn where_a_thread_of_epoll_hangs_it_neither_is_ready_nor_lives() {
    where_a_thread_hangs_it_neither_is_ready_nor_lives("epoll");
}

/// The same, where that thread is the one that stores requests.
#[test]
fn where_the_thread_of_requests_hangs_it_neither_is_ready_nor_lives() {
    let Some(disk) = Disk::mount(Device::Loop) else { return };
    let flags = ["--min-free", "0", "--http-intake", "127.0.0.1:0"];
    let Some(daemon) = start("epoll", &disk, &flags) else { return };
    is_green(&daemon);
    let frozen = disk.freeze();
    let mut stream = daemon.connect_to_intake();
    stream.write_all(b"POST /ingest HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1").unwrap();
    wait_until("it does not live", || daemon.get("/livez").0 == 503);
    assert_eq!(daemon.get("/livez").1, "1 threads do not answer\n");
    drop(frozen);
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    is_green(&daemon);
    drop(stream);
    daemon.end();
}

/// The address of the status page may be taken as that for lines may.
#[test]
fn a_page_whose_address_is_taken_is_told_what_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let flags = ["--dir", directory.path().to_str().unwrap(), "--http", &address];
    let error = Daemon::start(command(&[], &flags)).err().unwrap();
    let remedy = "another program listens there: end it, or ask for another port";
    assert_eq!(error.trim_end(), format!("--http {address}: Address already in use: {remedy}"));
}
