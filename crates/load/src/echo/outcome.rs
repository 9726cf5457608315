//! What a run came to.

use ringwise_measure::Latency;

use super::ledger::Ledger;
use crate::{
    account::{ClientUse, ServerUse},
    crew::Conducted,
};

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// The measured time.
    pub elapsed_ns: u64,
    /// Whether a signal ended it early.
    pub is_partial: bool,
    /// Operations that ended in the measured time.
    pub operations: u64,
    /// Messages sent in the whole run, warm-up and end included.
    pub sent: u64,
    /// Messages that came back whole, in the whole run.
    pub received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes that came back right.
    pub bytes_received: u64,
    /// Connections that were made.
    pub connections_made: u64,
    /// Connections that failed.
    pub errors: u64,
    /// The first of them, in words.
    pub faults: Vec<String>,
    /// Operations that were due in the measured time and never begun.
    pub unsent: u64,
    /// Of operations that were under way in the measured time.
    pub latency: Latency,
    /// In an open loop: how late the generator came to look at what was due.
    pub lag: Latency,
    /// What the generator itself used.
    pub client: ClientUse,
    /// What the server used, where its process is known.
    pub server: Option<ServerUse>,
}

impl Outcome {
    pub(super) fn of(conducted: Conducted<Ledger>) -> Outcome {
        let ledgers = &conducted.ledgers;
        let sum = |of: fn(&Ledger) -> u64| ledgers.iter().map(of).sum();
        let merged = |of: fn(&Ledger) -> &Latency| {
            let mut all = Latency::new();
            ledgers.iter().for_each(|ledger| all.merge(of(ledger)));
            all
        };
        Outcome {
            elapsed_ns: conducted.elapsed_ns,
            is_partial: conducted.is_partial,
            operations: sum(|ledger| ledger.operations),
            sent: sum(|ledger| ledger.sent),
            received: sum(|ledger| ledger.received),
            bytes_sent: sum(|ledger| ledger.bytes_sent),
            bytes_received: sum(|ledger| ledger.bytes_received),
            connections_made: sum(|ledger| ledger.connections_made),
            errors: sum(|ledger| ledger.errors),
            faults: ledgers.iter().flat_map(|ledger| ledger.faults.iter().cloned()).collect(),
            unsent: sum(|ledger| ledger.unsent),
            latency: merged(|ledger| &ledger.latency),
            lag: merged(|ledger| &ledger.lag),
            client: conducted.client.of(ledgers.iter().map(|ledger| ledger.own)),
            server: conducted.server,
        }
    }

    /// Operations per second.
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Whether the generator was the limit: its busiest thread was never idle, be it that it
    /// worked or that it had no processor to work on.
    pub fn is_client_bound(&self) -> bool {
        self.client.is_bound()
    }

    /// Why the result does not count, if it does not.
    pub fn failure(&self) -> Option<String> {
        if self.errors > 0 {
            let first = self.faults.first().map_or("", String::as_str);
            let noun = if self.errors == 1 { "connection" } else { "connections" };
            return Some(format!("{} {noun} failed: {first}", self.errors));
        }
        let lost = self.bytes_sent - self.bytes_received;
        if lost > 0 {
            return Some(format!("{lost} of {} bytes did not come back", self.bytes_sent));
        }
        let nothing = "no operation ended in the measured time: try a longer --duration";
        (self.operations == 0).then(|| nothing.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::OwnTime;

    fn outcome(ledgers: Vec<Ledger>, elapsed_ns: u64) -> Outcome {
        let client = ClientUse::default();
        let conducted =
            Conducted { ledgers, start_ns: 0, elapsed_ns, is_partial: false, client, server: None };
        Outcome::of(conducted)
    }

    #[test]
    fn threads_are_summed_and_the_busiest_decides() {
        let ledger = |operations, cpu_ns, waited_ns| Ledger {
            operations,
            sent: 10,
            received: 10,
            own: OwnTime { elapsed_ns: 100, cpu_ns, waited_ns },
            ..Ledger::default()
        };
        let both = outcome(vec![ledger(3, 90, Some(6)), ledger(4, 95, Some(0))], 1_000_000_000);
        assert_eq!((both.operations, both.sent), (7, 20));
        assert_eq!(both.operations_per_second(), 7.0);
        assert_eq!(both.client.busy_share, 0.9);
        assert!(both.is_client_bound());
        assert_eq!(both.failure(), None);
        let idle = outcome(vec![ledger(3, 94, None)], 1_000_000_000);
        assert!(!idle.is_client_bound());
    }

    #[test]
    fn errors_losses_and_nothing_are_failures() {
        let of = |ledger: Ledger| outcome(vec![ledger], 1).failure().unwrap();
        let faults = vec!["first".to_owned(), "second".to_owned()];
        let failed = Ledger { operations: 9, errors: 2, faults, ..Ledger::default() };
        assert_eq!(of(failed), "2 connections failed: first");
        let lossy = Ledger { operations: 9, bytes_sent: 9, bytes_received: 8, ..Ledger::default() };
        assert_eq!(of(lossy), "1 of 9 bytes did not come back");
        assert!(of(Ledger::default()).starts_with("no operation"));
    }
}
