//! The answer to a reader's question, in a sentence for each workload.
//!
//! The rule, which counts no cells:
//!
//! 1. The reader starts from the most usual starting point of the workload, as its facts list them,
//!    that was compared with the ring with a result.
//! 2. The answer is the largest gain from there, over all sections and depths: the one whose interval
//!    is farthest from 1. A gain of throughput goes before one of CPU time.
//! 3. If a closed loop could not answer the same and a section at a fixed rate does, the answer is from such sections
//!    alone.
//! 4. Without a gain from the ring it is the gain from another row, or else the largest loss, or else
//!    that there is no difference, or else why nothing may be said.
//! 5. If another row gives surely more throughput than the ring in the same place, the answer says so too.
//! 6. Beside it stands the largest loss of any starting point: where a reader keeps what there is.

use ringwise_measure::statistics::Ratio;
use serde::{Deserialize, Serialize};

use super::{
    Column, Gain, Told,
    words::{effect_at_rate_text, effect_text, part_text, ratio_text},
};
use crate::{
    results::{
        section::{Place, Section},
        verdict::Decisive,
    },
    workload::form::facts::Question,
};

/// What a reader is told of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The workload.
    pub workload: String,
    /// What may be said of the change.
    pub finding: Told,
    /// What its reader does today, as "You use spawn_blocking with 32 reads in flight"; empty where nothing
    /// may be said.
    pub today: String,
    /// What was measured, in a few words; empty where the workload's name says it.
    pub place: String,
    /// What a change gives, or why nothing may be said.
    pub effect: String,
    /// What to do; empty where nothing may be said.
    pub advice: String,
    /// Where a program keeps what it has, if a loss was seen anywhere.
    pub loss: Option<String>,
    /// The section that the answer is from.
    pub section: Option<usize>,
}

impl Answer {
    /// All of it in sentences.
    pub fn text(&self) -> String {
        match self.place.as_str() {
            "" => self.short_text(),
            place if self.today.is_empty() => format!("({place}) {}", self.short_text()),
            place => self.sentences(&format!("{} ({place}): ", self.today)),
        }
    }

    /// Without what was measured.
    pub fn short_text(&self) -> String {
        let today = if self.today.is_empty() { String::new() } else { format!("{}: ", self.today) };
        self.sentences(&today)
    }

    /// Only what a change gives, and what to do.
    pub fn effect_and_advice(&self) -> String {
        self.sentences("")
    }

    fn sentences(&self, today: &str) -> String {
        let advice =
            if self.advice.is_empty() { String::new() } else { format!(" {}", self.advice) };
        format!("{today}{}.{advice}", self.effect)
    }
}

/// A gain with the section that it is of.
#[derive(Clone, Copy)]
struct Seen<'a> {
    index: usize,
    section: &'a Section,
    gain: &'a Gain,
}

/// An answer for each workload that has starting points, in the order measured, and what else was found.
pub fn answers(sections: &[Section]) -> Vec<Answer> {
    let mut names: Vec<&str> = Vec::new();
    for section in sections.iter().filter(|section| !section.gains.is_empty()) {
        if !names.contains(&section.facts.name) {
            names.push(section.facts.name);
        }
    }
    let gains = names.into_iter().map(|name| answer(name, sections));
    gains.chain(findings(sections)).collect()
}

/// What sections show beside gains.
fn findings(sections: &[Section]) -> impl Iterator<Item = Answer> {
    sections.iter().enumerate().flat_map(|(index, section)| {
        section.findings.iter().map(move |(finding, text)| Answer {
            workload: section.facts.name.to_owned(),
            finding: *finding,
            today: String::new(),
            place: section.short.clone(),
            effect: text.clone(),
            advice: String::new(),
            loss: None,
            section: Some(index),
        })
    })
}

fn answer(name: &str, sections: &[Section]) -> Answer {
    let own = sections.iter().enumerate().filter(|(_, section)| section.facts.name == name);
    let seen: Vec<Seen<'_>> = own
        .flat_map(|(index, section)| {
            section.gains.iter().map(move |gain| Seen { index, section, gain })
        })
        .collect();
    let (chosen, finding, advice) = chosen(&seen);
    let is_chosen = |one: &Seen<'_>| std::ptr::eq(one.gain, chosen.gain);
    let losses = seen.iter().filter(|one| one.gain.column == Column::Ring && one.is(Told::Loss));
    let loss = largest(losses.filter(|one| !is_chosen(one)).copied());
    let (today, effect) = match advice.is_empty() {
        true => (String::new(), chosen.reason_text()),
        false => {
            let better = chosen.better_text(&seen).unwrap_or_default();
            (chosen.today_text(), format!("{}{better}", chosen.effect_text()))
        }
    };
    Answer {
        workload: name.to_owned(),
        finding,
        today,
        place: chosen.section.short.clone(),
        effect,
        advice,
        loss: loss.map(|loss| loss.keep_text()),
        section: Some(chosen.index),
    }
}

/// The gain that answers, by the rule above, and the advice; without one, nothing may be said.
fn chosen<'a>(seen: &[Seen<'a>]) -> (Seen<'a>, Told, String) {
    let question = seen[0].section.facts.question;
    let rank = |one: &Seen<'_>| {
        let place = question.starts.iter().position(|start| start.engine == one.gain.from);
        place.unwrap_or(usize::MAX)
    };
    let told = |one: &&Seen<'_>| {
        matches!(one.gain.finding, Told::Gain | Told::Loss | Told::NoDifference)
            && one.gain.column != Column::Best
    };
    let Some(usual) = seen.iter().filter(told).min_by_key(|one| rank(one)) else {
        let inconclusive = seen.iter().filter(|one| one.is(Told::Inconclusive));
        let inconclusive = inconclusive.min_by_key(|one| rank(one));
        let one = *inconclusive.unwrap_or(&seen[0]);
        return (one, one.gain.finding, String::new());
    };
    let from_there = |one: &&Seen<'_>| one.gain.from == usual.gain.from;
    let stand_ins: Vec<Seen<'a>> = seen
        .iter()
        .filter(from_there)
        .filter(told)
        .filter(|one| one.stands_in(seen))
        .copied()
        .collect();
    let usual = stand_ins.first().unwrap_or(usual);
    let answers = |one: &&Seen<'_>| {
        stand_ins.is_empty() || stand_ins.iter().any(|other| other.index == one.index)
    };
    let own = || seen.iter().filter(from_there).filter(answers).copied();
    let to_ring = || own().filter(|one| one.gain.column != Column::Best);
    if let Some(gain) = largest(to_ring().filter(|one| one.is(Told::Gain))) {
        return (gain, Told::Gain, gain.remedy());
    }
    let other = own().filter(|one| one.gain.column == Column::Best && one.is(Told::Gain));
    if let Some(gain) = largest(other.filter(|one| !one.is_own())) {
        let ring = question.targets.first().map_or("the ring", |target| target.name);
        return (gain, Told::Gain, format!("No gain there from {ring}."));
    }
    let keep = |one: Seen<'_>| format!("Keep {}.", question.name_of(&one.gain.from));
    if let Some(loss) = largest(to_ring().filter(|one| one.is(Told::Loss))) {
        return (loss, Told::Loss, keep(loss));
    }
    (*usual, Told::NoDifference, "Change nothing.".to_owned())
}

/// The one whose interval is farthest from no difference, so that chance makes nothing large; those of
/// throughput go before those of CPU time.
fn largest<'a>(seen: impl Iterator<Item = Seen<'a>>) -> Option<Seen<'a>> {
    let size = |one: &Seen<'_>| {
        let log = |ratio: Option<Ratio>| {
            ratio.map_or(0.0, |own| own.low.ln().abs().min(own.high.ln().abs()))
        };
        match one.gain.decided_by {
            Some(Decisive::Throughput) => (1, log(one.gain.ratio)),
            Some(Decisive::P99) => (0, log(one.gain.p99_ratio)),
            _ => (0, log(one.gain.cpu_ratio)),
        }
    };
    seen.max_by(|one, other| {
        let (one, other) = (size(one), size(other));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    })
}

impl Seen<'_> {
    fn is(&self, finding: Told) -> bool {
        self.gain.finding == finding
    }

    /// Whether it is of a fixed rate, and the same in a closed loop is inconclusive: there the load was the limit, or
    /// the noise was too large.
    fn stands_in(&self, seen: &[Seen<'_>]) -> bool {
        let what = |one: &Seen<'_>| {
            let Gain { from, column, depth, to_depth, .. } = one.gain;
            (from.clone(), *column, *depth, *to_depth)
        };
        let place = &self.section.place;
        let closed_loop = Place { offered_per_s: None, ..place.clone() };
        let is_it =
            |other: &&Seen<'_>| other.section.place == closed_loop && what(other) == what(self);
        place.offered_per_s.is_some()
            && seen.iter().filter(is_it).any(|other| other.is(Told::Inconclusive))
    }

    fn question(&self) -> &'static Question {
        self.section.facts.question
    }

    /// Whether the other row is the library's.
    fn is_own(&self) -> bool {
        self.question().target(&self.gain.to).is_some()
    }

    fn remedy(&self) -> String {
        let target = self.question().target(&self.gain.to);
        target.map_or_else(|| format!("Use {}.", self.gain.to), |own| own.remedy.to_owned())
    }

    /// What the start does, and its depth: " with 32 reads in flight".
    fn depth_text(&self) -> String {
        let question = self.question();
        let is_single = question.start(&self.gain.from).is_some_and(|start| start.is_single);
        match is_single {
            true => String::new(),
            false => format!(" with {}", question.depth_text(self.gain.depth)),
        }
    }

    /// "You use spawn_blocking with 32 reads in flight".
    fn today_text(&self) -> String {
        format!("You {}{}", self.gain.today, self.depth_text())
    }

    /// "io_uring gives 1.9 [1.8, 2.0] times the reads at 0.11 of the CPU".
    fn effect_text(&self) -> String {
        let (question, gain) = (self.question(), self.gain);
        let deeper = match gain.to_depth == gain.depth {
            true => String::new(),
            false => format!(" with {}", question.depth_text(gain.to_depth)),
        };
        let effect = match self.section.place.offered_per_s {
            Some(rate) => effect_at_rate_text(question, gain, rate),
            None => effect_text(question, gain),
        };
        format!("{}{deeper} {effect}", question.name_of(&gain.to))
    }

    /// What gives more than the ring from the same start: ", the memory map 60 [55, 66]".
    fn better_text(&self, seen: &[Seen<'_>]) -> Option<String> {
        let is_gain = |one: &Seen<'_>| {
            one.is(Told::Gain) && one.gain.decided_by == Some(Decisive::Throughput)
        };
        let start = |one: &Seen<'_>| (one.index, one.gain.from.clone(), one.gain.depth);
        let ring = self.gain.ratio.filter(|_| is_gain(self) && self.is_own())?;
        let mut others = seen.iter().filter(|one| {
            one.gain.column == Column::Best && start(one) == start(self) && !one.is_own()
        });
        let best = others.find(|one| is_gain(one))?;
        let ratio = best.gain.ratio.filter(|ratio| ratio.low > ring.high)?;
        Some(format!(", {} {}", self.question().name_of(&best.gain.to), ratio_text(&ratio)))
    }

    /// Why nothing may be said, and the ratio that was measured all the same: "excluded: tokio: a block is wrong",
    /// "inconclusive: the noise of 23 % hides a difference (1.04 [0.80, 1.30] times)". At a fixed rate the operations
    /// are as many, so the ratio is that of CPU time.
    fn reason_text(&self) -> String {
        let reason = self.gain.reason.as_deref().unwrap_or("nothing was compared");
        let ratio = match self.section.place.offered_per_s {
            Some(_) => self.gain.cpu_ratio.map(|ratio| part_text(&ratio, "CPU")),
            None => self.gain.ratio.map(|ratio| format!("{} times", ratio_text(&ratio))),
        };
        let ratio = ratio.map(|ratio| format!(" ({ratio})"));
        format!("{}: {reason}{}", self.gain.finding, ratio.unwrap_or_default())
    }

    /// "Keep the memory map with 32 reads in flight (cached 4k): io_uring gives only ..."
    fn keep_text(&self) -> String {
        let place = match self.section.short.as_str() {
            "" => String::new(),
            short => format!(" ({short})"),
        };
        let it = self.question().name_of(&self.gain.from);
        format!("Keep {it}{}{place}: {}.", self.depth_text(), self.effect_text())
    }
}
