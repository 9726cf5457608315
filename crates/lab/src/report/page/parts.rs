//! A section of the page: what was measured in one interleaved run, of one run of the lab or of
//! several beside each other. Its charts, its verdicts with their reasons, its table and what is
//! void.

mod charts;

use std::fmt::Write;

use super::{Topic, run_name, summary};
use crate::{
    report::{
        chart::KINDS,
        figures::{self, Cells},
        heatmap::{self, Recorded},
        markup::escaped,
        saved::{Saved, SavedRow, SavedVerdict},
    },
    verdict::interval_text,
};

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

/// Draws it. `room` is how many bytes drawings from cells may still take.
pub fn draw(out: &mut String, topic: &Topic<'_>, runs: usize, colors: &Colors, room: &mut usize) {
    let _ = writeln!(out, "<section id=\"{}\"><h2>{}</h2>", topic.anchor, escaped(topic.title));
    let is_several = runs > 1;
    if is_several {
        out.push_str("<div class=\"beside\">\n");
    }
    for (number, run, section) in &topic.of {
        if is_several {
            let _ = writeln!(out, "<div><h3>{}</h3>", escaped(&name(*number, run)));
        }
        one(out, run, *section, colors, room);
        if is_several {
            out.push_str("</div>\n");
        }
    }
    if is_several {
        out.push_str("</div>\n");
    }
    out.push_str("</section>\n");
}

fn name(number: usize, run: &Saved) -> String {
    format!("{}: {}", number + 1, run_name(std::slice::from_ref(run), 0))
}

fn one(out: &mut String, run: &Saved, section: usize, colors: &Colors, room: &mut usize) {
    notes(out, &run.sections[section].notes);
    let drawn = charts::of(run, section, colors);
    if !drawn.is_empty() {
        let _ = writeln!(out, "<div class=\"charts\">\n{}</div>", drawn.concat());
    }
    let verdicts: Vec<&SavedVerdict> = run.verdicts(section).collect();
    if !verdicts.is_empty() {
        out.push_str("<h3>What it says</h3>\n<ul class=\"verdicts\">\n");
        verdicts.iter().for_each(|verdict| one_verdict(out, run, section, verdict));
        out.push_str("</ul>\n");
    }
    notes(out, &run.sections[section].conclusions());
    if run.sections[section].switches.is_empty() {
        pairings(out, run, section);
    }
    table(out, &figures::cells(run, section));
    voids(out, &figures::voids(run, section));
    details(out, run, section);
    heatmaps(out, run, section, room);
}

fn notes(out: &mut String, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    out.push_str("<ul class=\"notes\">");
    for note in notes {
        let _ = write!(out, "<li>{}</li>", escaped(note));
    }
    out.push_str("</ul>\n");
}

fn one_verdict(out: &mut String, run: &Saved, section: usize, verdict: &SavedVerdict) {
    let noun = &run.sections[section].depth_is;
    let winner = match (&verdict.winner, verdict.verdict.as_str()) {
        (Some(winner), "use it" | "pure overhead") => format!(" ({} wins)", escaped(winner)),
        _ => String::new(),
    };
    let _ = write!(
        out,
        "<li><b>{} {}</b> <span class=\"verdict {}\">{}</span>{winner}<ul>",
        escaped(noun),
        verdict.depth,
        summary::class(&verdict.verdict),
        escaped(&verdict.verdict)
    );
    for clause in verdict.reason.split("; ") {
        let _ = write!(out, "<li>{}</li>", escaped(clause));
    }
    // What later versions add in words: advice, for one.
    for (name, value) in &verdict.others {
        if let Some(words) = value.as_str() {
            let name = figures::words(name);
            let _ = write!(out, "<li><b>{}:</b> {}</li>", escaped(&name), escaped(words));
        }
    }
    out.push_str("</ul></li>\n");
}

/// The ring beside what no verdict mentions: its other switches, and other programs.
fn pairings(out: &mut String, run: &Saved, section: usize) {
    let noun = &run.sections[section].depth_is;
    let pairings: Vec<String> = run
        .pairings(section)
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
        .collect();
    notes(out, &pairings);
}

fn table(out: &mut String, cells: &Cells) {
    if cells.lines.is_empty() {
        return;
    }
    out.push_str(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Figures\">\
         <table class=\"figures\"><thead><tr>",
    );
    for name in &cells.head {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escaped(name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for line in &cells.lines {
        out.push_str("<tr>");
        for (index, cell) in line.iter().enumerate() {
            let cell = escaped(cell);
            let _ = match index {
                0 => write!(out, "<th scope=\"row\">{cell}</th>"),
                _ => write!(out, "<td>{cell}</td>"),
            };
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn voids(out: &mut String, voids: &[(String, String)]) {
    if voids.is_empty() {
        return;
    }
    out.push_str("<h3>Void</h3>\n<ul class=\"voids\">");
    for (what, reason) in voids {
        let _ = write!(out, "<li><b>{}</b>: {}</li>", escaped(what), escaped(reason));
    }
    out.push_str("</ul>\n");
}

/// What the engines said of themselves: the setup flags that the kernel granted.
fn details(out: &mut String, run: &Saved, section: usize) {
    let mut told: Vec<(String, &str)> = Vec::new();
    for row in run.rows(section).filter(|row| !row.is_control()) {
        let Some(detail) = row.detail.as_deref() else { continue };
        if !told.iter().any(|(engine, own)| *engine == row.engine && *own == detail) {
            told.push((row.engine.clone(), detail));
        }
    }
    if told.is_empty() {
        return;
    }
    out.push_str("<details><summary>What the engines said of themselves</summary><ul>");
    for (engine, detail) in told {
        let _ = write!(out, "<li><b>{}</b>: {}</li>", escaped(&engine), escaped(detail));
    }
    out.push_str("</ul></details>\n");
}

/// Latencies over time, where they were recorded, as long as there is room.
fn heatmaps(out: &mut String, run: &Saved, section: usize, room: &mut usize) {
    let recorded: Vec<Recorded> =
        run.rows(section).filter_map(|row| recorded(run, section, row)).collect();
    let drawings = heatmap::for_page(&recorded);
    if drawings.is_empty() {
        return;
    }
    out.push_str("<h3>Latencies over time</h3>\n<div class=\"heats\">\n");
    let mut left_out = 0;
    for drawing in drawings {
        match room.checked_sub(drawing.len()) {
            Some(rest) => {
                *room = rest;
                let _ = writeln!(
                    out,
                    "<div class=\"wide\" tabindex=\"0\" role=\"region\" \
                     aria-label=\"Latencies over time\">{drawing}</div>"
                );
            }
            None => left_out += 1,
        }
    }
    out.push_str("</div>\n");
    if left_out > 0 {
        let _ = writeln!(
            out,
            "<p>{left_out} more are left out to keep this page small: they are in the files that \
             <code>--heatmap</code> wrote.</p>"
        );
    }
}

fn recorded(run: &Saved, section: usize, row: &SavedRow) -> Option<Recorded> {
    if row.heat.is_empty() || !row.is_valid() || row.is_control() {
        return None;
    }
    let samples = row.samples.len().max(1) as f64;
    let elapsed = row.samples.iter().filter_map(|sample| sample.elapsed_ns);
    Some(Recorded {
        title: format!("{}, {} {}", row.label(), run.sections[section].depth_is, row.depth),
        heats: row.heats()?,
        seconds: elapsed.sum::<u64>() as f64 / 1e9 / samples,
        latency: row.latency_ns?,
    })
}
