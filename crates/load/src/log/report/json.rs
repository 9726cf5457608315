//! The result as JSON: `docs/reference/schema/load-log-1.json` describes it. A field is never renamed within
//! a version of the schema.

use std::time::Duration;

use serde::Serialize;

use crate::{
    args::typed,
    crew::{CostFacts, CountFacts},
    document,
    log::{
        outcome::Outcome,
        plan::{Plan, Source},
        search::{Found, Step},
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
    protocol: String,
    tls: bool,
    ack: Option<String>,
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
    stored: Option<Stored>,
    whole_s: f64,
    whole_per_s: f64,
    sends: u64,
    #[serde(flatten)]
    costs: CostFacts<'a>,
    search: Option<SearchFacts<'a>>,
}

#[derive(Serialize)]
struct SearchFacts<'a> {
    p99_limit_ns: u64,
    client_bound: bool,
    steps: &'a [Step],
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
        protocol: typed(plan.protocol),
        tls: plan.tls.is_some(),
        ack: plan.ack.map(typed),
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
        stored: outcome.stored,
        whole_s: Duration::from_nanos(outcome.whole_ns).as_secs_f64(),
        whole_per_s: outcome.whole_per_second(),
        sends: outcome.writes,
        costs: totals.costs(plan.is_paced(), plan.server_pid),
        search: found.map(|found| SearchFacts {
            p99_limit_ns: found.limit.as_nanos() as u64,
            client_bound: found.is_client_bound(),
            steps: &found.steps,
        }),
    })
}
