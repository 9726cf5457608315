//! The status page: plain HTML that reloads itself, without scripts and without anything from elsewhere.

use std::{fmt::Write as _, path::Path, sync::atomic::Ordering, time::Duration};

use ringwise_measure::quantity::bytes_text;

use crate::{
    disk::segment::reading::source::streams,
    monitoring::{
        monitor::{Monitor, Sample},
        stats::Stats,
    },
    ship::progress::Streams,
};

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"2\">
<title>ringwise logd</title>
<style>
body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:.5em 0 1.5em}
th,td{padding:.15em 1em .15em 0;text-align:right;border-bottom:1px solid #ddd}
td{font-variant-numeric:tabular-nums}
:is(th,td):first-child,#threads :is(th,td):last-child{text-align:left}
.good{color:#060}.bad{color:#a00}
</style></head><body>
<h1>ringwise logd</h1>
";

/// The page, as of a sample.
pub(crate) fn page(monitor: &Monitor, sample: &Sample) -> String {
    let mut html = HEAD.to_owned();
    let facts = &monitor.facts;
    let reasons = monitor.unready(sample);
    let (class, state) = match reasons.is_empty() {
        true => ("good", "ready".to_owned()),
        false => ("bad", reasons.join(", ")),
    };
    let _ = writeln!(
        html,
        "<p id=\"state\" class=\"{class}\"><b>{}</b></p>\n<p>{} on {}, acknowledged means {}, up \
         {} s, in <code>{}</code></p>",
        escaped(&state),
        escaped(&facts.engine),
        escaped(&facts.address),
        facts.guarantee,
        monitor.uptime().as_secs(),
        escaped(&facts.directory.display().to_string()),
    );
    rates(&mut html, monitor, sample);
    threads(&mut html, sample);
    refusals(&mut html, &sample.sum());
    if let Some(streams) = &facts.shipped {
        shipping(&mut html, streams);
    }
    segments(&mut html, &facts.directory);
    html.push_str("</body></html>\n");
    html
}

fn rates(html: &mut String, monitor: &Monitor, now: &Sample) {
    html.push_str(
        "<h2>Rates</h2>\n<table id=\"rates\"><tr><th>over<th>lines/s<th>rejected/s<th>received/s\
         <th>commits/s<th>syncs/s<th>latency p50<th>p99</tr>\n",
    );
    for (age, name) in [(1, "a second"), (60, "a minute")] {
        let Some(before) = monitor.before(Duration::from_secs(age)) else { continue };
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64().max(1e-3);
        let (old, new) = (before.sum(), now.sum());
        let rate = |of: fn(&Stats) -> u64| of(&new).saturating_sub(of(&old)) as f64 / seconds;
        let times = new.commit_times.since(&old.commit_times);
        let time = |share| times.quantile(share).unwrap_or_else(|| "-".to_owned());
        let _ = writeln!(
            html,
            "<tr><td>{name}<td>{:.0}<td>{:.0}<td>{}<td>{:.0}<td>{:.0}<td>{}<td>{}</tr>",
            rate(|s| s.accepted_lines),
            rate(|s| s.rejected_lines),
            bytes_text(rate(|s| s.received_bytes) as u64),
            rate(|s| s.commits),
            rate(|s| s.syncs),
            time(0.5),
            time(0.99),
        );
    }
    html.push_str(
        "</table>\n<p>Latency is from the first line of a batch to its commit: no acknowledgement \
         in it took longer.</p>\n",
    );
}

fn threads(html: &mut String, sample: &Sample) {
    html.push_str(
        "<h2>Threads</h2>\n<table id=\"threads\"><tr><th>thread<th>open<th>connections<th>broken\
         <th>lines<th>rejected<th>refused<th>not committed<th>storage</tr>\n",
    );
    for (number, stats) in sample.threads.iter().enumerate() {
        let storage = if stats.stalled > 0 { "<b class=\"bad\">stalled</b>" } else { "good" };
        let _ = writeln!(
            html,
            "<tr><td>{number}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{storage}</tr>",
            stats.open,
            stats.connections,
            stats.broken,
            stats.accepted_lines,
            stats.rejected_lines,
            stats.refused_lines,
            bytes_text(stats.uncommitted_bytes),
        );
    }
    html.push_str("</table>\n");
}

/// Connections that were not served, or not to their end, by reason.
fn refusals(html: &mut String, sum: &Stats) {
    html.push_str(
        "<h2>Refused and ended connections</h2>\n<table id=\"refusals\"><tr><th>reason\
         <th>count</tr>\n",
    );
    let mut row = |reason: &str, count: u64| {
        let _ = writeln!(html, "<tr><td>{reason}<td>{count}</tr>");
    };
    row("ended by an error", sum.broken);
    row("refused by TLS", sum.tls_failures);
    row("HTTP, or TLS on a plain port", sum.misdirected);
    row("more than --address-connections", sum.turned_away);
    row("silent for longer than --idle", sum.idle_ended);
    for (word, count) in sum.refused_greetings.each().filter(|(_, count)| *count > 0) {
        row(&format!("greeting refused: {word}"), count);
    }
    html.push_str("</table>\n");
}

fn shipping(html: &mut String, streams: &Streams) {
    html.push_str(
        "<h2>Shipping</h2>\n<table id=\"shipping\"><tr><th>stream<th>shipped lines<th>lag, lines\
         <th>lag, bytes<th>lost lines<th>errors<th>last error</tr>\n",
    );
    for (number, progress) in streams.all() {
        let is_away = progress.is_away();
        let _ = writeln!(
            html,
            "<tr><td>{number}<td>{}<td>{}<td>{}<td>{}<td>{}<td class=\"{}\">{}</tr>",
            progress.shipped_lines.load(Ordering::Relaxed),
            progress.lag_lines(),
            bytes_text(progress.lag_bytes()),
            progress.lost_lines.load(Ordering::Relaxed),
            progress.errors.load(Ordering::Relaxed),
            if is_away { "bad" } else { "" },
            escaped(&progress.last_error()),
        );
    }
    html.push_str("</table>\n");
}

fn segments(html: &mut String, directory: &Path) {
    html.push_str(
        "<h2>Segments</h2>\n<table id=\"segments\"><tr><th>stream<th>segments<th>newest</tr>\n",
    );
    match streams(directory) {
        Ok(streams) => {
            for (stream, serials) in streams {
                let newest = serials.last().copied().unwrap_or_default();
                let count = serials.len();
                let _ = writeln!(html, "<tr><td>{stream}<td>{count}<td>{newest}</tr>");
            }
        }
        Err(error) => {
            let _ = writeln!(html, "<tr><td colspan=\"3\">{}</tr>", escaped(&error.to_string()));
        }
    }
    html.push_str("</table>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
