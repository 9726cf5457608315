//! The reports of a run, for people and programs.

pub mod json;
pub mod table;

use ringwise_lab::{
    LabError, results::report::json as file, results::row::SampleFigures, sampling::job::Cache,
};
use ringwise_measure::{device::Storage, environment::Environment, statistics::Ratio};

use crate::{args::Plan, run::Row, versions};

/// A whole run.
pub struct Report<'a> {
    /// The options of the run.
    pub plan: &'a Plan,
    /// When the run began, in seconds since 1970.
    pub began_unix_s: u64,
    /// The machine.
    pub environment: Environment,
    /// The storage under the test file.
    pub storage: Storage,
    /// The measured rows, by profile.
    pub sections: Vec<Section>,
}

/// Rows that were measured in one interleaved run.
pub struct Section {
    /// What the page cache was for the reads.
    pub profile: Cache,
    /// The rows, by depth.
    pub rows: Vec<Row>,
}

impl Section {
    /// Computes the ratio of a row's figure to that of the first engine at its depth. None for the first engine itself,
    /// or if one of the two rows is excluded.
    pub fn ratio(
        &self,
        row: &Row,
        plan: &Plan,
        figure: fn(&SampleFigures) -> f64,
    ) -> Option<Ratio> {
        let is_first = |row: &Row| row.engine.to_string() == plan.engines[0].to_string();
        let first = self
            .rows
            .iter()
            .find(|other| other.depth == row.depth && is_first(other) && !other.is_control)?;
        let is_own = std::ptr::eq(first, row);
        let are_valid = row.measured.void.is_none() && first.measured.void.is_none();
        (are_valid && !is_own)
            .then(|| row.measured.ratio(&first.measured, figure, plan.seed))
            .flatten()
    }
}

impl Report<'_> {
    /// Lists the rows that failed. An engine that is not available here is not a failure.
    pub fn failures(&self) -> Vec<String> {
        let rows = self.sections.iter().flat_map(|section| &section.rows);
        rows.filter(|row| row.has_failed)
            .map(|row| {
                let reason = row.measured.void.as_deref().unwrap_or_default();
                format!("{} at depth {}: {reason}", row.label(), row.depth)
            })
            .collect()
    }

    /// Lists the peers of this run with the versions that were compiled.
    pub fn versions(&self) -> Vec<(&'static str, &'static str)> {
        let mut found: Vec<(&str, &str)> = Vec::new();
        for package in self.plan.engines.iter().filter_map(|engine| engine.package()) {
            match versions::of(package) {
                Some(version) if !found.contains(&(package, version)) => {
                    found.push((package, version));
                }
                _ => {}
            }
        }
        found
    }
}

/// Writes the requested files, each completely or not at all.
///
/// # Errors
///
/// The error of writing a file.
pub fn write(report: &Report<'_>, table: &str) -> Result<(), LabError> {
    if let Some(path) = &report.plan.json {
        file::write(path, &json::text(report))?;
    }
    if let Some(path) = &report.plan.table {
        file::write(path, table)?;
    }
    Ok(())
}
