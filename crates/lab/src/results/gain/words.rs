//! Ratios in the words of a sentence.

use ringwise_measure::statistics::Ratio;

use super::{Gain, Told};
use crate::{
    results::verdict::{Decisive, rate_text},
    workload::form::facts::Question,
};

/// By which factor the ends of an interval of p99 may differ. Beyond that a few stalls of the machine decide.
const P99_WIDTH_MAX: f64 = 3.0;

/// A ratio with its interval, as short as it can be without hiding a difference: `1.9 [1.8, 2.0]`.
pub fn ratio_text(ratio: &Ratio) -> String {
    let Ratio { low, mid, high } = *ratio;
    let places = match mid {
        mid if mid < 2.0 => 2,
        mid if mid < 20.0 => 1,
        _ => 0,
    };
    format!("{mid:.places$} [{low:.places$}, {high:.places$}]")
}

/// What another row has of the CPU time, where that is known: `0.11 of the CPU`.
fn cpu_text(ratio: &Ratio) -> String {
    match ratio.mid {
        mid if mid < 0.995 => format!("{mid:.2} of the CPU"),
        mid if mid < 1.02 => "the same CPU".to_owned(),
        mid => format!("{mid:.1} times the CPU"),
    }
}

/// A part of what another row has: `0.70 [0.68, 0.72] of the CPU`.
pub fn part_text(ratio: &Ratio, what: &str) -> String {
    let of = if ratio.mid < 1.0 { "of" } else { "times" };
    format!("{} {of} the {what}", ratio_text(ratio))
}

/// What a change gives at a fixed rate, after its subject: `takes 0.70 [0.68, 0.72] of the CPU and 0.90 [0.85, 0.95] of
/// the p99 at 60 000 requests/s`.
pub fn effect_at_rate_text(question: &Question, gain: &Gain, rate_per_s: u64) -> String {
    let operations = question.operations;
    let rate = rate_text(rate_per_s, operations);
    if let (Some(Decisive::Throughput), Some(ratio)) = (gain.decided_by, &gain.ratio) {
        let times = ratio_text(ratio);
        match gain.finding {
            Told::Gain => {
                return format!("gives {times} times the {operations} if {rate} are offered");
            }
            Told::Loss => {
                return format!("does not keep {rate}: only {times} times the {operations}");
            }
            _ => {}
        }
    }
    let tail = gain.p99_ratio.filter(|own| own.high / own.low <= P99_WIDTH_MAX);
    let hides = if tail.is_some() { "" } else { " (the noise hides its p99)" };
    let parts =
        [gain.cpu_ratio.map(|cpu| part_text(&cpu, "CPU")), tail.map(|own| part_text(&own, "p99"))];
    let parts = parts.into_iter().flatten().collect::<Vec<_>>().join(" and ");
    match gain.finding {
        _ if parts.is_empty() => "has no figure".to_owned(),
        Told::Gain | Told::Loss => format!("takes {parts} at {rate}{hides}"),
        _ => format!("makes no difference: {parts} at {rate}{hides}"),
    }
}

/// What a change gives, after its subject: `gives 1.9 [1.8, 2.0] times the reads at 0.11 of the CPU`.
pub fn effect_text(question: &Question, gain: &Gain) -> String {
    let operations = question.operations;
    let (Some(ratio), cpu) = (&gain.ratio, gain.cpu_ratio.as_ref()) else {
        return "has no figure".to_owned();
    };
    let is_by_cpu = gain.decided_by == Some(Decisive::Cpu);
    let times = ratio_text(ratio);
    let at = |cpu: &Ratio| format!(" at {}", cpu_text(cpu));
    match (gain.finding, cpu) {
        (Told::Gain | Told::Loss, Some(cpu)) if is_by_cpu => {
            format!("gives as many {operations} at {}", part_text(cpu, "CPU"))
        }
        (Told::Gain | Told::Loss, cpu) => {
            let only = if gain.finding == Told::Loss { "only " } else { "" };
            let cpu = cpu.map_or_else(String::new, at);
            format!("gives {only}{times} times the {operations}{cpu}")
        }
        _ => format!("makes no difference: {times} times the {operations}"),
    }
}
