//! The first screen: what a reader sees at the end of a run, and what the page begins with. The
//! machine, an answer for each workload, and what limits this machine, each in a line or two.
//!
//! On a terminal it has at most 30 lines of 80 characters and no colours, so that it reads the same in
//! a file. Losses are shown as far as there is room; the page has all. It is drawn from saved results and measures nothing.

use super::{
    lines::{WIDTH, cut, cut_before, wrapped, wrapped_within},
    saved::Saved,
};
use crate::{
    results::gain::{Column, Gain, Told},
    sampling::job::NOT_HERE,
};

/// How many lines a terminal has room for.
pub const LINES: usize = 30;
/// Lines of an answer, of one in fewer words, of a loss, and of a limit.
const ANSWER_LINES: usize = 3;
const SHORT_LINES: usize = 2;
const LOSS_LINES: usize = 2;
const LIMIT_LINES: usize = 2;
/// What lines after the first begin with.
const INDENT: &str = "  ";

/// What is said of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The workload.
    pub workload: String,
    /// The answer.
    pub text: String,
    /// The same in fewer words, and in fewer still.
    pub shorter: Vec<String>,
    /// What to do: the end of all of them, which is never cut.
    pub advice: String,
    /// Where a program keeps what it has.
    pub loss: Option<String>,
}

/// What is said of each workload, in the order measured, and of those that were left out.
pub fn said(run: &Saved) -> Vec<Said> {
    let answers = run.answers.iter().map(|answer| Said {
        workload: answer.workload.clone(),
        text: answer.text(),
        shorter: vec![answer.short_text(), answer.effect_and_advice()],
        advice: answer.advice.clone(),
        loss: answer.loss.clone(),
    });
    let left_out = run.left_out.iter().map(|own| Said {
        workload: own.workload.clone(),
        text: format!("left out: {}", own.reason),
        shorter: Vec::new(),
        advice: String::new(),
        loss: None,
    });
    answers.chain(left_out).collect()
}

fn is_or_are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// What limits the results of this machine, a line for each: results that are excluded, comparisons
/// that say nothing, and what cannot be measured here.
pub fn limits(run: &Saved) -> Vec<String> {
    let reasons = run.results.iter().filter_map(|row| row.void.as_deref());
    let (not_here, reasons): (Vec<&str>, Vec<&str>) =
        reasons.partition(|reason| reason.starts_with(NOT_HERE));
    let mut limits = Vec::new();
    if let Some((reason, count)) = most_frequent(&reasons) {
        let (excluded, all) = (reasons.len(), run.results.len() - not_here.len());
        let share = match count == excluded {
            true => String::new(),
            false => format!(", {count} for this reason"),
        };
        let verb = is_or_are(excluded);
        limits.push(format!("{excluded} of {all} results {verb} excluded{share}: {reason}"));
    }
    let asked = |gain: &&Gain| gain.column != Column::Best && gain.finding != Told::Excluded;
    let compared: Vec<&Gain> = run.gains.iter().map(|own| &own.gain).filter(asked).collect();
    let unclear = compared.iter().filter(|gain| gain.finding == Told::Inconclusive).count();
    if unclear > 0 {
        limits.push(format!(
            "{unclear} of {} comparisons {} inconclusive: a quiet machine or --repeats helps",
            compared.len(),
            is_or_are(unclear)
        ));
    }
    let missing = run.not_measurable();
    let names = missing.iter().filter_map(|line| line.split(':').next());
    let names: Vec<String> = names.map(name_of).collect();
    if !names.is_empty() {
        limits.push(format!("not measurable here: {}", names.join(", ")));
    }
    limits
}

/// Abbreviations are not words.
fn name_of(name: &str) -> String {
    name.replace("nvme", "NVMe").replace("iopoll", "IOPOLL")
}

/// The most frequent reason, and how many are the same but for their figures.
fn most_frequent<'a>(reasons: &[&'a str]) -> Option<(&'a str, usize)> {
    let words = |reason: &str| reason.replace(|letter: char| !letter.is_alphabetic(), "");
    let count = |reason: &str| reasons.iter().filter(|own| words(own) == words(reason)).count();
    // Of several the first: what fails first explains most.
    let counted = reasons.iter().rev().map(|reason| (*reason, count(reason)));
    counted.max_by_key(|(_, count)| *count)
}

/// What its brackets are, and where the rest is.
const FOOTNOTE: &str =
    "Brackets are 95 % intervals. CPU is that of an operation. All tables: --verbose";

/// The screen as text. `places` are lines about files, the caller's, each of at most [`WIDTH`].
pub fn text(run: &Saved, places: &[String]) -> String {
    let said = said(run);
    let limit = |line: &String| wrapped_within(line, INDENT, LIMIT_LINES);
    let mut end: Vec<String> = limits(run).iter().flat_map(limit).collect();
    if !said.is_empty() {
        end.push(FOOTNOTE.to_owned());
    }
    end.extend(places.iter().cloned());
    let mut lines = vec![cut(&run.machine(), WIDTH), String::new()];
    let answers = answer_lines(&said, LINES.saturating_sub(lines.len() + end.len() + 1));
    if !answers.is_empty() {
        lines.extend(answers);
        lines.push(String::new());
    }
    lines.extend(end);
    lines.into_iter().map(|line| line + "\n").collect()
}

/// An answer in at most so many lines, in the most words for which they have room.
fn block(own: &Said, most: usize) -> Vec<String> {
    let line = |text: &String| format!("{}: {text}", own.workload);
    let texts: Vec<String> = std::iter::once(&own.text).chain(&own.shorter).map(line).collect();
    let whole = texts.iter().map(|text| wrapped(text, INDENT)).find(|lines| lines.len() <= most);
    whole.unwrap_or_else(|| cut_before(&texts[texts.len() - 1], &own.advice, (INDENT, most)))
}

/// The answers in at most `room` lines: each has one at least. What is longest is said in fewer words
/// first, and losses come where room is left.
fn answer_lines(said: &[Said], room: usize) -> Vec<String> {
    let mut blocks: Vec<Vec<String>> = said.iter().map(|own| block(own, ANSWER_LINES)).collect();
    let used = |blocks: &[Vec<String>]| blocks.iter().map(Vec::len).sum::<usize>();
    for most in [SHORT_LINES, 1] {
        for (index, own) in said.iter().enumerate().rev() {
            if used(&blocks) > room && blocks[index].len() > most {
                blocks[index] = block(own, most);
            }
        }
    }
    for (index, own) in said.iter().enumerate() {
        let loss = own
            .loss
            .iter()
            .flat_map(|loss| wrapped_within(&format!("{INDENT}{loss}"), INDENT, LOSS_LINES));
        let loss: Vec<String> = loss.collect();
        if used(&blocks) + loss.len() <= room {
            blocks[index].extend(loss);
        }
    }
    blocks.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        results::{report::saved::SavedRow, row::RowKind},
        testing::{Figures, row, saved, saved_text, section},
        workload,
    };

    fn lines_of(run: &Saved, places: &[String]) -> Vec<String> {
        text(run, places).lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn assert_fits(lines: &[String]) {
        assert!(lines.len() <= LINES, "{} lines:\n{}", lines.len(), lines.join("\n"));
        for line in lines {
            let columns = line.chars().count();
            assert!(columns <= WIDTH, "{columns} columns: {line}");
        }
    }

    #[test]
    fn a_run_reads_so() {
        let mut value: Value = serde_json::from_str(&saved_text()).unwrap();
        let environment = json!({"cpu_model": "Some CPU", "kernel": "6.18.5", "cores_allowed": 2});
        let fields = environment.as_object().unwrap().clone();
        value["environment"].as_object_mut().unwrap().extend(fields);
        value["storage"]["filesystem"] = json!({"name": "ext4"});
        value["storage"]["device"] = json!({"name": "vda"});
        let run = Saved::parse(&value.to_string()).unwrap();
        let expected = "\
2 x Some CPU, Linux 6.18.5, ext4 on vda

read: You use a thread pool with 32 reads in flight (O_DIRECT 4k): io_uring
  gives 1.25 [1.25, 1.25] times the reads at 0.43 of the CPU. Use
  ringwise::Local.

not measurable here: energy, hardware counters, IOPOLL, NVMe passthrough
Brackets are 95 % intervals. CPU is that of an operation. All tables: --verbose
results: r.json
report: r.html
";
        let places = ["results: r.json".to_owned(), "report: r.html".to_owned()];
        let text = text(&run, &places);
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn an_excluded_result_has_its_remedy_and_what_no_run_could_measure_is_not_one() {
        let mut run = Saved::parse(&saved_text()).unwrap();
        let of_fixture =
            |row: &&SavedRow| row.void.as_ref().is_some_and(|own| own.starts_with(NOT_HERE));
        assert_eq!(run.results.iter().filter(of_fixture).count(), 1);
        let valid = run.results.iter_mut().filter(|row| row.void.is_none());
        for (row, change) in valid.zip(["-62", "+58"]) {
            row.void = Some(format!(
                "not steady: throughput moved by {change} % of its median over the measured time; use a longer --duration"
            ));
        }
        let lines = lines_of(&run, &[]);
        assert_fits(&lines);
        let at = lines.iter().position(|line| line.contains("excluded")).unwrap();
        assert_eq!(
            lines[at..at + 2],
            [
                "2 of 5 results are excluded: not steady: throughput moved by -62 % of its median",
                "  over the measured time; use a longer --duration",
            ]
        );
    }

    /// A run of the suite with every workload, whose engines have names without end, and in which much
    /// is excluded.
    fn whole_suite(name: &str) -> Saved {
        let sections = workload::ALL[..workload::SUITE].iter().flat_map(|entry| {
            let of = |short: &str, ring: f64| {
                let figures = |ops_per_s| Figures { ops_per_s, ..Figures::DIRECT };
                let rows = vec![
                    row(name, RowKind::Rival, 1000, figures(80_000.0)),
                    row(&format!("{name}-2"), RowKind::Program, 1000, figures(90_000.0)),
                    row("uring", RowKind::Subject, 1000, figures(ring)),
                ];
                let mut own = section();
                own.facts = entry.facts;
                own.rows = rows;
                own.short = short.to_owned();
                own.gains = crate::results::gain::of(&own, 1);
                own
            };
            [of("something that was measured", 160_000.0), of("something else", 20_000.0)]
        });
        Saved::parse(&saved(sections.collect())).unwrap()
    }

    #[test]
    fn a_suite_fits_on_a_screen() {
        for name in ["tokio".to_owned(), "n".repeat(300), "many words ".repeat(30)] {
            let mut run = whole_suite(&name);
            run.environment.insert("cpu_model".to_owned(), "processor ".repeat(20).into());
            for row in run.results.iter_mut().step_by(2) {
                row.void = Some(format!("{name} is not there"));
            }
            run.left_out = vec![crate::results::report::LeftOut {
                workload: "nop".to_owned(),
                reason: "no io_uring ".repeat(20),
            }];
            run.answers.retain(|answer| answer.workload != "nop");
            let places: Vec<String> = (0..3).map(|place| format!("place {place}")).collect();
            let lines = lines_of(&run, &places);
            assert_fits(&lines);
            for entry in &workload::ALL[..workload::SUITE] {
                let name = format!("{}: ", entry.facts.name);
                assert!(lines.iter().any(|line| line.starts_with(&name)), "{name}{lines:#?}");
            }
            let all: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
            let all = all.join(" ");
            for answer in &run.answers {
                assert!(!answer.advice.is_empty() && all.contains(&answer.advice), "{lines:#?}");
            }
            let last = lines.last().map(String::as_str);
            assert_eq!(last, Some("place 2"), "files come last");
        }
    }

    #[test]
    fn losses_come_where_there_is_room() {
        let mut run = whole_suite("tokio");
        assert!(run.answers.iter().all(|answer| answer.loss.is_some()), "{:?}", run.answers);
        run.answers.truncate(2);
        let text = text(&run, &[]);
        assert_eq!(text.matches("\n  Keep ").count(), 2, "{text}");
    }

    #[test]
    fn what_was_not_measured_is_no_answer() {
        let run = Saved::parse(&saved(Vec::new())).unwrap();
        let lines = lines_of(&run, &["results: r.json".to_owned()]);
        assert_fits(&lines);
        assert!(!lines.iter().any(|line| line.contains("intervals")), "{lines:?}");
    }
}
