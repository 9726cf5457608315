//! The result as text, and where it goes.

pub mod json;

use std::{io::Write, path::Path};

use ringwise_measure::quantity::{bytes_text, duration_text, latency_text};

use super::{
    outcome::Outcome,
    plan::{Plan, Source},
    search::{Found, Step},
};
use crate::{args::typed, document, error::LoadError};

/// Prints the result, and writes the file where one was named.
pub(super) fn give(
    plan: &Plan,
    outcome: &Outcome,
    json: Option<&Path>,
    out: &mut dyn Write,
) -> Result<(), LoadError> {
    document::give(&text(plan, outcome), json, || json::text(plan, outcome, None), out)
}

/// The same of a search: the rate that was held, and its run.
///
/// # Errors
///
/// [`LoadError::Failed`] where no rate was held.
pub(super) fn give_found(
    plan: &Plan,
    found: &Found,
    json: Option<&Path>,
    out: &mut dyn Write,
) -> Result<(), LoadError> {
    let limit = duration_text(found.limit);
    let Some((rate_per_s, outcome)) = &found.best else {
        let step = found.steps.last();
        let why = step.and_then(|step| step.miss.clone()).unwrap_or_default();
        let rate = step.map_or(0, |step| step.rate_per_s);
        return Err(LoadError::Failed(format!(
            "no rate was held with p99 under {limit}: at {rate} lines per second {why}"
        )));
    };
    let plan = Plan { rate_per_s: Some(*rate_per_s), ..plan.clone() };
    let mut shown: String = found.steps.iter().map(step_line).collect();
    let whose =
        if found.is_client_bound() { " (client-bound: this generator's limit)" } else { "" };
    shown += &format!(
        "{:<12} {rate_per_s} lines per second held with p99 under {limit}{whose}\n\n",
        "found"
    );
    shown += &text(&plan, outcome);
    document::give(&shown, json, || json::text(&plan, outcome, Some(found)), out)
}

fn step_line(step: &Step) -> String {
    let Step { rate_per_s, ops_per_s, p99_ns, miss, client_bound, .. } = step;
    let verdict = miss.as_deref().map_or("held".to_owned(), |why| format!("not held: {why}"));
    let bound = if *client_bound { ", client-bound" } else { "" };
    format!(
        "{rate_per_s:>12} per second: {ops_per_s:.0} done, p99 {}, {verdict}{bound}\n",
        latency_text(*p99_ns as f64)
    )
}

fn text(plan: &Plan, outcome: &Outcome) -> String {
    let totals = &outcome.totals;
    let mut lines = vec![header(plan, outcome), totals.measured_text(plan.warm_up)];
    lines.push(format!("{:<12} {:.0} per second", "lines", totals.operations_per_second()));
    lines.push(counts(outcome));
    let from = if plan.is_paced() { "when each was to be sent" } else { "its making" };
    let to = if outcome.is_answered { "its acknowledgement" } else { "the kernel's taking it" };
    lines.extend(totals.latency_lines(&format!(", from {from} to {to}")));
    lines.extend(totals.unsent_line("lines", "the target"));
    lines.push(format!(
        "{:<12} {:.0} lines per second until the target had taken all, which took {}",
        "in all",
        outcome.whole_per_second(),
        latency_text(outcome.whole_ns as f64)
    ));
    let each = totals.bytes_sent / outcome.writes.max(1);
    lines.push(format!("{:<12} {} on average, {}", "sends", bytes_text(each), outcome.writes));
    lines.extend(totals.cost_lines("line"));
    lines.join("\n") + "\n"
}

fn header(plan: &Plan, outcome: &Outcome) -> String {
    let idle = if plan.idle > 0 { format!(" beside {} idle", plan.idle) } else { String::new() };
    let source = match &plan.source {
        Source::Made(bytes) => format!("{bytes} bytes a line"),
        Source::File(path, _) => format!("lines of {}", path.display()),
    };
    let tls = if plan.tls.is_some() { " in TLS" } else { "" };
    let ack = match (&outcome.promise, outcome.is_answered) {
        (Some(promise), _) => format!("acknowledged when {promise}"),
        (None, true) => "answered each".to_owned(),
        (None, false) => "no acknowledgements".to_owned(),
    };
    let bursts = match plan.burst_period_ns() {
        Some(period_ns) => {
            let every = latency_text(period_ns);
            format!(" in bursts of {} on each connection every {every}", plan.burst_lines)
        }
        None => String::new(),
    };
    let pacing = match plan.rate_per_s {
        Some(rate) => format!("open loop of {rate} per second{bursts}"),
        None if plan.is_paced() => format!("open loop{bursts}"),
        None => "as fast as they are taken".to_owned(),
    };
    let threads = if plan.threads == 1 { "thread" } else { "threads" };
    format!(
        "log at {}: {} connections{idle}, {source}, {}{tls}, {ack}, {pacing}, {} {threads}",
        plan.name,
        plan.connections,
        typed(plan.protocol),
        plan.threads
    )
}

fn counts(outcome: &Outcome) -> String {
    let mut text = format!("{:<12} {} sent", "counts", outcome.totals.sent);
    text += &match outcome.acknowledged() {
        Some(acknowledged) => format!(", {acknowledged} acknowledged"),
        None => format!(", {} on connections that were read to the end", outcome.totals.received),
    };
    if outcome.rejected > 0 {
        text += &format!(", {} rejected", outcome.rejected);
    }
    if let Some(stored) = &outcome.stored {
        text += &format!(", {} stored", stored.lines);
        for (count, what) in
            [(stored.lost, "lost"), (stored.twice, "stored twice"), (stored.altered, "altered")]
        {
            if count > 0 {
                text += &format!(", {count} {what}");
            }
        }
    }
    text
}
