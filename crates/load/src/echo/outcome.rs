//! What a run came to.

use crate::crew::{Conducted, Totals};

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// Operations and messages, their latency and their cost.
    pub totals: Totals,
    /// Bytes that came back right.
    pub bytes_received: u64,
}

impl Outcome {
    pub(super) fn of(conducted: Conducted<u64>) -> Outcome {
        let Conducted { totals, ledgers, .. } = conducted;
        Outcome { totals, bytes_received: ledgers.into_iter().sum() }
    }

    /// Why the result does not count, if it does not.
    pub fn failure(&self) -> Option<String> {
        if let Some(failed) = self.totals.failed_connections() {
            return Some(failed);
        }
        let bytes_sent = self.totals.bytes_sent;
        let lost = bytes_sent - self.bytes_received;
        if lost > 0 {
            return Some(format!("{lost} of {bytes_sent} bytes did not come back"));
        }
        let nothing = "no operation ended in the measured time: try a longer --duration";
        (self.totals.operations == 0).then(|| nothing.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_losses_and_nothing_are_failures() {
        let of = |totals: Totals, bytes_received| Outcome { totals, bytes_received }.failure();
        let faults = vec!["first".to_owned(), "second".to_owned()];
        let failed = Totals { operations: 9, errors: 2, faults, ..Totals::default() };
        assert_eq!(of(failed, 0).unwrap(), "2 connections failed: first");
        let sent = || Totals { operations: 9, bytes_sent: 9, ..Totals::default() };
        assert_eq!(of(sent(), 8).unwrap(), "1 of 9 bytes did not come back");
        assert_eq!(of(sent(), 9), None);
        assert!(of(Totals::default(), 0).unwrap().starts_with("no operation"));
    }
}
