//! What is handed to people and programs: sections of rows with their verdicts.

pub(crate) mod chart;
pub mod compare;
pub mod csv;
pub mod figures;
pub mod fio;
mod gains;
pub mod heatmap;
pub mod json;
pub mod lines;
pub mod markdown;
mod markup;
pub mod page;
pub mod saved;
pub mod screen;
pub mod table;

use ringwise_measure::{device::Storage, environment::Environment, measurable::Measurable};

use serde::{Deserialize, Serialize};

pub use crate::results::section::Section;
use crate::{
    args::Args,
    plan::Plan,
    results::gain::{self, Answer},
};

/// A whole run.
pub struct Report<'a> {
    /// What was to be measured.
    pub plan: &'a Plan,
    /// What was typed, with what the `--config` file added.
    pub flags: &'a Args,
    /// The machine.
    pub environment: Environment,
    /// What is under the test files.
    pub storage: Storage,
    /// What was measured, in order.
    pub sections: Vec<Section>,
    /// What a measurement would like to have of the machine.
    pub measurable: Measurable,
    /// The workloads of the suite that could not run here.
    pub left_out: Vec<LeftOut>,
    /// What ended the run early, if anything did.
    pub ended_by: Option<String>,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// How long it took.
    pub lasted_s: f64,
    /// What the device under the test files wrote meanwhile, for other programs too; known at the
    /// end, and where there is a device.
    pub written_bytes: Option<u64>,
}

/// A workload of the suite that could not run here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Which one.
    pub workload: String,
    /// Why.
    pub reason: String,
}

impl Report<'_> {
    /// What a reader is told of each workload; nothing where the lab checks itself.
    pub fn answers(&self) -> Vec<Answer> {
        match self.plan.self_check {
            None => gain::answers(&self.sections),
            Some(_) => Vec::new(),
        }
    }
}
