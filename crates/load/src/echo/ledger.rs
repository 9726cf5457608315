//! What a thread counts: operations, bytes, latencies, faults, and its own time.

use ringwise_measure::Latency;

use super::fault::Fault;
use crate::account::OwnTime;

/// Faults that are kept in words.
const FAULTS_TOLD: usize = 8;

/// What a thread counts.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Operations that ended in the measured time.
    pub operations: u64,
    /// Messages sent whole and echoed whole, in the whole run.
    pub sent: u64,
    pub received: u64,
    /// The same in bytes, parts of messages included.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Connections that were made.
    pub connections_made: u64,
    /// Operations that were due in the measured time and never begun.
    pub unsent: u64,
    /// Of operations that were under way in the measured time.
    pub latency: Latency,
    /// In an open loop: how late the thread came to look at what was due.
    pub lag: Latency,
    /// Connections that failed.
    pub errors: u64,
    /// The first of them, in words.
    pub faults: Vec<String>,
    /// The thread's own time over the measured time.
    pub own: OwnTime,
}

impl Ledger {
    /// Counts a connection that failed.
    pub(super) fn failed(&mut self, number: u64, fault: &Fault) {
        self.errors += 1;
        if self.faults.len() < FAULTS_TOLD {
            let text = match fault {
                Fault::Connect(..) => fault.to_string(),
                _ => format!("connection {number}: {fault}"),
            };
            self.faults.push(text);
        }
    }
}
