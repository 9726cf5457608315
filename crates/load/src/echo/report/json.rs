//! The result as JSON: `docs/schema/load-echo-1.json` describes it. A field is never renamed within
//! a version of the schema.

use std::{fs, io::Write as _, path::Path, time::Duration};

use ringwise_measure::{
    Fact, Percentiles, Sources, cpu::ContextSwitches, environment::Environment,
};
use serde::Serialize;

use crate::{
    echo::{
        outcome::{Outcome, ServerUse},
        plan::Plan,
    },
    error::{LoadError, plain},
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
    client: Client,
    client_bound: bool,
    server: Option<Server<'a>>,
    environment: Environment,
}

#[derive(Serialize)]
struct Client {
    cpu_ns_per_op: f64,
    cores: f64,
    busy_share: f64,
    waiting_share: Option<f64>,
}

#[derive(Serialize)]
struct Server<'a> {
    pid: u32,
    cpu_ns_per_op: Fact<f64>,
    cores: Fact<f64>,
    context_switches: &'a Fact<ContextSwitches>,
    resident_bytes: &'a Fact<u64>,
    bytes_per_idle_connection: Option<&'a Fact<f64>>,
}

/// The document.
pub(crate) fn text(plan: &Plan, outcome: &Outcome) -> String {
    let operations = outcome.operations.max(1) as f64;
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
        client: Client {
            cpu_ns_per_op: client.cpu_ns as f64 / operations,
            cores: client.cpu_ns as f64 / client.elapsed_ns.max(1) as f64,
            busy_share: client.busy_share,
            waiting_share: client.waiting_share,
        },
        client_bound: outcome.is_client_bound(),
        server: plan
            .server_pid
            .zip(outcome.server.as_ref())
            .map(|(pid, used)| server(pid, used, operations)),
        environment: Environment::read(&Sources::default()),
    };
    let mut text = serde_json::to_string_pretty(&document).expect("keys are strings");
    text.push('\n');
    text
}

fn server(pid: u32, used: &ServerUse, operations: f64) -> Server<'_> {
    let cpu_ns = &used.used.cpu_ns;
    Server {
        pid,
        cpu_ns_per_op: cpu_ns.clone().map(|ns| ns as f64 / operations),
        cores: cpu_ns.clone().map(|ns| ns as f64 / used.elapsed_ns.max(1) as f64),
        context_switches: &used.used.context_switches,
        resident_bytes: &used.resident_bytes,
        bytes_per_idle_connection: used.bytes_per_idle.as_ref(),
    }
}

/// Writes the file so that it is there whole or not at all.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), LoadError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&part)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&part, path));
    written.map_err(|error| {
        // It may not have been made; either way nothing of it is to stay.
        let _ = fs::remove_file(&part);
        LoadError::Failed(format!("--json {}: {}", path.display(), plain(&error)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let taken = directory.path().join("taken");
        fs::create_dir(&taken).unwrap();
        fs::write(taken.join("x"), "").unwrap();
        let error = write(&taken, "{}").unwrap_err().to_string();
        assert!(error.starts_with("--json ") && error.contains("taken"), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let good = directory.path().join("good.json");
        write(&good, "{}").unwrap();
        write(&good, "{}\n").unwrap();
        assert_eq!(fs::read_to_string(good).unwrap(), "{}\n");
    }
}
