//! Results as they were saved, read again: by this version of the program or by an earlier one.
//!
//! Every report but the terminal's is drawn from here, so that what can be drawn after a run can be
//! drawn a year later. A field that is missing is unknown, and one that is not known here is kept:
//! a workload that came later is shown with what it has. What is no results file at all, or of a
//! schema that came after this program, is refused in one line.

use std::{fs, path::Path};

use ringwise_measure::{Latency, Percentiles, statistics::Ratio};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{LeftOut, json::SCHEMA};
use crate::{
    error::LabError,
    results::{
        gain::{Answer, Gain},
        verdict::{BreakEven, Finding, SwitchCost},
    },
    sampling::heat::Heat,
};

/// A run of the lab.
#[derive(Clone, Debug, Deserialize)]
pub struct Saved {
    /// What to call it beside others: the file's name.
    #[serde(skip)]
    pub name: String,
    /// The program's version.
    pub version: String,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// How long it took.
    pub lasted_s: f64,
    /// Whether it was interrupted.
    pub partial: bool,
    /// What ended it then.
    pub ended_by: Option<String>,
    /// The seed of everything that was random.
    pub seed: u64,
    /// Interleaved blocks.
    pub repeats: u64,
    /// What was typed, as a `--config` file says it.
    #[serde(default)]
    pub flags: Value,
    /// What the figures rest on.
    #[serde(default)]
    pub method: Map<String, Value>,
    /// The machine.
    pub environment: Map<String, Value>,
    /// What was under the test files.
    pub storage: Map<String, Value>,
    /// What was measured in one interleaved run each.
    pub sections: Vec<SavedSection>,
    /// The rows of all sections.
    pub results: Vec<SavedRow>,
    /// What a reader is told of each workload.
    #[serde(default)]
    pub answers: Vec<Answer>,
    /// The workloads of the suite that could not run there.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// What each way to work today would gain.
    #[serde(default)]
    pub gains: Vec<SavedGain>,
    /// What they say.
    pub verdicts: Vec<SavedVerdict>,
    /// The rows beside each other.
    #[serde(default)]
    pub comparisons: Vec<SavedPairing>,
}

/// Rows that were measured in one interleaved run.
#[derive(Clone, Debug, Deserialize)]
pub struct SavedSection {
    /// Which workload.
    pub workload: String,
    /// What it is called.
    pub title: String,
    /// What a row's depth is here: depth, batch, connections.
    #[serde(default = "depth")]
    pub depth_is: String,
    /// What is to be known of all rows.
    pub notes: Vec<String>,
    /// From where on the ring wins.
    pub break_even: Option<BreakEven>,
    /// What a programmer can do.
    #[serde(default)]
    pub advice: Vec<String>,
    /// What each switch of the ring costs.
    #[serde(default)]
    pub switches: Vec<SwitchCost>,
}

fn depth() -> String {
    "depth".to_owned()
}

/// What of a workload something is about.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct SavedPlace {
    /// Its section, by its place in the list.
    pub section: Option<usize>,
    /// Which workload.
    pub workload: String,
    /// Through the page cache or past it.
    pub profile: Option<String>,
    /// In which order.
    pub pattern: Option<String>,
    /// What the page cache held.
    pub cache: Option<String>,
    /// Bytes per operation.
    #[serde(default)]
    pub block_bytes: u64,
}

/// One engine at one depth.
#[derive(Clone, Debug, Deserialize)]
pub struct SavedRow {
    /// Where it belongs.
    #[serde(flatten)]
    pub place: SavedPlace,
    /// Its name.
    pub engine: String,
    /// What it is for.
    pub role: String,
    /// Operations in flight, the batch or the connections.
    pub depth: u64,
    /// The median of the samples.
    pub ops_per_s: Option<f64>,
    /// The median of the samples.
    pub mib_per_s: Option<f64>,
    /// All threads of the process; of echo the server's.
    pub cpu_ns_per_op: Option<f64>,
    /// The rest of the machine above its idle baseline.
    pub system_other_cpu_ns_per_op: Option<f64>,
    /// Of all samples together.
    pub latency_ns: Option<Percentiles>,
    /// System calls.
    pub syscalls_per_op: Option<f64>,
    /// Operations that a kernel worker did.
    pub worker_punts_per_op: Option<f64>,
    /// The share of the bytes that came from the device.
    pub device_share: Option<f64>,
    /// Requests in the device's queue.
    pub device_queue_depth: Option<f64>,
    /// Beside one blocking call at a time.
    pub ratio_to_sync: Option<Ratio>,
    /// What is to be known of it.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// What the engine said of itself.
    pub detail: Option<String>,
    /// Why it does not count.
    pub void: Option<String>,
    /// All latencies; read by [`latency`](Self::latency).
    pub histogram: Option<String>,
    /// Operations by equal parts of the measured time.
    pub slices: Option<Vec<u64>>,
    /// For each sample, where that was asked for: slice, bucket and count of latencies over time.
    #[serde(default)]
    pub heat: Vec<Vec<(usize, usize, u32)>>,
    /// Each sample.
    #[serde(default)]
    pub samples: Vec<SavedSample>,
    /// What later versions and other workloads have beside these.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// One sample of a row.
#[derive(Clone, Debug, Deserialize)]
pub struct SavedSample {
    /// Its interleaved block.
    pub block: u64,
    /// Operations in the measured time.
    pub operations: Option<u64>,
    /// How long that was.
    pub elapsed_ns: Option<u64>,
    /// Operations per second.
    pub ops_per_s: Option<f64>,
    /// Mebibytes per second.
    pub mib_per_s: Option<f64>,
    /// CPU time of the process.
    pub cpu_ns_per_op: Option<f64>,
    /// Of that in user mode.
    pub user_ns_per_op: Option<f64>,
    /// Of that in the kernel.
    pub system_ns_per_op: Option<f64>,
}

/// What may be said at a depth.
#[derive(Clone, Debug, Deserialize)]
pub struct SavedVerdict {
    /// Where it belongs.
    #[serde(flatten)]
    pub place: SavedPlace,
    /// The depth.
    pub depth: u64,
    /// One of four.
    pub verdict: String,
    /// The engine to use, where one is better.
    pub winner: Option<String>,
    /// What the ring was compared with.
    pub rival: Option<String>,
    /// Throughputs.
    pub ratio: Option<Ratio>,
    /// CPU time per operation.
    pub cpu_ratio: Option<Ratio>,
    /// Why, in numbers; clauses are separated by semicolons.
    pub reason: String,
    /// What later versions have beside these.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// What a program would have from a change.
#[derive(Clone, Debug, Deserialize)]
pub struct SavedGain {
    /// Where it belongs.
    #[serde(flatten)]
    pub place: SavedPlace,
    /// The change.
    #[serde(flatten)]
    pub gain: Gain,
}

/// Two rows beside each other.
#[derive(Clone, Debug, Deserialize)]
pub struct SavedPairing {
    /// Where it belongs.
    #[serde(flatten)]
    pub place: SavedPlace,
    /// The depth of both.
    pub depth: u64,
    /// The library's row.
    pub candidate: String,
    /// The other.
    pub baseline: String,
    /// What the other is for.
    pub baseline_kind: String,
    /// Throughputs.
    pub ratio: Ratio,
    /// CPU time per operation.
    pub cpu_ratio: Option<Ratio>,
}

impl SavedSection {
    /// What its rows say together: from where on the ring wins, what its switches cost, and advice.
    pub fn conclusions(&self) -> Vec<String> {
        let switches = self
            .switches
            .iter()
            .map(|cost| format!("{} {}: {}", self.depth_is, cost.depth, cost.text()));
        let advice = self.advice.iter().map(|advice| format!("advice: {advice}"));
        self.break_even.iter().map(BreakEven::text).chain(advice).chain(switches).collect()
    }
}

impl SavedPlace {
    /// Whether something is of a section: by its number, or before there were numbers by what it
    /// is about.
    fn is_of(&self, index: usize, sections: &[SavedSection]) -> bool {
        match self.section {
            Some(own) => own == index,
            None => self.place_in(sections) == Some(index),
        }
    }

    /// Titles tell profile, pattern and block in words; they were the only link once.
    fn place_in(&self, sections: &[SavedSection]) -> Option<usize> {
        let block = ringwise_measure::quantity::size_text(self.block_bytes);
        let pattern = match self.pattern.as_deref() {
            Some("seq") => Some("sequential"),
            other => other,
        };
        let words = [self.profile.as_deref(), pattern, (self.block_bytes > 0).then_some(&*block)];
        sections.iter().position(|section| {
            let has = |word: &str| section.title.split([' ', ',']).any(|own| own == word);
            section.workload == self.workload && words.into_iter().flatten().all(has)
        })
    }
}

impl SavedRow {
    /// What tables call it.
    pub fn label(&self) -> String {
        match self.is_control() {
            true => format!("{} (again)", self.engine),
            false => self.engine.clone(),
        }
    }

    /// Whether it is there to show the noise.
    pub fn is_control(&self) -> bool {
        self.role == "control"
    }

    /// Whether it has a result that counts.
    pub fn is_valid(&self) -> bool {
        self.void.is_none() && self.ops_per_s.is_some()
    }

    /// All of its latencies, where they were saved.
    pub fn latency(&self) -> Option<Latency> {
        self.histogram.as_deref().and_then(Latency::from_base64)
    }

    /// Which latencies came when, a record for each sample. None where a cell is not to be had.
    pub fn heats(&self) -> Option<Vec<Heat>> {
        let one = |cells: &Vec<(usize, usize, u32)>| {
            let mut heat = Heat::new();
            let is_whole =
                cells.iter().all(|&(slice, bucket, count)| heat.add(slice, bucket, count));
            is_whole.then_some(heat)
        };
        self.heat.iter().map(one).collect()
    }

    /// A figure by block: the mean of the block's samples, the blocks in order.
    pub fn by_block(&self, figure: impl Fn(&SavedSample) -> Option<f64>) -> Vec<f64> {
        let blocks = self.samples.iter().map(|sample| sample.block + 1).max().unwrap_or(0);
        let of = |block: u64| {
            let samples = self.samples.iter().filter(|sample| sample.block == block);
            let figures: Vec<f64> = samples.filter_map(&figure).collect();
            (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
        };
        (0..blocks.min(self.samples.len() as u64)).filter_map(of).collect()
    }

    /// The geometric mean of a figure over the blocks, with its interval.
    pub fn interval(&self, figure: impl Fn(&SavedSample) -> Option<f64>) -> Option<Ratio> {
        let logs: Vec<f64> = self.by_block(figure).into_iter().map(f64::ln).collect();
        Ratio::bootstrap(&logs, 1)
    }
}

impl Saved {
    /// Reads a results file.
    ///
    /// # Errors
    ///
    /// It cannot be read, is cut off, is no results file, or is of a later schema.
    pub fn read(path: &Path) -> Result<Saved, LabError> {
        let text =
            fs::read_to_string(path).map_err(|error| LabError::on("reading", path, &error))?;
        Saved::of(path, &text)
    }

    /// Reads the text of the results file `path`.
    ///
    /// # Errors
    ///
    /// It is no results file.
    pub fn of(path: &Path, text: &str) -> Result<Saved, LabError> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let saved = Saved::parse(text)
            .map_err(|reason| LabError::Failed(format!("{}: {reason}", path.display())))?;
        Ok(Saved { name, ..saved })
    }

    /// Reads a results file's text. The error is the reason, without the file.
    pub fn parse(text: &str) -> Result<Saved, String> {
        if text.trim().is_empty() {
            return Err("is empty: no results of `ringwise lab`".to_owned());
        }
        let value: Value = serde_json::from_str(text).map_err(|error| match error.is_eof() {
            true => format!("ends in the middle, at line {}: it was cut off", error.line()),
            false => format!("is not JSON: {error}"),
        })?;
        schema(&value)?;
        let mut saved: Saved = serde_json::from_value(value)
            .map_err(|error| format!("is damaged or was changed by hand: {error}"))?;
        saved.results.iter_mut().for_each(|row| flatten(&mut row.others));
        for one in &mut saved.verdicts {
            let now = EARLIER_WORDS.iter().find(|(earlier, _)| one.verdict == *earlier);
            now.into_iter().for_each(|(_, now)| one.verdict = now.to_string());
        }
        let last = saved.sections.len();
        let places = saved.results.iter().map(|row| &row.place);
        let places = places.chain(saved.verdicts.iter().map(|verdict| &verdict.place));
        let places = places.chain(saved.gains.iter().map(|gain| &gain.place));
        for place in places {
            if let Some(index) = place.section.filter(|&index| index >= last) {
                return Err(format!("is damaged: section {index} of {last}"));
            }
        }
        Ok(saved)
    }

    /// What of the machine cannot be measured, in a line each.
    pub fn not_measurable(&self) -> Vec<String> {
        let measurable = self.environment.get("measurable").and_then(Value::as_object);
        let line = |(name, fact): (&String, &Value)| {
            let reason = fact.get("unknown")?.as_str()?;
            Some(format!("{}: not measurable here: {reason}", name.replace('_', " ")))
        };
        measurable.into_iter().flatten().filter_map(line).collect()
    }

    /// What ended a partial run.
    pub fn ended_by(&self) -> &str {
        self.ended_by.as_deref().unwrap_or("interrupted")
    }

    /// A machine in a line: processor, kernel, file system and device.
    pub fn machine(&self) -> String {
        let text =
            |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("unknown").to_owned();
        let model = text(self.environment.get("cpu_model"));
        let kernel = text(self.environment.get("kernel"));
        let cores = self.environment.get("cores_allowed").and_then(Value::as_u64);
        let cores = cores.map_or_else(String::new, |cores| format!("{cores} x "));
        let filesystem = self.storage.get("filesystem").and_then(|found| found.get("name"));
        let device = self.storage.get("device").and_then(|found| found.get("name"));
        let place = match (filesystem, device) {
            (None, None) => String::new(),
            (filesystem, device) => format!(", {} on {}", text(filesystem), text(device)),
        };
        format!("{cores}{model}, Linux {kernel}{place}")
    }

    /// The rows of a section.
    pub fn rows(&self, section: usize) -> impl Iterator<Item = &SavedRow> {
        self.results.iter().filter(move |row| row.place.is_of(section, &self.sections))
    }

    /// The verdicts of a section.
    pub fn verdicts(&self, section: usize) -> impl Iterator<Item = &SavedVerdict> {
        self.verdicts.iter().filter(move |one| one.place.is_of(section, &self.sections))
    }

    /// The gains of a section.
    pub fn gains(&self, section: usize) -> impl Iterator<Item = &Gain> {
        let own = self.gains.iter().filter(move |one| one.place.is_of(section, &self.sections));
        own.map(|one| &one.gain)
    }

    /// The pairings of a section.
    pub fn pairings(&self, section: usize) -> impl Iterator<Item = &SavedPairing> {
        self.comparisons.iter().filter(move |one| one.place.is_of(section, &self.sections))
    }
}

/// What tells a run from the others: its file's name, with its number where two have the same.
pub fn run_name(runs: &[Saved], index: usize) -> String {
    let name = &runs[index].name;
    let is_only = runs.iter().filter(|run| run.name == *name).count() == 1;
    if is_only { name.clone() } else { format!("{name} ({})", index + 1) }
}

/// What earlier versions of the program called verdicts, and what they are called now.
const EARLIER_WORDS: [(&str, Finding); 2] =
    [("cannot be told here", Finding::Inconclusive), ("pure overhead", Finding::DoNotUse)];

/// A workload's own figures may be in an object of their own: its fields are figures of the row.
fn flatten(fields: &mut Map<String, Value>) {
    let groups: Vec<String> = fields
        .iter()
        .filter(|(_, value)| value.is_object())
        .map(|(name, _)| name.clone())
        .collect();
    for name in groups {
        let Some(Value::Object(group)) = fields.remove(&name) else { continue };
        for (field, value) in group {
            fields.entry(field).or_insert(value);
        }
    }
}

/// Whether a document is one that this program can read.
fn schema(value: &Value) -> Result<(), String> {
    let (kind, version) = SCHEMA.split_once('/').unwrap_or((SCHEMA, ""));
    let Some(found) = value.get("schema").and_then(Value::as_str) else {
        return Err("has no schema: no results of `ringwise lab`".to_owned());
    };
    let later = found.strip_prefix(kind).and_then(|rest| rest.strip_prefix('/'));
    let number = |text: &str| text.parse::<u64>().ok();
    match later.and_then(number).zip(number(version)) {
        Some((found, known)) if found == known => Ok(()),
        Some((found, known)) if found > known => Err(format!(
            "is of schema {kind}/{found}, and this program reads {SCHEMA}: use a newer ringwise"
        )),
        _ => Err(format!("is of schema {found:?}: expected {SCHEMA}, from `ringwise lab`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        results::gain::{Column, Told},
        testing::saved_text,
    };

    #[test]
    fn what_is_saved_is_read() {
        let saved = Saved::parse(&saved_text()).unwrap();
        assert_eq!((saved.sections.len(), saved.rows(0).count()), (1, 6));
        let row = saved.rows(0).find(|row| row.engine == "uring").unwrap();
        assert_eq!((row.role.as_str(), row.depth, row.samples.len()), ("subject", 32, 6));
        let latency = row.latency().unwrap();
        assert_eq!(latency.percentiles(), row.latency_ns.unwrap());
        let interval = row.interval(|sample| sample.ops_per_s).unwrap();
        assert!((interval.mid / 100_000.0 - 1.0).abs() < 0.01, "{interval:?}");
        assert_eq!(saved.verdicts(0).count(), 1);
        assert!(saved.pairings(0).count() > 1);
        assert_eq!(saved.flags["seed"], "7");
        assert_eq!((saved.answers.len(), saved.answers[0].finding), (1, Told::Gain));
        let columns: Vec<Column> = saved.gains(0).map(|gain| gain.column).collect();
        assert_eq!(columns.len(), 5, "{columns:?}");
        let missing = saved.not_measurable();
        let starts = |name: &str| missing.iter().any(|line| line.starts_with(name));
        for name in ["energy", "nvme passthrough", "iopoll"] {
            assert!(starts(&format!("{name}: not measurable here: ")), "{missing:?}");
        }
    }

    #[test]
    fn results_from_before_sections_had_numbers_are_read() {
        let mut value: Value = serde_json::from_str(&saved_text()).unwrap();
        for list in ["results", "verdicts", "comparisons"] {
            for item in value[list].as_array_mut().unwrap() {
                let item = item.as_object_mut().unwrap();
                item.remove("section");
                item.remove("histogram");
                item.insert("profile".to_owned(), "direct".into());
                item.insert("pattern".to_owned(), "random".into());
                item.insert("block_bytes".to_owned(), 4096.into());
            }
        }
        let title = "read direct random, 32k blocks, O_DIRECT";
        let other = serde_json::json!({"workload": "read", "title": title, "notes": []});
        value["sections"].as_array_mut().unwrap().insert(0, other);
        let saved = Saved::parse(&value.to_string()).unwrap();
        assert_eq!((saved.rows(0).count(), saved.rows(1).count()), (0, 6));
    }

    /// Files of before have another word for it, a verdict on the machine, and neither gains nor answers.
    #[test]
    fn results_from_before_there_were_gains_are_read() {
        let mut value: Value = serde_json::from_str(&saved_text()).unwrap();
        value["verdicts"][0]["verdict"] = "cannot be told here".into();
        let old = value.as_object_mut().unwrap();
        for field in ["gains", "answers", "left_out"] {
            assert!(old.remove(field).is_some(), "{field}");
        }
        let machine = serde_json::json!([{"of": "machine", "verdict": "use it", "reason": "x"}]);
        old.insert("overall".to_owned(), machine);
        let saved = Saved::parse(&value.to_string()).unwrap();
        assert_eq!(saved.verdicts[0].verdict, Finding::Inconclusive.to_string());
        value["verdicts"][0]["verdict"] = "pure overhead".into();
        let saved_earlier = Saved::parse(&value.to_string()).unwrap();
        assert_eq!(saved_earlier.verdicts[0].verdict, Finding::DoNotUse.to_string());
        assert!(saved.gains.is_empty() && saved.answers.is_empty() && saved.left_out.is_empty());
    }

    #[test]
    fn a_field_that_came_later_is_kept_and_one_that_is_missing_is_unknown() {
        let mut value: Value = serde_json::from_str(&saved_text()).unwrap();
        value["results"][0]["joules_per_op"] = 0.5.into();
        value["results"][0]["copy"] = serde_json::json!({"user_ns": 7, "deep": {"x": 1}});
        value["results"][0].as_object_mut().unwrap().remove("samples");
        value["results"][0].as_object_mut().unwrap().remove("latency_ns");
        value["results"][0]["cpu_ns_per_op"] = Value::Null;
        let saved = Saved::parse(&value.to_string()).unwrap();
        let row = &saved.results[0];
        assert_eq!(
            (&row.others["joules_per_op"], &row.others["user_ns"]),
            (&0.5.into(), &7.into())
        );
        assert!(row.samples.is_empty() && row.latency_ns.is_none() && row.cpu_ns_per_op.is_none());
        assert!(row.interval(|sample| sample.ops_per_s).is_none());
    }

    #[test]
    fn what_cannot_be_read_is_said_in_a_line() {
        let good = saved_text();
        let later = good.replacen("ringwise.lab/1", "ringwise.lab/2", 1);
        let echo = good.replacen("ringwise.lab/1", "ringwise.load.echo/1", 1);
        let section = good.replacen("\"section\": 0", "\"section\": 9", 1);
        let wrong = good.replacen("\"repeats\": ", "\"repeats\": \"x\", \"was\": ", 1);
        for (text, part) in [
            ("", "is empty"),
            (&good[..good.len() / 2], "ends in the middle, at line "),
            ("{]", "is not JSON"),
            ("{}", "has no schema"),
            ("[1]", "has no schema"),
            ("{\"schema\": 1}", "has no schema"),
            (&later, "schema ringwise.lab/2, and this program reads ringwise.lab/1"),
            (&echo, "expected ringwise.lab/1"),
            ("{\"schema\": \"ringwise.lab/1\"}", "damaged"),
            (&section, "section 9 of 1"),
            (&wrong, "damaged"),
        ] {
            let reason = Saved::parse(text).unwrap_err();
            assert!(reason.contains(part) && !reason.contains('\n'), "{reason}");
        }
    }
}
