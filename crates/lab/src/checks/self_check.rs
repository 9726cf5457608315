//! The lab measured with itself: every row of a depth gets the engine of the library's row, so that
//! each difference that is still told is one that is not there.
//!
//! Rows keep their names, their places in the interleaving and the control that sets the noise
//! floor; only who does the work is the same. It says how far a verdict can be trusted, and nothing
//! of any engine.

use ringwise_measure::statistics::{Comparison, compare, noise_floor};

use crate::{
    results::{
        gain,
        row::RowKind,
        section::Section,
        verdict::{Finding, interval_text},
    },
    sampling::job::NOT_HERE,
};

/// What share of all rows has to show no difference, and of all gains none.
pub const SHARE_MIN: f64 = 0.95;

/// Gives every row of a section the engine of its depth's subject.
pub fn level(section: &mut Section, run: usize) {
    for index in 0..section.rows.len() {
        let row = &section.rows[index];
        let is_it = |other: &&crate::results::row::Row| {
            other.kind == RowKind::Subject && other.depth == row.depth
        };
        let Some(subject) = section.rows.iter().find(is_it) else { continue };
        let runner = subject.runner.clone();
        // A mapping goes through the page cache where all others go past it.
        let is_another = section.cache_of(row) != section.cache_of(subject);
        let row = &mut section.rows[index];
        row.runner = runner;
        if is_another {
            row.measured.void = Some(format!("{NOT_HERE}another job than the ring's"));
        }
    }
    section.title += &format!(", run {run} of a check of the lab with itself");
    section.notes.push("every row of a depth is the same engine, whatever its name".to_owned());
}

/// What was told of rows that are all the same.
#[derive(Debug, Default)]
pub struct Told {
    rows: usize,
    gains: usize,
    verdicts: usize,
    /// Rows that were told to differ, in words.
    different: Vec<String>,
    /// Changes at one depth that were told to gain or to lose, in words.
    changed: Vec<String>,
    /// Depths that were told to have a winner, in words.
    decided: Vec<String>,
}

impl Told {
    /// Of all sections.
    pub fn of(sections: &[Section]) -> Told {
        let mut told = Told::default();
        sections.iter().for_each(|section| told.add(section));
        told
    }

    fn add(&mut self, section: &Section) {
        let noun = section.depth_is;
        let is_other =
            |pair: &&crate::results::verdict::Pairing| pair.baseline_kind != RowKind::Control;
        for pair in section.pairings.iter().filter(is_other) {
            let control = section
                .pairings
                .iter()
                .find(|other| other.depth == pair.depth && other.baseline_kind == RowKind::Control);
            let noise = control.map_or(0.0, |control| noise_floor(&control.ratio));
            self.rows += 1;
            if compare(&pair.ratio, noise) != Comparison::NoDifference {
                self.different.push(format!(
                    "{}: {} at {noun} {}: {} times",
                    section.title,
                    pair.baseline,
                    pair.depth,
                    interval_text(&pair.ratio)
                ));
            }
        }
        let is_same_job = |gain: &&gain::Gain| gain.depth == gain.to_depth;
        for gain in section.gains.iter().filter(is_same_job) {
            self.gains += usize::from(gain.finding != gain::Told::Excluded);
            if matches!(gain.finding, gain::Told::Gain | gain::Told::Loss) {
                let gain::Gain { from, to, depth, finding, ratio, cpu_ratio, .. } = gain;
                let words = |ratio: &Option<_>| ratio.as_ref().map_or("?".into(), interval_text);
                self.changed.push(format!(
                    "{}: {from} to {to} at {noun} {depth}: {finding}, {} times at {} of the CPU",
                    section.title,
                    words(ratio),
                    words(cpu_ratio)
                ));
            }
        }
        for verdict in &section.verdicts {
            self.verdicts += 1;
            if matches!(verdict.verdict, Finding::UseIt | Finding::DoNotUse) {
                let finding = verdict.verdict;
                let at = format!("{} at {noun} {}: {finding}", section.title, verdict.depth);
                self.decided.push(at);
            }
        }
    }

    /// Whether enough rows and gains show no difference.
    pub fn is_passed(&self) -> bool {
        let has_enough = |false_ones: &Vec<String>, all| share(false_ones.len(), all) >= SHARE_MIN;
        self.rows > 0
            && has_enough(&self.different, self.rows)
            && has_enough(&self.changed, self.gains)
    }

    /// In words: the shares, and what is not among them.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let lists = [("row", &self.different), ("gain", &self.changed), ("verdict", &self.decided)];
        for (what, list) in lists {
            list.iter().for_each(|line| text += &format!("{what} told apart: {line}\n"));
        }
        text += &format!(
            "no difference in {} of {} rows ({:.1} %) and {} of {} gains ({:.1} %; expected at least \
             {:.0} %), and no winner in {} of {} verdicts\n",
            self.rows - self.different.len(),
            self.rows,
            share(self.different.len(), self.rows) * 100.0,
            self.gains - self.changed.len(),
            self.gains,
            share(self.changed.len(), self.gains) * 100.0,
            SHARE_MIN * 100.0,
            self.verdicts - self.decided.len(),
            self.verdicts
        );
        text
    }
}

/// What share shows none.
fn share(false_ones: usize, all: usize) -> f64 {
    1.0 - false_ones as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        results::verdict,
        testing::{Figures, row, section},
    };

    #[test]
    fn every_row_of_a_depth_has_the_subjects_engine() {
        let mut section = section();
        level(&mut section, 2);
        let subject = section.rows.iter().find(|row| row.kind == RowKind::Subject).unwrap();
        for row in section.rows.iter().filter(|row| row.depth == subject.depth) {
            assert!(Arc::ptr_eq(&row.runner, &subject.runner), "{}", row.label());
        }
        // There is no ring at depth 1.
        let alone = section.rows.iter().find(|row| row.engine == "sync").unwrap();
        assert!(!Arc::ptr_eq(&alone.runner, &subject.runner));
        assert!(section.title.ends_with("run 2 of a check of the lab with itself"));
    }

    #[test]
    fn what_differs_is_counted_and_named() {
        let told = Told::of(&[section()]);
        // `threads` and the variant at 80,000 beside 100,000.
        assert_eq!((told.rows, told.different.len()), (2, 2));
        assert!(!told.is_passed());
        assert!(told.text().contains("threads at depth 32: 1.25 [1.25, 1.25] times"));
        assert!(told.text().contains("no difference in 0 of 2 rows (0.0 %) and "));
        // From `threads` to the ring; `sync` is at another depth than the fastest.
        assert!(told.text().contains("gain told apart: read direct"), "{}", told.text());
        let mut same = section();
        same.rows = (0..40)
            .map(|index| match index {
                0 => row("uring", RowKind::Subject, 32, Figures::DIRECT),
                1 => row("uring", RowKind::Control, 32, Figures::DIRECT),
                _ => row(&format!("rival {index}"), RowKind::Rival, 32, Figures::DIRECT),
            })
            .collect();
        same.pairings = verdict::pairings(&same.rows, 32, 1);
        same.verdicts = vec![verdict::at_depth(&same.rows, 32, "4 KiB", 1)];
        same.gains = gain::of(&same, 1);
        let told = Told::of(&[same]);
        assert_eq!((told.rows, told.different.len(), told.decided.len()), (38, 0, 0));
        assert!(told.gains >= 38 && told.changed.is_empty(), "{:?}", told.changed);
        assert!(told.is_passed());
        assert!(!Told::default().is_passed(), "nothing measured is no success");
    }
}
