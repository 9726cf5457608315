//! The result as text, and where it goes.

pub mod json;

use std::{io::Write, path::Path, time::Duration};

use ringwise_measure::{
    Fact,
    quantity::{bytes_text, duration_text, latency_text, size_text},
};

use super::{
    outcome::{Outcome, ServerUse},
    plan::Plan,
};
use crate::error::LoadError;

/// Prints the result, as text or as JSON, and writes the file where one was named.
pub(super) fn give(
    plan: &Plan,
    outcome: &Outcome,
    json: Option<&Path>,
    out: &mut dyn Write,
) -> Result<(), LoadError> {
    let shown = match json {
        Some(path) if path == Path::new("-") => json::text(plan, outcome),
        _ => text(plan, outcome),
    };
    if let Some(path) = json.filter(|path| *path != Path::new("-")) {
        json::write(path, &json::text(plan, outcome))?;
    }
    out.write_all(shown.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| LoadError::output(&error))
}

fn text(plan: &Plan, outcome: &Outcome) -> String {
    let mut lines = vec![header(plan), duration(plan, outcome)];
    let noun = if plan.mode.is_by_connection() { "connections" } else { "requests" };
    lines.push(format!("{noun:<12} {:.0} per second", outcome.operations_per_second()));
    lines.push(format!(
        "{:<12} {} sent, {} received, {} of {} bytes checked and right",
        "messages", outcome.sent, outcome.received, outcome.bytes_received, outcome.bytes_sent
    ));
    if plan.mode.is_by_connection() {
        lines.push(format!("{:<12} {}", "connected", outcome.connections_made));
    }
    lines.push(latency(plan, outcome));
    if outcome.unsent > 0 {
        lines.push(format!(
            "{:<12} {} requests were due and never sent: the server does not keep up",
            "behind", outcome.unsent
        ));
    }
    lines.push(client(outcome));
    lines.extend(outcome.server.iter().flat_map(|server| server_lines(server, outcome)));
    if outcome.is_client_bound() {
        lines.push(
            "client-bound: this generator was never idle, so the figures are its own and not the \
             server's; try more --threads, or other processors for the two"
                .to_owned(),
        );
    }
    lines.extend(outcome.faults.iter().map(|fault| format!("failed: {fault}")));
    if outcome.errors as usize > outcome.faults.len() {
        lines.push(format!("failed: {} in all", outcome.errors));
    }
    lines.join("\n") + "\n"
}

fn header(plan: &Plan) -> String {
    let pacing = match plan.rate_per_s {
        Some(rate) => format!("open loop of {rate} per second"),
        None => "closed loop".to_owned(),
    };
    let beside = match (plan.mode.idle(), plan.mode.slow()) {
        (0, 0) => String::new(),
        (idle, 0) => format!(" beside {idle} idle"),
        (_, slow) => format!(" beside {slow} slow"),
    };
    let threads = if plan.threads == 1 { "thread" } else { "threads" };
    format!(
        "echo at {}: {}, {} connections{beside}, {} bytes a message, {} in flight, {pacing}, {} \
         {threads}",
        plan.name,
        plan.mode.name(),
        plan.connections,
        size_text(plan.length_bytes as u64),
        plan.pipeline,
        plan.threads
    )
}

fn duration(plan: &Plan, outcome: &Outcome) -> String {
    let partial = if outcome.is_partial { " (interrupted)" } else { "" };
    let measured = Duration::from_millis((outcome.elapsed_ns + 500_000) / 1_000_000);
    format!(
        "measured {}{partial} after {} of warm-up",
        duration_text(measured),
        duration_text(plan.warm_up)
    )
}

fn latency(plan: &Plan, outcome: &Outcome) -> String {
    let of = outcome.latency.percentiles();
    let shown = |ns: u64| latency_text(ns as f64);
    let since = match (plan.rate_per_s, plan.mode.is_by_connection()) {
        (Some(_), _) => ", from when each was to begin",
        (None, true) => ", from connecting",
        (None, false) => "",
    };
    let mut text = format!(
        "{:<12} p50 {}, p90 {}, p99 {}, p99.9 {}, max {}{since}",
        "latency",
        shown(of.p50),
        shown(of.p90),
        shown(of.p99),
        shown(of.p99_9),
        shown(of.max)
    );
    if outcome.lag.count() > 0 {
        let lag = outcome.lag.percentiles();
        text += &format!(
            "\n{:<12} p50 {}, p99 {}, max {}: how late this generator looked at what was due",
            "own lateness",
            shown(lag.p50),
            shown(lag.p99),
            shown(lag.max)
        );
    }
    text
}

/// CPU time for each operation, and in processors.
fn cpu(cpu_ns: u64, elapsed_ns: u64, outcome: &Outcome) -> String {
    let cores = cpu_ns as f64 / elapsed_ns.max(1) as f64;
    let each = latency_text(cpu_ns as f64 / outcome.operations.max(1) as f64);
    format!("{each} of CPU time per request, {cores:.2} of a processor")
}

fn client(outcome: &Outcome) -> String {
    let client = &outcome.client;
    let waiting = client.waiting_share.map_or_else(String::new, |share| {
        format!(", waiting for a processor {:.0} %", share * 100.0)
    });
    format!(
        "{:<12} {}; busiest thread working {:.0} %{waiting}",
        "generator",
        cpu(client.cpu_ns, client.elapsed_ns, outcome),
        client.busy_share * 100.0
    )
}

fn server_lines(server: &ServerUse, outcome: &Outcome) -> Vec<String> {
    let used = match &server.used.cpu_ns {
        Fact::Known(cpu_ns) => cpu(*cpu_ns, server.elapsed_ns, outcome),
        Fact::Unknown(reason) => format!("CPU time unknown ({reason})"),
    };
    let operations = outcome.operations.max(1) as f64;
    let switches = match &server.used.context_switches {
        Fact::Known(switches) => format!(
            "{:.2} per request, and {:.2} that it did not ask for",
            switches.voluntary as f64 / operations,
            switches.involuntary as f64 / operations
        ),
        Fact::Unknown(reason) => format!("unknown ({reason})"),
    };
    let memory = server.resident_bytes.clone().map(bytes_text);
    let idle = match &server.bytes_per_idle {
        None => String::new(),
        Some(Fact::Known(bytes)) => format!(", {bytes:.0} B for each idle connection"),
        Some(Fact::Unknown(reason)) => format!(", for each idle connection unknown ({reason})"),
    };
    vec![
        format!("{:<12} {used}", "server"),
        format!("{:<12} {switches}", "switches"),
        format!("{:<12} {memory}{idle}", "memory"),
    ]
}
