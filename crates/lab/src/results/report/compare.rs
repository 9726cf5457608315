//! Two runs of the lab, one later than the other: what is faster, what slower, and by how much.
//!
//! Only rows that measured the same are compared: same workload, same words, same engine, same
//! depth. The runs were not interleaved with each other, so that an interval is over the blocks of
//! each by itself, and what separates the runs may be the machine: where its facts differ, that is
//! said. A regression is a row that is slower, or takes more CPU time per operation, by more than
//! the threshold, and whose whole interval is on that side; or one that is excluded and was not.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use ringwise_measure::statistics::Ratio;
use serde_json::Value;

use super::{
    figures::words,
    saved::{Saved, SavedRow, SavedSample, SavedSection},
};
use crate::results::verdict::interval_text;

/// A row of both runs.
struct Change<'a> {
    section: &'a SavedSection,
    row: &'a SavedRow,
    throughput: Option<Movement>,
    cpu: Option<Movement>,
}

/// How a figure moved: new divided by old.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Movement {
    /// Of the figures that the tables show, which are medians.
    ratio: f64,
    /// Where there are enough blocks.
    interval: Option<Ratio>,
}

/// What a comparison came to.
#[derive(Debug)]
pub struct Comparison {
    /// The table and what is to be known, for people.
    pub text: String,
    /// The rows that are worse than the threshold allows, in words.
    pub regressions: Vec<String>,
}

/// Compares two runs. `threshold` is a share, such as 0.05.
///
/// # Errors
///
/// They have no row in common: the reason.
pub fn compare(old: &Saved, new: &Saved, threshold: f64) -> Result<Comparison, String> {
    let mut text = String::new();
    environment(&mut text, old, new);
    let Found { changes, left_out, mut regressions } = Found::of(old, new);
    if changes.is_empty() && regressions.is_empty() {
        let titles = |run: &Saved| {
            let titles: Vec<&str> = run.sections.iter().map(|own| own.title.as_str()).collect();
            if titles.is_empty() { "nothing".to_owned() } else { titles.join("; ") }
        };
        let reason = left_out.first().map_or_else(String::new, |first| format!(": {first}"));
        return Err(format!(
            "nothing to compare{reason} (old: {}; new: {})",
            titles(old),
            titles(new)
        ));
    }
    for section in changes.chunk_by(|one, next| std::ptr::eq(one.section, next.section)) {
        let _ = writeln!(text, "{}", section[0].section.title);
        table(&mut text, section, threshold);
        let worse = section.iter().filter(|change| counts(change.row));
        regressions.extend(worse.filter_map(|change| change.regression(threshold)));
    }
    if !left_out.is_empty() {
        text.push_str("not compared\n");
        left_out.iter().for_each(|reason| {
            let _ = writeln!(text, "  {reason}");
        });
    }
    Ok(Comparison { text, regressions })
}

/// What is there to show the noise, and programs of others, are shown and not judged.
fn counts(row: &SavedRow) -> bool {
    !matches!(&*row.role, "control" | "program")
}

impl Movement {
    /// Of a row's published figure, with the width of an interval from its samples.
    fn of(
        old: (&SavedRow, Option<f64>),
        new: (&SavedRow, Option<f64>),
        figure: fn(&SavedSample) -> Option<f64>,
    ) -> Option<Movement> {
        let ratio = new.1? / old.1?;
        if !ratio.is_finite() || ratio <= 0.0 {
            return None;
        }
        let logs =
            |row: &SavedRow| row.by_block(figure).into_iter().map(f64::ln).collect::<Vec<_>>();
        let interval = Ratio::between(&logs(new.0), &logs(old.0), 1);
        let around = |interval: Ratio| {
            let shift = ratio / interval.mid;
            Ratio { low: interval.low * shift, mid: ratio, high: interval.high * shift }
        };
        Some(Movement { ratio, interval: interval.map(around) })
    }

    /// Whether it fell by more than a share, with its whole interval.
    fn is_below(&self, threshold: f64) -> bool {
        self.ratio < 1.0 - threshold && self.interval.is_none_or(|interval| interval.high < 1.0)
    }

    /// Whether it rose by more than a share, with its whole interval.
    fn is_above(&self, threshold: f64) -> bool {
        self.ratio > 1.0 + threshold && self.interval.is_none_or(|interval| interval.low > 1.0)
    }

    fn text(&self) -> String {
        let alone = || format!("{:.2} (no interval)", self.ratio);
        self.interval.as_ref().map_or_else(alone, interval_text)
    }
}

impl Change<'_> {
    fn name(&self) -> String {
        format!("{} at {} {}", self.row.label(), self.section.depth_is, self.row.depth)
    }

    /// What moved, in words.
    fn findings(&self, threshold: f64) -> Vec<&'static str> {
        let mut found = Vec::new();
        let told = |movement: Option<Movement>, test: fn(&Movement, f64) -> bool| {
            movement.is_some_and(|movement| test(&movement, threshold))
        };
        for (is, words) in [
            (told(self.throughput, Movement::is_below), "slower"),
            (told(self.throughput, Movement::is_above), "faster"),
            (told(self.cpu, Movement::is_above), "more CPU"),
            (told(self.cpu, Movement::is_below), "less CPU"),
        ] {
            found.extend(is.then_some(words));
        }
        found
    }

    fn regression(&self, threshold: f64) -> Option<String> {
        let found = self.findings(threshold);
        let worse: Vec<&str> =
            found.into_iter().filter(|words| matches!(*words, "slower" | "more CPU")).collect();
        (!worse.is_empty()).then(|| format!("{}: {}", self.name(), worse.join(", ")))
    }
}

/// The rows that both runs have. A row that only one has, or that is excluded, is named; a row that
/// was measured and is excluded now is a regression.
#[derive(Default)]
struct Found<'a> {
    changes: Vec<Change<'a>>,
    left_out: Vec<String>,
    regressions: Vec<String>,
}

impl<'a> Found<'a> {
    fn of(old: &'a Saved, new: &'a Saved) -> Found<'a> {
        let mut found = Found::default();
        for (index, section) in new.sections.iter().enumerate() {
            let is_it =
                |own: &SavedSection| own.title == section.title && own.workload == section.workload;
            let Some(old_index) = old.sections.iter().position(is_it) else {
                found.left_out.push(format!("{}: only in the new results", section.title));
                continue;
            };
            if let (Some(before), Some(now)) = (files(&old.sections[old_index]), files(section))
                && before != now
            {
                let title = &section.title;
                found.left_out.push(format!("{title}: other test files: {before} | {now}"));
                continue;
            }
            for row in new.rows(index) {
                let before = old.rows(old_index).find(|own| key(own) == key(row));
                found.row(section, before, row);
            }
            for before in old.rows(old_index).filter(|before| before.is_valid()) {
                if !new.rows(index).any(|row| key(row) == key(before)) {
                    let name = name(section, before);
                    found.left_out.push(format!("{name}: only in the old results"));
                }
            }
        }
        for section in &old.sections {
            if !new.sections.iter().any(|own| own.title == section.title) {
                found.left_out.push(format!("{}: only in the old results", section.title));
            }
        }
        found
    }

    fn row(&mut self, section: &'a SavedSection, old: Option<&'a SavedRow>, row: &'a SavedRow) {
        let name = name(section, row);
        let Some(before) = old else {
            self.left_out.push(format!("{name}: only in the new results"));
            return;
        };
        match (before.is_valid(), row.is_valid()) {
            (true, true) => self.changes.push(change(section, before, row)),
            (false, false) => {}
            (true, false) => {
                let void = format!("excluded now: {}", reason(row));
                if counts(row) {
                    let name = change(section, before, row).name();
                    self.regressions.push(format!("{name}: {void}"));
                }
                self.left_out.push(format!("{name}: {void}"));
            }
            (false, true) => {
                self.left_out.push(format!("{name}: was excluded: {}", reason(before)))
            }
        }
    }
}

/// What tells a row from the others of its section. What an engine is for may change with a version.
fn key(row: &SavedRow) -> (&str, bool, u64) {
    (&row.engine, row.is_control(), row.depth)
}

fn name(section: &SavedSection, row: &SavedRow) -> String {
    format!("{}: {} {}", section.title, row.label(), row.depth)
}

/// What a section's test files are, where a note says so.
fn files(section: &SavedSection) -> Option<&str> {
    let is_count = |note: &&String| {
        let mut words = note.split(' ');
        words.next().is_some_and(|count| count.parse::<u64>().is_ok())
            && words.next().is_some_and(|noun| noun.starts_with("file"))
    };
    section.notes.iter().find(is_count).map(String::as_str)
}

fn reason(row: &SavedRow) -> &str {
    row.void.as_deref().unwrap_or("nothing was measured")
}

fn change<'a>(section: &'a SavedSection, old: &'a SavedRow, new: &'a SavedRow) -> Change<'a> {
    Change {
        section,
        row: new,
        throughput: Movement::of((old, old.ops_per_s), (new, new.ops_per_s), |own| own.ops_per_s),
        cpu: Movement::of((old, old.cpu_ns_per_op), (new, new.cpu_ns_per_op), |own| {
            own.cpu_ns_per_op
        }),
    }
}

fn table(text: &mut String, changes: &[Change<'_>], threshold: f64) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let noun = changes[0].section.depth_is.as_str();
    table.set_header(["engine", noun, "throughput, new / old", "CPU/op, new / old", ""]);
    for change in changes {
        let text = |movement: Option<Movement>| movement.map_or("-".to_owned(), |own| own.text());
        table.add_row([
            change.row.label(),
            change.row.depth.to_string(),
            text(change.throughput),
            text(change.cpu),
            change.findings(threshold).join(", "),
        ]);
    }
    for column in table.column_iter_mut().take(4).skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for line in table.lines() {
        let _ = writeln!(text, "  {}", line.trim_end());
    }
}

/// What differs between the machines, the programs and what was typed. It does not forbid a
/// comparison: it may be what is compared.
fn environment(text: &mut String, old: &Saved, new: &Saved) {
    let mut differences = Vec::new();
    let mut see = |name: &str, old: Option<&Value>, new: Option<&Value>| {
        if old != new {
            let shown = |value: Option<&Value>| match value {
                None | Some(Value::Null) => "-".to_owned(),
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            };
            differences.push(format!("{name}: {} -> {}", shown(old), shown(new)));
        }
    };
    for name in ["kernel", "cpu_model", "cores_allowed", "memory_total_bytes", "clock_source"] {
        see(&words(name), old.environment.get(name), new.environment.get(name));
    }
    for (name, field) in [("filesystem", "name"), ("device", "name")] {
        let of = |run: &Saved| run.storage.get(name).and_then(|own| own.get(field)).cloned();
        see(name, of(old).as_ref(), of(new).as_ref());
    }
    let version = |run: &Saved| Value::from(run.version.clone());
    see("ringwise", Some(&version(old)), Some(&version(new)));
    for name in ["size", "files", "duration", "reads", "repeats", "threads", "seed", "full"] {
        see(&format!("--{name}"), old.flags.get(name), new.flags.get(name));
    }
    for (run, which) in [(old, "old"), (new, "new")] {
        if run.partial {
            differences.push(format!("the {which} results are partial: {}", run.ended_by()));
        }
    }
    for difference in differences {
        let _ = writeln!(text, "differs: {difference}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::saved_text;

    fn saved() -> Saved {
        Saved::parse(&saved_text()).unwrap()
    }

    /// The same run with the ring's figures changed by factors, each sample a little apart.
    fn changed(throughput: f64, cpu: f64) -> Saved {
        let mut saved = saved();
        for row in saved.results.iter_mut().filter(|row| row.engine == "uring") {
            row.ops_per_s = row.ops_per_s.map(|own| own * throughput);
            row.cpu_ns_per_op = row.cpu_ns_per_op.map(|own| own * cpu);
            for (index, sample) in row.samples.iter_mut().enumerate() {
                let wobble = 1.0 + (index as f64 - 2.5) / 500.0;
                sample.ops_per_s = sample.ops_per_s.map(|own| own * throughput * wobble);
                sample.cpu_ns_per_op = sample.cpu_ns_per_op.map(|own| own * cpu / wobble);
            }
        }
        saved
    }

    #[test]
    fn the_same_is_no_difference() {
        let found = compare(&saved(), &saved(), 0.05).unwrap();
        assert!(found.regressions.is_empty(), "{found:?}");
        assert!(found.text.contains("1.00 [1.00, 1.00]"), "{}", found.text);
        assert!(!found.text.contains("differs") && !found.text.contains("slower"));
        let found = compare(&saved(), &changed(0.97, 1.03), 0.05).unwrap();
        assert!(found.regressions.is_empty(), "within the threshold: {found:?}");
    }

    #[test]
    fn slower_and_dearer_are_regressions_faster_is_none() {
        let found = compare(&saved(), &changed(0.8, 1.0), 0.05).unwrap();
        assert_eq!(found.regressions, ["uring at depth 32: slower"], "the control is not judged");
        assert!(found.text.contains("0.80 [0.7"), "{}", found.text);
        let found = compare(&saved(), &changed(1.0, 1.3), 0.05).unwrap();
        assert_eq!(found.regressions, ["uring at depth 32: more CPU"]);
        let found = compare(&saved(), &changed(1.3, 0.8), 0.05).unwrap();
        assert!(found.regressions.is_empty());
        assert!(found.text.contains("faster, less CPU"), "{}", found.text);
        let found = compare(&saved(), &changed(0.8, 1.0), 0.25).unwrap();
        assert!(found.regressions.is_empty(), "a threshold of 25 %");
    }

    #[test]
    fn what_its_interval_hides_is_no_regression() {
        let mut noisy = changed(0.9, 1.0);
        for row in &mut noisy.results {
            for (index, sample) in row.samples.iter_mut().enumerate() {
                let factor = [0.6, 0.6, 1.0, 1.0, 1.5, 1.5][index];
                sample.ops_per_s = sample.ops_per_s.map(|own| own * factor);
            }
        }
        let found = compare(&saved(), &noisy, 0.05).unwrap();
        assert!(found.regressions.is_empty(), "{}", found.text);
        let mut alone = changed(0.9, 1.0);
        alone.results.iter_mut().for_each(|row| row.samples.truncate(2));
        let found = compare(&saved(), &alone, 0.05).unwrap();
        assert_eq!(found.regressions.len(), 1, "one block has no interval");
        assert!(found.text.contains("0.90 (no interval)"), "{}", found.text);
    }

    #[test]
    fn what_cannot_be_compared_is_said() {
        let mut other = saved();
        other.sections[0].title = "nop".to_owned();
        let reason = compare(&saved(), &other, 0.05).unwrap_err();
        assert!(reason.contains("nothing to compare") && reason.contains("nop"), "{reason}");
        let mut files = saved();
        files.sections[0].notes[0] = "2 files of 9 GiB, every block read is verified".to_owned();
        let reason = compare(&saved(), &files, 0.05).unwrap_err();
        assert!(reason.contains("other test files"), "{reason}");
        let mut fewer = saved();
        fewer.results.remove(0);
        fewer.results[1].void = Some("wrong".to_owned());
        let found = compare(&saved(), &fewer, 0.05).unwrap();
        for part in ["sync 1: only in the old results", "threads 32: excluded now: wrong"] {
            assert!(found.text.contains(part), "{part:?} is not in:\n{}", found.text);
        }
        assert_eq!(found.regressions, ["threads at depth 32: excluded now: wrong"]);
        for row in &mut fewer.results {
            row.void = Some("wrong".to_owned());
        }
        let found = compare(&saved(), &fewer, 0.05).unwrap();
        assert!(found.regressions.len() > 1, "with nothing left to compare: {found:?}");
    }

    /// An engine that was a rival once is a part of the library now.
    #[test]
    fn a_row_in_another_role_is_the_same_row() {
        let mut old = saved();
        old.results[2].role = "variant".to_owned();
        let found = compare(&old, &saved(), 0.05).unwrap();
        assert!(!found.text.contains("only in"), "{}", found.text);
    }

    #[test]
    fn another_machine_is_said_and_not_refused() {
        let mut other = saved();
        other.environment.insert("kernel".to_owned(), "7.0".into());
        other.partial = true;
        let found = compare(&saved(), &other, 0.05).unwrap();
        assert!(found.text.contains("differs: kernel: "), "{}", found.text);
        assert!(found.text.contains("-> 7.0"), "{}", found.text);
        assert!(found.text.contains("the new results are partial"), "{}", found.text);
    }
}
