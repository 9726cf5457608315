//! The status page: plain HTML with a script that searches stored lines and follows them. Nothing comes from elsewhere.
//! Without scripts, and for who may not read lines, it shows the figures alone and reloads itself.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, Read as _},
    path::Path,
    sync::atomic::Ordering,
    time::Duration,
};

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use ringwise_measure::quantity::bytes_text;

use super::{
    access::{Denied, Way},
    answer::Answer,
};
use crate::{
    disk::segment::reading::source::streams,
    monitoring::{
        monitor::{Monitor, Sample},
        stats::Stats,
    },
    ship::progress::Streams,
    upload::progress::Uploads,
};

const STYLE: &str = "
body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color:#222}
.wide{overflow-x:auto;margin:.5em 0 1.5em}
table{border-collapse:collapse;white-space:nowrap}
th,td{padding:.15em 1em .15em 0;text-align:right;border-bottom:1px solid #ddd}
td{font-variant-numeric:tabular-nums}
:is(th,td):first-child,#threads :is(th,td):last-child{text-align:left}
.good{color:#060}.bad{color:#a00}
code{overflow-wrap:anywhere}
form{display:flex;flex-wrap:wrap;gap:.5em 1em;align-items:end}
form label{display:grid}
input,button{font:inherit}
form input{width:11em;max-width:100%;box-sizing:border-box}
.lines{font:12px/1.5 ui-monospace,monospace;height:20em;overflow:auto;margin:.5em 0;padding:.5em;\
border:1px solid #ddd;list-style:none;resize:vertical;overflow-wrap:anywhere}
.lines[hidden]{display:none}
.lines time{color:#666}
.old :is(#status,#figures){opacity:.5}
";
/// How a page without scripts stays up to date.
const RELOAD: &str = "<meta http-equiv=\"refresh\" content=\"2\">";
/// The search box and the live lines.
const LINES: &str = include_str!("page/lines.html");
const SCRIPT: &str = include_str!("page/lines.js");
/// The field for a token in these.
const TOKEN: [&str; 2] = ["<!--token-->", "<!--/token-->"];

/// The page, as of a sample. `way` is how its reader may read lines.
pub(super) fn page(monitor: &Monitor, sample: &Sample, way: Result<Way, Denied>) -> Answer {
    let kind = "text/html; charset=utf-8";
    // Without a random name for its script the page is one without scripts and styles.
    let nonce = nonce();
    let (way, nonce) = match (way, &nonce) {
        (Ok(way), Ok(nonce)) => (way, nonce),
        (way, nonce) => {
            let why =
                way.map_or_else(|denied| denied.answer().1, |_| "/dev/urandom cannot be read");
            let lines = format!("<p id=\"no-lines\">{}</p>\n", escaped(why.trim_end()));
            let nonce = nonce.as_deref().unwrap_or_default();
            let html = html(monitor, sample, (nonce, RELOAD), &lines) + "</body></html>\n";
            let policy =
                format!("default-src 'none'; style-src 'nonce-{nonce}'; frame-ancestors 'none'");
            return Answer::new(200, kind, html).with_policy(policy);
        }
    };
    let [begin, end] = TOKEN;
    let (before, rest) = LINES.split_once(begin).unwrap_or((LINES, ""));
    let (field, after) = rest.split_once(end).unwrap_or(("", rest));
    let field = if way == Way::ByToken { field } else { "" };
    let reload = format!("<noscript>{RELOAD}</noscript>");
    let lines = [before, field, after].concat();
    let html = html(monitor, sample, (nonce, &reload), &lines);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src \
         'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let script = format!("<script nonce=\"{nonce}\">\n{SCRIPT}</script>\n</body></html>\n");
    Answer::new(200, kind, html + &script).with_policy(policy)
}

/// A name for the scripts and styles of one answer, which nobody can guess.
fn nonce() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// The page without scripts, up to the end of its body.
fn html(monitor: &Monitor, sample: &Sample, (nonce, reload): (&str, &str), lines: &str) -> String {
    let facts = &monitor.facts;
    let reasons = monitor.unready(sample);
    let (class, state) = match reasons.is_empty() {
        true => ("good", "ready".to_owned()),
        false => ("bad", reasons.join(", ")),
    };
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">{reload}\n\
         <title>ringwise logd</title>\n<style nonce=\"{nonce}\">{STYLE}</style></head><body>\n\
         <h1>ringwise logd</h1>\n<div id=\"status\">\n<p id=\"state\" class=\"{class}\"><b>{}</b></p>\n\
         <p>{} on {}, acknowledged means {}, up {} s, in <code>{}</code></p>\n</div>\n\
         {lines}<div id=\"figures\">\n",
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
    if let Some(uploads) = &facts.uploads {
        uploading(&mut html, uploads);
    }
    segments(&mut html, &facts.directory);
    html.push_str("</div>\n");
    html
}

/// Begins a table, which scrolls if the screen is narrower.
fn table(html: &mut String, id: &str, title: &str, columns: &str) {
    let _ = writeln!(
        html,
        "<h2>{title}</h2>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\">\
         <table id=\"{id}\"><tr>{columns}</tr>"
    );
}

const TABLE_END: &str = "</table></div>\n";

fn rates(html: &mut String, monitor: &Monitor, now: &Sample) {
    let columns = "<th>over<th>lines/s<th>rejected/s<th>received/s<th>commits/s<th>syncs/s\
                   <th>latency p50<th>p99";
    table(html, "rates", "Rates", columns);
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
    html.push_str(TABLE_END);
    html.push_str(
        "<p>Latency is from the first line of a batch to its commit: no acknowledgement in it took \
         longer.</p>\n",
    );
}

fn threads(html: &mut String, sample: &Sample) {
    let columns = "<th>thread<th>open<th>connections<th>broken<th>lines<th>rejected<th>refused\
                   <th>not committed<th>storage";
    table(html, "threads", "Threads", columns);
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
    html.push_str(TABLE_END);
}

/// Connections that were not served, or not to their end, by reason.
fn refusals(html: &mut String, sum: &Stats) {
    table(html, "refusals", "Refused and ended connections", "<th>reason<th>count");
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
    html.push_str(TABLE_END);
}

fn shipping(html: &mut String, streams: &Streams) {
    let columns = "<th>stream<th>shipped lines<th>lag, lines<th>lag, bytes<th>lost lines<th>errors\
                   <th>last error";
    table(html, "shipping", "Shipping", columns);
    for (number, progress) in streams.all() {
        let is_away = progress.troubles.is_away();
        let _ = writeln!(
            html,
            "<tr><td>{number}<td>{}<td>{}<td>{}<td>{}<td>{}<td class=\"{}\">{}</tr>",
            progress.shipped_lines.load(Ordering::Relaxed),
            progress.lag_lines(),
            bytes_text(progress.lag_bytes()),
            progress.lost_lines.load(Ordering::Relaxed),
            progress.troubles.count(),
            if is_away { "bad" } else { "" },
            escaped(&progress.troubles.last()),
        );
    }
    html.push_str(TABLE_END);
}

fn uploading(html: &mut String, uploads: &Uploads) {
    let columns = "<th>uploaded segments<th>uploaded<th>waiting segments<th>waiting<th>oldest waits\
                   <th>lost segments<th>errors<th>last error";
    table(html, "uploads", "Uploads", columns);
    let _ = writeln!(
        html,
        "<tr><td>{}<td>{}<td>{}<td>{}<td>{} s<td>{}<td>{}<td class=\"{}\">{}</tr>",
        uploads.segments.load(Ordering::Relaxed),
        bytes_text(uploads.bytes.load(Ordering::Relaxed)),
        uploads.waiting_segments(),
        bytes_text(uploads.waiting_bytes()),
        uploads.oldest_seconds(),
        uploads.lost_segments.load(Ordering::Relaxed),
        uploads.troubles.count(),
        if uploads.troubles.is_away() { "bad" } else { "" },
        escaped(&uploads.troubles.last()),
    );
    html.push_str(TABLE_END);
}

fn segments(html: &mut String, directory: &Path) {
    table(html, "segments", "Segments", "<th>stream<th>segments<th>newest");
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
    html.push_str(TABLE_END);
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
