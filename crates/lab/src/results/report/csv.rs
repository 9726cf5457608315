//! Saved results as comma-separated values (RFC 4180): a line for each row of each run, also
//! excluded ones, with every figure as a plain number. Times are in nanoseconds.

use serde_json::Value;

use super::{
    figures,
    saved::{Saved, SavedRow, run_name},
};

type Field = fn(&SavedRow) -> Value;

const FIELDS: [(&str, Field); 29] = [
    ("workload", |row| row.place.workload.clone().into()),
    ("profile", |row| row.place.profile.clone().into()),
    ("pattern", |row| row.place.pattern.clone().into()),
    ("cache", |row| row.place.cache.clone().into()),
    ("block_bytes", |row| row.place.block_bytes.into()),
    ("engine", |row| row.engine.clone().into()),
    ("role", |row| row.role.clone().into()),
    ("depth", |row| row.depth.into()),
    ("samples", |row| row.samples.len().into()),
    ("ops_per_s", |row| row.ops_per_s.into()),
    ("ops_per_s_low", |row| row.interval(|sample| sample.ops_per_s).map(|own| own.low).into()),
    ("ops_per_s_high", |row| row.interval(|sample| sample.ops_per_s).map(|own| own.high).into()),
    ("mib_per_s", |row| row.mib_per_s.into()),
    ("cpu_ns_per_op", |row| row.cpu_ns_per_op.into()),
    ("system_other_cpu_ns_per_op", |row| row.system_other_cpu_ns_per_op.into()),
    ("latency_ns_min", |row| row.latency_ns.map(|latency| latency.min).into()),
    ("latency_ns_mean", |row| row.latency_ns.map(|latency| latency.mean).into()),
    ("latency_ns_p50", |row| row.latency_ns.map(|latency| latency.p50).into()),
    ("latency_ns_p90", |row| row.latency_ns.map(|latency| latency.p90).into()),
    ("latency_ns_p99", |row| row.latency_ns.map(|latency| latency.p99).into()),
    ("latency_ns_p99_9", |row| row.latency_ns.map(|latency| latency.p99_9).into()),
    ("latency_ns_p99_99", |row| row.latency_ns.map(|latency| latency.p99_99).into()),
    ("latency_ns_max", |row| row.latency_ns.map(|latency| latency.max).into()),
    ("syscalls_per_op", |row| row.syscalls_per_op.into()),
    ("worker_punts_per_op", |row| row.worker_punts_per_op.into()),
    ("device_share", |row| row.device_share.into()),
    ("device_queue_depth", |row| row.device_queue_depth.into()),
    ("remarks", |row| row.remarks.join(", ").into()),
    ("excluded", |row| row.void.clone().into()),
];

/// The text, with a line of names first.
pub fn text(runs: &[Saved]) -> String {
    let rows: Vec<&SavedRow> = runs.iter().flat_map(|run| &run.results).collect();
    let others = figures::others(&rows);
    let mut names = vec!["run".to_owned(), "kernel".to_owned(), "measured".to_owned()];
    names.extend(FIELDS.iter().map(|(name, _)| (*name).to_owned()));
    names.extend(others.iter().cloned());
    let mut out = line(names.iter().map(|name| quoted(name)));
    for (number, run) in runs.iter().enumerate() {
        let kernel = run.environment.get("kernel").and_then(Value::as_str).unwrap_or_default();
        for (index, section) in run.sections.iter().enumerate() {
            for row in run.rows(index) {
                let place = [&run_name(runs, number), kernel, &section.title].map(quoted);
                let fields = FIELDS.iter().map(|(_, field)| cell(&field(row)));
                let beside =
                    others.iter().map(|name| row.others.get(name).map_or_else(String::new, cell));
                out += &line(place.into_iter().chain(fields).chain(beside));
            }
        }
    }
    out
}

fn line(cells: impl Iterator<Item = String>) -> String {
    cells.collect::<Vec<_>>().join(",") + "\r\n"
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        other => quoted(&other.to_string()),
    }
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::saved_text;

    /// The cells of a line, as RFC 4180 reads them.
    fn cells(line: &str) -> Vec<String> {
        let (mut cells, mut is_quoted) = (vec![String::new()], false);
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '"' if is_quoted && characters.peek() == Some(&'"') => {
                    characters.next();
                    cells.last_mut().unwrap().push('"');
                }
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => cells.push(String::new()),
                other => cells.last_mut().unwrap().push(other),
            }
        }
        cells
    }

    #[test]
    fn every_row_is_a_line_with_all_its_figures() {
        let mut saved = Saved::parse(&saved_text()).unwrap();
        saved.results[3].detail = None;
        saved.results[3].remarks = vec!["say \"x\", y".to_owned()];
        saved.results[3].others.insert("fsyncs_per_op".to_owned(), 1.into());
        let text = text(std::slice::from_ref(&saved));
        let lines: Vec<Vec<String>> = text.split_terminator("\r\n").map(cells).collect();
        assert_eq!(lines.len(), 7);
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
        let of = |line: usize, name: &str| {
            let at = lines[0].iter().position(|own| own == name).unwrap();
            lines[line][at].clone()
        };
        assert_eq!((of(4, "engine"), of(4, "ops_per_s")), ("uring".into(), "100000.0".into()));
        assert_eq!((of(4, "remarks"), of(4, "fsyncs_per_op")), ("say \"x\", y".into(), "1".into()));
        assert_eq!(of(3, "fsyncs_per_op"), "");
        assert!(
            of(2, "excluded").starts_with("not measurable here"),
            "excluded rows are there too"
        );
        assert_eq!(of(1, "measured"), "read direct random, 4k blocks, O_DIRECT");
    }
}
