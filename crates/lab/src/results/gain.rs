//! Gains: what a program would have from a change, for each way in which it may work today.
//!
//! The rows are starting points: the rivals of a section, and the programs beside them. Each is
//! compared with the ring at its own depth, with the fastest other row, and, if it does one thing
//! after another, with the ring at the greatest depth. A gain is told by the rules of a verdict
//! (`verdict`): what is within the noise is no difference. But nothing is compared per core: a program
//! that has all processors at work today would lose them with a ring of one thread. `answer` chooses
//! what a reader is told of a whole workload. What starting points are called is in the facts of a
//! workload.

pub mod answer;
mod change;
mod words;

pub use self::{
    answer::{Answer, answers},
    change::{Column, Gain, Told},
};
use crate::results::{
    row::{Row, RowKind},
    section::Section,
    verdict::{self, Decision, Finding, Noise, Pair},
};

/// The gains of a section: for each starting point the columns that it has, by depth.
pub fn of(section: &Section, seed: u64) -> Vec<Gain> {
    let is_start = |row: &&Row| matches!(row.kind, RowKind::Rival | RowKind::Program);
    let starts = section.rows.iter().filter(is_start);
    starts.flat_map(|start| of_start(section, start, seed)).collect()
}

fn of_start(section: &Section, start: &Row, seed: u64) -> Vec<Gain> {
    let rows = &section.rows;
    let known = section.facts.question.start(&start.engine);
    let is_single = known.is_some_and(|start| start.is_single);
    let to = known.map_or("", |start| start.to);
    let ring = |depth| ring(rows, to, depth);
    let deepest = || {
        let subjects = rows.iter().filter(|row| row.kind == RowKind::Subject);
        let depth = subjects.map(|row| row.depth).max().filter(|&depth| depth > start.depth)?;
        ring(depth)
    };
    let columns = [
        (Column::Ring, ring(start.depth)),
        (Column::DeepestRing, is_single.then(deepest).flatten()),
        (Column::Best, best(section, start, is_single)),
    ];
    let gain = |(column, other): (Column, Option<&Row>)| {
        let other = other?;
        // A run that was interrupted may not have come to it.
        let is_there = |row: &Row| row.measured.void.is_some() || row.is_valid();
        (is_there(start) && is_there(other)).then(|| compared(section, start, other, column, seed))
    };
    columns.into_iter().filter_map(gain).collect()
}

/// The row of the library at a depth: the one that a start would be changed to if it has a result, or
/// else the subject.
fn ring<'a>(rows: &'a [Row], to: &str, depth: usize) -> Option<&'a Row> {
    let mut own = rows.iter().filter(|row| {
        row.depth == depth && matches!(row.kind, RowKind::Subject | RowKind::Variant)
    });
    let named = own.clone().find(|row| row.engine == to && row.is_valid());
    named.or_else(|| own.find(|row| row.kind == RowKind::Subject))
}

/// The fastest row beside a start. What does one thing after another is also beside other depths.
fn best<'a>(section: &'a Section, start: &Row, is_single: bool) -> Option<&'a Row> {
    let is_ranked = |row: &&Row| {
        let is_near = row.depth == start.depth || is_single;
        let is_ranked = matches!(row.kind, RowKind::Subject | RowKind::Variant | RowKind::Rival);
        row.is_valid() && is_ranked && is_near && !std::ptr::eq(*row, start)
    };
    let others = section.rows.iter().filter(is_ranked);
    verdict::best(others, section.place.offered_per_s.is_some())
}

fn compared(section: &Section, start: &Row, other: &Row, column: Column, seed: u64) -> Gain {
    let question = section.facts.question;
    let known = question.start(&start.engine);
    let today = known.map_or_else(|| format!("use {}", start.engine), |own| own.you.to_owned());
    let gain = Gain {
        from: start.engine.clone(),
        today,
        depth: start.depth,
        column,
        to: other.engine.clone(),
        to_depth: other.depth,
        finding: Told::Inconclusive,
        decided_by: None,
        ratio: None,
        p99_ratio: None,
        cpu_ratio: None,
        noise_floor: None,
        reason: None,
    };
    let void = |row: &Row| Some(format!("{}: {}", row.engine, row.measured.void.as_ref()?));
    if let Some(reason) = void(start).or_else(|| void(other)) {
        return Gain { finding: Told::Excluded, reason: Some(reason), ..gain };
    }
    let Some(pair) = Pair::of(other, start, seed) else {
        let reason = Some("too few samples for an interval".to_owned());
        return Gain { reason, ..gain };
    };
    let at = |depth| Noise::at(&section.rows, depth, seed);
    let noise = at(start.depth).or(at(other.depth));
    let is_at_rate = section.place.offered_per_s.is_some();
    let decision = if is_at_rate { pair.decide_at_rate(noise) } else { pair.decide(noise) };
    let noise_floor = noise.floor(is_at_rate);
    Gain {
        finding: told(decision.finding),
        decided_by: Some(decision.by),
        ratio: Some(pair.ratio),
        p99_ratio: pair.p99_ratio,
        cpu_ratio: pair.cpu_ratio,
        noise_floor,
        reason: reason(&decision, noise_floor, is_at_rate),
        ..gain
    }
}

fn told(finding: Finding) -> Told {
    match finding {
        Finding::UseIt => Told::Gain,
        Finding::DoNotUse => Told::Loss,
        Finding::NoDifference => Told::NoDifference,
        Finding::Inconclusive => Told::Inconclusive,
    }
}

/// Why nothing may be said of a change, if so. At a fixed rate the noise is that of CPU time.
fn reason(decision: &Decision, noise: Option<f64>, is_at_rate: bool) -> Option<String> {
    if decision.finding != Finding::Inconclusive {
        return None;
    }
    let noise_text = || {
        let percent = noise.unwrap_or(0.0) * 100.0;
        let of = if is_at_rate { " of CPU time" } else { "" };
        format!("the noise of {percent:.0} % hides a difference{of}")
    };
    Some(decision.limits.first().cloned().unwrap_or_else(noise_text))
}

#[cfg(test)]
mod tests;
