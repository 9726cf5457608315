//! What the page begins with: how many verdicts of which kind, and each in a line.

use std::fmt::Write;

use ringwise_measure::statistics::Ratio;

use super::{Topic, run_name};
use crate::{
    report::{chart, markup::escaped, saved::Saved},
    verdict::interval_text,
};

/// The verdicts there are, with what each means.
const KINDS: [(&str, &str); 4] = [
    ("use it", "the ring is faster, or as fast with less CPU time"),
    ("pure overhead", "the ring is slower, or as fast with more CPU time"),
    ("no difference", "neither, within the noise"),
    ("cannot be told here", "something that a verdict needs is missing"),
];

/// The style of a verdict.
pub fn class(verdict: &str) -> &'static str {
    match verdict {
        "use it" => "win",
        "pure overhead" => "loss",
        "no difference" => "same",
        _ => "unknown",
    }
}

/// Draws it.
pub fn draw(out: &mut String, runs: &[Saved], topics: &[Topic<'_>]) {
    out.push_str("<section id=\"summary\" tabindex=\"-1\"><h2>Verdicts</h2>\n");
    let verdicts = || runs.iter().flat_map(|run| &run.verdicts);
    overall(out, runs);
    out.push_str("<ul class=\"counts\">");
    for (kind, meaning) in KINDS {
        let count = verdicts().filter(|verdict| verdict.verdict == kind).count();
        let _ = write!(
            out,
            "<li class=\"{}\"><b>{count}</b> {kind}<small>{meaning}</small></li>",
            class(kind)
        );
    }
    out.push_str("</ul>\n");
    let rows = || runs.iter().flat_map(|run| &run.results);
    let voids = rows().filter(|row| row.void.is_some()).count();
    let partial = match runs.iter().any(|run| run.partial) {
        true => " A run is partial: what it had not come to is missing.",
        false => "",
    };
    let _ = writeln!(
        out,
        "<p>{} results, of which {voids} are void, each with its reason below.{partial}</p>",
        rows().count()
    );
    if verdicts().next().is_some() {
        table(out, runs, topics);
    }
    advice(out, topics);
    out.push_str("</section>\n");
}

/// What may be said of the machine and of each workload, the machine first.
fn overall(out: &mut String, runs: &[Saved]) {
    for (number, run) in runs.iter().enumerate().filter(|(_, run)| !run.overall.is_empty()) {
        if runs.len() > 1 {
            let _ = writeln!(out, "<h3>{}</h3>", escaped(&run_name(runs, number)));
        }
        out.push_str("<ul class=\"overall\">");
        let (machine, workloads): (Vec<_>, Vec<_>) =
            run.overall.iter().partition(|own| own.of == "machine");
        for own in machine.into_iter().chain(workloads) {
            let found = own.verdict.to_string();
            let _ = write!(
                out,
                "<li><b>{}</b> <span class=\"verdict {}\">{found}</span> {}</li>",
                escaped(&own.of),
                class(&found),
                escaped(&own.reason)
            );
        }
        out.push_str("</ul>\n");
    }
}

/// From where on the ring wins, and what a programmer can do, by what was measured.
fn advice(out: &mut String, topics: &[Topic<'_>]) {
    let of = |topic: &Topic<'_>| {
        let sections = topic.of.iter().map(|(_, run, section)| &run.sections[*section]);
        let told = sections.flat_map(|own| {
            let break_even = own.break_even.iter().map(|own| own.text());
            break_even.chain(own.advice.iter().cloned()).collect::<Vec<_>>()
        });
        let mut words: Vec<String> = told.collect();
        words.dedup();
        words
    };
    let told: Vec<(&Topic<'_>, Vec<String>)> = topics
        .iter()
        .map(|topic| (topic, of(topic)))
        .filter(|(_, told)| !told.is_empty())
        .collect();
    if told.is_empty() {
        return;
    }
    out.push_str("<h3>Advice</h3>\n<ul class=\"advice\">");
    for (topic, words) in told {
        let link = format!("<a href=\"#{}\">{}</a>", topic.anchor, escaped(topic.title));
        let words: Vec<String> = words.iter().map(|own| escaped(own)).collect();
        let _ = write!(out, "<li>{link}: {}</li>", words.join("; "));
    }
    out.push_str("</ul>\n");
}

fn table(out: &mut String, runs: &[Saved], topics: &[Topic<'_>]) {
    let is_several = runs.len() > 1;
    let ratios = || runs.iter().flat_map(|run| &run.verdicts).filter_map(|verdict| verdict.ratio);
    let most = ratios().map(|ratio| ratio.mid.max(1.0 / ratio.mid)).fold(2.0, f64::max);
    out.push_str(
        "<div class=\"wide stack\" tabindex=\"0\" role=\"region\" aria-label=\"Verdicts\"><table>\
         <thead><tr><th scope=\"col\">measured</th>",
    );
    if is_several {
        out.push_str("<th scope=\"col\">run</th>");
    }
    out.push_str(
        "<th scope=\"col\">at</th><th scope=\"col\">verdict</th>\
         <th scope=\"col\">throughput, times the rival's</th><th scope=\"col\" class=\"line\">\
         slower | faster</th><th scope=\"col\">CPU/op, times the rival's</th>\
         <th scope=\"col\">rival</th></tr></thead>\n<tbody>\n",
    );
    for topic in topics {
        for (number, run, section) in &topic.of {
            let noun = &run.sections[*section].depth_is;
            for verdict in run.verdicts(*section) {
                let text = |ratio: &Option<Ratio>| ratio.as_ref().map_or("-".into(), interval_text);
                let line = verdict.ratio.map_or_else(String::new, |ratio| {
                    chart::ratio(ratio.low, ratio.mid, ratio.high, most)
                });
                let name = match is_several {
                    true => format!("<td>{}</td>", escaped(&run_name(runs, *number))),
                    false => String::new(),
                };
                let _ = writeln!(
                    out,
                    "<tr><th scope=\"row\"><a href=\"#{}\">{}</a></th>{name}<td>{} {}</td>\
                     <td><span class=\"verdict {}\">{}</span></td>\
                     <td data-name=\"throughput\">{}</td><td>{line}</td>\
                     <td data-name=\"CPU/op\">{}</td><td data-name=\"rival\">{}</td></tr>",
                    topic.anchor,
                    escaped(topic.title),
                    escaped(noun),
                    verdict.depth,
                    class(&verdict.verdict),
                    escaped(&verdict.verdict),
                    text(&verdict.ratio),
                    text(&verdict.cpu_ratio),
                    escaped(verdict.rival.as_deref().unwrap_or("-"))
                );
            }
        }
    }
    out.push_str("</tbody></table></div>\n");
}
