//! What may be said of a whole workload, and of the machine: what most of its verdicts say, with their
//! number and the best and the worst figure among them. The exceptions stand in the sections.
//!
//! What a no-op costs beside a bare ring is about this library and not about rings, so that it is not
//! in the machine's.

use ringwise_measure::statistics::MINIMUM_DIFFERENCE;
use serde::{Deserialize, Serialize};

use crate::{
    section::Section,
    verdict::{Finding, Verdict, interval_text},
    workload::facts::Facts,
};

/// What the machine is called among workloads.
pub const MACHINE: &str = "machine";

/// A verdict on a workload, or on the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overall {
    /// The workload's name, or `machine`.
    pub of: String,
    /// One of four.
    pub verdict: Finding,
    /// Verdicts, or of the machine workloads, that say "use it".
    pub wins: usize,
    /// That say "pure overhead".
    pub losses: usize,
    /// That say "no difference".
    pub ties: usize,
    /// That say "cannot be told here".
    pub untold: usize,
    /// Why, in numbers.
    pub reason: String,
}

/// Of each workload that has verdicts, in the order measured, and at the end, where there are several,
/// of the machine.
pub fn overall(sections: &[Section]) -> Vec<Overall> {
    let mut workloads: Vec<&Facts> = Vec::new();
    for section in sections.iter().filter(|section| !section.verdicts.is_empty()) {
        if !workloads.iter().any(|own| own.name == section.facts.name) {
            workloads.push(section.facts);
        }
    }
    let mut all: Vec<Overall> =
        workloads.iter().map(|own| of_workload(own.name, sections)).collect();
    let about_rings = workloads.iter().zip(&all).filter(|(workload, _)| workload.is_about_rings);
    let of_machine: Vec<&Overall> = about_rings.map(|(_, own)| own).collect();
    if of_machine.len() > 1 {
        let machine = machine(&of_machine);
        all.push(machine);
    }
    all
}

/// How many say what.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    wins: usize,
    losses: usize,
    ties: usize,
    untold: usize,
}

impl Count {
    fn of(findings: impl Iterator<Item = Finding>) -> Count {
        let mut count = Count::default();
        for finding in findings {
            *match finding {
                Finding::UseIt => &mut count.wins,
                Finding::PureOverhead => &mut count.losses,
                Finding::NoDifference => &mut count.ties,
                Finding::CannotBeTold => &mut count.untold,
            } += 1;
        }
        count
    }

    /// What most say that say anything but "no difference"; nothing where as many say the contrary.
    fn finding(self) -> Finding {
        match self.wins.cmp(&self.losses) {
            std::cmp::Ordering::Greater => Finding::UseIt,
            std::cmp::Ordering::Less => Finding::PureOverhead,
            std::cmp::Ordering::Equal if self.wins > 0 => Finding::CannotBeTold,
            std::cmp::Ordering::Equal if self.ties > 0 => Finding::NoDifference,
            std::cmp::Ordering::Equal => Finding::CannotBeTold,
        }
    }

    fn made(self, of: &str, reason: String) -> Overall {
        let Count { wins, losses, ties, untold } = self;
        Overall { of: of.to_owned(), verdict: self.finding(), wins, losses, ties, untold, reason }
    }
}

fn of_workload(name: &str, sections: &[Section]) -> Overall {
    let own = sections.iter().filter(|section| section.facts.name == name);
    let all: Vec<(&Section, &Verdict)> = own
        .flat_map(|section| section.verdicts.iter().map(move |verdict| (section, verdict)))
        .collect();
    let count = Count::of(all.iter().map(|(_, verdict)| verdict.verdict));
    let with = |finding| all.iter().filter(move |(_, own)| own.verdict == finding);
    let most = |finding| with(finding).max_by(|a, b| size(a.1).total_cmp(&size(b.1)));
    let mut clauses = Vec::new();
    for (finding, count, what, mark) in [
        (Finding::UseIt, count.wins, "wins", "best"),
        (Finding::PureOverhead, count.losses, "loses", "worst"),
    ] {
        if let Some((section, verdict)) = most(finding) {
            let told = format!("{what} {count} of {}", all.len());
            clauses.push(format!("{told}, {mark} {}", figure_text(section, verdict)));
        }
    }
    if count.ties > 0 {
        clauses.push(format!("no difference in {} of {}", count.ties, all.len()));
    }
    if let Some((section, verdict)) = with(Finding::CannotBeTold).next() {
        let first = verdict.reason.split("; ").next().unwrap_or_default();
        clauses.push(format!(
            "{} of {} cannot be told, the first at {} {} of {}: {first}",
            count.untold,
            all.len(),
            section.depth_is,
            verdict.depth,
            section.title
        ));
    }
    count.made(name, joined(count, clauses))
}

fn machine(workloads: &[&Overall]) -> Overall {
    let count = Count::of(workloads.iter().map(|own| own.verdict));
    let named = |finding: Finding| {
        let own = workloads.iter().filter(|own| own.verdict == finding);
        let names: Vec<&str> = own.map(|own| own.of.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let findings = [
        (Finding::UseIt, "wins in"),
        (Finding::PureOverhead, "loses in"),
        (Finding::NoDifference, "no difference in"),
        (Finding::CannotBeTold, "cannot be told in"),
    ];
    let clause = |(finding, what)| Some(format!("{what} {}", named(finding)?));
    let mut clauses: Vec<String> = findings.into_iter().filter_map(clause).collect();
    let sum = |of: fn(&Overall) -> usize| workloads.iter().map(|own| of(own)).sum::<usize>();
    clauses.push(format!(
        "of {} verdicts {} win, {} lose",
        sum(|own| own.wins + own.losses + own.ties + own.untold),
        sum(|own| own.wins),
        sum(|own| own.losses)
    ));
    count.made(MACHINE, joined(count, clauses))
}

fn joined(count: Count, mut clauses: Vec<String>) -> String {
    if count.wins > 0 && count.wins == count.losses {
        clauses.insert(0, "it depends on what is done: as many win as lose".to_owned());
    }
    clauses.join("; ")
}

/// How far a verdict is from no difference, whichever way: by throughput, or else by CPU time.
fn size(verdict: &Verdict) -> f64 {
    let logs =
        [verdict.ratio, verdict.cpu_ratio].map(|own| own.map_or(0.0, |own| own.mid.ln().abs()));
    if is_by_throughput(verdict) { logs[0] } else { logs[1] }
}

/// Whether throughput is what a verdict rests on: its interval is on the winner's side.
fn is_by_throughput(verdict: &Verdict) -> bool {
    verdict.ratio.is_some_and(|ratio| match verdict.verdict {
        Finding::UseIt => ratio.low > 1.0 && ratio.mid > 1.0 + MINIMUM_DIFFERENCE,
        _ => ratio.high < 1.0 && ratio.mid < 1.0 - MINIMUM_DIFFERENCE,
    })
}

fn figure_text(section: &Section, verdict: &Verdict) -> String {
    let place = format!("{}, {} {}", section.title, section.depth_is, verdict.depth);
    let rival = verdict.rival.as_deref().unwrap_or("the other");
    match (is_by_throughput(verdict), verdict.ratio, verdict.cpu_ratio) {
        (false, _, Some(ratio)) => {
            format!("{} times the CPU time of {rival} ({place})", interval_text(&ratio))
        }
        (_, Some(ratio), _) => format!("{} times {rival} ({place})", interval_text(&ratio)),
        (_, None, _) => place,
    }
}

/// A line for each, as the terminal has them.
pub fn text(all: &[Overall]) -> String {
    let line = |own: &Overall| format!("  {}: {}: {}\n", own.of, own.verdict, own.reason);
    let lines: String = all.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("in all\n{lines}\n") }
}

#[cfg(test)]
mod tests {
    use ringwise_measure::statistics::Ratio;

    use super::*;
    use crate::{
        row::Row,
        workload::{chain, copy, echo, nop, read, stat},
    };

    fn verdict(depth: usize, verdict: Finding, mid: f64, cpu: f64) -> Verdict {
        let ratio = |mid: f64| Some(Ratio { low: mid * 0.99, mid, high: mid * 1.01 });
        Verdict {
            depth,
            verdict,
            winner: None,
            rival: Some("threads".to_owned()),
            ratio: ratio(mid),
            cpu_ratio: ratio(cpu),
            noise_floor: None,
            reason: "client-bound: the load was at its limit; more".to_owned(),
        }
    }

    fn section(workload: &'static Facts, verdicts: Vec<Verdict>) -> Section {
        let title = format!("{} of a test", workload.name);
        let mut section = Section::new(workload, title, Vec::<Row>::new());
        section.verdicts = verdicts;
        section
    }

    #[test]
    fn a_workload_is_what_most_of_it_is_and_the_worst_is_named() {
        use Finding::{CannotBeTold, NoDifference, PureOverhead, UseIt};
        let sections = [
            section(
                &read::FACTS,
                vec![
                    verdict(1, PureOverhead, 0.5, 2.0),
                    verdict(8, UseIt, 1.5, 0.5),
                    verdict(32, UseIt, 1.0, 0.25),
                ],
            ),
            section(&read::FACTS, vec![verdict(1, NoDifference, 1.0, 1.0)]),
            section(&nop::FACTS, vec![verdict(1, PureOverhead, 0.9, 1.1)]),
            section(&echo::FACTS, vec![verdict(50, CannotBeTold, 1.3, 1.0)]),
            section(
                &stat::FACTS,
                vec![verdict(1, PureOverhead, 0.4, 2.0), verdict(32, UseIt, 1.2, 0.8)],
            ),
            section(&chain::FACTS, vec![verdict(170, NoDifference, 1.0, 1.0)]),
        ];
        let all = overall(&sections);
        let found: Vec<(&str, Finding)> =
            all.iter().map(|own| (own.of.as_str(), own.verdict)).collect();
        assert_eq!(
            found,
            [
                ("read", UseIt),
                ("nop", PureOverhead),
                ("echo", CannotBeTold),
                ("stat", CannotBeTold),
                ("chain", NoDifference),
                ("machine", UseIt)
            ]
        );
        assert_eq!(
            all[0].reason,
            "wins 2 of 4, best 0.25 [0.25, 0.25] times the CPU time of threads (read of a test, depth \
             32); loses 1 of 4, worst 0.50 [0.49, 0.51] times threads (read of a test, depth 1); no \
             difference in 1 of 4"
        );
        assert_eq!(
            all[2].reason,
            "1 of 1 cannot be told, the first at connections 50 of echo of a test: client-bound: the \
             load was at its limit"
        );
        assert!(all[3].reason.starts_with("it depends on what is done: "), "{}", all[3].reason);
        assert_eq!(
            all[5].reason,
            "wins in read; no difference in chain; cannot be told in echo, stat; of 8 verdicts 3 win, \
             2 lose"
        );
        assert!(text(&all).contains("\n  machine: use it: wins in read; "), "{}", text(&all));
    }

    #[test]
    fn one_workload_is_no_machine_and_nothing_is_nothing() {
        let one = [section(&read::FACTS, vec![verdict(1, Finding::UseIt, 1.5, 0.5)])];
        assert_eq!(overall(&one).len(), 1);
        assert!(overall(&[section(&copy::FACTS, Vec::new())]).is_empty());
        assert_eq!(text(&[]), "");
    }
}
