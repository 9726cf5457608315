//! The table, in Markdown that is readable as plain text. It is printed, and also generated into `docs/`.
//!
//! It contains no path of the machine on which it was made.

use std::fmt::Write as _;

use ringwise_lab::sampling::job::Cache;
use ringwise_measure::{
    Fact,
    quantity::{bytes_text, latency_text},
    statistics::Ratio,
};

use super::{Report, Section};
use crate::{args::Plan, run::Row};

const COMMAND: &str = "cd peers; cargo run --release --";

/// Returns the whole text.
pub fn markdown(report: &Report<'_>) -> String {
    let mut text = String::from("# Positioned reads over other runtimes\n\n");
    text.push_str(
        "Generated; see `peers/README.md`. Random aligned 4 KiB reads of one file, as many tasks as \
         the depth, each\nblock verified. Ratios are to the first engine at the same depth, with \
         their 95 % interval over blocks; \"again\" is\nthat engine once more, which shows the \
         noise. CPU is that of the whole process of a sample, with the kernel's\nio_uring \
         workers.\n\n",
    );
    // Writing into a string does not fail.
    let _ = writeln!(text, "    {COMMAND} {}\n", report.plan.options());
    let _ = writeln!(text, "- {}", machine(report));
    let _ = writeln!(text, "- {}", storage(report));
    let versions: Vec<String> =
        report.versions().into_iter().map(|(name, version)| format!("{name} {version}")).collect();
    if !versions.is_empty() {
        let _ = writeln!(text, "- {}", versions.join(", "));
    }
    for engine in &report.plan.engines {
        let _ = writeln!(text, "- `{engine}`: {}", engine.what());
    }
    for section in &report.sections {
        let title = match section.profile {
            Cache::Warm | Cache::Bounded => "Buffered, all in the page cache",
            Cache::Bypassed => "Direct (O_DIRECT)",
            Cache::Cold => "Buffered, nothing in the page cache",
        };
        let _ = writeln!(text, "\n## {title}\n\n{}", grid(&cells(section, report.plan)));
        void_reasons(section, &mut text);
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn machine(report: &Report<'_>) -> String {
    let environment = &report.environment;
    let cores = |fact: &Fact<u64>| fact.known().map_or("?".to_owned(), u64::to_string);
    format!(
        "Linux {}, {} processors ({} allowed), {}",
        environment.kernel.known().map_or("?", String::as_str),
        cores(&environment.cores_online),
        cores(&environment.cores_allowed),
        environment.cpu_model.known().map_or("unknown model", String::as_str),
    )
}

fn storage(report: &Report<'_>) -> String {
    let kind = report.storage.mount.known().map_or("unknown file system", |mount| &mount.kind);
    let device = match &report.storage.device {
        Fact::Known(device) => format!("{} ({:?})", device.name, device.kind),
        Fact::Unknown(_) => "no device of its own".to_owned(),
    };
    format!("one file of {}, {kind} on {device}", bytes_text(report.plan.bytes))
}

const HEADS: [&str; 9] =
    ["depth", "engine", "reads/s", "ratio", "CPU/read", "p50", "p99", "p99.9", "max"];

fn cells(section: &Section, plan: &Plan) -> Vec<[String; 9]> {
    section.rows.iter().map(|row| line(section, row, plan)).collect()
}

fn line(section: &Section, row: &Row, plan: &Plan) -> [String; 9] {
    let measured = &row.measured;
    let (depth, label) = (row.depth.to_string(), row.label());
    if measured.void.is_some() || measured.samples.is_empty() {
        let none = String::new;
        return [depth, label, "excluded".into(), none(), none(), none(), none(), none(), none()];
    }
    let latency = measured.latency.percentiles();
    let time = |ns: u64| latency_text(ns as f64);
    let ratio = section.ratio(row, plan, |sample| sample.ops_per_s);
    [
        depth,
        label,
        format!("{:.0}", measured.ops_per_s()),
        ratio.map_or("-".to_owned(), ratio_text),
        latency_text(measured.cpu_ns_per_op()),
        time(latency.p50),
        time(latency.p99),
        time(latency.p99_9),
        time(latency.max),
    ]
}

fn ratio_text(ratio: Ratio) -> String {
    format!("{:.2} ({:.2} to {:.2})", ratio.mid, ratio.low, ratio.high)
}

/// Writes the reasons why rows are excluded: a line for each reason and engine, with the depths.
fn void_reasons(section: &Section, text: &mut String) {
    let mut reasons: Vec<(&str, String, Vec<String>)> = Vec::new();
    for row in section.rows.iter().filter(|row| !row.is_control) {
        let Some(reason) = row.measured.void.as_deref() else { continue };
        let (label, depth) = (row.label(), row.depth.to_string());
        match reasons.iter_mut().find(|(own, name, _)| *own == reason && *name == label) {
            Some((_, _, depths)) => depths.push(depth),
            None => reasons.push((reason, label, vec![depth])),
        }
    }
    if !reasons.is_empty() {
        text.push('\n');
    }
    for (reason, label, depths) in reasons {
        let _ = writeln!(text, "- {label} at {}: {reason}", depths.join(", "));
    }
}

/// A Markdown table with its columns aligned.
fn grid(lines: &[[String; 9]]) -> String {
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.chain([HEADS[column].len(), 3]).max().unwrap_or(3)
    };
    let widths: [usize; 9] = std::array::from_fn(width);
    let is_left = |column: usize| column == 1;
    let mut text = String::new();
    let mut push = |cells: [&str; 9]| {
        for (column, cell) in cells.into_iter().enumerate() {
            let width = widths[column];
            // Writing into a string does not fail.
            let _ = match is_left(column) {
                true => write!(text, "| {cell:<width$} "),
                false => write!(text, "| {cell:>width$} "),
            };
        }
        text.push_str("|\n");
    };
    push(HEADS);
    let rules: [String; 9] = std::array::from_fn(|column| match is_left(column) {
        true => "-".repeat(widths[column]),
        false => format!("{}:", "-".repeat(widths[column] - 1)),
    });
    push(rules.each_ref().map(String::as_str));
    for line in lines {
        push(line.each_ref().map(String::as_str));
    }
    text.truncate(text.trim_end().len());
    text
}
