//! The matrix of a workload: a line for each starting point, with what a change to the ring gives and what a change to
//! the best gives. It has the medians; their intervals and the reasons are in the tables of the sections.

use maud::{Markup, html};
use ringwise_measure::statistics::Ratio;

use super::topic::{Topic, folded, wide};
use crate::results::{
    gain::{Column, Gain, Told},
    report::saved::Saved,
};

/// Draws the matrix of a workload of the run with this number. Nothing: it has no starting points.
pub fn draw(
    (number, run): (usize, &Saved),
    topics: &[Topic<'_>],
    workload: &str,
) -> Option<Markup> {
    let own = |section: &usize| run.sections[*section].workload == workload;
    let lines = (0..run.sections.len()).filter(own).flat_map(|section| {
        let topic = topics
            .iter()
            .find(|topic| topic.of.iter().any(|(of, _, index)| (*of, *index) == (number, section)));
        lines(run, section).into_iter().map(move |own| line(topic, &own))
    });
    let lines: Vec<Markup> = lines.collect();
    let matrix = html! {
        table {
            thead { tr {
                @for name in ["measured", "today", "with the ring", "with the best"] { th scope="col" { (name) } }
            } }
            tbody { @for line in &lines { (line) } }
        }
    };
    let label = format!("What a change gives in {workload}, times today");
    (!lines.is_empty()).then(|| {
        folded("From each starting point, times today", wide("wide stack", &label, matrix))
    })
}

/// A starting point with its changes.
struct Line<'a> {
    today: String,
    ring: Option<&'a Gain>,
    best: Option<&'a Gain>,
}

/// The starting points of a section. One that does a single thing at a time is beside the deepest ring.
fn lines(run: &Saved, section: usize) -> Vec<Line<'_>> {
    let mut lines: Vec<((&str, usize), Line<'_>)> = Vec::new();
    for gain in run.gains(section) {
        let start = (&*gain.from, gain.depth);
        let place = lines.iter().position(|(own, _)| *own == start).unwrap_or_else(|| {
            let today = format!("{}, {} {}", gain.from, run.sections[section].depth_is, gain.depth);
            lines.push((start, Line { today, ring: None, best: None }));
            lines.len() - 1
        });
        let line = &mut lines[place].1;
        match gain.column {
            Column::Ring => line.ring = line.ring.or(Some(gain)),
            Column::DeepestRing => line.ring = Some(gain),
            Column::Best => line.best = Some(gain),
        }
    }
    lines.into_iter().map(|(_, line)| line).collect()
}

fn line(topic: Option<&Topic<'_>>, own: &Line<'_>) -> Markup {
    html! {
        tr {
            th scope="row" { @if let Some(topic) = topic { (topic.link()) } }
            td data-name="today:" { (own.today) }
            td data-name="with the ring:" { (change(own.ring)) }
            td data-name="with the best:" { (change(own.best)) }
        }
    }
}

fn change(gain: Option<&Gain>) -> Markup {
    let Some(gain) = gain else { return html! { "-" } };
    let figure = |name: &str, ratio: &Option<Ratio>| {
        ratio.as_ref().map(|ratio| match ratio.mid {
            ..0.005 => format!("{name} under 0.01"),
            20.0.. => format!("{name} {:.0}", ratio.mid),
            mid => format!("{name} {mid:.2}"),
        })
    };
    let figures = [
        figure("throughput", &gain.ratio),
        figure("p99", &gain.p99_ratio),
        figure("CPU", &gain.cpu_ratio),
    ];
    let figures: Vec<String> = figures.into_iter().flatten().collect();
    let class = match gain.finding {
        Told::Gain => "win",
        Told::Loss => "loss",
        Told::NoDifference => "same",
        Told::Inconclusive | Told::Excluded => "unknown",
    };
    html! {
        (gain.to)
        @if gain.to_depth != gain.depth { " at " (gain.to_depth) }
        " " span class={ "verdict " (class) } { (gain.finding) }
        @if !figures.is_empty() { " " (figures.join(", ")) }
    }
}
