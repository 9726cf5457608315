//! The result as JSON: `docs/schema/load-log-1.json` describes it. A field is never renamed within
//! a version of the schema.

use std::time::Duration;

use serde::Serialize;

use crate::{
    crew::{CostFacts, CountFacts},
    document,
    log::{
        outcome::Outcome,
        plan::{Plan, Source},
        search::Found,
        stored::Stored,
    },
};

/// The version of the schema.
pub const SCHEMA: &str = "ringwise.load.log/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    target: &'a str,
    protocol: &'static str,
    tls: bool,
    ack: Option<&'static str>,
    promise: Option<&'a str>,
    connections: usize,
    idle_connections: usize,
    line_bytes: Option<usize>,
    lines_file: Option<String>,
    burst_lines: u64,
    burst_every_s: Option<f64>,
    rate_per_s: Option<u64>,
    threads: usize,
    warm_up_s: f64,
    #[serde(flatten)]
    counts: CountFacts,
    acknowledged: Option<u64>,
    rejected: u64,
    stored: Option<StoredFacts>,
    whole_s: f64,
    whole_per_s: f64,
    sends: u64,
    #[serde(flatten)]
    costs: CostFacts<'a>,
    search: Option<SearchFacts<'a>>,
}

#[derive(Serialize)]
struct StoredFacts {
    lines: u64,
    lost: u64,
    twice: u64,
    altered: u64,
}

#[derive(Serialize)]
struct SearchFacts<'a> {
    p99_limit_ns: u64,
    client_bound: bool,
    steps: Vec<StepFacts<'a>>,
}

#[derive(Serialize)]
struct StepFacts<'a> {
    rate_per_s: u64,
    ops_per_s: f64,
    p99_ns: u64,
    held: bool,
    miss: Option<&'a str>,
    client_bound: bool,
}

/// The document.
pub(crate) fn text(plan: &Plan, outcome: &Outcome, found: Option<&Found>) -> String {
    let (line_bytes, lines_file) = match &plan.source {
        Source::Made(bytes) => (Some(*bytes), None),
        Source::File(path, _) => (None, Some(path.display().to_string())),
    };
    let totals = &outcome.totals;
    document::json(&Document {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        target: &plan.name,
        protocol: plan.protocol.name(),
        tls: plan.tls.is_some(),
        ack: plan.ack.map(|ack| ack.name()),
        promise: outcome.promise.as_deref(),
        connections: plan.connections,
        idle_connections: plan.idle,
        line_bytes,
        lines_file,
        burst_lines: plan.burst_lines,
        burst_every_s: plan.burst_period_ns().map(|ns| ns / 1e9),
        rate_per_s: plan.rate_per_s,
        threads: plan.threads,
        warm_up_s: plan.warm_up.as_secs_f64(),
        counts: totals.counts(),
        acknowledged: outcome.acknowledged(),
        rejected: outcome.rejected,
        stored: outcome.stored.map(StoredFacts::of),
        whole_s: Duration::from_nanos(outcome.whole_ns).as_secs_f64(),
        whole_per_s: outcome.whole_per_second(),
        sends: outcome.writes,
        costs: totals.costs(plan.is_paced(), plan.server_pid),
        search: found.map(SearchFacts::of),
    })
}

impl StoredFacts {
    fn of(stored: Stored) -> StoredFacts {
        let Stored { lines, lost, twice, altered } = stored;
        StoredFacts { lines, lost, twice, altered }
    }
}

impl SearchFacts<'_> {
    fn of(found: &Found) -> SearchFacts<'_> {
        let steps = found.steps.iter().map(|step| StepFacts {
            rate_per_s: step.rate_per_s,
            ops_per_s: step.done_per_s,
            p99_ns: step.p99_ns,
            held: step.miss.is_none(),
            miss: step.miss.as_deref(),
            client_bound: step.is_client_bound,
        });
        SearchFacts {
            p99_limit_ns: found.limit.as_nanos() as u64,
            client_bound: found.is_client_bound(),
            steps: steps.collect(),
        }
    }
}
