//! Batches written at once, or what each receive brought by itself (`--gather`).

use std::{io::Write, net::TcpStream};

use super::{ENGINES, cat, count, start, verify, wait_until};

const SENDERS: usize = 20;

/// What each sender sends at once: more than a block, so that direct writes differ too.
fn lines(sender: usize) -> String {
    (0..100).map(|line| format!("[{sender},{line},\"{}\"]\n", "x".repeat(60))).collect()
}

/// Stores what all send while the daemon is stopped, so that a batch has what several brought. Gives
/// the lines, sorted, and the daemon's counts of commits, writes and receives.
fn store(engine: &str, flags: &[&str]) -> Option<(Vec<String>, [u64; 3])> {
    let directory = tempfile::tempdir().unwrap();
    let daemon = start(engine, directory.path(), flags)?;
    daemon.signal("-STOP");
    let streams = (0..SENDERS).map(|number| {
        let mut stream = daemon.connect();
        stream.write_all(lines(number).as_bytes()).unwrap();
        stream
    });
    let streams: Vec<TcpStream> = streams.collect();
    daemon.signal("-CONT");
    wait_until("all is stored", || cat(&[], directory.path()).len() == SENDERS * 100);
    drop(streams);
    let output = daemon.end();
    verify(directory.path());
    let mut stored = cat(&[], directory.path());
    stored.sort();
    Some((stored, ["commits", "writes", "receives"].map(|word| count(&output, word))))
}

#[test]
fn writes_are_as_many_as_batches_or_as_receives_and_the_lines_are_the_same() {
    for engine in ENGINES {
        for how in ["direct", "buffered"] {
            let flags = ["--write", how, "--ack", "durable", "--gather"];
            let Some(at_once) = store(engine, &[&flags[..], &["batch"]].concat()) else { break };
            let (stored, [commits, writes, _]) = at_once;
            assert_eq!(writes, commits, "{engine} {how}");
            let (same, [commits, writes, receives]) =
                store(engine, &[&flags[..], &["receive"]].concat()).unwrap();
            assert!(same == stored, "{engine} {how}");
            assert!(commits <= SENDERS as u64 / 2, "{engine} {how}: {commits} commits");
            assert!(writes >= SENDERS as u64, "{engine} {how}: {writes} writes");
            assert!(writes <= receives, "{engine} {how}: {writes} writes of {receives} receives");
        }
    }
}
