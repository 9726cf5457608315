//! The terminal's table, and the verdicts below it. Plain text without colours, so that it reads
//! the same in a file.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use ringwise_measure::quantity::latency_text;

use super::Section;
use crate::{
    plan::Workload,
    row::{Row, RowKind},
    verdict::{Finding, Pairing, Verdict, interval_text, ratio_to_sync},
};

/// A section as text.
pub fn text(section: &Section, seed: u64) -> String {
    let mut text = format!("{}\n", section.title);
    for note in &section.notes {
        let _ = writeln!(text, "  {note}");
    }
    match section.common_void() {
        Some(reason) => {
            let _ = writeln!(text, "  void: {reason}");
        }
        None => text.push_str(&rows(section, seed)),
    }
    for row in &section.rows {
        if let (Some(reason), None) = (&row.measured.void, section.common_void()) {
            let _ = writeln!(text, "  void: {} at depth {}: {reason}", row.label(), row.depth);
        }
    }
    let by_itself = |row: &Row| {
        row.is_valid() && matches!(row.measured.system_calls_per_op(), Some((_, false)))
    };
    if section.rows.iter().any(by_itself) {
        text.push_str("  * counted by the engine itself\n");
    }
    section.verdicts.iter().for_each(|verdict| text.push_str(&verdict_line(section, verdict)));
    section.pairings.iter().for_each(|pairing| text.push_str(&pairing_line(pairing)));
    text
}

type Column = (&'static str, fn(&Row) -> Option<String>);

fn rows(section: &Section, seed: u64) -> String {
    let mut columns: Vec<Column> = vec![("ops/s", |row| Some(grouped(row.measured.ops_per_s())))];
    if section.workload == Workload::Read {
        columns.push(("MiB/s", |row| Some(format!("{:.0}", row.measured.mib_per_s()))));
    }
    columns.extend::<[Column; 9]>([
        ("p50", |row| latency(row, |p| p.p50)),
        ("p99", |row| latency(row, |p| p.p99)),
        ("p99.9", |row| latency(row, |p| p.p99_9)),
        ("max", |row| latency(row, |p| p.max)),
        ("CPU/op", |row| Some(latency_text(row.measured.cpu_ns_per_op()))),
        ("other CPU/op", |row| {
            let other = row.measured.median(|sample| sample.system_other_cpu_ns_per_op);
            other.filter(|&ns| ns >= 1.0).map(latency_text)
        }),
        ("calls/op", |row| {
            let (calls, is_traced) = row.measured.system_calls_per_op()?;
            Some(format!("{calls:.2}{}", if is_traced { "" } else { "*" }))
        }),
        ("queue", |row| row.measured.device_queue_depth().map(|queue| format!("{queue:.1}"))),
        ("device", |row| {
            row.measured.device_share().map(|share| format!("{:.0} %", share * 100.0))
        }),
    ]);
    if section.workload == Workload::Nop {
        columns.retain(|(name, _)| !matches!(*name, "queue" | "device" | "other CPU/op"));
    }
    let shown: Vec<&Row> = section.rows.iter().filter(|row| row.measured.void.is_none()).collect();
    // A column in which nobody has anything to say is not drawn.
    columns.retain(|(_, cell)| shown.iter().any(|row| row.is_valid() && cell(row).is_some()));
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let depth = if section.workload == Workload::Nop { "batch" } else { "depth" };
    let mut header = vec!["engine", depth];
    header.extend(columns.iter().map(|(name, _)| *name));
    header.extend(["vs sync", "remarks"]);
    table.set_header(header);
    for row in &shown {
        let mut cells = vec![row.label(), row.depth.to_string()];
        cells.extend(columns.iter().map(|(_, cell)| match row.is_valid() {
            true => cell(row).unwrap_or_else(|| "-".to_owned()),
            false => "-".to_owned(),
        }));
        cells.push(
            ratio_to_sync(row, &section.rows, seed)
                .map_or_else(String::new, |ratio| interval_text(&ratio)),
        );
        cells.push(row.measured.remarks.join(", "));
        table.add_row(cells);
    }
    let last = columns.len() + 3;
    for column in table.column_iter_mut().take(last).skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = String::new();
    for line in table.lines() {
        let _ = writeln!(text, "  {}", line.trim_end());
    }
    text
}

fn latency(row: &Row, pick: fn(&ringwise_measure::Percentiles) -> u64) -> Option<String> {
    (row.measured.latency.count() > 0)
        .then(|| latency_text(pick(&row.measured.latency.percentiles()) as f64))
}

/// A whole number with spaces between thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

fn verdict_line(section: &Section, verdict: &Verdict) -> String {
    let place = match section.workload {
        Workload::Nop => format!("batch {}", verdict.depth),
        Workload::Read => format!("depth {}", verdict.depth),
    };
    let winner = match (&verdict.winner, verdict.verdict) {
        (Some(winner), Finding::PureOverhead) => format!(" ({winner} wins)"),
        (Some(winner), Finding::UseIt) => format!(" ({winner} wins)"),
        _ => String::new(),
    };
    format!("  {place}: {}{winner}: {}\n", verdict.verdict, verdict.reason)
}

/// Lines for what no verdict mentions: the ring's switches and other programs.
fn pairing_line(pairing: &Pairing) -> String {
    let Pairing { depth, candidate, baseline, baseline_kind, ratio, cpu_ratio } = pairing;
    if !matches!(baseline_kind, RowKind::Variant | RowKind::Program) {
        return String::new();
    }
    let cpu = cpu_ratio.as_ref().map_or_else(String::new, |cpu| {
        format!(", at {} times its CPU per operation", interval_text(cpu))
    });
    format!("  depth {depth}: {candidate} is {} times {baseline}{cpu}\n", interval_text(ratio))
}
