//! What a run came to.

use ringwise_measure::{Fact, Latency, cpu::ForeignUse};

use super::ledger::Ledger;

/// A thread that was never idle for more of the time than this leaves is the limit.
const BUSY_SHARE_MAX: f64 = 0.95;

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

/// What the generator itself used in the measured time.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientUse {
    /// Between the two looks at the clock.
    pub elapsed_ns: u64,
    /// CPU time of the process, user and system.
    pub cpu_ns: u64,
    /// The share of the time that the busiest thread was on a processor.
    pub busy_share: f64,
    /// The share that the same thread waited for a processor.
    pub waiting_share: Option<f64>,
}

/// What the server's process used in the measured time.
#[derive(Clone, Debug)]
pub struct ServerUse {
    /// Between the two looks at it.
    pub elapsed_ns: u64,
    /// CPU time and context switches of all its threads.
    pub used: ForeignUse,
    /// Memory in RAM at the end.
    pub resident_bytes: Fact<u64>,
    /// What its memory grew by for each idle connection, where there were some.
    pub bytes_per_idle: Option<Fact<f64>>,
}

impl Outcome {
    pub(super) fn of(ledgers: &[Ledger], elapsed_ns: u64) -> Outcome {
        let sum = |of: fn(&Ledger) -> u64| ledgers.iter().map(of).sum();
        let merged = |of: fn(&Ledger) -> &Latency| {
            let mut all = Latency::new();
            ledgers.iter().for_each(|ledger| all.merge(of(ledger)));
            all
        };
        let busiest = ledgers
            .iter()
            .map(|ledger| {
                let own = ledger.own;
                let share = |ns: u64| ns as f64 / own.elapsed_ns.max(1) as f64;
                (share(own.cpu_ns), own.waited_ns.map(share))
            })
            .max_by(|a, b| (a.0 + a.1.unwrap_or(0.0)).total_cmp(&(b.0 + b.1.unwrap_or(0.0))));
        let (busy_share, waiting_share) = busiest.unwrap_or_default();
        Outcome {
            elapsed_ns,
            is_partial: false,
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
            client: ClientUse { busy_share, waiting_share, ..ClientUse::default() },
            server: None,
        }
    }

    /// Operations per second.
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Whether the generator was the limit: its busiest thread was never idle, be it that it
    /// worked or that it had no processor to work on.
    pub fn is_client_bound(&self) -> bool {
        let ClientUse { busy_share, waiting_share, .. } = self.client;
        busy_share + waiting_share.unwrap_or(0.0) > BUSY_SHARE_MAX
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
    use crate::echo::ledger::OwnTime;

    #[test]
    fn threads_are_summed_and_the_busiest_decides() {
        let ledger = |operations, cpu_ns, waited_ns| Ledger {
            operations,
            sent: 10,
            received: 10,
            own: OwnTime { elapsed_ns: 100, cpu_ns, waited_ns },
            ..Ledger::default()
        };
        let outcome = Outcome::of(&[ledger(3, 90, Some(6)), ledger(4, 95, Some(0))], 1_000_000_000);
        assert_eq!((outcome.operations, outcome.sent), (7, 20));
        assert_eq!(outcome.operations_per_second(), 7.0);
        assert_eq!(outcome.client.busy_share, 0.9);
        assert!(outcome.is_client_bound());
        assert_eq!(outcome.failure(), None);
        let idle = Outcome::of(&[ledger(3, 94, None)], 1_000_000_000);
        assert!(!idle.is_client_bound());
    }

    #[test]
    fn errors_losses_and_nothing_are_failures() {
        let of = |ledger: Ledger| Outcome::of(&[ledger], 1).failure().unwrap();
        let faults = vec!["first".to_owned(), "second".to_owned()];
        let failed = Ledger { operations: 9, errors: 2, faults, ..Ledger::default() };
        assert_eq!(of(failed), "2 connections failed: first");
        let lossy = Ledger { operations: 9, bytes_sent: 9, bytes_received: 8, ..Ledger::default() };
        assert_eq!(of(lossy), "1 of 9 bytes did not come back");
        assert!(of(Ledger::default()).starts_with("no operation"));
    }
}
