//! What is handed to people and programs.

pub mod json;
pub mod table;

use ringwise_lab::{LabError, plan::Profile, report::json as file, row::SampleFigures};
use ringwise_measure::{device::Storage, environment::Environment, statistics::Ratio};

use crate::{args::Plan, run::Row, versions};

/// A whole run.
pub struct Report<'a> {
    /// What was to be measured.
    pub plan: &'a Plan,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// The machine.
    pub environment: Environment,
    /// What is under the test file.
    pub storage: Storage,
    /// What was measured, by profile.
    pub sections: Vec<Section>,
}

/// Rows that were measured in one interleaved run.
pub struct Section {
    /// Through the page cache or past it.
    pub profile: Profile,
    /// The rows, by depth.
    pub rows: Vec<Row>,
}

impl Section {
    /// A row's figure divided by that of the first engine at its depth; none for that engine
    /// itself.
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
    /// What failed, other than by not being there.
    pub fn failures(&self) -> Vec<String> {
        let rows = self.sections.iter().flat_map(|section| &section.rows);
        rows.filter(|row| row.has_failed)
            .map(|row| {
                let reason = row.measured.void.as_deref().unwrap_or_default();
                format!("{} at depth {}: {reason}", row.label(), row.depth)
            })
            .collect()
    }

    /// The peers of this run with their versions as compiled.
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

/// Writes the files that were asked for, each whole or not at all.
///
/// # Errors
///
/// What writing one reports.
pub fn write(report: &Report<'_>, table: &str) -> Result<(), LabError> {
    if let Some(path) = &report.plan.json {
        file::write(path, &json::text(report))?;
    }
    if let Some(path) = &report.plan.table {
        file::write(path, table)?;
    }
    Ok(())
}
