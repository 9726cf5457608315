//! What a thread counts: lines, their latencies, connections that failed, and its own time.

use ringwise_measure::Latency;

use super::fault::Fault;
use crate::account::OwnTime;

/// Faults that are kept in words.
const FAULTS_TOLD: usize = 8;

/// What a thread counts.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Lines that were answered, or without acknowledgements sent, in the measured time.
    pub operations: u64,
    /// Lines of the whole run: sent whole; taken by the target; rejected by it.
    pub sent: u64,
    pub received: u64,
    pub rejected: u64,
    pub bytes_sent: u64,
    /// Calls that send.
    pub writes: u64,
    /// Lines that were due in the measured time and never sent.
    pub unsent: u64,
    /// Of lines that were under way in the measured time.
    pub latency: Latency,
    /// In an open loop: how late the thread came to look at what was due.
    pub lag: Latency,
    /// Connections that were made, and that failed.
    pub connections_made: u64,
    pub errors: u64,
    /// The first of them, in words.
    pub faults: Vec<String>,
    /// The first rejection, in words.
    pub rejection: Option<String>,
    /// What the target promised.
    pub promise: Option<String>,
    /// Connections by number, and how many lines each sent.
    pub sent_by: Vec<(u64, u64)>,
    /// When the last connection was over.
    pub over_ns: u64,
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
