//! The results file: `docs/reference/schema/lab-1.json` describes it. A field is never renamed within a
//! version of the schema.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use ringwise_measure::{
    Percentiles, destination,
    device::Storage,
    environment::Environment,
    measurable::Measurable,
    statistics::{MINIMUM_DIFFERENCE, Ratio},
};
use serde::Serialize;
use serde_json::value::{RawValue, Value};

use super::{LeftOut, Report, Section};
use crate::{
    checks::gates,
    engine::ProgramTimes,
    error::LabError,
    results::{
        gain::{Answer, Gain},
        row::{CpuKinds, Row, RowKind, SampleFigures},
        section::Place,
        verdict::{BreakEven, Pairing, SwitchCost, Verdict, ratio_to_sync},
    },
    sampling::{heat::Heat, job::Cache},
};

/// The version of the schema.
pub const SCHEMA: &str = "ringwise.lab/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    began_unix_s: u64,
    lasted_s: f64,
    written_bytes: Option<u64>,
    partial: bool,
    ended_by: Option<&'a str>,
    seed: u64,
    repeats: usize,
    flags: Value,
    method: Method,
    environment: Machine<'a>,
    storage: &'a Storage,
    sections: Vec<SectionFacts<'a>>,
    results: Vec<RowResult<'a>>,
    answers: Vec<Answer>,
    left_out: &'a [LeftOut],
    gains: Vec<Placed<'a, Gain>>,
    verdicts: Vec<Placed<'a, Verdict>>,
    comparisons: Vec<Placed<'a, Pairing>>,
}

/// The machine, and what of it can be measured.
#[derive(Serialize)]
struct Machine<'a> {
    #[serde(flatten)]
    environment: &'a Environment,
    measurable: &'a Measurable,
}

/// What the figures rest on, in numbers.
#[derive(Serialize)]
struct Method {
    samples_per_block: usize,
    interval_share: f64,
    difference_min_share: f64,
    littles_law_tolerance_share: f64,
    device_tolerance_share: f64,
    warm_device_share_max: f64,
    cache_tolerance_share: f64,
    harness_share_max: f64,
    drift_max_share: f64,
}

const METHOD: Method = Method {
    samples_per_block: 2,
    interval_share: 0.95,
    difference_min_share: MINIMUM_DIFFERENCE,
    littles_law_tolerance_share: gates::LITTLES_LAW_TOLERANCE,
    device_tolerance_share: gates::DEVICE_TOLERANCE,
    warm_device_share_max: gates::WARM_DEVICE_SHARE_MAX,
    cache_tolerance_share: gates::CACHE_TOLERANCE,
    harness_share_max: gates::HARNESS_SHARE_MAX,
    drift_max_share: gates::DRIFT_MAX,
};

#[derive(Serialize)]
struct SectionFacts<'a> {
    workload: &'static str,
    title: &'a str,
    depth_is: &'static str,
    notes: &'a [String],
    break_even: Option<&'a BreakEven>,
    advice: &'a [String],
    switches: &'a [SwitchCost],
}

/// Something of a section, with what tells the section.
#[derive(Serialize)]
struct Placed<'a, T: Serialize> {
    #[serde(flatten)]
    place: Of<'a>,
    #[serde(flatten)]
    item: &'a T,
}

/// What tells a section.
#[derive(Clone, Serialize)]
struct Of<'a> {
    section: usize,
    workload: &'static str,
    #[serde(flatten)]
    place: Cow<'a, Place>,
}

#[derive(Serialize)]
struct RowResult<'a> {
    #[serde(flatten)]
    place: Of<'a>,
    cache_bound_bytes: Option<u64>,
    engine: &'a str,
    role: RowKind,
    depth: usize,
    connections: Option<u64>,
    ops_per_s: Option<f64>,
    mib_per_s: Option<f64>,
    cpu_ns_per_op: Option<f64>,
    cpu: Option<CpuKinds>,
    system_other_cpu_ns_per_op: Option<f64>,
    latency_ns: Option<Percentiles>,
    syscalls_per_op: Option<f64>,
    syscalls_counted_by: Option<&'static str>,
    worker_punts_per_op: Option<f64>,
    device_share: Option<f64>,
    device_ops_per_s: Option<f64>,
    device_queue_depth: Option<f64>,
    in_flight: Option<f64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    figures: BTreeMap<&'static str, f64>,
    harness_ns_per_op: Option<f64>,
    harness_share: Option<f64>,
    ratio_to_sync: Option<Ratio>,
    outliers: usize,
    remarks: &'a [String],
    detail: Option<&'a str>,
    void: Option<&'a str>,
    copy: Option<ProgramTimes>,
    histogram: Option<String>,
    slices: Option<Box<RawValue>>,
    heat: Vec<Box<RawValue>>,
    samples: &'a [SampleFigures],
}

/// A value in one line of a text that is otherwise indented.
fn on_one_line(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("numbers in lists")
}

fn heat(heat: &Heat) -> Box<RawValue> {
    on_one_line(&heat.cells().collect::<Vec<_>>())
}

fn of(index: usize, section: &Section) -> Of<'_> {
    Of { section: index, workload: section.facts.name, place: Cow::Borrowed(&section.place) }
}

fn row_result<'a>(index: usize, section: &'a Section, row: &'a Row, seed: u64) -> RowResult<'a> {
    let measured = &row.measured;
    let is_measured = !measured.samples.is_empty();
    let cache = section.cache_of(row);
    let calls = measured.system_calls_per_op();
    RowResult {
        place: Of {
            place: Cow::Owned(Place { cache, ..section.place.clone() }),
            ..of(index, section)
        },
        cache_bound_bytes: section.bound_bytes.filter(|_| cache == Some(Cache::Bounded)),
        engine: &row.engine,
        role: row.kind,
        depth: row.depth,
        connections: (section.depth_is == "connections").then_some(row.depth as u64),
        ops_per_s: is_measured.then(|| measured.ops_per_s()),
        mib_per_s: is_measured.then(|| measured.mib_per_s()),
        cpu_ns_per_op: is_measured.then(|| measured.cpu_ns_per_op()),
        cpu: measured.cpu(),
        system_other_cpu_ns_per_op: measured.median(|sample| sample.system_other_cpu_ns_per_op),
        latency_ns: (measured.latency.count() > 0).then(|| measured.latency.percentiles()),
        syscalls_per_op: calls.map(|(calls, _)| calls),
        syscalls_counted_by: calls.map(|(_, traced)| if traced { "tracepoint" } else { "engine" }),
        worker_punts_per_op: measured.worker_punts_per_op(),
        device_share: measured.device_share(),
        device_ops_per_s: measured.device_ops_per_s(),
        device_queue_depth: measured.device_queue_depth(),
        in_flight: measured.median(|sample| Some(sample.in_flight)),
        figures: measured.figures(),
        harness_ns_per_op: measured.harness_ns,
        harness_share: measured.harness_share,
        ratio_to_sync: ratio_to_sync(row, &section.rows, seed),
        outliers: measured.outliers(),
        remarks: &measured.remarks,
        detail: measured.detail.as_deref(),
        void: measured.void.as_deref(),
        copy: measured.program(),
        histogram: (measured.latency.count() > 0).then(|| measured.latency.to_base64()),
        slices: (!measured.slices.is_empty()).then(|| on_one_line(&measured.slices)),
        heat: measured.heats.iter().map(heat).collect(),
        samples: &measured.samples,
    }
}

/// Something of all sections, each with what tells its section.
fn placed<'a, T: Serialize>(
    report: &'a Report<'_>,
    list: fn(&Section) -> &[T],
) -> Vec<Placed<'a, T>> {
    let of_section = |(index, section): (usize, &'a Section)| {
        let place = of(index, section);
        list(section).iter().map(move |item| Placed { place: place.clone(), item })
    };
    report.sections.iter().enumerate().flat_map(of_section).collect()
}

/// The results file's text.
pub fn text(report: &Report<'_>) -> String {
    let seed = report.plan.seed;
    let document = Document {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        began_unix_s: report.began_unix_s,
        lasted_s: report.lasted_s,
        written_bytes: report.written_bytes,
        partial: report.ended_by.is_some(),
        ended_by: report.ended_by.as_deref(),
        seed,
        repeats: report.plan.repeats,
        flags: report.flags.as_config(),
        method: METHOD,
        environment: Machine { environment: &report.environment, measurable: &report.measurable },
        storage: &report.storage,
        sections: report
            .sections
            .iter()
            .map(|section| SectionFacts {
                workload: section.facts.name,
                title: &section.title,
                depth_is: section.depth_is,
                notes: &section.notes,
                break_even: section.break_even.as_ref(),
                advice: &section.advice,
                switches: &section.switches,
            })
            .collect(),
        results: report
            .sections
            .iter()
            .enumerate()
            .flat_map(|(index, section)| {
                section.rows.iter().map(move |row| row_result(index, section, row, seed))
            })
            .collect(),
        answers: report.answers(),
        left_out: &report.left_out,
        gains: placed(report, |section| &section.gains),
        verdicts: placed(report, |section| &section.verdicts),
        comparisons: placed(report, |section| &section.pairings),
    };
    let mut text = serde_json::to_string_pretty(&document).expect("keys are strings");
    text.push('\n');
    text
}

/// Writes a file so that it is there whole or not at all.
///
/// # Errors
///
/// What creating, writing or renaming reports.
pub fn write(path: &Path, text: &str) -> Result<(), LabError> {
    destination::write(path, text).map_err(|error| LabError::on("writing", path, &error))
}

/// The name of a results file that was not named: `ringwise-lab-20260131-235959.json`, in UTC.
pub fn default_path(directory: &Path, unix_s: u64) -> PathBuf {
    directory.join(format!("ringwise-lab-{}.json", date_and_time(unix_s)))
}

/// `20260131-235959`, in UTC.
pub fn date_and_time(unix_s: u64) -> String {
    let (days, seconds) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// Year, month and day of a number of days since 1970 (Howard Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        for (unix_s, name) in [
            (0, "ringwise-lab-19700101-000000.json"),
            (951_782_400, "ringwise-lab-20000229-000000.json"),
            (1_795_245_876, "ringwise-lab-20261121-072436.json"),
            (4_102_444_799, "ringwise-lab-20991231-235959.json"),
        ] {
            assert_eq!(default_path(Path::new("d"), unix_s), Path::new("d").join(name));
        }
    }
}
