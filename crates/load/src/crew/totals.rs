//! What every generator counts, whatever it sends: a thread by itself, and all threads together.

use std::time::Duration;

use ringwise_measure::{
    Latency, Percentiles, Sources,
    environment::Environment,
    quantity::{duration_text, latency_text},
};
use serde::Serialize;

use super::fault::Fault;
use crate::account::{ClientFacts, ClientUse, OwnTime, ServerFacts, ServerUse};

/// Faults that are kept in words.
const FAULTS_TOLD: usize = 8;

/// What a run came to, whatever was sent.
#[derive(Debug, Default)]
pub struct Totals {
    /// The measured time.
    pub elapsed_ns: u64,
    /// Whether a signal ended it early.
    pub is_partial: bool,
    /// Operations that ended in the measured time.
    pub operations: u64,
    /// Units, messages or lines, sent in the whole run, warm-up and end included.
    pub sent: u64,
    /// Units that the server gave back or took, in the whole run.
    pub received: u64,
    /// Bytes sent, TLS not among them.
    pub bytes_sent: u64,
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

impl Totals {
    /// The counts of all threads, each with its thread's own time.
    pub(crate) fn of(threads: Vec<(Totals, OwnTime)>) -> Totals {
        let client = ClientUse::of(threads.iter().map(|(_, own)| *own));
        let mut all = Totals { client, ..Totals::default() };
        for (thread, _) in threads {
            all.operations += thread.operations;
            all.sent += thread.sent;
            all.received += thread.received;
            all.bytes_sent += thread.bytes_sent;
            all.connections_made += thread.connections_made;
            all.errors += thread.errors;
            all.faults.extend(thread.faults);
            all.unsent += thread.unsent;
            all.latency.merge(&thread.latency);
            all.lag.merge(&thread.lag);
        }
        all
    }

    /// Counts a connection that failed.
    pub(crate) fn failed(&mut self, number: u64, fault: &Fault) {
        self.errors += 1;
        if self.faults.len() < FAULTS_TOLD {
            self.faults.push(match fault {
                Fault::Connecting(text) => text.clone(),
                fault => format!("connection {number}: {fault}"),
            });
        }
    }

    /// Operations that ended in the measured time, per second.
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// What is to be said where connections failed.
    pub(crate) fn failed_connections(&self) -> Option<String> {
        let first = self.faults.first().map_or("", String::as_str);
        let noun = if self.errors == 1 { "connection" } else { "connections" };
        (self.errors > 0).then(|| format!("{} {noun} failed: {first}", self.errors))
    }

    /// How long was measured, as text.
    pub(crate) fn measured_text(&self, warm_up: Duration) -> String {
        let partial = if self.is_partial { " (interrupted)" } else { "" };
        let measured = Duration::from_millis((self.elapsed_ns + 500_000) / 1_000_000);
        let (measured, warm_up) = (duration_text(measured), duration_text(warm_up));
        format!("measured {measured}{partial} after {warm_up} of warm-up")
    }

    /// The latency's line, which ends in what it is `of`, and that of the generator's lateness.
    pub(crate) fn latency_lines(&self, of: &str) -> Vec<String> {
        let shown = |ns: u64| latency_text(ns as f64);
        let latency = self.latency.percentiles();
        let mut lines = vec![format!(
            "{:<12} p50 {}, p90 {}, p99 {}, p99.9 {}, max {}{of}",
            "latency",
            shown(latency.p50),
            shown(latency.p90),
            shown(latency.p99),
            shown(latency.p99_9),
            shown(latency.max)
        )];
        if self.lag.count() > 0 {
            let lag = self.lag.percentiles();
            lines.push(format!(
                "{:<12} p50 {}, p99 {}, max {}: how late this generator looked at what was due",
                "own lateness",
                shown(lag.p50),
                shown(lag.p99),
                shown(lag.max)
            ));
        }
        lines
    }

    /// What of a schedule was not done, of which `noun` is the plural and `who` did not keep up.
    pub(crate) fn unsent_line(&self, noun: &str, who: &str) -> Option<String> {
        let unsent = self.unsent;
        (unsent > 0).then(|| {
            let behind = "behind";
            format!("{behind:<12} {unsent} {noun} were due and never sent: {who} does not keep up")
        })
    }

    /// What both sides used, an operation being a `noun`, and what failed.
    pub(crate) fn cost_lines(&self, noun: &str) -> Vec<String> {
        let mut lines = vec![self.client.text(noun, self.operations)];
        lines.extend(self.server.iter().flat_map(|server| server.lines(noun, self.operations)));
        lines.extend(self.client.bound_text());
        lines.extend(self.faults.iter().map(|fault| format!("failed: {fault}")));
        if self.errors as usize > self.faults.len() {
            lines.push(format!("failed: {} in all", self.errors));
        }
        lines
    }

    /// The counts, for JSON.
    pub(crate) fn counts(&self) -> CountFacts {
        CountFacts {
            duration_s: Duration::from_nanos(self.elapsed_ns).as_secs_f64(),
            partial: self.is_partial,
            ops_per_s: self.operations_per_second(),
            operations: self.operations,
            sent: self.sent,
            received: self.received,
            bytes_sent: self.bytes_sent,
            connections_made: self.connections_made,
            unsent: self.unsent,
        }
    }

    /// What went wrong, how long it took and what it cost, for JSON.
    pub(crate) fn costs(&self, is_paced: bool, server_pid: Option<u32>) -> CostFacts<'_> {
        let server = server_pid.zip(self.server.as_ref());
        CostFacts {
            errors: self.errors,
            failures: &self.faults,
            latency_ns: self.latency.percentiles(),
            schedule_lag_ns: is_paced.then(|| self.lag.percentiles()),
            client: self.client.facts(self.operations),
            client_bound: self.client.is_bound(),
            server: server.map(|(pid, server)| server.facts(pid, self.operations)),
            environment: Environment::read(&Sources::default()),
        }
    }
}

/// The fields of a document that say how much was done.
#[derive(Serialize)]
pub(crate) struct CountFacts {
    duration_s: f64,
    partial: bool,
    ops_per_s: f64,
    operations: u64,
    sent: u64,
    received: u64,
    bytes_sent: u64,
    connections_made: u64,
    unsent: u64,
}

/// Those that say at what cost.
#[derive(Serialize)]
pub(crate) struct CostFacts<'a> {
    errors: u64,
    failures: &'a [String],
    latency_ns: Percentiles,
    schedule_lag_ns: Option<Percentiles>,
    client: ClientFacts,
    client_bound: bool,
    server: Option<ServerFacts<'a>>,
    environment: Environment,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_summed_and_the_busiest_decides() {
        let tally = |operations, cpu_ns, waited_ns| {
            let own = OwnTime { elapsed_ns: 100, cpu_ns, waited_ns };
            (Totals { operations, sent: 10, received: 10, ..Totals::default() }, own)
        };
        let both = Totals::of(vec![tally(3, 90, Some(6)), tally(4, 95, Some(0))]);
        assert_eq!((both.operations, both.sent), (7, 20));
        assert_eq!(Totals { elapsed_ns: 1_000_000_000, ..both }.operations_per_second(), 7.0);
        assert_eq!(both.client.busy_share, 0.9);
        assert!(both.client.is_bound());
        assert!(Totals::of(vec![tally(3, 80, Some(10))]).client.is_bound());
        assert!(Totals::of(vec![tally(3, 90, None)]).client.is_bound());
        assert!(!Totals::of(vec![tally(3, 89, None)]).client.is_bound());
    }
}
