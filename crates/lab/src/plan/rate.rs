//! The load on servers, as `--rate` says it: how many operations per second are offered over all connections.

use super::typed::{invalid, list};
use crate::error::LabError;

/// The highest rate.
const RATE_MAX: u64 = 100_000_000;

/// The load on servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rate {
    /// As many operations as the servers take.
    Max,
    /// A fixed number of operations per second.
    PerSecond(u64),
    /// A fixed number that the lab derives from a closed loop.
    Auto,
}

impl Rate {
    fn list(text: &str) -> Result<Vec<Rate>, LabError> {
        list(text, |item| match item {
            "max" => Ok(Rate::Max),
            "auto" => Ok(Rate::Auto),
            _ => match item.parse() {
                Ok(rate @ 1..=RATE_MAX) => Ok(Rate::PerSecond(rate)),
                _ => Err(invalid(
                    "--rate",
                    item,
                    format_args!("expected 1 to {RATE_MAX}, max or auto"),
                )),
            },
        })
    }

    /// The rate that was typed. None: as many as the servers take, which the lab derives a rate from too.
    fn typed(self) -> Option<u64> {
        match self {
            Rate::PerSecond(rate) => Some(rate),
            Rate::Max | Rate::Auto => None,
        }
    }
}

/// With fewer connections a closed loop leaves the generator idle: it waits for the server.
const CLIENT_BOUND_CONNECTIONS_MIN: usize = 8;

/// When a closed loop is followed by a fixed rate that it gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Auto {
    /// Never: other rates were typed.
    Never,
    /// If the generator was at its limit, so that the closed loop does not answer.
    #[default]
    IfClientBound,
    /// Always: it was typed.
    Always,
}

impl Auto {
    /// Those of these numbers of connections at which a fixed rate may follow the closed loop.
    pub(crate) fn connections(self, all: &[usize]) -> impl Iterator<Item = usize> {
        let least = match self {
            Auto::Never => usize::MAX,
            Auto::IfClientBound => CLIENT_BOUND_CONNECTIONS_MIN,
            Auto::Always => 1,
        };
        all.iter().copied().filter(move |&connections| connections >= least)
    }
}

/// The rates that were typed, each once, and when the lab derives another.
pub(crate) fn loads(typed: &str) -> Result<(Vec<Option<u64>>, Auto), LabError> {
    let typed = Rate::list(typed)?;
    let mut rates = Vec::new();
    for rate in typed.iter().map(|rate| rate.typed()) {
        if !rates.contains(&rate) {
            rates.push(rate);
        }
    }
    Ok((rates, if typed.contains(&Rate::Auto) { Auto::Always } else { Auto::Never }))
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
        let all = loads("max, 60000,auto,max").unwrap();
        assert_eq!(all, (vec![None, Some(60_000)], Auto::Always));
        assert_eq!(loads("100000000").unwrap(), (vec![Some(RATE_MAX)], Auto::Never));
        for (text, item) in [("0", "0"), ("100000001", "100000001"), ("60k", "60k"), ("max,", "")] {
            let expected = "expected 1 to 100000000, max or auto";
            let reason = format!("--rate: invalid value '{item}': {expected}");
            assert_eq!(loads(text).unwrap_err().to_string(), reason);
        }
    }

    #[test]
    fn few_connections_leave_the_generator_idle() {
        let of = |auto: Auto| auto.connections(&[1, 8, 50]).collect::<Vec<_>>();
        assert!(of(Auto::Never).is_empty());
        assert_eq!(of(Auto::IfClientBound), [8, 50]);
        assert_eq!(of(Auto::Always), [1, 8, 50]);
    }
}
