//! A rate below the knee: one that all compared servers keep, and the generator of the load too.
//!
//! It follows from a closed loop of the same servers, connections and run. It is rounded down to a rate of which there
//! are ten in each decade, so that most runs on a machine have the same, and can be compared.

use crate::{
    plan::rate::Auto,
    results::row::{Row, RowKind},
    workload::form::columns::grouped,
};

/// The rate as a share of the slowest compared server's in the closed loop. A request that a timer begins costs
/// `ringwise_load` more than one that an answer begins: at 0.6 of a closed loop in which it was at its limit (80 000 of
/// 136 000 requests/s, 50 connections) it was at its limit in all samples again.
const RATE_SHARE: f64 = 0.3;
/// A server with a smaller share of the fastest one's closed-loop rate is left out: a rate that it keeps would leave
/// the others idle.
const COMPARED_SHARE_MIN: f64 = 0.5;
/// The rates of a decade.
const STEPS: [f64; 10] = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0];

/// A rate, and where it is from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DerivedRate {
    /// The number of connections that it is for.
    pub connections: usize,
    /// Operations per second over all connections.
    pub rate_per_s: u64,
    /// The servers that are compared at it.
    engines: Vec<String>,
    /// What is to be said of it.
    pub notes: Vec<String>,
}

/// Whether the generator was at its limit with so many connections.
fn is_client_bound(rows: &[Row], connections: usize) -> bool {
    servers(rows, connections).any(|row| row.measured.client_bound() > 0)
}

impl DerivedRate {
    /// The rates that follow a section with these rows: none, if it had a rate already.
    pub(crate) fn after(
        (rows, offered_per_s): (&[Row], Option<u64>),
        connections: &[usize],
        auto: Auto,
    ) -> Vec<DerivedRate> {
        let is_wanted =
            |connections: &usize| auto == Auto::Always || is_client_bound(rows, *connections);
        let wanted = auto.connections(connections).filter(is_wanted);
        let wanted = wanted.filter(|_| offered_per_s.is_none());
        wanted.filter_map(|connections| DerivedRate::of(rows, connections)).collect()
    }

    /// Whether a server is compared at it.
    pub(crate) fn has(&self, server: &impl ToString) -> bool {
        self.engines.contains(&server.to_string())
    }

    /// A rate for so many connections. None if the closed loop has no result.
    fn of(rows: &[Row], connections: usize) -> Option<DerivedRate> {
        let rate = |row: &Row| row.measured.ops_per_s();
        let fastest = servers(rows, connections).map(rate).max_by(f64::total_cmp)?;
        let least = fastest * COMPARED_SHARE_MIN;
        let (compared, slow): (Vec<&Row>, Vec<&Row>) =
            servers(rows, connections).partition(|row| rate(row) >= least);
        let slowest = compared.iter().min_by(|one, other| rate(one).total_cmp(&rate(other)))?;
        let rate_per_s = rounded_down(RATE_SHARE * rate(slowest));
        let mut notes = vec![format!(
            "the rate is {RATE_SHARE} of the slowest server's in a closed loop, rounded down ({}: {}/s)",
            slowest.engine,
            grouped(rate(slowest))
        )];
        notes.extend(slow.iter().map(|row| {
            format!("{} is left out: it has not half of the fastest one's rate", row.engine)
        }));
        let engines = compared.iter().map(|row| row.engine.clone()).collect();
        (rate_per_s > 0).then_some(DerivedRate { connections, rate_per_s, engines, notes })
    }
}

/// The servers with a result, each once.
fn servers(rows: &[Row], connections: usize) -> impl Iterator<Item = &Row> {
    rows.iter().filter(move |row| {
        row.depth == connections && row.kind != RowKind::Control && row.is_valid()
    })
}

fn rounded_down(rate: f64) -> u64 {
    let decade = 10_f64.powf(rate.max(1.0).log10().floor());
    let steps = STEPS.iter().rev().map(|step| (step * decade).round());
    steps.into_iter().find(|&step| step <= rate).unwrap_or(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Figures, row};

    fn rows() -> Vec<Row> {
        let at = |ops_per_s| Figures { ops_per_s, ..Figures::DIRECT };
        let mut rows = vec![
            row("uring", RowKind::Subject, 1, at(20_000.0)),
            row("uring", RowKind::Subject, 50, at(110_000.0)),
            row("epoll", RowKind::Rival, 50, at(100_000.0)),
            row("tokio", RowKind::Rival, 50, at(90_000.0)),
            row("node", RowKind::Rival, 50, at(30_000.0)),
            row("gone", RowKind::Rival, 50, at(60_000.0)),
            row("uring", RowKind::Control, 50, at(80_000.0)),
        ];
        rows[5].measured.void = Some("not there".to_owned());
        rows
    }

    #[test]
    fn the_slowest_of_those_that_are_compared_sets_the_rate() {
        let derived = DerivedRate::of(&rows(), 50).unwrap();
        assert_eq!((derived.connections, derived.rate_per_s), (50, 25_000));
        assert_eq!(derived.engines, ["uring", "epoll", "tokio"]);
        assert_eq!(
            derived.notes,
            [
                "the rate is 0.3 of the slowest server's in a closed loop, rounded down (tokio: 90 000/s)",
                "node is left out: it has not half of the fastest one's rate",
            ]
        );
        assert_eq!(DerivedRate::of(&rows(), 1).unwrap().rate_per_s, 6_000);
        assert_eq!(DerivedRate::of(&rows(), 2), None);
    }

    #[test]
    fn the_generator_is_looked_at_with_the_same_connections() {
        let mut rows = rows();
        assert!(!is_client_bound(&rows, 50));
        rows[3].measured.samples[4].client_bound = true;
        assert!(is_client_bound(&rows, 50));
        assert!(!is_client_bound(&rows, 1));
        rows[3].measured.void = Some("wrong".to_owned());
        assert!(!is_client_bound(&rows, 50), "what does not count needs no rate");
    }

    #[test]
    fn rates_are_rounded_down_to_ten_in_a_decade() {
        for (rate, rounded) in [
            (0.7, 0),
            (1.0, 1),
            (9.9, 8),
            (14.9, 12),
            (59_999.0, 50_000),
            (60_000.0, 60_000),
            (79_000.0, 60_000),
            (123_456.0, 120_000),
        ] {
            assert_eq!(rounded_down(rate), rounded, "{rate}");
        }
    }
}
