//! The result as text, and where it goes.

pub mod json;

use std::{io::Write, path::Path, time::Duration};

use ringwise_measure::quantity::{duration_text, latency_text, size_text};

use super::{outcome::Outcome, plan::Plan};
use crate::{document, error::LoadError};

/// Prints the result, and writes the file where one was named.
pub(super) fn give(
    plan: &Plan,
    outcome: &Outcome,
    json: Option<&Path>,
    out: &mut dyn Write,
) -> Result<(), LoadError> {
    document::give(&text(plan, outcome), json, || json::text(plan, outcome), out)
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
    lines.push(outcome.client.text("request", outcome.operations));
    lines.extend(
        outcome.server.iter().flat_map(|server| server.lines("request", outcome.operations)),
    );
    lines.extend(outcome.client.bound_text());
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
