//! The results file: all figures of all samples.

use std::collections::BTreeMap;

use ringwise_lab::results::row::SampleFigures;
use ringwise_measure::{Percentiles, device::Storage, environment::Environment, statistics::Ratio};
use serde::Serialize;

use super::{Report, Section};
use crate::{
    args::{Plan, profile_name},
    run::Row,
};

/// The version of the schema.
const SCHEMA: &str = "ringwise.peers/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    began_unix_s: u64,
    options: String,
    versions: BTreeMap<&'static str, &'static str>,
    environment: &'a Environment,
    storage: &'a Storage,
    results: Vec<RowResult<'a>>,
}

#[derive(Serialize)]
struct RowResult<'a> {
    profile: &'static str,
    depth: usize,
    engine: String,
    /// Whether the row is the first engine once more, whose difference is noise.
    control: bool,
    ops_per_s: Option<f64>,
    ratio_to_first: Option<Ratio>,
    cpu_ns_per_op: Option<f64>,
    cpu_ratio_to_first: Option<Ratio>,
    latency_ns: Option<Percentiles>,
    device_share: Option<f64>,
    detail: Option<&'a str>,
    /// Why the result is excluded, if it is.
    void: Option<&'a str>,
    failed: bool,
    samples: &'a [SampleFigures],
}

/// Returns the text of the results file.
pub fn text(report: &Report<'_>) -> String {
    let results = report
        .sections
        .iter()
        .flat_map(|section| section.rows.iter().map(|row| result(section, row, report.plan)));
    let document = Document {
        schema: SCHEMA,
        began_unix_s: report.began_unix_s,
        options: report.plan.options(),
        versions: report.versions().into_iter().collect(),
        environment: &report.environment,
        storage: &report.storage,
        results: results.collect(),
    };
    let mut text = serde_json::to_string_pretty(&document).expect("keys are strings");
    text.push('\n');
    text
}

fn result<'a>(section: &'a Section, row: &'a Row, plan: &Plan) -> RowResult<'a> {
    let measured = &row.measured;
    let is_measured = !measured.samples.is_empty();
    RowResult {
        profile: profile_name(section.profile),
        depth: row.depth,
        engine: row.engine.to_string(),
        control: row.is_control,
        ops_per_s: is_measured.then(|| measured.ops_per_s()),
        ratio_to_first: section.ratio(row, plan, |sample| sample.ops_per_s),
        cpu_ns_per_op: is_measured.then(|| measured.cpu_ns_per_op()),
        cpu_ratio_to_first: section.ratio(row, plan, |sample| sample.cpu_ns_per_op),
        latency_ns: is_measured.then(|| measured.latency.percentiles()),
        device_share: measured.device_share(),
        detail: measured.detail.as_deref(),
        void: measured.void.as_deref(),
        failed: row.has_failed,
        samples: &measured.samples,
    }
}
