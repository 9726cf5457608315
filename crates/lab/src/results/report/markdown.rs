//! Saved results as Markdown, for an issue or a wiki: answers first, then verdicts, then each section's
//! figures, its gains, its reasons and its excluded rows.

use std::fmt::Write;

use super::{
    figures::{self, Cells},
    gains,
    saved::{Saved, run_name},
    screen::{self, Said},
};
use crate::results::verdict::interval_text;

/// The text of one run, or of several one after the other.
pub fn text(runs: &[Saved]) -> String {
    let mut out = String::from("# ringwise lab\n");
    for (index, run) in runs.iter().enumerate() {
        if runs.len() > 1 {
            let _ = write!(out, "\n# {}\n", plain(&run_name(runs, index)));
        }
        one(&mut out, run);
    }
    out
}

fn one(out: &mut String, run: &Saved) {
    let partial = match run.partial {
        true => format!(", **partial: {}**", plain(run.ended_by())),
        false => String::new(),
    };
    let _ = write!(
        out,
        "\n{}; {} interleaved blocks, seed {}, ringwise {}{partial}\n",
        plain(&run.machine()),
        run.repeats,
        run.seed,
        plain(&run.version)
    );
    answers(out, run);
    if !run.verdicts.is_empty() {
        out.push_str("\n## Verdicts\n\n");
        verdicts(out, run);
    }
    let missing = run.not_measurable();
    if !missing.is_empty() {
        out.push_str("\n## Environment\n\n");
        missing.iter().for_each(|line| out.push_str(&format!("- {}\n", plain(line))));
    }
    for (index, section) in run.sections.iter().enumerate() {
        let _ = write!(out, "\n## {}\n\n", plain(&section.title));
        for note in &section.notes {
            let _ = writeln!(out, "- {}", plain(note));
        }
        table(out, &figures::cells(run, index));
        table(out, &gains::cells(&section.depth_is, run.gains(index)));
        for (what, reason) in figures::voids(run, index) {
            let _ = writeln!(out, "- excluded: {}: {}", plain(&what), plain(&reason));
        }
        for verdict in run.verdicts(index) {
            let place = format!("{} {}", section.depth_is, verdict.depth);
            let (place, found) = (plain(&place), plain(&verdict.verdict));
            let _ = writeln!(out, "- {place}: **{found}**: {}", plain(&verdict.reason));
        }
        for conclusion in section.conclusions() {
            let _ = writeln!(out, "- {}", plain(&conclusion));
        }
    }
}

/// What the first screen says.
fn answers(out: &mut String, run: &Saved) {
    let said = screen::said(run);
    if said.is_empty() {
        return;
    }
    out.push_str("\n## What you would gain\n\n");
    for Said { workload, text, loss, .. } in &said {
        let loss = loss.as_ref().map_or_else(String::new, |loss| format!(" {loss}"));
        let _ = writeln!(out, "- **{}**: {}", plain(workload), plain(&format!("{text}{loss}")));
    }
    out.push('\n');
    for limit in screen::limits(run) {
        let _ = writeln!(out, "- {}", plain(&limit));
    }
}

fn verdicts(out: &mut String, run: &Saved) {
    let head = ["measured", "at", "verdict", "throughput", "CPU/op", "rival"];
    let mut cells = Cells { head: head.map(str::to_owned).to_vec(), lines: Vec::new() };
    for (index, section) in run.sections.iter().enumerate() {
        cells.lines.extend(run.verdicts(index).map(|verdict| {
            let ratio = |ratio: Option<_>| ratio.as_ref().map_or("-".to_owned(), interval_text);
            vec![
                section.title.clone(),
                format!("{} {}", section.depth_is, verdict.depth),
                format!("**{}**", verdict.verdict),
                ratio(verdict.ratio),
                ratio(verdict.cpu_ratio),
                verdict.rival.clone().unwrap_or_else(|| "-".to_owned()),
            ]
        }));
    }
    table(out, &cells);
}

fn table(out: &mut String, cells: &Cells) {
    if cells.lines.is_empty() {
        return;
    }
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    // The first column is words, the others are figures.
    let sides = cells.head.iter().enumerate().map(|(at, _)| if at == 0 { "---" } else { "--:" });
    let sides = sides.collect::<Vec<_>>().join(" | ");
    let lines: String = cells.lines.iter().map(|cells| line(cells)).collect();
    let _ = write!(out, "\n{}| {sides} |\n{lines}\n", line(&cells.head));
}

/// Words that end no cell and begin no tag.
fn plain(words: &str) -> String {
    let one_line = words.replace(['\n', '\r'], " ");
    one_line.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::saved_text;

    #[test]
    fn tables_are_whole() {
        let mut saved = Saved::parse(&saved_text()).unwrap();
        saved.results[2].engine = "a|b\n<c".to_owned();
        let text = text(std::slice::from_ref(&saved));
        for part in [
            "\n- **read**: You use a thread pool with 32 reads in flight (O_DIRECT 4k): io_uring gives 1.25 ",
            "\n- iopoll: not measurable here: ",
            "| read direct random, 4k blocks, O_DIRECT | depth 32 | **use it** | 1.25 [1.25, 1.25] |",
            "| a\\|b &lt;c | 32 | 80 000 |",
            "- excluded: mmap at depth 1: not measurable here",
            "- depth 32: **use it**: 1.25 [1.25, 1.25] times threads; keeps",
        ] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
        let columns = |line: &str| line.replace("\\|", "").matches('|').count();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(lines.len(), 3 + 7 + 7);
        for table in [&lines[..3], &lines[3..10], &lines[10..]] {
            assert!(table.iter().all(|line| columns(line) == columns(table[0])), "{text}");
        }
    }
}
