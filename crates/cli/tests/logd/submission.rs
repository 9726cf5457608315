//! A ring's thread in the kernel (`--sqpoll`): that it is there and works, that its time is the daemon's,
//! and what is said where it cannot be.

use std::{fs, io::Write, time::Duration};

use ringwise_measure::{Sources, cpu::ForeignProcess};

use super::{Client, Daemon, cat, logd, start, wait_until};

fn has_thread(daemon: &Daemon) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap();
    let names = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")));
    names.flatten().any(|name| name.starts_with("iou-sqp-"))
}

/// Nothing is sent meanwhile: what spins is the thread, whose time is to be found with the daemon's.
#[test]
fn a_thread_takes_what_is_asked_for_and_its_time_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let Some(daemon) = start("uring", directory.path(), &["--sqpoll", "20s"]) else { return };
    assert!(has_thread(&daemon));
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
    let plain = start("uring", directory.path(), &[]).unwrap();
    assert!(!has_thread(&plain), "who does not ask has none");
}

#[test]
fn epoll_has_no_such_thread() {
    let directory = tempfile::tempdir().unwrap();
    let check = |flags: &[&str]| logd(&[flags, &["--check", "--dir"]].concat(), directory.path());
    let refused = check(&["--engine", "epoll", "--sqpoll", "10ms"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    assert!(text.contains("--sqpoll is a ring's"), "{text}");
    let file = directory.path().join("logd.toml");
    fs::write(&file, "sqpoll = \"10ms\"\n").unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(check(&["--config", file, "--engine", "epoll"]).status.code(), Some(2));
    assert!(check(&["--config", file]).status.success());
}
