//! `explain`: where a recorded program waits, and what a ring would change, as text and as a page.
//!
//! It reads a trace, counts (`analysis`, `in_flight`), predicts (`prediction`) and prints. It measures nothing: what it
//! says of other engines is from a results file of the lab.

mod analysis;
pub(crate) mod in_flight;
mod page;
mod prediction;
mod text;

use std::io::Write;

use ringwise_measure::{Sources, environment::Environment};
use serde_json::Value;

use self::{analysis::Analysis, prediction::Prediction};
use crate::{
    args::ExplainArgs,
    error::LabError,
    program::traced::Traced,
    results::report::{json, saved::Saved},
    session::output::say,
};

/// Explains a trace.
///
/// # Errors
///
/// [`LabError`]: a file that cannot be read or written, or a trace without operations.
pub(crate) fn run(args: &ExplainArgs, out: &mut dyn Write) -> Result<(), LabError> {
    let traced = Traced::read(&args.trace)?;
    let saved = args.results.as_deref().map(Saved::read).transpose()?;
    let analysis = Analysis::of(&traced);
    let prediction = Prediction::of(&analysis);
    let measured = match &saved {
        Some(saved) => measured(&traced, &analysis, &prediction, saved),
        None => vec![
            "With --results, a results file of `ringwise lab` says what was measured at this depth.".to_owned(),
        ],
    };
    if let Some(path) = &args.html {
        json::write(path, &page::text(&traced, &analysis, &prediction, &measured))?;
    }
    say(out, &text::text(&traced, &analysis, &prediction, &measured))
}

/// What a results file says, and whether it is of another machine.
fn measured(
    traced: &Traced,
    analysis: &Analysis,
    prediction: &Prediction,
    saved: &Saved,
) -> Vec<String> {
    let mut said = prediction::measured(traced, analysis, prediction, saved);
    let here = serde_json::to_value(Environment::read(&Sources::default())).unwrap_or_default();
    let is_other = |name: &&str| saved.environment.get(*name) != here.get(*name);
    if ["cpu_model", "cores_allowed", "kernel"].iter().any(is_other) {
        let kernel = saved.environment.get("kernel").and_then(Value::as_str).unwrap_or("unknown");
        said.push(format!(
            "These results are of another machine or kernel ({kernel}): measure this one with `ringwise lab`."
        ));
    }
    said
}
