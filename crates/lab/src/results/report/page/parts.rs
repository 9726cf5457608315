//! A section of the page: what was measured in one interleaved run, of one run of the lab or of
//! several beside each other. Its charts, its verdicts with their reasons, its table and its
//! excluded rows.

mod charts;

use maud::{Markup, PreEscaped, html};

use super::topic::{Colors, Topic, folded, list, verdict_word, wide};
use crate::results::{
    report::{
        figures::{self, Cells},
        gains,
        heatmap::{self, Recorded},
        saved::{Saved, SavedRow, SavedVerdict, run_name},
    },
    verdict::interval_text,
};

/// Draws it. `room` is how many bytes drawings from cells may still take.
pub fn draw(topic: &Topic<'_>, runs: usize, colors: &Colors, room: &mut usize) -> Markup {
    html! {
        section id=(topic.anchor) {
            h2 { (topic.title) }
            @if runs > 1 {
                div.beside {
                    @for (number, run, section) in &topic.of {
                        div {
                            h3 { (number + 1) ": " (run_name(std::slice::from_ref(run), 0)) }
                            (one(run, *section, colors, room))
                        }
                    }
                }
            } @else {
                @for (_, run, section) in &topic.of { (one(run, *section, colors, room)) }
            }
        }
    }
}

fn one(run: &Saved, section: usize, colors: &Colors, room: &mut usize) -> Markup {
    let own = &run.sections[section];
    let notes = |notes: &[String]| list("notes", "", notes.iter().map(plain).collect());
    let charts = charts::of(run, section, colors);
    let verdicts = run.verdicts(section).map(|verdict| verdict_of(&own.depth_is, verdict));
    let void = |(what, reason)| html! { b { (what) } ": " (reason) };
    let voids = figures::voids(run, section).into_iter().map(void);
    let verdicts: Vec<Markup> = verdicts.collect();
    html! {
        (notes(&own.notes))
        @if !charts.is_empty() { div.charts { @for chart in charts { (chart) } } }
        (notes(&own.conclusions()))
        (table("What a change gives, times today", &gains::cells(&own.depth_is, run.gains(section))))
        @if !verdicts.is_empty() {
            (folded("Verdicts and their reasons", html! {
                (list("verdicts", "", verdicts))
                @if own.switches.is_empty() { (notes(&pairings(run, section))) }
            }))
        }
        (table("Figures", &figures::cells(run, section)))
        (list("voids", "Excluded", voids.collect()))
        (details(run, section))
        (heatmaps(run, section, room))
    }
}

fn plain(text: &String) -> Markup {
    html! { (text) }
}

fn verdict_of(noun: &str, verdict: &SavedVerdict) -> Markup {
    let winner = verdict.winner.as_ref();
    let winner = winner.filter(|_| matches!(&*verdict.verdict, "use it" | "do not use it"));
    // What later versions add in words: advice, for one.
    let others = verdict.others.iter().filter_map(|(name, value)| Some((name, value.as_str()?)));
    html! {
        b { (noun) " " (verdict.depth) } " " (verdict_word(&verdict.verdict))
        @if let Some(winner) = winner { " (" (winner) " wins)" }
        ul {
            @for clause in verdict.reason.split("; ") { li { (clause) } }
            @for (name, words) in others { li { b { (figures::words(name)) ":" } " " (words) } }
        }
    }
}

/// The ring beside what no verdict mentions: its other switches, and other programs.
fn pairings(run: &Saved, section: usize) -> Vec<String> {
    let noun = &run.sections[section].depth_is;
    run.pairings(section)
        .filter(|pairing| matches!(&*pairing.baseline_kind, "variant" | "program"))
        .map(|pairing| {
            let cpu = pairing.cpu_ratio.as_ref().map_or_else(String::new, |cpu| {
                format!(", at {} times its CPU per operation", interval_text(cpu))
            });
            format!(
                "{noun} {}: {} is {} times {}{cpu}",
                pairing.depth,
                pairing.candidate,
                interval_text(&pairing.ratio),
                pairing.baseline
            )
        })
        .collect()
}

/// A table, folded.
fn table(heading: &str, cells: &Cells) -> Markup {
    if cells.lines.is_empty() {
        return Markup::default();
    }
    let whole = wide(
        "wide",
        heading,
        html! {
            table.figures {
                thead { tr { @for name in &cells.head { th scope="col" { (name) } } } }
                tbody {
                    @for line in &cells.lines {
                        tr {
                            @for (index, cell) in line.iter().enumerate() {
                                @if index == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        },
    );
    folded(heading, whole)
}

/// What the engines said of themselves: the setup flags that the kernel granted.
fn details(run: &Saved, section: usize) -> Markup {
    let mut told: Vec<(&str, &str)> = Vec::new();
    for row in run.rows(section).filter(|row| !row.is_control()) {
        let own = row.detail.as_deref().map(|detail| (&*row.engine, detail));
        told.extend(own.filter(|own| !told.contains(own)));
    }
    html! {
        @if !told.is_empty() {
            (folded("What the engines said of themselves", html! {
                ul { @for (engine, detail) in told { li { b { (engine) } ": " (detail) } } }
            }))
        }
    }
}

/// Latencies over time, where they were recorded, as long as there is room.
fn heatmaps(run: &Saved, section: usize, room: &mut usize) -> Markup {
    let recorded: Vec<Recorded> =
        run.rows(section).filter_map(|row| recorded(run, section, row)).collect();
    let mut drawings = heatmap::for_page(&recorded);
    let whole = drawings.len();
    drawings.retain(|drawing| {
        let rest = room.checked_sub(drawing.len());
        *room = rest.unwrap_or(*room);
        rest.is_some()
    });
    html! {
        @if whole > 0 {
            h3 { "Latencies over time" }
            div.heats {
                @for drawing in &drawings {
                    (wide("wide", "Latencies over time", PreEscaped(drawing.clone())))
                }
            }
        }
        @if whole > drawings.len() {
            p {
                (whole - drawings.len())
                " more are left out to keep this page small: they are in the files that "
                code { "--heatmap" } " wrote."
            }
        }
    }
}

fn recorded(run: &Saved, section: usize, row: &SavedRow) -> Option<Recorded> {
    if row.heat.is_empty() || !row.is_valid() || row.is_control() {
        return None;
    }
    let samples = row.samples.len().max(1) as f64;
    let elapsed = row.samples.iter().filter_map(|sample| sample.elapsed_ns);
    let title = format!("{}, {} {}", row.label(), run.sections[section].depth_is, row.depth);
    let seconds = elapsed.sum::<u64>() as f64 / 1e9 / samples;
    Some(Recorded::of((title, String::new()), &row.heats()?, seconds, row.latency_ns?))
}
