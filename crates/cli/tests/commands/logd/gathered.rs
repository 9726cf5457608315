//! A batch of many senders is one write.

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
fn there_are_as_many_writes_as_batches() {
    for engine in ENGINES {
        for how in ["direct", "buffered"] {
            let flags = ["--write", how, "--ack", "durable"];
            let Some((stored, [commits, writes, receives])) = store(engine, &flags) else { break };
            let mut sent: Vec<String> = (0..SENDERS)
                .flat_map(|sender| lines(sender).lines().map(str::to_owned).collect::<Vec<_>>())
                .collect();
            sent.sort();
            assert!(stored == sent, "{engine} {how}");
            assert_eq!(writes, commits, "{engine} {how}");
            assert!(commits <= SENDERS as u64 / 2, "{engine} {how}: {commits} commits");
            assert!(receives >= SENDERS as u64, "{engine} {how}: {receives} receives");
        }
    }
}
