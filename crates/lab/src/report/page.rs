//! The report as one HTML file: verdicts first, then each section with its charts and tables, the
//! machines, and the method. It is drawn from saved results, of one run or of several beside each
//! other.
//!
//! The file fetches nothing and is whole without scripts: its charts are SVG made by `chart` and
//! `heatmap`, its tables are tables. Where scripts run, each chart of lines can be explored: the same
//! figures, drawn by uPlot, which is embedded with its licence (`page/uplot`), as it was released.
//! What lost is shown where and how what won is shown.

mod facts;
mod parts;
mod summary;

use std::fmt::Write;

use super::{
    json,
    markup::escaped,
    saved::{Saved, SavedSection},
};

const STYLE: &str = include_str!("page/style.css");
/// uPlot 1.6.32, a chart library: MIT licence.
const LIBRARY: &str = include_str!("page/uplot/uPlot.iife.min.js");
const LIBRARY_STYLE: &str = include_str!("page/uplot/uPlot.min.css");
const LIBRARY_LICENCE: &str = include_str!("page/uplot/LICENSE");
const SCRIPT: &str = include_str!("page/explore.js");
/// What the page may do, whatever results hold: nothing is fetched.
const POLICY: &str = include_str!("page/policy.txt");
/// What a page may take, drawings of latencies over time included.
const BYTES_MAX: usize = 2 << 20;

/// Sections of several runs that measured the same.
struct Topic<'a> {
    /// What it is called in all of them.
    title: &'a str,
    /// Which anchor leads to it.
    anchor: String,
    /// The runs that have it, each with the section's number there.
    of: Vec<(usize, &'a Saved, usize)>,
}

/// The page of one run, or of several.
pub fn text(runs: &[Saved]) -> String {
    let topics = topics(runs);
    let mut body = String::new();
    summary::draw(&mut body, runs, &topics);
    let colors = parts::Colors::of(runs);
    // Enough for all that is not drawn from thousands of cells.
    let mut room = BYTES_MAX - (BYTES_MAX >> 2);
    for topic in &topics {
        parts::draw(&mut body, topic, runs.len(), &colors, &mut room);
    }
    facts::draw(&mut body, runs);
    let title = match runs {
        [only] => format!("ringwise lab, {}", day(only)),
        several => format!("ringwise lab, {} runs", several.len()),
    };
    let links = topics.iter().fold(String::new(), |mut links, topic| {
        let _ =
            write!(links, "<li><a href=\"#{}\">{}</a></li>", topic.anchor, escaped(topic.title));
        links
    });
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{}</title>\n<style>\n{STYLE}\n{LIBRARY_STYLE}\n</style>\n\
         <script>\n/*\n{LIBRARY_LICENCE}*/\n{LIBRARY}</script>\n\
         <script>\n{SCRIPT}</script>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#summary\">To the verdicts</a>\n\
         <header><h1>{}</h1>{}</header>\n\
         <nav aria-label=\"Contents\"><ul><li><a href=\"#summary\">Verdicts</a></li>{links}\
         <li><a href=\"#machine\">Machine</a></li><li><a href=\"#method\">Method</a></li></ul></nav>\n\
         <main>\n{body}</main>\n</body>\n</html>\n",
        escaped(&title),
        escaped(&title),
        heading(runs),
    )
}

/// What the runs are, a line each.
fn heading(runs: &[Saved]) -> String {
    let mut out = String::new();
    for (index, run) in runs.iter().enumerate() {
        let partial = match run.partial {
            true => {
                let reason = escaped(run.ended_by());
                format!(" <strong class=\"void\">partial: {reason}</strong>")
            }
            false => String::new(),
        };
        let name = match runs.len() {
            1 => String::new(),
            _ => format!("<b>{}</b> ", escaped(&run_name(runs, index))),
        };
        let _ = write!(
            out,
            "<p>{name}{}, {} blocks, seed {}, {:.0} s, ringwise {}{partial}</p>",
            escaped(&machine(run)),
            run.repeats,
            run.seed,
            run.lasted_s,
            escaped(&run.version)
        );
    }
    out
}

/// A machine in a line: processor, kernel, file system and device.
pub fn machine(run: &Saved) -> String {
    let text = |value: Option<&serde_json::Value>| {
        value.and_then(serde_json::Value::as_str).unwrap_or("unknown").to_owned()
    };
    let model = text(run.environment.get("cpu_model"));
    let kernel = text(run.environment.get("kernel"));
    let cores = run.environment.get("cores_allowed").and_then(serde_json::Value::as_u64);
    let cores = cores.map_or_else(String::new, |cores| format!("{cores} x "));
    let filesystem = run.storage.get("filesystem").and_then(|found| found.get("name"));
    let device = run.storage.get("device").and_then(|found| found.get("name"));
    let place = match (filesystem, device) {
        (None, None) => String::new(),
        (filesystem, device) => format!(", {} on {}", text(filesystem), text(device)),
    };
    format!("{cores}{model}, Linux {kernel}{place}")
}

/// What tells a run from the others: its file's name, with its number where two have the same.
pub fn run_name(runs: &[Saved], index: usize) -> String {
    let name = &runs[index].name;
    let is_only = runs.iter().filter(|run| run.name == *name).count() == 1;
    if is_only { name.clone() } else { format!("{name} ({})", index + 1) }
}

/// The day of a run, as its results file would be named.
fn day(run: &Saved) -> String {
    let name = json::default_path(std::path::Path::new(""), run.began_unix_s);
    let digits: String = name.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    match digits.get(..14) {
        Some(digits) => format!(
            "{}-{}-{} {}:{} UTC",
            &digits[..4],
            &digits[4..6],
            &digits[6..8],
            &digits[8..10],
            &digits[10..12]
        ),
        None => "of an unknown day".to_owned(),
    }
}

/// The sections of all runs, those that measured the same together, in the order of the first run.
fn topics(runs: &[Saved]) -> Vec<Topic<'_>> {
    let mut topics: Vec<Topic<'_>> = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        for (index, SavedSection { title, .. }) in run.sections.iter().enumerate() {
            let known = topics
                .iter_mut()
                .find(|topic| topic.title == title && topic.of.iter().all(|own| own.0 != number));
            match known {
                Some(topic) => topic.of.push((number, run, index)),
                None => {
                    let anchor = format!("part-{}", topics.len() + 1);
                    topics.push(Topic { title, anchor, of: vec![(number, run, index)] });
                }
            }
        }
    }
    topics
}

#[cfg(test)]
mod tests;
