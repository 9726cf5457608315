//! The result as JSON: `docs/reference/schema/load-echo-1.json` describes it. A field is never renamed within
//! a version of the schema.

use serde::Serialize;

use crate::{
    args::typed,
    crew::{CostFacts, CountFacts},
    document,
    echo::{outcome::Outcome, plan::Plan},
};

/// The version of the schema.
pub const SCHEMA: &str = "ringwise.load.echo/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    address: &'a str,
    mode: String,
    connections: usize,
    idle_connections: usize,
    slow_connections: usize,
    length_bytes: usize,
    pipeline: usize,
    rate_per_s: Option<u64>,
    threads: usize,
    warm_up_s: f64,
    #[serde(flatten)]
    counts: CountFacts,
    bytes_received: u64,
    #[serde(flatten)]
    costs: CostFacts<'a>,
}

/// The document.
pub(crate) fn text(plan: &Plan, outcome: &Outcome) -> String {
    let totals = &outcome.totals;
    document::json(&Document {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        address: &plan.name,
        mode: typed(plan.mode),
        connections: plan.connections,
        idle_connections: plan.idle,
        slow_connections: plan.slow,
        length_bytes: plan.length_bytes,
        pipeline: plan.pipeline,
        rate_per_s: plan.rate_per_s,
        threads: plan.threads,
        warm_up_s: plan.warm_up.as_secs_f64(),
        counts: totals.counts(),
        bytes_received: outcome.bytes_received,
        costs: totals.costs(plan.rate_per_s.is_some(), plan.server_pid),
    })
}
