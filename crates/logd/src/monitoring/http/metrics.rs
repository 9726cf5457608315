//! Metrics in Prometheus's text format, version 0.0.4. `docs/reference/logd.md` lists them.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering},
};

use super::readers::Readers;
use crate::{
    clients::tenants::{Account, Tenants},
    monitoring::{
        monitor::{Monitor, Sample},
        stats::{BOUNDS, COUNTERS, GAUGES},
    },
    ship::progress::{Progress, Streams},
    upload::progress::Uploads,
};

/// Formats all metrics.
pub(super) fn text(monitor: &Monitor, sample: &Sample, readers: &Readers) -> String {
    let mut text = String::new();
    for (figures, kind, suffix) in [(COUNTERS, "counter", "_total"), (GAUGES, "gauge", "")] {
        for (name, help, value) in figures {
            head(&mut text, &format!("{name}{suffix}"), help, kind);
            for (thread, stats) in sample.threads.iter().enumerate() {
                let value = value(stats);
                let _ = writeln!(text, "logd_{name}{suffix}{{thread=\"{thread}\"}} {value}");
            }
        }
    }
    refused_greetings(&mut text, sample);
    commit_times(&mut text, sample);
    tenants(&mut text, &monitor.facts.tenants);
    if let Some(streams) = &monitor.facts.shipped {
        shipped(&mut text, streams);
    }
    if let Some(uploads) = &monitor.facts.uploads {
        uploaded(&mut text, uploads);
    }
    of_readers(&mut text, readers);
    let whole: [(&str, &str, u64); 4] = [
        ("silent_threads", "Threads that do not answer", sample.silent as u64),
        ("draining", "1 if the daemon is draining", u64::from(monitor.is_draining())),
        ("ready", "1 if /readyz reports ready", u64::from(monitor.unready(sample).is_empty())),
        ("uptime_seconds", "Seconds since the start", monitor.uptime().as_secs()),
    ];
    for (name, help, value) in whole {
        head(&mut text, name, help, "gauge");
        let _ = writeln!(text, "logd_{name} {value}");
    }
    text
}

/// A metric of each tenant: its name, its kind, its help text, and how to read it.
type TenantFigure = (&'static str, &'static str, &'static str, fn(&Account) -> &AtomicU64);

const OF_TENANTS: [TenantFigure; 4] = [
    ("accepted_lines_total", "counter", "Lines stored or being stored", |it| &it.lines),
    ("accepted_bytes_total", "counter", "Bytes of these", |it| &it.bytes),
    ("stored_bytes", "gauge", "Bytes of lines in segments, as received", |it| &it.stored),
    ("quota_waits_total", "counter", "Times that a sender waited for the quota", |it| &it.waits),
];

/// Formats the metrics of the tenants that the configuration names, and of all others together.
fn tenants(text: &mut String, tenants: &Tenants) {
    if !tenants.are_named() {
        return;
    }
    for (name, kind, help, value) in OF_TENANTS {
        let name = format!("tenant_{name}");
        head(text, &name, help, kind);
        for account in tenants.accounts() {
            let label = account.label().replace('\\', "\\\\").replace('"', "\\\"");
            let value = value(account).load(Ordering::Relaxed);
            let _ = writeln!(text, "logd_{name}{{tenant=\"{label}\"}} {value}");
        }
    }
}

/// A metric of each stream that is shipped: its name, its kind, its help text, and how to read it.
type ShipFigure = (&'static str, &'static str, &'static str, fn(&Progress) -> u64);

const OF_STREAMS: [ShipFigure; 6] = [
    ("shipped_lines_total", "counter", "Lines that the destination acknowledged", |it| {
        it.shipped_lines.load(Ordering::Relaxed)
    }),
    ("lag_lines", "gauge", "Durable lines that are not acknowledged", Progress::lag_lines),
    ("lag_bytes", "gauge", "Bytes of these", Progress::lag_bytes),
    ("lost_lines_total", "counter", "Lines that were gone before they were shipped", |it| {
        it.lost_lines.load(Ordering::Relaxed)
    }),
    ("errors_total", "counter", "Errors after which lines were read or sent again", |it| {
        it.troubles.count()
    }),
    ("away", "gauge", "1 if the destination does not take lines", |it| {
        u64::from(it.troubles.is_away())
    }),
];

/// Formats the metrics of shipping.
fn shipped(text: &mut String, streams: &Streams) {
    for (name, kind, help, value) in OF_STREAMS {
        let name = format!("ship_{name}");
        head(text, &name, help, kind);
        for (number, progress) in streams.all() {
            let value = value(&progress);
            let _ = writeln!(text, "logd_{name}{{stream=\"{number}\"}} {value}");
        }
    }
}

/// A metric of uploads: its name, its kind, its help text, and how to read it.
type UploadFigure = (&'static str, &'static str, &'static str, fn(&Uploads) -> u64);

const OF_UPLOADS: [UploadFigure; 8] = [
    ("segments_total", "counter", "Segments that were uploaded and checked", |it| {
        it.segments.load(Ordering::Relaxed)
    }),
    ("bytes_total", "counter", "Bytes of their objects", |it| it.bytes.load(Ordering::Relaxed)),
    ("errors_total", "counter", "Uploads that failed", |it| it.troubles.count()),
    ("lost_segments_total", "counter", "Segments that were removed before their upload", |it| {
        it.lost_segments.load(Ordering::Relaxed)
    }),
    (
        "waiting_segments",
        "gauge",
        "Ended segments that are not uploaded",
        Uploads::waiting_segments,
    ),
    ("waiting_bytes", "gauge", "Bytes of these", Uploads::waiting_bytes),
    ("oldest_seconds", "gauge", "Seconds since the oldest of these ended", Uploads::oldest_seconds),
    ("away", "gauge", "1 if the last upload failed", |it| u64::from(it.troubles.is_away())),
];

/// Formats the metrics of uploads.
fn uploaded(text: &mut String, uploads: &Uploads) {
    for (name, kind, help, value) in OF_UPLOADS {
        let name = format!("upload_{name}");
        head(text, &name, help, kind);
        let _ = writeln!(text, "logd_{name} {}", value(uploads));
    }
}

/// Formats the metrics of the clients that read lines on the status page.
fn of_readers(text: &mut String, readers: &Readers) {
    for (name, kind, help, value) in readers.figures() {
        head(text, name, help, kind);
        let _ = writeln!(text, "logd_{name} {value}");
    }
    let name = "page_denied_total";
    head(text, name, "Requests for lines that were denied, by the reason", "counter");
    for (word, count) in readers.denials() {
        let _ = writeln!(text, "logd_{name}{{reason=\"{word}\"}} {count}");
    }
}

/// By the word of the answer, so that a wrong token can be told from a busy name.
fn refused_greetings(text: &mut String, sample: &Sample) {
    let name = "refused_greetings_total";
    head(text, name, "Greetings that were refused, by the word of the answer", "counter");
    for (thread, stats) in sample.threads.iter().enumerate() {
        for (word, count) in stats.refused_greetings.each() {
            let labels = format!("thread=\"{thread}\",reason=\"{word}\"");
            let _ = writeln!(text, "logd_{name}{{{labels}}} {count}");
        }
    }
}

/// Formats the times from the first line of a batch to its commit, which is the wait of its first acknowledgement.
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
