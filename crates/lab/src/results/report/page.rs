//! The report as one HTML file: the first screen, then each section with its charts and tables, the
//! machines, and the method. It is drawn from saved results, of one run or of several beside each
//! other.
//!
//! The file fetches nothing and is whole without scripts: its charts are SVG made by `chart` and
//! `heatmap`, its tables are tables. Where scripts run, each chart of lines can be explored: the same
//! figures, drawn by uPlot, which is embedded with its licence (`page/uplot`), as it was released.
//! What lost is shown where and how what won is shown.

mod facts;
mod matrix;
mod parts;
mod summary;
mod topic;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    json,
    saved::{Saved, run_name},
};
use topic::{Colors, topics};

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

/// The page of one run, or of several.
pub fn text(runs: &[Saved]) -> String {
    let topics = topics(runs);
    let colors = Colors::of(runs);
    // Enough for all that is not drawn from thousands of cells.
    let mut room = BYTES_MAX - (BYTES_MAX >> 2);
    let title = match runs {
        [only] => format!("ringwise lab, {}", day(only)),
        several => format!("ringwise lab, {} runs", several.len()),
    };
    let head = html! {
        style { (PreEscaped(STYLE)) (PreEscaped(LIBRARY_STYLE)) }
        script { "/*\n" (PreEscaped(LIBRARY_LICENCE)) "*/\n" (PreEscaped(LIBRARY)) }
        script { (PreEscaped(SCRIPT)) }
    };
    let body = html! {
        a.skip href="#summary" { "To the answers" }
        header { h1 { (title) } @for index in 0..runs.len() { (heading(runs, index)) } }
        main {
            (summary::draw(runs, &topics))
            nav aria-label="Contents" {
                ul {
                    @for topic in &topics { li { (topic.link()) } }
                    li { a href="#machine" { "Machine" } }
                    li { a href="#method" { "Method" } }
                }
            }
            @for topic in &topics { (parts::draw(topic, runs.len(), &colors, &mut room)) }
            (facts::draw(runs))
        }
    };
    document(&title, &head, &body)
}

/// A page of another report in the same style, which needs no script.
pub(crate) fn without_script(title: &str, body: &Markup) -> String {
    document(title, &html! { style { (PreEscaped(STYLE)) } }, body)
}

/// A page that fetches nothing. `head` has its style and its scripts.
fn document(title: &str, head: &Markup, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                link rel="icon" href="data:,";
                title { (title) }
                (head)
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// What a run is, in a line.
fn heading(runs: &[Saved], index: usize) -> Markup {
    let run = &runs[index];
    let (blocks, seed, version) = (run.repeats, run.seed, &run.version);
    html! {
        p {
            @if runs.len() > 1 { b { (run_name(runs, index)) } " " }
            (run.machine()) ", " (blocks) " blocks, seed " (seed) ", "
            (format!("{:.0} s", run.lasted_s)) ", ringwise " (version)
            @if run.partial { " " strong.void { "partial: " (run.ended_by()) } }
        }
    }
}

/// The day of a run, as its results file would be named.
fn day(run: &Saved) -> String {
    let name = json::default_path(std::path::Path::new(""), run.began_unix_s);
    let digits: String = name.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let part = |from, to| digits.get(from..to).unwrap_or("?");
    let (year, month, day) = (part(0, 4), part(4, 6), part(6, 8));
    format!("{year}-{month}-{day} {}:{} UTC", part(8, 10), part(10, 12))
}

#[cfg(test)]
mod tests;
