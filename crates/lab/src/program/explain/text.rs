//! The figures of a trace as text for a terminal: lines of at most 80 characters, and few of them.

use std::fmt::Write;

use ringwise_measure::quantity::{bytes_text, latency_text};

use super::{
    analysis::{Analysis, Counted, Group, ThreadTime, share},
    prediction::Prediction,
};
use crate::{
    program::traced::Traced,
    results::report::lines::{WIDTH, all_wrapped, cut, wrapped_within},
    workload::form::columns::{counted, grouped},
};

/// So many threads have a line of their own.
const THREADS_MAX: usize = 5;
/// So many lines may a command or what is missing take.
const LINES_MAX: usize = 2;

/// The whole text. `measured` is what a results file says.
pub(crate) fn text(
    traced: &Traced,
    analysis: &Analysis,
    prediction: &Prediction,
    measured: &[String],
) -> String {
    let mut text = String::new();
    for sentence in traced.missing() {
        push(&mut text, &wrapped_within(&format!("missing: {sentence}"), "  ", LINES_MAX));
    }
    push(&mut text, &wrapped_within(&heading(traced, analysis), "  ", LINES_MAX));
    text += "\nTime that each thread spent waiting, % of its time\n";
    text += &threads(traced, analysis);
    text += "\nOperations\n";
    text += &groups(analysis);
    text += &all_wrapped(&facts(analysis).join("\n"), "  ");
    text += "\nPrediction\n";
    let said = prediction.sentences();
    for sentence in said.iter().chain(measured) {
        text += &all_wrapped(&format!("- {sentence}"), "  ");
    }
    text
}

fn push(text: &mut String, lines: &[String]) {
    lines.iter().for_each(|line| *text += &format!("{line}\n"));
}

/// What the trace is of.
pub(crate) fn heading(traced: &Traced, analysis: &Analysis) -> String {
    format!(
        "{} in {} by {}, {}: {}",
        counted(traced.operations.len() as u64, "operation"),
        latency_text(analysis.elapsed_ns as f64),
        counted(analysis.threads.len() as u64, "thread"),
        counted(traced.files.len() as u64, "file"),
        traced.program()
    )
}

/// The columns of groups that any thread waited for, with a name of a thread before them.
fn threads(traced: &Traced, analysis: &Analysis) -> String {
    let columns: Vec<Group> = analysis.groups().map(|(group, _)| group).collect();
    let mut text = format!("  {:<20} {:>9} {:>6}", "thread", "time", "all");
    columns.iter().for_each(|group| {
        let _ = write!(text, " {:>8}", group.name());
    });
    text = cut(&text, WIDTH) + "\n";
    for (id, time) in analysis.threads.iter().take(THREADS_MAX) {
        let name = traced.thread(*id).map_or_else(String::new, |thread| match &*thread.name {
            "" => format!("thread {}", thread.tid),
            name => format!("{name} {}", thread.tid),
        });
        text += &cut(&thread_line(&cut(&name, 20), time, &columns), WIDTH);
        text.push('\n');
    }
    let others = analysis.threads.len().saturating_sub(THREADS_MAX);
    if others > 0 {
        let _ = writeln!(text, "  {others} more threads waited less");
    }
    text
}

fn thread_line(name: &str, time: &ThreadTime, columns: &[Group]) -> String {
    let of = |waited_ns| percent(share(waited_ns, time.span_ns()));
    let span = latency_text(time.span_ns() as f64);
    let mut line = format!("  {name:<20} {span:>9} {:>6}", of(time.waited_ns));
    for &group in columns {
        let _ = write!(line, " {:>8}", of(time.by_group[group as usize]));
    }
    line
}

/// A share in percent, or a dash.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}", share * 100.0))
}

fn groups(analysis: &Analysis) -> String {
    let mut text = format!(
        "  {:<9} {:>10} {:>10} {:>10} {:>6} {:>8} {:>9} {:>9}\n",
        "", "count", "bytes", "size, p50", "seq. %", "cached %", "p50", "p99"
    );
    for (group, counted) in analysis.groups() {
        text += &cut(&group_line(group, counted), WIDTH);
        text.push('\n');
    }
    text
}

fn group_line(group: Group, counted: &Counted) -> String {
    let time = |quantile| latency_text(counted.latency.quantile_ns(quantile) as f64);
    let moves_bytes = group != Group::Syncs;
    let bytes = |bytes| if moves_bytes { bytes_text(bytes) } else { "-".to_owned() };
    let has_order = matches!(group, Group::Reads | Group::Writes);
    format!(
        "  {:<9} {:>10} {:>10} {:>10} {:>6} {:>8} {:>9} {:>9}",
        group.name(),
        grouped(counted.operations as f64),
        bytes(counted.bytes),
        bytes(counted.median_bytes()),
        percent(counted.sequential_share().filter(|_| has_order)),
        percent(counted.cached_share().filter(|_| group == Group::Reads)),
        time(0.5),
        time(0.99)
    )
}

/// What is no column: sources, in flight, gaps, computing, failures.
pub(crate) fn facts(analysis: &Analysis) -> Vec<String> {
    let mut facts = Vec::new();
    let reads = analysis.group(Group::Reads);
    let times = |ns: u64| latency_text(ns as f64);
    if reads.cache_ns + reads.device_ns > 0 {
        let unknown = reads.waited_ns - reads.cache_ns - reads.device_ns;
        facts.push(format!(
            "time in reads: {} for the device, {} for the page cache, {} unknown",
            times(reads.device_ns),
            times(reads.cache_ns),
            times(unknown)
        ));
    }
    let own = &analysis.in_flight;
    facts.push(format!(
        "in flight: {} at the median when an operation began, {} at most",
        own.median_at_begin, own.most
    ));
    if let (Some(gap_ns), Some(bytes)) =
        (analysis.sync_gaps.median_ns, analysis.sync_gaps.median_bytes)
    {
        facts.push(format!(
            "between two syncs of a thread: {} and {} written at the median",
            times(gap_ns),
            bytes_text(bytes)
        ));
    }
    if let Some(computed_ns) = analysis.computed_ns {
        facts.push(format!("between operations, threads computed for {}", times(computed_ns)));
    }
    let failed: u64 = analysis.groups().map(|(_, counted)| counted.failed).sum();
    if failed > 0 {
        facts.push(format!("{} failed", counted(failed, "operation")));
    }
    facts
}

#[cfg(test)]
mod tests {
    use ringwise_trace::Kind;

    use super::*;
    use crate::program::traced::tests::{operation, traced};

    #[test]
    fn lines_are_short_and_few_and_what_is_missing_comes_first() {
        let mut operations = Vec::new();
        for kind in Kind::ALL {
            operations.extend((1..=2).map(|thread| operation(thread, kind, (0, 500_000))));
        }
        let mut trace = traced(operations);
        trace.cut = Some("the trace is cut after byte 10".to_owned());
        trace.header.command = vec!["a".repeat(60); 9];
        let analysis = Analysis::of(&trace);
        let prediction = Prediction::of(&analysis);
        let text = text(&trace, &analysis, &prediction, &[]);
        assert!(text.starts_with("missing: the trace is cut after byte 10\n"), "{text}");
        assert!(text.lines().count() <= 32, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn figures_stand_where_they_belong() {
        let trace = traced(vec![
            operation(1, Kind::Read, (0, 250)),
            operation(1, Kind::DataSync, (500, 500)),
        ]);
        let analysis = Analysis::of(&trace);
        let text = text(&trace, &analysis, &Prediction::of(&analysis), &[]);
        let words = |start: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.trim_start().starts_with(start)).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(words("t1 101"), ["t1", "101", "1.00", "µs", "75", "25", "50"]);
        assert_eq!(words("reads")[..4], ["reads", "1", "4.0", "KiB"]);
        assert_eq!(words("syncs")[..6], ["syncs", "1", "-", "-", "-", "-"]);
    }
}
