//! What the page begins with: the first screen, and folded below it every verdict in a line and what
//! a programmer can do.

use maud::{Markup, PreEscaped, html};
use ringwise_measure::statistics::Ratio;

use super::{
    matrix,
    topic::{Topic, folded, list, verdict_word, wide},
};
use crate::results::{
    report::{
        chart,
        saved::{Saved, SavedVerdict, run_name},
        screen::{self, Said},
    },
    verdict::interval_text,
};

/// The verdicts there are, with what each means.
const KINDS: [(&str, &str); 4] = [
    ("use it", "the ring is faster, or as fast with less CPU time"),
    ("do not use it", "the ring is slower, or as fast with more CPU time"),
    ("no difference", "neither, within the noise"),
    ("inconclusive", "something that a verdict needs is missing"),
];

/// Draws it.
pub fn draw(runs: &[Saved], topics: &[Topic<'_>]) -> Markup {
    let verdicts: Vec<&SavedVerdict> = runs.iter().flat_map(|run| &run.verdicts).collect();
    html! {
        section id="summary" tabindex="-1" {
            h2 { "What you would gain" }
            @for index in 0..runs.len() { (first_screen(runs, index, topics)) }
            @if !verdicts.is_empty() {
                (folded("The ring beside the fastest other engine, at each depth", html! {
                    (meanings())
                    (table(runs, topics, &verdicts))
                }))
            }
            (list("advice", "More advice", topics.iter().filter_map(advice).collect()))
        }
    }
}

/// What a reader is told of each workload of a run, and what limits its machine.
fn first_screen(runs: &[Saved], index: usize, topics: &[Topic<'_>]) -> Markup {
    let run = &runs[index];
    let said = screen::said(run);
    let limits = screen::limits(run);
    html! {
        @if runs.len() > 1 { h3 { (run_name(runs, index)) } }
        @if said.is_empty() {
            p { "This file has no answers. An earlier version of the program wrote it, or nothing was measured." }
        } @else {
            dl.answers { @for own in &said { (answer(own, matrix::draw((index, run), topics, &own.workload))) } }
        }
        ul.limits {
            @for limit in limits { li { (limit) } }
            @if run.partial { li { "the run is partial: what it had not come to is missing" } }
            li { "brackets are 95 % intervals; CPU is that of an operation" }
        }
    }
}

fn answer(own: &Said, matrix: Option<Markup>) -> Markup {
    html! {
        div {
            dt { (own.workload) }
            dd { (own.text) }
            @if let Some(loss) = &own.loss { dd.loss { (loss) } }
            @if let Some(matrix) = matrix { dd.matrix { (matrix) } }
        }
    }
}

fn meanings() -> Markup {
    html! { ul.meanings { @for (kind, meaning) in KINDS { li { (verdict_word(kind)) " " (meaning) } } } }
}

/// From where on the ring wins, and what a programmer can do, by what was measured.
fn advice(topic: &Topic<'_>) -> Option<Markup> {
    let sections = topic.of.iter().map(|(_, run, section)| &run.sections[*section]);
    let mut words: Vec<String> = sections
        .flat_map(|own| {
            own.break_even.iter().map(|own| own.text()).chain(own.advice.iter().cloned())
        })
        .collect();
    words.dedup();
    (!words.is_empty()).then(|| html! { (topic.link()) ": " (words.join("; ")) })
}

fn table(runs: &[Saved], topics: &[Topic<'_>], verdicts: &[&SavedVerdict]) -> Markup {
    let ratios = verdicts.iter().filter_map(|verdict| verdict.ratio);
    let most = ratios.map(|ratio| ratio.mid.max(1.0 / ratio.mid)).fold(2.0, f64::max);
    let text = |ratio: &Option<Ratio>| ratio.as_ref().map_or("-".into(), interval_text);
    let line = |topic: &Topic<'_>,
                (number, run, section): &(usize, &Saved, usize),
                own: &SavedVerdict| {
        html! {
            tr {
                th scope="row" { (topic.link()) }
                @if runs.len() > 1 { td { (run_name(runs, *number)) } }
                td { (run.sections[*section].depth_is) " " (own.depth) }
                td { (verdict_word(&own.verdict)) }
                td data-name="throughput" { (text(&own.ratio)) }
                td { @if let Some(ratio) = &own.ratio { (PreEscaped(chart::ratio(ratio, most))) } }
                td data-name="CPU/op" { (text(&own.cpu_ratio)) }
                td data-name="rival" { (own.rival.as_deref().unwrap_or("-")) }
            }
        }
    };
    wide(
        "wide stack",
        "Verdicts",
        html! {
            table {
                thead { tr {
                    th scope="col" { "measured" }
                    @if runs.len() > 1 { th scope="col" { "run" } }
                    th scope="col" { "at" }
                    th scope="col" { "verdict" }
                    th scope="col" { "throughput, times the rival's" }
                    th scope="col" class="line" { "slower | faster" }
                    th scope="col" { "CPU/op, times the rival's" }
                    th scope="col" { "rival" }
                } }
                tbody {
                    @for topic in topics {
                        @for place in &topic.of {
                            @for own in place.1.verdicts(place.2) { (line(topic, place, own)) }
                        }
                    }
                }
            }
        },
    )
}
