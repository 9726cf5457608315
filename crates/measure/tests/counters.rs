//! System calls counted in a process that does nothing else: a file of its own,
//! because the tests of one file share a process and would be counted too.

use std::fs;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use ringwise_measure::counters::{Counters, Event};
use ringwise_measure::{Fact, Sources};

const CALLS: u64 = 1000;

/// Where tracepoints are: mounted for the test where nobody has, away from where programs look.
struct Tracefs {
    sources: Sources,
    mounted: Option<tempfile::TempDir>,
}

impl Tracefs {
    fn find() -> Result<Tracefs, String> {
        let here = Sources::default();
        if here.sys_text("kernel/tracing/events/raw_syscalls/sys_enter/id").known().is_some() {
            return Ok(Tracefs { sources: here, mounted: None });
        }
        let directory = tempfile::tempdir().unwrap();
        let point = directory.path().join("kernel/tracing");
        fs::create_dir_all(&point).unwrap();
        let output = Command::new("mount").args(["-t", "tracefs", "tracefs"]).arg(&point).output();
        match output {
            Ok(done) if done.status.success() => {
                let sources = Sources { sys: directory.path().into(), ..here };
                Ok(Tracefs { sources, mounted: Some(directory) })
            }
            Ok(done) => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
            Err(error) => Err(format!("mount: {error}")),
        }
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        if let Some(directory) = &self.mounted {
            let point = directory.path().join("kernel/tracing");
            assert!(Command::new("umount").arg(point).status().unwrap().success());
        }
    }
}

fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped in CI: {reason}");
    println!("skipped: {reason}");
}

fn calls() {
    (0..CALLS).for_each(|_| drop(fs::metadata("/")));
}

#[test]
fn system_calls_of_old_and_new_threads() {
    let tracefs = match Tracefs::find() {
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
