//! The figures of a section as cells of text, for every report that has a table.
//!
//! What a column is called and how its figure is written is said once, here. A column in which no
//! row has anything is left out; a figure that is not known here by name gets a column of its own,
//! so that what a workload measures beside the usual is shown.

use ringwise_measure::quantity::latency_text;
use serde_json::Value;

use super::{
    saved::{Saved, SavedRow},
    table::grouped,
};
use crate::results::verdict::interval_text;
pub use crate::workload::form::columns::rate;

/// Cells of text. The first column names the row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cells {
    /// What the columns are.
    pub head: Vec<String>,
    /// A line for each row that has figures, those that do not count too.
    pub lines: Vec<Vec<String>>,
}

/// Fields that say the same as another, or are shown elsewhere.
const NO_COLUMN: [&str; 8] = [
    "cache_bound_bytes",
    "connections",
    "harness_ns_per_op",
    "harness_share",
    "syscalls_counted_by",
    "device_ops_per_s",
    "in_flight",
    "block_bytes",
];

type Figure = fn(&SavedRow) -> Option<String>;

const COLUMNS: [(&str, Figure); 14] = [
    ("ops/s", |row| row.ops_per_s.map(rate)),
    ("MiB/s", |row| row.mib_per_s.filter(|&rate| rate > 0.0).map(|rate| format!("{rate:.0}"))),
    ("p50", |row| row.latency_ns.map(|latency| latency_text(latency.p50 as f64))),
    ("p99", |row| row.latency_ns.map(|latency| latency_text(latency.p99 as f64))),
    ("p99.9", |row| row.latency_ns.map(|latency| latency_text(latency.p99_9 as f64))),
    ("p99.99", |row| row.latency_ns.map(|latency| latency_text(latency.p99_99 as f64))),
    ("max", |row| row.latency_ns.map(|latency| latency_text(latency.max as f64))),
    ("CPU/op", |row| row.cpu_ns_per_op.map(latency_text)),
    ("other CPU/op", |row| {
        row.system_other_cpu_ns_per_op.filter(|&ns| ns >= 1.0).map(latency_text)
    }),
    ("calls/op", |row| row.syscalls_per_op.map(|calls| format!("{calls:.2}"))),
    ("by workers", |row| row.worker_punts_per_op.map(|punts| format!("{:.0} %", punts * 100.0))),
    ("queue", |row| row.device_queue_depth.map(|queue| format!("{queue:.1}"))),
    ("device", |row| row.device_share.map(|share| format!("{:.0} %", share * 100.0))),
    ("vs sync", |row| row.ratio_to_sync.as_ref().map(interval_text)),
];

/// The figures of a section's rows, without the excluded rows.
pub fn cells(saved: &Saved, section: usize) -> Cells {
    let rows: Vec<&SavedRow> = saved.rows(section).filter(|row| row.is_valid()).collect();
    let mut head = vec!["engine".to_owned(), saved.sections[section].depth_is.clone()];
    let mut lines: Vec<Vec<String>> =
        rows.iter().map(|row| vec![row.label(), row.depth.to_string()]).collect();
    let mut add = |name: String, figure: &dyn Fn(&SavedRow) -> Option<String>| {
        let column: Vec<Option<String>> = rows.iter().map(|row| figure(row)).collect();
        if column.iter().any(Option::is_some) {
            head.push(name);
            let texts = column.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            lines.iter_mut().zip(texts).for_each(|(line, text)| line.push(text));
        }
    };
    for (name, figure) in COLUMNS {
        add(name.to_owned(), &figure);
    }
    for name in others(&rows) {
        add(words(&name), &|row| row.others.get(&name).and_then(|value| other(&name, value)));
    }
    add("remarks".to_owned(), &|row| (!row.remarks.is_empty()).then(|| row.remarks.join(", ")));
    Cells { head, lines }
}

/// The excluded rows, each with its reason.
pub fn voids(saved: &Saved, section: usize) -> Vec<(String, String)> {
    let noun = &saved.sections[section].depth_is;
    let void = |row: &SavedRow| {
        let reason = row.void.clone()?;
        Some((format!("{} at {noun} {}", row.label(), row.depth), reason))
    };
    saved.rows(section).filter_map(void).collect()
}

/// Figures that are not known by name, in the order of their names.
pub fn others(rows: &[&SavedRow]) -> Vec<String> {
    let mut names: Vec<String> = rows
        .iter()
        .flat_map(|row| &row.others)
        .filter(|(name, value)| !NO_COLUMN.contains(&name.as_str()) && other(name, value).is_some())
        .map(|(name, _)| name.clone())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A figure as text, with the unit that its name ends with. None where it is none.
fn other(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => {
            let number = number.as_f64()?;
            let is_time = name.ends_with("_ns") || name.contains("_ns_per_");
            Some(match number {
                _ if is_time => latency_text(number),
                _ if name.ends_with("_share") => format!("{:.1} %", number * 100.0),
                number if number.fract() == 0.0 || number >= 1000.0 => grouped(number),
                number => format!("{number:.2}"),
            })
        }
        Value::String(text) => Some(text.clone()),
        Value::Bool(is) => Some(if *is { "yes" } else { "no" }.to_owned()),
        _ => None,
    }
}

/// A field's name as words: `fsyncs_per_op` as `fsyncs/op`. The figure has the unit of a time.
pub fn words(name: &str) -> String {
    name.replace("_ns_per_", "_per_")
        .trim_end_matches("_ns")
        .trim_end_matches("_share")
        .replace("_per_", "/")
        .replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::saved_text;

    #[test]
    fn every_figure_that_is_there_has_a_column() {
        let mut saved = Saved::parse(&saved_text()).unwrap();
        saved.results[3].others.insert("sync_ns_per_op".to_owned(), 1500.into());
        saved.results[3].others.insert("gone_per_op".to_owned(), Value::Null);
        let cells = cells(&saved, 0);
        let column = |name: &str| cells.head.iter().position(|own| own == name);
        let uring = cells.lines.iter().find(|line| line[0] == "uring").unwrap();
        for (name, text) in [
            ("depth", "32"),
            ("ops/s", "100 000"),
            ("CPU/op", "3.00 µs"),
            ("sync/op", "1.50 µs"),
            ("vs sync", "6.67 [6.67, 6.67]"),
            ("remarks", "lab's own time 12 %"),
        ] {
            let at = column(name).unwrap_or_else(|| panic!("{name} is not in {:?}", cells.head));
            assert_eq!(uring[at], text, "{name}");
        }
        for absent in ["by workers", "other CPU/op", "gone/op", "connections", "in flight"] {
            assert_eq!(column(absent), None, "{absent}");
        }
        assert_eq!(cells.lines.len(), 5, "the excluded row is left out");
        assert!(cells.lines.iter().all(|line| line.len() == cells.head.len()));
        let voids = voids(&saved, 0);
        assert_eq!(voids.len(), 1);
        assert_eq!(voids[0].0, "mmap at depth 1");
    }
}
