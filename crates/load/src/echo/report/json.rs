//! The result as JSON: `docs/schema/load-echo-1.json` describes it. A field is never renamed within
//! a version of the schema.

use std::time::Duration;

use ringwise_measure::{Percentiles, Sources, environment::Environment};
use serde::Serialize;

use crate::{
    account::{ClientFacts, ServerFacts},
    echo::{outcome::Outcome, plan::Plan},
};

/// The version of the schema.
pub const SCHEMA: &str = "ringwise.load.echo/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    address: &'a str,
    mode: &'static str,
    connections: usize,
    idle_connections: usize,
    slow_connections: usize,
    length_bytes: usize,
    pipeline: usize,
    rate_per_s: Option<u64>,
    threads: usize,
    warm_up_s: f64,
    duration_s: f64,
    partial: bool,
    ops_per_s: f64,
    operations: u64,
    sent: u64,
    received: u64,
    bytes_sent: u64,
    bytes_received: u64,
    connections_made: u64,
    unsent: u64,
    errors: u64,
    failures: &'a [String],
    latency_ns: Percentiles,
    schedule_lag_ns: Option<Percentiles>,
    client: ClientFacts,
    client_bound: bool,
    server: Option<ServerFacts<'a>>,
    environment: Environment,
}

/// The document.
pub(crate) fn text(plan: &Plan, outcome: &Outcome) -> String {
    let client = &outcome.client;
    let document = Document {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        address: &plan.name,
        mode: plan.mode.name(),
        connections: plan.connections,
        idle_connections: plan.mode.idle(),
        slow_connections: plan.mode.slow(),
        length_bytes: plan.length_bytes,
        pipeline: plan.pipeline,
        rate_per_s: plan.rate_per_s,
        threads: plan.threads,
        warm_up_s: plan.warm_up.as_secs_f64(),
        duration_s: Duration::from_nanos(outcome.elapsed_ns).as_secs_f64(),
        partial: outcome.is_partial,
        ops_per_s: outcome.operations_per_second(),
        operations: outcome.operations,
        sent: outcome.sent,
        received: outcome.received,
        bytes_sent: outcome.bytes_sent,
        bytes_received: outcome.bytes_received,
        connections_made: outcome.connections_made,
        unsent: outcome.unsent,
        errors: outcome.errors,
        failures: &outcome.faults,
        latency_ns: outcome.latency.percentiles(),
        schedule_lag_ns: plan.rate_per_s.map(|_| outcome.lag.percentiles()),
        client: client.facts(outcome.operations),
        client_bound: outcome.is_client_bound(),
        server: plan
            .server_pid
            .zip(outcome.server.as_ref())
            .map(|(pid, server)| server.facts(pid, outcome.operations)),
        environment: Environment::read(&Sources::default()),
    };
    let mut text = serde_json::to_string_pretty(&document).expect("keys are strings");
    text.push('\n');
    text
}
