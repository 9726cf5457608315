//! What a replay showed, as text: how near it is to the program, and what the engines differ by.

use ringwise_measure::{
    quantity::latency_text,
    statistics::{Comparison, Ratio, compare, median, noise_floor},
};

use super::{engine::IO_NS, pace::Pace, script::Script};
use crate::{
    results::{
        report::{lines::all_wrapped, table},
        row::{Measured, Row, RowKind, SampleFigures},
        section::Section,
        verdict::{self, Finding, NOISE_MAX, interval_text},
    },
    workload::form::{
        columns::{self, Column},
        facts::{Facts, Question, Start, Target},
    },
};

/// The name of the sum of the durations that a recorder saw among the figures of a sample.
pub(crate) const OBSERVED_NS: &str = "observed_ns";
/// The engine that does what the program did.
pub(crate) const RECORDED: &str = "recorded";
/// A replay is near if the whole interval of its I/O time is within this share of the program's.
const FIDELITY_MAX: f64 = 0.10;

static FACTS: Facts =
    Facts { name: "replay", depth_is: "depth", columns: COLUMNS, question: &QUESTION };
static QUESTION: Question = Question {
    operations: "operations",
    alone: "one operation at a time",
    in_flight: "operations in flight",
    starts: &[Start {
        engine: RECORDED,
        you: "do what was recorded",
        it: "what was recorded",
        to: "",
        is_single: false,
    }],
    targets: &[Target { engine: "uring", name: "io_uring", remedy: "Use ringwise::Local." }],
};

const COLUMNS: &[Column] = &[
    Column::Of("whole time", |row| time(row, |sample| sample.elapsed_ns as f64)),
    Column::Of("I/O time", |row| time(row, io_ns)),
    columns::RATE,
    Column::Of("p50", |row| Some(latency_text(row.measured.latency.quantile_ns(0.5) as f64))),
    Column::Of("p99", |row| Some(latency_text(row.measured.latency.quantile_ns(0.99) as f64))),
    columns::CALLS,
    columns::QUEUE,
];

/// A figure of a sample.
type Figure = fn(&SampleFigures) -> f64;

/// The times that engines are compared by.
const TIMES: [(&str, Figure); 2] = [("whole time", elapsed_ns), ("I/O time", io_ns)];

fn time(row: &Row, figure: Figure) -> Option<String> {
    row.measured.median(|sample| Some(figure(sample))).map(latency_text)
}

/// The sum of the durations of a sample's operations.
fn io_ns(sample: &SampleFigures) -> f64 {
    sample.figures.get(IO_NS).copied().unwrap_or(f64::NAN)
}

/// The same as a recorder saw it.
fn observed_ns(sample: &SampleFigures) -> f64 {
    sample.figures.get(OBSERVED_NS).copied().unwrap_or(f64::NAN)
}

fn elapsed_ns(sample: &SampleFigures) -> f64 {
    sample.elapsed_ns as f64
}

/// The whole text.
pub(crate) fn text(script: &Script, rows: &[Row], pace: Pace, seed: u64) -> String {
    let mut section = Section::new(&FACTS, title(pace), Vec::new());
    let said = conclusions(script, rows, pace, seed);
    section.rows = rows.iter().map(shown).collect();
    let table = table::text(&section, &[], seed);
    format!("\n{table}\n{}", all_wrapped(&said.join("\n"), "  "))
}

fn title(pace: Pace) -> String {
    match pace {
        Pace::Recorded => "replay at the recorded pace".to_owned(),
        Pace::Asap => "replay without think time".to_owned(),
        Pace::Open => "replay at the recorded times: I/O time counts from them".to_owned(),
    }
}

/// A row for a table, with the same figures.
fn shown(row: &Row) -> Row {
    Row {
        engine: row.engine.clone(),
        kind: row.kind,
        depth: row.depth,
        runner: row.runner.clone(),
        cache: None,
        measured: row.measured.clone(),
    }
}

/// How near the replay is, and what each engine differs by.
fn conclusions(script: &Script, rows: &[Row], pace: Pace, seed: u64) -> Vec<String> {
    let recorded = rows.iter().find(|row| row.kind == RowKind::Rival && row.engine == RECORDED);
    let Some(recorded) = recorded.filter(|row| row.is_valid()) else {
        return vec!["The recorded engine has no result, so nothing can be compared.".to_owned()];
    };
    let mut said = Vec::new();
    if pace == Pace::Recorded {
        let again = rows.iter().find(|row| row.kind == RowKind::Control && row.is_valid());
        let both: Vec<&Measured> =
            [Some(recorded), again].into_iter().flatten().map(|row| &row.measured).collect();
        let figure = if script.is_recorded_too { observed_ns } else { io_ns };
        said.push(fidelity((script.recorded_ns(), figure), &both, seed));
        if script.is_recorded_too {
            said.push(
                "the recorder slowed the program and the replay, and timed the I/O of both"
                    .to_owned(),
            );
        }
    }
    let others = rows.iter().filter(|row| row.is_valid() && row.engine != RECORDED);
    for (row, name, figure) in
        others.flat_map(|row| TIMES.map(|(name, figure)| (row, name, figure)))
    {
        let Some(Difference { ratio, by, noise }) = difference(rows, row, figure, seed) else {
            continue;
        };
        // Less time is better.
        let words = match by {
            Comparison::Faster => "less",
            Comparison::Slower => "more",
            Comparison::NoDifference => "no difference",
        };
        said.push(format!(
            "{}: {name} {} times that of the recorded engine: {words} (noise {:.0} %)",
            row.engine,
            interval_text(&ratio),
            noise * 100.0
        ));
    }
    said.push(match pace {
        Pace::Asap => {
            let verdict = verdict::of_calls(rows, recorded.depth, "operation", seed);
            format!("verdict: {}: {}", verdict.verdict, verdict.reason)
        }
        Pace::Recorded => by_io_time("at the recorded pace", rows, seed),
        Pace::Open => by_io_time("at the recorded times", rows, seed),
    });
    said
}

/// What an engine takes beside the recorded one.
struct Difference {
    ratio: Ratio,
    by: Comparison,
    noise: f64,
}

fn difference(rows: &[Row], row: &Row, figure: Figure, seed: u64) -> Option<Difference> {
    let of = |kind| {
        rows.iter().find(move |row| row.kind == kind && row.engine == RECORDED && row.is_valid())
    };
    let recorded = of(RowKind::Rival)?;
    let ratio = row.measured.ratio(&recorded.measured, figure, seed)?;
    let noise = of(RowKind::Control)
        .and_then(|own| own.measured.ratio(&recorded.measured, figure, seed))
        .map_or(0.0, |ratio| noise_floor(&ratio));
    Some(Difference { by: compare(&ratio.inverse(), noise), ratio, noise })
}

/// The verdict where the replay keeps times: by the I/O time alone, because the replay uses a processor while it waits.
fn by_io_time(when: &str, rows: &[Row], seed: u64) -> String {
    let ring = rows.iter().find(|row| row.kind == RowKind::Subject && row.is_valid());
    let difference = ring.and_then(|ring| difference(rows, ring, io_ns, seed));
    let Some(Difference { ratio, by, noise }) = difference else {
        return format!("verdict: {}: the ring has no result", Finding::Inconclusive);
    };
    let (finding, hides) = match by {
        Comparison::Faster => (Finding::UseIt, String::new()),
        Comparison::Slower => (Finding::DoNotUse, String::new()),
        Comparison::NoDifference if noise > NOISE_MAX => {
            let hides = format!(", and the noise of {:.0} % hides a difference", noise * 100.0);
            (Finding::Inconclusive, hides)
        }
        Comparison::NoDifference => (Finding::NoDifference, String::new()),
    };
    format!(
        "verdict: {finding}: {when} the ring's I/O time is {} times that of what was recorded{hides}; \
         --pace asap compares CPU time too",
        interval_text(&ratio)
    )
}

/// The I/O time of the recorded engine, in both of its rows, divided by that of the trace.
fn fidelity((recorded_ns, figure): (u64, Figure), rows: &[&Measured], seed: u64) -> String {
    let samples = || rows.iter().flat_map(|row| &row.samples);
    let blocks = samples().map(|sample| sample.block + 1).max().unwrap_or(0);
    let of = |block: usize| {
        let samples = samples().filter(|sample| sample.block == block);
        let ratios = samples.map(|sample| figure(sample) / recorded_ns as f64);
        // A sample of which the recorder lost a part has no figure.
        median(&ratios.filter(|ratio| ratio.is_finite()).collect::<Vec<f64>>()).map(f64::ln)
    };
    let logs: Vec<f64> = (0..blocks).filter_map(of).collect();
    let Some(ratio) = Ratio::bootstrap(&logs, seed) else {
        return "fidelity: unknown: there are too few samples, or the trace has no durations"
            .to_owned();
    };
    let (least, most) = (1.0 - FIDELITY_MAX, 1.0 + FIDELITY_MAX);
    let near = match () {
        () if ratio.low >= least && ratio.high <= most => "within",
        () if ratio.high < least || ratio.low > most => "not within",
        () => "too few or too different samples to say whether within",
    };
    format!(
        "fidelity: the recorded engine's I/O time is {} times the program's: {near} {:.0} %",
        interval_text(&ratio),
        FIDELITY_MAX * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Figures, row};

    /// A row whose samples took so long in operations.
    fn measured(io_ns: f64) -> Measured {
        let mut measured = row(RECORDED, RowKind::Rival, 1, Figures::DIRECT).measured;
        for sample in &mut measured.samples {
            sample.figures.insert(IO_NS, io_ns);
        }
        measured
    }

    #[test]
    fn fidelity_is_the_replays_time_by_the_programs() {
        let (near, far) = (measured(950.0), measured(1300.0));
        let text = fidelity((1000, io_ns), &[&near], 1);
        assert!(text.contains("is 0.95 [0.95, 0.95] times the program's: within 10 %"), "{text}");
        let text = fidelity((1000, io_ns), &[&far], 1);
        assert!(text.contains("1.30 [1.30, 1.30] times the program's: not within 10 %"), "{text}");
        // Both rows of a block count.
        assert!(
            fidelity((1000, io_ns), &[&near, &far], 1).contains("is 1.12 "),
            "the median of both"
        );
        let mut wide = measured(1000.0);
        for sample in &mut wide.samples {
            sample.figures.insert(IO_NS, 1000.0 + 400.0 * sample.block as f64);
        }
        let text = fidelity((1400, io_ns), &[&wide], 1);
        assert!(text.contains("to say whether within 10 %"), "{text}");
        assert!(
            fidelity((0, io_ns), &[&near], 1).contains("unknown"),
            "a fio iolog has no durations"
        );
    }

    #[test]
    fn what_an_engine_takes_more_or_less_is_said_beside_the_noise() {
        let with = |name: &str, kind, io_ns| {
            let mut row = row(name, kind, 1, Figures::DIRECT);
            row.measured = measured(io_ns);
            row
        };
        let rows = |ring_ns| {
            [
                with(RECORDED, RowKind::Rival, 1000.0),
                with(RECORDED, RowKind::Control, 1000.0),
                with("uring", RowKind::Subject, ring_ns),
            ]
        };
        let said = conclusions(&Script::default(), &rows(1500.0), Pace::Recorded, 1);
        let expected =
            "uring: I/O time 1.50 [1.50, 1.50] times that of the recorded engine: more (noise 0 %)";
        assert!(said.iter().any(|own| own == expected), "{said:?}");
        assert!(
            said.iter().any(|own| own.contains("whole time 1.00") && own.contains("no difference"))
        );
        let verdict = said.last().unwrap();
        assert!(
            verdict.starts_with("verdict: do not use it: ") && verdict.contains("1.50"),
            "{verdict}"
        );
        let said = conclusions(&Script::default(), &rows(500.0), Pace::Recorded, 1);
        assert!(said.last().unwrap().starts_with("verdict: use it: "), "{said:?}");
        // The noise of half as much again hides a difference of a tenth.
        let mut noisy = rows(1100.0);
        noisy[1].measured = measured(1500.0);
        let said = conclusions(&Script::default(), &noisy, Pace::Recorded, 1);
        let verdict = said.last().unwrap();
        assert!(verdict.starts_with("verdict: inconclusive: "), "{verdict}");
        assert!(verdict.contains(", and the noise of 50 % hides a difference"), "{verdict}");
        let said = conclusions(&Script::default(), &rows(1.0)[..2], Pace::Recorded, 1);
        assert!(said.last().unwrap().ends_with(": the ring has no result"), "{said:?}");
    }
}
