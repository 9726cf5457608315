//! The terminal's table, and the verdicts below it. Plain text without colours, so that it reads
//! the same in a file.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use ringwise_measure::{Percentiles, quantity::latency_text};

use super::{Section, figures::Cells, gains};
pub use crate::workload::form::columns::grouped;
use crate::{
    plan::percentile::Percentile,
    results::{
        row::{Row, RowKind},
        verdict::{Finding, Pairing, Verdict, interval_text, ratio_to_sync},
    },
    workload::form::columns::Column,
};

/// A section as text.
pub fn text(section: &Section, percentiles: &[Percentile], seed: u64) -> String {
    let mut text = format!("{}\n", section.title);
    for note in &section.notes {
        let _ = writeln!(text, "  {note}");
    }
    match section.common_void() {
        Some(reason) => {
            let _ = writeln!(text, "  excluded: {reason}");
        }
        None => text.push_str(&rows(section, percentiles, seed)),
    }
    let noun = section.depth_is;
    for row in &section.rows {
        if let (Some(reason), None) = (&row.measured.void, section.common_void()) {
            let _ = writeln!(text, "  excluded: {} at {noun} {}: {reason}", row.label(), row.depth);
        }
    }
    let by_itself = |row: &Row| {
        row.is_valid() && matches!(row.measured.system_calls_per_op(), Some((_, false)))
    };
    if section.rows.iter().any(by_itself) {
        text.push_str("  * counted by the engine itself\n");
    }
    section.verdicts.iter().for_each(|verdict| text.push_str(&verdict_line(section, verdict)));
    if !section.gains.is_empty() {
        text.push_str("  what a change gives, times today\n");
        text.push_str(&drawn(&gains::cells(noun, section.gains.iter())));
    }
    if section.switches.is_empty() {
        section.pairings.iter().for_each(|pairing| text.push_str(&pairing_line(section, pairing)));
    }
    for cost in &section.switches {
        let _ = writeln!(text, "  {noun} {}: {}", cost.depth, cost.text());
    }
    if let Some(break_even) = &section.break_even {
        let _ = writeln!(text, "  {}", break_even.text());
    }
    for advice in &section.advice {
        let _ = writeln!(text, "  advice: {advice}");
    }
    for (_, finding) in &section.findings {
        let _ = writeln!(text, "  {finding}");
    }
    text
}

type Cell<'a> = Box<dyn Fn(&Row) -> Option<String> + 'a>;

/// The columns of a section, with those of the chosen percentiles.
fn columns<'a>(section: &Section, percentiles: &'a [Percentile]) -> Vec<(&'static str, Cell<'a>)> {
    let mut columns: Vec<(&'static str, Cell<'a>)> = Vec::new();
    for column in section.columns {
        match *column {
            Column::Of(heading, cell) => columns.push((heading, Box::new(cell))),
            Column::Latencies => {
                for percentile in percentiles {
                    let cell = |row: &Row| latency(row, |p| percentile.of(p));
                    columns.push((percentile.name(), Box::new(cell)));
                }
                columns.push(("max", Box::new(|row| latency(row, |p| p.max))));
            }
        }
    }
    columns
}

fn rows(section: &Section, percentiles: &[Percentile], seed: u64) -> String {
    let mut columns = columns(section, percentiles);
    let shown: Vec<&Row> = section.rows.iter().filter(|row| row.measured.void.is_none()).collect();
    // A column in which nobody has anything to say is not drawn.
    columns.retain(|(_, cell)| shown.iter().any(|row| row.is_valid() && cell(row).is_some()));
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut header = vec!["engine", section.depth_is];
    header.extend(columns.iter().map(|(name, _)| *name));
    let has_sync = shown.iter().any(|row| row.engine == "sync");
    header.extend(has_sync.then_some("vs sync"));
    header.push("remarks");
    table.set_header(header);
    for row in &shown {
        let mut cells = vec![row.label(), row.depth.to_string()];
        cells.extend(columns.iter().map(|(_, cell)| match row.is_valid() {
            true => cell(row).unwrap_or_else(|| "-".to_owned()),
            false => "-".to_owned(),
        }));
        let ratio = ratio_to_sync(row, &section.rows, seed);
        cells.extend(has_sync.then(|| ratio.as_ref().map_or_else(String::new, interval_text)));
        cells.push(row.measured.remarks.join(", "));
        table.add_row(cells);
    }
    let last = columns.len() + 2 + usize::from(has_sync);
    for column in table.column_iter_mut().take(last).skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = String::new();
    for line in table.lines() {
        let _ = writeln!(text, "  {}", line.trim_end());
    }
    text
}

/// Cells in columns, those of text to the left.
fn drawn(cells: &Cells) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(&cells.head);
    for line in &cells.lines {
        table.add_row(line);
    }
    table.lines().map(|line| format!("  {}\n", line.trim_end())).collect()
}

fn latency(row: &Row, pick: impl Fn(&Percentiles) -> u64) -> Option<String> {
    (row.measured.latency.count() > 0)
        .then(|| latency_text(pick(&row.measured.latency.percentiles()) as f64))
}

fn verdict_line(section: &Section, verdict: &Verdict) -> String {
    let place = format!("{} {}", section.depth_is, verdict.depth);
    let winner = match (&verdict.winner, verdict.verdict) {
        (Some(winner), Finding::DoNotUse) => format!(" ({winner} wins)"),
        (Some(winner), Finding::UseIt) => format!(" ({winner} wins)"),
        _ => String::new(),
    };
    // A clause a line: figures are compared more easily below each other.
    let reasons = verdict.reason.split("; ").map(|clause| format!("      {clause}\n"));
    format!("  {place}: {}{winner}\n{}", verdict.verdict, reasons.collect::<String>())
}

/// Lines for what no verdict mentions: the ring's switches and other programs.
fn pairing_line(section: &Section, pairing: &Pairing) -> String {
    let Pairing { depth, candidate, baseline, baseline_kind, ratio, cpu_ratio } = pairing;
    if !matches!(baseline_kind, RowKind::Variant | RowKind::Program) {
        return String::new();
    }
    let cpu = cpu_ratio.as_ref().map_or_else(String::new, |cpu| {
        format!(", at {} times its CPU per operation", interval_text(cpu))
    });
    let noun = section.depth_is;
    format!("  {noun} {depth}: {candidate} is {} times {baseline}{cpu}\n", interval_text(ratio))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::section;

    #[test]
    fn a_section_reads_so() {
        let expected = "\
read direct random, 4k blocks, O_DIRECT
  1 file of 1.0 GiB, every block read is verified
   engine                  depth    ops/s  MiB/s      p50      p99    p99.9      max   CPU/op  calls/op  queue  device            vs sync  remarks
   sync                        1   15 000     59  66.0 µs  66.0 µs  66.0 µs  66.0 µs  3.00 µs     1.00*    0.9   100 %
   threads                    32   80 000    312   320 µs   320 µs   320 µs   320 µs  7.00 µs     1.00*   31.0   100 %  5.33 [5.33, 5.33]
   uring                      32  100 000    391   320 µs   320 µs   320 µs   320 µs  3.00 µs     1.00*   31.0   100 %  6.67 [6.67, 6.67]  lab's own time 12 %
   uring (again)              32  100 000    391   320 µs   320 µs   320 µs   320 µs  3.00 µs     1.00*   31.0   100 %  6.67 [6.67, 6.67]
   uring-registered-files     32   80 000    312   320 µs   320 µs   320 µs   320 µs  7.00 µs     1.00*   31.0   100 %  5.33 [5.33, 5.33]
  excluded: mmap at depth 1: not measurable here: a mapping always goes through the page cache
  * counted by the engine itself
  depth 32: use it (uring wins)
      1.25 [1.25, 1.25] times threads
      keeps 32 requests in flight from one thread: device queue 0.9 -> 31.0
      6.7 times sync at depth 1, of which depth alone gives threads 5.3
      CPU per read 3.00 µs against 7.00 µs of threads, 0.43 [0.43, 0.43]
      system calls per read 1.00 against 1.00
  what a change gives, times today
   today    depth  change to                    finding   throughput         p99                CPU/op             reason
   sync     1      uring at depth 32            gain      6.67 [6.67, 6.67]  4.85 [4.85, 4.85]  1.00 [1.00, 1.00]  -
   sync     1      the best: uring at depth 32  gain      6.67 [6.67, 6.67]  4.85 [4.85, 4.85]  1.00 [1.00, 1.00]  -
   mmap     1      the best: sync               excluded  -                  -                  -                  mmap: not measurable here: a mapping always goes through the page cache
   threads  32     uring                        gain      1.25 [1.25, 1.25]  1.00 [1.00, 1.00]  0.43 [0.43, 0.43]  -
   threads  32     the best: uring              gain      1.25 [1.25, 1.25]  1.00 [1.00, 1.00]  0.43 [0.43, 0.43]  -
  depth 32: uring is 1.25 [1.25, 1.25] times uring-registered-files, at 0.43 [0.43, 0.43] times its CPU per operation
";
        let text = text(&section(), &Percentile::DEFAULT, 1);
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn what_is_void_for_all_is_said_once() {
        let mut section = section();
        section.verdicts.clear();
        section.pairings.clear();
        section.gains.clear();
        section.void_all("O_DIRECT on tmpfs refused");
        assert_eq!(
            text(&section, &Percentile::DEFAULT, 1),
            "read direct random, 4k blocks, O_DIRECT\n  \
             1 file of 1.0 GiB, every block read is verified\n  excluded: O_DIRECT on tmpfs refused\n"
        );
    }

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in
            [(0.0, "0"), (999.0, "999"), (1000.4, "1 000"), (1_234_567.0, "1 234 567")]
        {
            assert_eq!(grouped(number), text);
        }
    }
}
