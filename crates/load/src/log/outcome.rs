//! What a run came to.

use super::{ledger::Ledger, plan::Plan, stored::Stored};
use crate::crew::{Conducted, Totals};

/// What a run came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Lines, their latency and their cost. An operation is a line that was answered, or without
    /// acknowledgements sent; received is what was answered, or without acknowledgements sent on
    /// connections that the target read to the end and closed. The latency is to the
    /// acknowledgement, or without any until the kernel had the line.
    pub totals: Totals,
    /// From the first line to the moment at which the target had taken all.
    pub whole_ns: u64,
    /// Lines that it rejected, of those received.
    pub rejected: u64,
    /// The first rejection, in words.
    pub rejection: Option<String>,
    /// Whether the target answers for each line.
    pub is_answered: bool,
    /// What it promised for an acknowledgement.
    pub promise: Option<String>,
    /// What was found in its files, where they were looked at.
    pub stored: Option<Stored>,
    /// Calls that sent.
    pub writes: u64,
}

impl Outcome {
    pub(super) fn of(plan: &Plan, conducted: Conducted<Ledger>) -> Outcome {
        let Conducted { totals, ledgers, start_ns } = conducted;
        let over_ns = ledgers.iter().map(|ledger| ledger.over_ns).max().unwrap_or(0);
        Outcome {
            totals,
            whole_ns: over_ns.saturating_sub(start_ns),
            rejected: ledgers.iter().map(|ledger| ledger.rejected).sum(),
            rejection: ledgers.iter().find_map(|ledger| ledger.rejection.clone()),
            is_answered: plan.is_answered(),
            promise: ledgers.iter().find_map(|ledger| ledger.promise.clone()),
            stored: None,
            writes: ledgers.iter().map(|ledger| ledger.writes).sum(),
        }
    }

    /// Lines per second over the whole run, until the target had taken all.
    pub fn whole_per_second(&self) -> f64 {
        self.totals.received as f64 * 1e9 / self.whole_ns.max(1) as f64
    }

    /// Lines that were acknowledged and not rejected.
    pub fn acknowledged(&self) -> Option<u64> {
        self.is_answered.then(|| self.totals.received.saturating_sub(self.rejected))
    }

    /// Why the result does not count, if it does not.
    pub fn failure(&self) -> Option<String> {
        let nothing = "no line was done in the measured time: try a longer --duration";
        self.fault().or_else(|| (self.totals.operations == 0).then(|| nothing.to_owned()))
    }

    /// What went wrong, which a target that is only slow does not bring about.
    pub fn fault(&self) -> Option<String> {
        if let Some(failed) = self.totals.failed_connections() {
            return Some(failed);
        }
        if self.rejected > 0 {
            let first = self.rejection.as_deref().unwrap_or_default();
            return Some(format!(
                "{} of {} lines were rejected: {first}",
                self.rejected, self.totals.sent
            ));
        }
        if self.totals.received != self.totals.sent {
            let (sent, received) = (self.totals.sent, self.totals.received);
            return Some(format!("{sent} lines were sent, and the target took {received}"));
        }
        if let Some(Stored { lost, twice, altered, .. }) = self.stored
            && lost + twice + altered > 0
        {
            return Some(format!(
                "of {} lines {lost} are not stored, {twice} twice and {altered} altered",
                self.totals.sent
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(change: impl Fn(&mut Outcome)) -> Outcome {
        let mut outcome = Outcome {
            totals: Totals {
                elapsed_ns: 1_000_000_000,
                operations: 10,
                sent: 20,
                received: 20,
                ..Totals::default()
            },
            whole_ns: 2_000_000_000,
            is_answered: true,
            stored: Some(Stored { lines: 20, ..Stored::default() }),
            ..Outcome::default()
        };
        change(&mut outcome);
        outcome
    }

    #[test]
    fn what_agrees_is_no_failure() {
        let good = outcome(|_| ());
        assert_eq!(good.failure(), None);
        assert_eq!((good.totals.operations_per_second(), good.whole_per_second()), (10.0, 10.0));
        assert_eq!(outcome(|one| one.rejected = 2).acknowledged(), Some(18));
    }

    #[test]
    fn every_disagreement_is_one() {
        let stored = |lost, twice, altered| Some(Stored { lines: 1, lost, twice, altered });
        type Change<'a> = &'a dyn Fn(&mut Outcome);
        let changes: [(Change<'_>, &str); 6] = [
            (&|one| one.totals.received = 19, "20 lines were sent, and the target took 19"),
            (&|one| one.totals.errors = 1, "1 connection failed"),
            (&|one| one.rejected = 1, "1 of 20 lines were rejected"),
            (&|one| one.stored = stored(1, 0, 0), "1 are not stored"),
            (&|one| one.stored = stored(0, 0, 1), "1 altered"),
            (&|one| one.totals.operations = 0, "no line was done"),
        ];
        for (change, part) in changes {
            let failure = outcome(change).failure().unwrap();
            assert!(failure.contains(part), "{failure}");
            assert_eq!(outcome(change).fault().is_none(), outcome(change).totals.operations == 0);
        }
    }
}
