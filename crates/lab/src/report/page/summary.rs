//! What the page begins with: how many verdicts of which kind, and each in a line.

use maud::{Markup, PreEscaped, html};
use ringwise_measure::statistics::Ratio;

use super::topic::{Topic, class, list, verdict_word, wide};
use crate::{
    gain::Answer,
    report::{
        chart,
        saved::{Saved, SavedVerdict, run_name},
    },
    verdict::interval_text,
};

/// The verdicts there are, with what each means.
const KINDS: [(&str, &str); 4] = [
    ("use it", "the ring is faster, or as fast with less CPU time"),
    ("pure overhead", "the ring is slower, or as fast with more CPU time"),
    ("no difference", "neither, within the noise"),
    ("cannot be told here", "something that a verdict needs is missing"),
];

/// Draws it.
pub fn draw(runs: &[Saved], topics: &[Topic<'_>]) -> Markup {
    let verdicts: Vec<&SavedVerdict> = runs.iter().flat_map(|run| &run.verdicts).collect();
    let count = |kind: &str| verdicts.iter().filter(|verdict| verdict.verdict == kind).count();
    let rows = || runs.iter().flat_map(|run| &run.results);
    let voids = rows().filter(|row| row.void.is_some()).count();
    html! {
        section id="summary" tabindex="-1" {
            h2 { "Verdicts" }
            @for index in 0..runs.len() { (overall(runs, index)) }
            ul.counts {
                @for (kind, meaning) in KINDS {
                    li class=(class(kind)) { b { (count(kind)) } " " (kind) small { (meaning) } }
                }
            }
            p {
                (rows().count()) " results, of which " (voids)
                " are excluded, each with its reason below."
                @if runs.iter().any(|run| run.partial) {
                    " A run is partial: what it had not come to is missing."
                }
            }
            @if !verdicts.is_empty() { (table(runs, topics, &verdicts)) }
            (list("advice", "Advice", topics.iter().filter_map(advice).collect()))
        }
    }
}

/// What a reader is told of each workload of a run.
fn overall(runs: &[Saved], index: usize) -> Markup {
    let line = |own: &Answer| html! { b { (own.workload) } " " (own.text()) };
    let lines: Vec<Markup> = runs[index].answers.iter().map(line).collect();
    let name = if runs.len() > 1 { run_name(runs, index) } else { String::new() };
    list("overall", &name, lines)
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
