//! What a run came to.

use ringwise_measure::Latency;

use super::{ledger::Ledger, plan::Plan, stored::Stored};
use crate::{
    account::{ClientUse, ServerUse},
    crew::Conducted,
};

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// The measured time.
    pub elapsed_ns: u64,
    /// From the first line to the moment at which the target had taken all.
    pub whole_ns: u64,
    /// Whether a signal ended it early.
    pub is_partial: bool,
    /// Lines that were answered in the measured time, or without acknowledgements sent.
    pub operations: u64,
    /// Lines sent in the whole run, warm-up included.
    pub sent: u64,
    /// Lines that the target took in the whole run: answered by it, or without acknowledgements
    /// those of connections that it read to the end and closed.
    pub received: u64,
    /// Lines that it rejected, of those received.
    pub rejected: u64,
    /// Whether the target answers for each line.
    pub is_answered: bool,
    /// What it promised for an acknowledgement.
    pub promise: Option<String>,
    /// What was found in its files, where they were looked at.
    pub stored: Option<Stored>,
    /// Bytes sent, TLS not among them.
    pub bytes_sent: u64,
    /// Calls that sent them.
    pub writes: u64,
    /// Connections that were made.
    pub connections_made: u64,
    /// Connections that failed.
    pub errors: u64,
    /// The first of them, in words.
    pub faults: Vec<String>,
    /// The first rejection, in words.
    pub rejection: Option<String>,
    /// Lines that were due in the measured time and never sent.
    pub unsent: u64,
    /// Of lines that were under way in the measured time: to the acknowledgement, or without any
    /// until the kernel had the line.
    pub latency: Latency,
    /// In an open loop: how late the generator came to look at what was due.
    pub lag: Latency,
    /// What the generator itself used.
    pub client: ClientUse,
    /// What the target used, where its process is known.
    pub server: Option<ServerUse>,
}

impl Outcome {
    pub(super) fn of(plan: &Plan, conducted: Conducted<Ledger>) -> Outcome {
        let ledgers = &conducted.ledgers;
        let sum = |of: fn(&Ledger) -> u64| ledgers.iter().map(of).sum();
        let merged = |of: fn(&Ledger) -> &Latency| {
            let mut all = Latency::new();
            ledgers.iter().for_each(|ledger| all.merge(of(ledger)));
            all
        };
        let over_ns = ledgers.iter().map(|ledger| ledger.over_ns).max().unwrap_or(0);
        Outcome {
            elapsed_ns: conducted.elapsed_ns,
            whole_ns: over_ns.saturating_sub(conducted.start_ns),
            is_partial: conducted.is_partial,
            operations: sum(|ledger| ledger.operations),
            sent: sum(|ledger| ledger.sent),
            received: sum(|ledger| ledger.received),
            rejected: sum(|ledger| ledger.rejected),
            is_answered: plan.is_answered(),
            promise: ledgers.iter().find_map(|ledger| ledger.promise.clone()),
            stored: None,
            bytes_sent: sum(|ledger| ledger.bytes_sent),
            writes: sum(|ledger| ledger.writes),
            connections_made: sum(|ledger| ledger.connections_made),
            errors: sum(|ledger| ledger.errors),
            faults: ledgers.iter().flat_map(|ledger| ledger.faults.iter().cloned()).collect(),
            rejection: ledgers.iter().find_map(|ledger| ledger.rejection.clone()),
            unsent: sum(|ledger| ledger.unsent),
            latency: merged(|ledger| &ledger.latency),
            lag: merged(|ledger| &ledger.lag),
            client: conducted.client.of(ledgers.iter().map(|ledger| ledger.own)),
            server: conducted.server,
        }
    }

    /// Lines per second: answered, or without acknowledgements sent, in the measured time.
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Lines per second over the whole run, until the target had taken all.
    pub fn whole_per_second(&self) -> f64 {
        self.received as f64 * 1e9 / self.whole_ns.max(1) as f64
    }

    /// Lines that were acknowledged and not rejected.
    pub fn acknowledged(&self) -> Option<u64> {
        self.is_answered.then(|| self.received.saturating_sub(self.rejected))
    }

    /// Why the result does not count, if it does not.
    pub fn failure(&self) -> Option<String> {
        if self.errors > 0 {
            let first = self.faults.first().map_or("", String::as_str);
            let noun = if self.errors == 1 { "connection" } else { "connections" };
            return Some(format!("{} {noun} failed: {first}", self.errors));
        }
        if self.rejected > 0 {
            let first = self.rejection.as_deref().unwrap_or_default();
            return Some(format!(
                "{} of {} lines were rejected: {first}",
                self.rejected, self.sent
            ));
        }
        if self.received != self.sent {
            let (sent, received) = (self.sent, self.received);
            return Some(format!("{sent} lines were sent, and the target took {received}"));
        }
        if let Some(Stored { lost, twice, altered, .. }) = self.stored
            && lost + twice + altered > 0
        {
            return Some(format!(
                "of {} lines {lost} are not stored, {twice} twice and {altered} altered",
                self.sent
            ));
        }
        let nothing = "no line was done in the measured time: try a longer --duration";
        (self.operations == 0).then(|| nothing.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(change: impl Fn(&mut Outcome)) -> Outcome {
        let mut outcome = Outcome {
            elapsed_ns: 1_000_000_000,
            whole_ns: 2_000_000_000,
            is_partial: false,
            operations: 10,
            sent: 20,
            received: 20,
            rejected: 0,
            is_answered: true,
            promise: None,
            stored: Some(Stored { lines: 20, ..Stored::default() }),
            bytes_sent: 1,
            writes: 1,
            connections_made: 1,
            errors: 0,
            faults: Vec::new(),
            rejection: None,
            unsent: 0,
            latency: Latency::new(),
            lag: Latency::new(),
            client: ClientUse::default(),
            server: None,
        };
        change(&mut outcome);
        outcome
    }

    #[test]
    fn what_agrees_is_no_failure() {
        let good = outcome(|_| ());
        assert_eq!(good.failure(), None);
        assert_eq!((good.operations_per_second(), good.whole_per_second()), (10.0, 10.0));
        assert_eq!(outcome(|one| one.rejected = 2).acknowledged(), Some(18));
    }

    #[test]
    fn every_disagreement_is_one() {
        let stored = |lost, twice, altered| Some(Stored { lines: 1, lost, twice, altered });
        type Change<'a> = &'a dyn Fn(&mut Outcome);
        let changes: [(Change<'_>, &str); 6] = [
            (&|one| one.received = 19, "20 lines were sent, and the target took 19"),
            (&|one| one.errors = 1, "1 connection failed"),
            (&|one| one.rejected = 1, "1 of 20 lines were rejected"),
            (&|one| one.stored = stored(1, 0, 0), "1 are not stored"),
            (&|one| one.stored = stored(0, 0, 1), "1 altered"),
            (&|one| one.operations = 0, "no line was done"),
        ];
        for (change, part) in changes {
            let failure = outcome(change).failure().unwrap();
            assert!(failure.contains(part), "{failure}");
        }
    }
}
