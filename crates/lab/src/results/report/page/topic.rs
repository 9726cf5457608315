//! What the parts of the page share: sections of several runs that measured the same, the colour of
//! each engine, the style of a verdict, lists and tables.

use maud::{Markup, html};

use crate::results::report::{
    chart::KINDS,
    saved::{Saved, SavedSection},
};

/// Sections of several runs that measured the same.
pub struct Topic<'a> {
    /// What it is called in all of them.
    pub title: &'a str,
    /// Which anchor leads to it.
    pub anchor: String,
    /// The runs that have it, each with the section's number there.
    pub of: Vec<(usize, &'a Saved, usize)>,
}

impl Topic<'_> {
    /// A link to it.
    pub fn link(&self) -> Markup {
        html! { a href={ "#" (self.anchor) } { (self.title) } }
    }
}

/// The sections of all runs, those that measured the same together, in the order of the first run.
pub fn topics(runs: &[Saved]) -> Vec<Topic<'_>> {
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

/// Which engine has which colour, the same on the whole page.
pub struct Colors {
    engines: Vec<String>,
}

impl Colors {
    /// The library's engine first, the others as they come.
    pub fn of(runs: &[Saved]) -> Colors {
        let mut engines: Vec<String> = Vec::new();
        let rows = || runs.iter().flat_map(|run| &run.results);
        for row in rows().filter(|row| row.role == "subject").chain(rows()) {
            if !engines.contains(&row.engine) {
                engines.push(row.engine.clone());
            }
        }
        Colors { engines }
    }

    /// An engine's. Beyond the last they begin again.
    pub fn kind(&self, engine: &str) -> usize {
        self.engines.iter().position(|own| own == engine).unwrap_or(0) % KINDS
    }
}

/// The style of a verdict.
pub fn class(verdict: &str) -> &'static str {
    match verdict {
        "use it" => "win",
        "do not use it" => "loss",
        "no difference" => "same",
        _ => "unknown",
    }
}

/// A verdict in its style.
pub fn verdict_word(verdict: &str) -> Markup {
    html! { span class={ "verdict " (class(verdict)) } { (verdict) } }
}

/// A list below a heading; nothing where it has no item, and no heading where that is empty.
pub fn list(class: &str, heading: &str, items: Vec<Markup>) -> Markup {
    html! {
        @if !items.is_empty() {
            @if !heading.is_empty() { h3 { (heading) } }
            ul class=(class) { @for item in items { li { (item) } } }
        }
    }
}

/// Something that is shown when it is asked for.
pub fn folded(heading: &str, content: Markup) -> Markup {
    html! { details { summary { (heading) } (content) } }
}

/// Something that scrolls by itself where it is wider than the page.
pub fn wide(class: &str, label: &str, content: Markup) -> Markup {
    html! { div class=(class) tabindex="0" role="region" aria-label=(label) { (content) } }
}
