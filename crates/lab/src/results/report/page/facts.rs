//! What the page ends with: the machines beside each other, and how the figures were made.

use maud::{Markup, PreEscaped, html};
use serde_json::Value;

use super::topic::{folded, wide};
use crate::results::report::{
    figures::words,
    saved::{Saved, run_name},
};

/// Names with their values.
type Facts = Vec<(String, String)>;

/// Draws both.
pub fn draw(runs: &[Saved]) -> Markup {
    html! {
        section id="machine" {
            h2 { "Machine" }
            (folded("What was found out about the machine", table("Machine", runs, facts_of)))
        }
        section id="method" {
            h2 { "Method" }
            (PreEscaped(METHOD))
            (folded("Method in numbers", table("Method in numbers", runs, method_of)))
        }
    }
}

const METHOD: &str = "<ul>\
<li>Engines are compared only within one run, on the same files, at the same depth and block size.</li>\
<li>Samples come in blocks, a random order of all engines and then its mirror, so that a drift of the \
machine meets all alike. The engine that runs twice, <i>again</i>, shows the noise.</li>\
<li>Ratios are geometric means over the blocks with bootstrap intervals of 95 %; a difference below the \
noise, or below 2 %, is no difference. Intervals in charts are over blocks too.</li>\
<li>What is read is verified, within the measured time. A result that fails a gate is excluded and takes \
part in no verdict.</li>\
<li>CPU time is that of the whole process with the kernel's workers; beside it the rest of the machine \
above its idle baseline.</li>\
</ul>\n";

/// Everything that was found out, nested names joined: a fact that is missing has its reason.
fn facts_of(run: &Saved) -> Facts {
    let mut facts = Vec::new();
    for (name, value) in run.environment.iter().chain(&run.storage) {
        flatten(&words(name), value, &mut facts);
    }
    facts
}

fn method_of(run: &Saved) -> Facts {
    let mut facts = vec![
        ("program".to_owned(), format!("ringwise {}", run.version)),
        ("interleaved blocks".to_owned(), run.repeats.to_string()),
        ("seed".to_owned(), run.seed.to_string()),
        ("lasted".to_owned(), format!("{:.0} s", run.lasted_s)),
    ];
    flatten("flag", &run.flags, &mut facts);
    for (name, value) in &run.method {
        match (name.contains("share"), value.as_f64()) {
            (true, Some(share)) => {
                facts.push((words(name), format!("{} %", (share * 1e4).round() / 100.0)));
            }
            _ => flatten(&words(name), value, &mut facts),
        }
    }
    facts
}

fn flatten(name: &str, value: &Value, facts: &mut Facts) {
    match value {
        Value::Object(fields) => match fields.get("unknown").and_then(Value::as_str) {
            Some(reason) => {
                // What a measurement would like to have is not unknown: it is known to be missing.
                let what =
                    if name.starts_with("measurable") { "not measurable here" } else { "unknown" };
                facts.push((name.to_owned(), format!("{what}: {reason}")));
            }
            None => fields.iter().for_each(|(field, value)| {
                flatten(&format!("{name} {}", words(field)), value, facts)
            }),
        },
        Value::Array(items) => {
            let texts: Vec<String> = items.iter().map(plain).collect();
            facts.push((name.to_owned(), texts.join(", ")));
        }
        Value::Null => {}
        other => facts.push((name.to_owned(), plain(other))),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A line for each name, a column for each run; lines in which the runs differ are marked.
fn table(label: &str, runs: &[Saved], facts: fn(&Saved) -> Facts) -> Markup {
    let facts: Vec<Facts> = runs.iter().map(facts).collect();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in facts.iter().flatten() {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let value = |facts: &Facts, name: &str| {
        let found = facts.iter().find(|(own, _)| own == name);
        found.map_or_else(|| "-".to_owned(), |(_, value)| value.clone())
    };
    let line = |name: &str| {
        let values: Vec<String> = facts.iter().map(|facts| value(facts, name)).collect();
        let differs = values.windows(2).any(|pair| pair[0] != pair[1]);
        html! {
            tr class=[differs.then_some("differs")] {
                th scope="row" { (name) }
                @for value in &values { td { (value) } }
            }
        }
    };
    wide(
        "wide",
        label,
        html! {
            table.facts {
                @if runs.len() > 1 {
                    thead { tr {
                        td {}
                        @for index in 0..runs.len() { th scope="col" { (run_name(runs, index)) } }
                    } }
                }
                tbody { @for name in names { (line(name)) } }
            }
        },
    )
}
