//! The result as text, and where it goes.

pub mod json;

use std::{io::Write, path::Path};

use ringwise_measure::quantity::size_text;

use super::{outcome::Outcome, plan::Plan};
use crate::{args::typed, document, error::LoadError};

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
    let totals = &outcome.totals;
    let mut lines = vec![header(plan), totals.measured_text(plan.warm_up)];
    let noun = if plan.mode.is_by_connection() { "connections" } else { "requests" };
    lines.push(format!("{noun:<12} {:.0} per second", totals.operations_per_second()));
    lines.push(format!(
        "{:<12} {} sent, {} received, {} of {} bytes checked and right",
        "messages", totals.sent, totals.received, outcome.bytes_received, totals.bytes_sent
    ));
    if plan.mode.is_by_connection() {
        lines.push(format!("{:<12} {}", "connected", totals.connections_made));
    }
    lines.extend(totals.latency_lines(match (plan.rate_per_s, plan.mode.is_by_connection()) {
        (Some(_), _) => ", from when each was to begin",
        (None, true) => ", from connecting",
        (None, false) => "",
    }));
    lines.extend(totals.unsent_line("requests", "the server"));
    lines.extend(totals.cost_lines("request"));
    lines.join("\n") + "\n"
}

fn header(plan: &Plan) -> String {
    let pacing = match plan.rate_per_s {
        Some(rate) => format!("open loop of {rate} per second"),
        None => "closed loop".to_owned(),
    };
    let beside = match (plan.idle, plan.slow) {
        (0, 0) => String::new(),
        (idle, 0) => format!(" beside {idle} idle"),
        (_, slow) => format!(" beside {slow} slow"),
    };
    let threads = if plan.threads == 1 { "thread" } else { "threads" };
    format!(
        "echo at {}: {}, {} connections{beside}, {} bytes a message, {} in flight, {pacing}, {} \
         {threads}",
        plan.name,
        typed(plan.mode),
        plan.connections,
        size_text(plan.length_bytes as u64),
        plan.pipeline,
        plan.threads
    )
}
