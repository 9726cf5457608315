//! The load on servers, as `--rate` says it: how many operations per second are offered over all connections.

use super::typed::{list, usage};
use crate::error::LabError;

/// The highest rate.
const RATE_MAX: u64 = 100_000_000;

/// The load on servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// As many operations as the servers take.
    Max,
    /// A fixed number of operations per second.
    PerSecond(u64),
    /// A fixed number that the lab derives from a closed loop.
    Auto,
}

impl Rate {
    /// Reads a list of rates. `with_auto`: whether the workload can derive one.
    pub(crate) fn list(text: &str, with_auto: bool) -> Result<Vec<Rate>, LabError> {
        let words = if with_auto { ", max or auto" } else { " or max" };
        list(text, |item| match item {
            "max" => Ok(Rate::Max),
            "auto" if with_auto => Ok(Rate::Auto),
            _ => match item.parse() {
                Ok(rate @ 1..=RATE_MAX) => Ok(Rate::PerSecond(rate)),
                _ => Err(usage("--rate", format_args!("{item}: expected 1 to {RATE_MAX}{words}"))),
            },
        })
    }

    /// The rate that was typed. None: as many as the servers take, which the lab derives a rate from too.
    pub fn typed(self) -> Option<u64> {
        match self {
            Rate::PerSecond(rate) => Some(rate),
            Rate::Max | Rate::Auto => None,
        }
    }
}

/// A rate in a title: `50000 lines per second offered`.
pub fn offered_text(rate_per_s: u64, operations: &str) -> String {
    format!("{rate_per_s} {operations} per second offered")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_numbers_and_words() {
        let all = Rate::list("max, 60000,auto,max", true).unwrap();
        assert_eq!(all, [Rate::Max, Rate::PerSecond(60_000), Rate::Auto]);
        assert_eq!(
            all.iter().map(|rate| rate.typed()).collect::<Vec<_>>(),
            [None, Some(60_000), None]
        );
        assert_eq!(Rate::list("100000000", false).unwrap(), [Rate::PerSecond(RATE_MAX)]);
        for (text, with_auto, reason) in [
            ("0", true, "--rate 0: expected 1 to 100000000, max or auto"),
            ("100000001", false, "--rate 100000001: expected 1 to 100000000 or max"),
            ("auto", false, "--rate auto: expected 1 to 100000000 or max"),
            ("60k", true, "--rate 60k: expected 1 to 100000000, max or auto"),
            ("max,", true, "--rate : expected 1 to 100000000, max or auto"),
        ] {
            assert_eq!(Rate::list(text, with_auto).unwrap_err().to_string(), reason);
        }
    }
}
