//! What is done with results that were saved: drawn again, and compared. Measures nothing.

use std::io::Write;

use crate::{
    args::{CompareArgs, ReportArgs},
    error::LabError,
    plan::typed::invalid,
    results::report::{compare::compare, csv, fio, json, markdown, page, saved::Saved},
    session::output::say,
};

/// Tells what is faster or slower than before.
///
/// # Errors
///
/// [`LabError`]: a file that cannot be read, nothing in common, or a regression.
pub fn compare_results(args: &CompareArgs, out: &mut dyn Write) -> Result<(), LabError> {
    let threshold = threshold(&args.threshold)?;
    let (old, new) = (Saved::read(&args.old)?, Saved::read(&args.new)?);
    let found = compare(&old, &new, threshold).map_err(LabError::Failed)?;
    say(out, &found.text)?;
    match found.regressions.len() {
        0 => say(out, &format!("no regression past {}\n", args.threshold)),
        count => Err(LabError::Failed(format!(
            "{} past {}: {}",
            if count == 1 { "1 regression".to_owned() } else { format!("{count} regressions") },
            args.threshold,
            found.regressions.join("; ")
        ))),
    }
}

/// Draws saved results again.
///
/// # Errors
///
/// [`LabError`]: a file that cannot be read or written.
pub fn report(args: &ReportArgs, out: &mut dyn Write) -> Result<(), LabError> {
    if args.fio_json.is_some() && args.results.len() > 1 {
        let what = "--fio-json: expected one results file, fio's form has no place for several";
        return Err(LabError::Usage(what.to_owned()));
    }
    let runs: Vec<Saved> =
        args.results.iter().map(|path| Saved::read(path)).collect::<Result<_, _>>()?;
    let is_file = args.html.is_some() || args.csv.is_some() || args.fio_json.is_some();
    if let Some(path) = &args.html {
        json::write(path, &page::text(&runs))?;
    }
    if let Some(path) = &args.csv {
        json::write(path, &csv::text(&runs))?;
    }
    if let Some(path) = &args.fio_json {
        let nothing =
            || "--fio-json: no row of the workload read has a result that counts".to_owned();
        let text = fio::text(&runs[0]).ok_or_else(|| LabError::Failed(nothing()))?;
        json::write(path, &text)?;
    }
    if args.markdown || !is_file {
        say(out, &markdown::text(&runs))?;
    }
    Ok(())
}

/// A share, as `5%` or `0.05`.
fn threshold(text: &str) -> Result<f64, LabError> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    let share = number.trim().parse::<f64>().ok().map(|number| number * unit);
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| invalid("--threshold", text, "expected a share such as 5% or 0.05"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_a_share() {
        for (text, share) in [("5%", 0.05), ("0.05", 0.05), ("0", 0.0), ("100 %", 1.0)] {
            assert!((threshold(text).unwrap() - share).abs() < 1e-12, "{text}");
        }
        for wrong in ["", "%", "five", "-1%", "5", "NaN", "101%", "inf"] {
            let error = threshold(wrong).unwrap_err();
            assert_eq!(error.exit_status(), 2);
            assert!(error.to_string().contains("such as 5% or 0.05"), "{error}");
        }
    }
}
