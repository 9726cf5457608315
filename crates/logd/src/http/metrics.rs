//! Figures in Prometheus's text format, version 0.0.4. `docs/logd.md` lists them.

use std::fmt::Write as _;

use crate::{
    monitor::{Monitor, Sample},
    stats::{BOUNDS, Stats},
};

/// A figure of each thread: its name, what it is, and where it stands.
type Figure = (&'static str, &'static str, fn(&Stats) -> u64);

const COUNTERS: [Figure; 21] = [
    ("connections", "Connections accepted", |s| s.connections),
    ("accept_failures", "Accepts that failed; the daemon went on", |s| s.accept_failures),
    ("turned_away", "Connections beyond what their address may have", |s| s.turned_away),
    ("connections_broken", "Connections that an error ended", |s| s.broken),
    ("tls_failures", "Connections that TLS refused", |s| s.tls_failures),
    ("misdirected", "Connections that spoke HTTP, or TLS to a port without it", |s| s.misdirected),
    ("accepted_lines", "Lines stored or on their way", |s| s.accepted_lines),
    ("rejected_lines", "Lines that became dead letters", |s| s.rejected_lines),
    ("refused_lines", "Lines too long, of which nothing is stored", |s| s.refused_lines),
    ("received_bytes", "Bytes received, TLS's own among them", |s| s.received_bytes),
    ("receives", "Receives that brought bytes", |s| s.receives),
    ("committed_bytes", "Bytes of lines and dead letters committed", |s| s.committed_bytes),
    ("commits", "Batches begun", |s| s.commits),
    ("writes", "Writes of lines and dead letters asked for", |s| s.writes),
    ("syncs", "Syncs asked for", |s| s.syncs),
    ("answer_sends", "Sends of answers", |s| s.sends),
    ("stopped_senders", "Times that a sender was not received from", |s| s.stopped_senders),
    ("stalls", "Times that storage failed for a while", |s| s.stalls),
    ("seal_waits", "Times that a batch waited for segments to be sealed", |s| s.seal_waits),
    ("dead_segments", "Segments that failed and are not written to any more", |s| s.dead_segments),
    ("enters", "Calls that hand over and wait, on a ring", |s| s.enters),
];

const GAUGES: [Figure; 5] = [
    ("connections_open", "Connections that are open", |s| s.open),
    ("uncommitted_bytes", "Bytes received and not committed", |s| s.uncommitted_bytes),
    ("short_of_space", "1 where less is free than there has to be", |s| s.low),
    ("sqpoll", "1 where a thread of the kernel takes what the ring is asked for", |s| s.polled),
    ("stalled", "1 where the thread cannot store", |s| s.stalled),
];

/// All figures, of each thread.
pub(crate) fn text(monitor: &Monitor, sample: &Sample) -> String {
    let mut text = String::new();
    for (figures, kind, suffix) in [(&COUNTERS[..], "counter", "_total"), (&GAUGES, "gauge", "")] {
        for (name, help, value) in figures {
            head(&mut text, &format!("{name}{suffix}"), help, kind);
            for (thread, stats) in sample.threads.iter().enumerate() {
                let value = value(stats);
                let _ = writeln!(text, "logd_{name}{suffix}{{thread=\"{thread}\"}} {value}");
            }
        }
    }
    commit_times(&mut text, sample);
    let whole: [(&str, &str, u64); 4] = [
        ("silent_threads", "Threads that do not answer", sample.silent as u64),
        ("draining", "1 where the daemon ends", u64::from(monitor.is_draining())),
        ("ready", "1 where /readyz says so", u64::from(monitor.unready(sample).is_empty())),
        ("uptime_seconds", "Since the start", monitor.uptime().as_secs()),
    ];
    for (name, help, value) in whole {
        head(&mut text, name, help, "gauge");
        let _ = writeln!(text, "logd_{name} {value}");
    }
    text
}

/// From the first line of a batch to its commit: what the first of its acknowledgements took.
fn commit_times(text: &mut String, sample: &Sample) {
    let name = "commit_seconds";
    head(text, name, "From a batch's first line to its commit", "histogram");
    for (thread, stats) in sample.threads.iter().enumerate() {
        let mut count = 0;
        for (bound, own) in BOUNDS.iter().zip(stats.commit_times.counts) {
            count += own;
            let bound = bound.as_secs_f64();
            let _ =
                writeln!(text, "logd_{name}_bucket{{thread=\"{thread}\",le=\"{bound}\"}} {count}");
        }
        count += stats.commit_times.counts[BOUNDS.len()];
        let sum = stats.commit_times.sum_ns as f64 / 1e9;
        let _ = writeln!(text, "logd_{name}_bucket{{thread=\"{thread}\",le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "logd_{name}_sum{{thread=\"{thread}\"}} {sum}");
        let _ = writeln!(text, "logd_{name}_count{{thread=\"{thread}\"}} {count}");
    }
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP logd_{name} {help}.\n# TYPE logd_{name} {kind}");
}
