//! System calls counted in a process that does nothing else: a file of its own,
//! because the tests of one file share a process and would be counted too.

#[path = "shared/tracefs.rs"]
mod tracefs;

use std::fs;
use std::sync::mpsc;
use std::thread;

use ringwise_measure::Fact;
use ringwise_measure::counters::{Counters, Event};
use tracefs::Tracefs;

const CALLS: u64 = 1000;

fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped in CI: {reason}");
    println!("skipped: {reason}");
}

fn calls() {
    (0..CALLS).for_each(|_| drop(fs::metadata("/")));
}

#[test]
fn system_calls_of_old_and_new_threads() {
    let tracefs = match Tracefs::find("raw_syscalls/sys_enter") {
        Ok(tracefs) => tracefs,
        Err(reason) => return skip(&reason),
    };
    let (go, wait) = mpsc::channel::<()>();
    let (done, finished) = mpsc::channel::<()>();
    let old = thread::spawn(move || {
        wait.recv().unwrap();
        calls();
        done.send(()).unwrap();
    });

    let mut counters = Counters::open(&tracefs.sources, &[Event::SystemCalls]);
    counters.start();
    go.send(()).unwrap();
    finished.recv().unwrap();
    thread::spawn(calls).join().unwrap();
    counters.stop();
    old.join().unwrap();
    let count = match counters.count(Event::SystemCalls) {
        Fact::Known(count) => count,
        Fact::Unknown(reason) => return skip(&reason),
    };
    assert!((2 * CALLS..3 * CALLS).contains(&count), "{count}");
    calls();
    assert_eq!(counters.count(Event::SystemCalls), Fact::Known(count), "stopped");

    // A second start counts from zero, whatever threads that have exited counted.
    counters.start();
    counters.stop();
    let again = *counters.count(Event::SystemCalls).known().unwrap();
    assert!(again < CALLS / 2, "from zero again: {again}");
}
