//! Offered load: the ring and blocking calls in the number of threads that was fastest, with reads that come at a rate
//! whether earlier ones are done or not.
//!
//! A search offers each engine rates, in a few samples each (`search`). Then all rates are rows, measured in interleaved blocks
//! as everything is, and the knee is that of the rows.

use std::sync::{Arc, atomic::Ordering};

use ringwise_measure::quantity::{latency_text, size_text};

use super::{
    facts::{KEPT, OFFERED_FACTS},
    ground::{Ground, Shape},
    search::{self, Knee, Tried, rounded},
    shares::{shares, used},
};
use crate::{
    engine::{
        Engine,
        crew::Crew,
        open_loop::{DUE, GIVEN_UP, OpenRing, OpenSync},
    },
    error::LabError,
    results::{
        gain::Told,
        row::{Measured, Row, RowKind},
        section::{KNEE, SAMPLE_P99, Section},
    },
    sampling::{
        job::{Cache, Failure, Job},
        sample,
    },
    workload::form::{Context, Outcome, columns::grouped, remark},
};

/// The engines that load is offered to, in the order of their rows.
pub(super) const ENGINES: [(&str, RowKind); 2] =
    [("sync", RowKind::Rival), ("uring", RowKind::Subject)];

/// A search begins at this part of what the engine does in a closed loop.
const FIRST_PART: f64 = 0.1;
/// Samples of a rate in the search, of which the median counts: one pause of a device is not what a rate costs.
const SEARCH_SAMPLES: usize = 3;

/// The number of threads that was fastest, and what each engine did with it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Best {
    threads: usize,
    /// Operations per second of each of [`ENGINES`] that has a result.
    rates_per_s: Vec<(&'static str, RowKind, f64)>,
}

impl Best {
    /// Of the rows of a section. None where the ring has no result.
    pub(super) fn of(rows: &[Row]) -> Option<Best> {
        let valid = || rows.iter().filter(|row| row.is_valid() && row.kind != RowKind::Control);
        let rings = valid().filter(|row| row.kind == RowKind::Subject);
        let rate = |row: &&Row| row.measured.ops_per_s();
        let threads = rings.max_by(|one, other| rate(one).total_cmp(&rate(other)))?.depth;
        let of = |(engine, kind)| {
            let own = valid().find(|row| row.engine == engine && row.depth == threads)?;
            Some((engine, kind, own.measured.ops_per_s()))
        };
        Some(Best { threads, rates_per_s: ENGINES.into_iter().filter_map(of).collect() })
    }
}

fn crew(engine: &str, rate_per_s: u64, threads: usize, ground: &Ground) -> Crew {
    let rate_per_s = rate_per_s as f64 / threads as f64;
    let member: Arc<dyn Engine> = match engine {
        "sync" => Arc::new(OpenSync { rate_per_s }),
        _ => Arc::new(OpenRing { rate_per_s }),
    };
    Crew::new(member, shares(&ground.places, threads, &ground.processors))
}

/// Searches rates, measures them, and says where the knees are.
pub(super) fn run(context: &Context<'_>, shape: Shape, ground: &Ground, best: &Best) -> Outcome {
    let threads = best.threads;
    let noun = if threads == 1 { "thread" } else { "threads" };
    let title = format!("scale, offered load on {threads} {noun}, {}", shape.text());
    let mut section = Section::new(&OFFERED_FACTS, title, Vec::new());
    section.place = shape.place(Some(Cache::Bypassed));
    let block = size_text(shape.block_bytes as u64);
    section.short = format!("O_DIRECT {block}, {threads} {noun}, offered load");
    section.filesystem.clone_from(&ground.filesystem);
    section.notes.push(
        "open loop: reads come as from independent clients, and a latency begins when its read was to begin"
            .to_owned(),
    );
    section.notes.push(format!(
        "knee: the largest quotient of rate and p99 (the median over samples), among rates of which {:.0} % is kept",
        search::KEPT_SHARE * 100.0
    ));
    let result = measure(context, (shape, ground, best), &mut section);
    conclude(&mut section);
    Outcome { section, result }
}

fn measure(
    context: &Context<'_>,
    (shape, ground, best): (Shape, &Ground, &Best),
    section: &mut Section,
) -> Result<(), LabError> {
    let files = used(&shares(&ground.places, best.threads, &ground.processors));
    let of_row = |_: &Row, seed| shape.job(context, files.clone(), seed);
    let mut rows = Vec::new();
    context.progress.begin((best.rates_per_s.len() * search::RATES_MAX) as u64);
    for &(engine, kind, closed_per_s) in &best.rates_per_s {
        let first = rounded(closed_per_s * FIRST_PART);
        let offer = |rate| {
            Row::new(
                engine.to_owned(),
                kind,
                rate as usize,
                Box::new(crew(engine, rate, best.threads, ground)),
            )
        };
        let mut tried: Vec<Tried> = Vec::new();
        while let Some(rate) = search::next(&tried, first) {
            let row = offer(rate);
            context.progress.sample(&format!("{}: searching, {engine}", section.title), &row);
            tried.push(offered(context, &row, || of_row(&row, context.plan.seed))?);
        }
        rows.extend(tried.iter().map(|one| offer(one.rate_per_s)));
    }
    context.progress.clear();
    rows.sort_by_key(|row| row.depth);
    section.rows = rows;
    let title = section.title.clone();
    let tell = |row: &Row| format!("{title}: {} of {}", row.label(), row.depth);
    context.take(&context.schedule(&of_row), section, &tell)
}

/// Offers a rate in a few samples: a device may pause in one of them.
fn offered(context: &Context<'_>, row: &Row, job: impl Fn() -> Job) -> Result<Tried, LabError> {
    let mut measured = Measured::default();
    for block in 0..SEARCH_SAMPLES {
        let job = Arc::new(job());
        let taken = sample::take(&*row.runner, &job, context.timing, context.instruments);
        if job.interrupt.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        let taken = taken.map_err(|failure: Failure| LabError::Failed(failure.to_string()))?;
        measured.add(block, &taken, None);
    }
    add_figures(&mut measured);
    Ok(tried(row.depth, &measured))
}

/// Gives every sample the share of what was due that had a slot before the time was over, and its 99th percentile. What
/// was still in flight then was kept too.
fn add_figures(measured: &mut Measured) {
    for sample in &mut measured.samples {
        let figure = |name| sample.figures.get(name).copied().unwrap_or(0.0);
        let kept_share = (1.0 - figure(GIVEN_UP) / figure(DUE).max(1.0)).max(0.0);
        sample.figures.insert(KEPT, kept_share);
        sample.figures.insert(SAMPLE_P99, sample.latency_ns.p99 as f64);
    }
}

fn tried(rate: usize, measured: &Measured) -> Tried {
    let figure = |name| measured.figures().get(name).copied().unwrap_or(0.0);
    Tried { rate_per_s: rate as u64, kept_share: figure(KEPT), p99_ns: figure(SAMPLE_P99) }
}

/// Marks the knees, and says where they are.
fn conclude(section: &mut Section) {
    for row in section.rows.iter_mut().filter(|row| row.is_valid()) {
        add_figures(&mut row.measured);
        remark(row);
    }
    for (engine, _) in ENGINES {
        let own = |row: &&Row| row.engine == engine && row.is_valid();
        let all: Vec<Tried> =
            section.rows.iter().filter(own).map(|row| tried(row.depth, &row.measured)).collect();
        if all.is_empty() {
            continue;
        }
        let Some(Knee { knee, highest, is_limit }) = search::knee(&all) else {
            let text = format!("{engine} keeps none of the rates that were offered");
            section.findings.push((Told::Inconclusive, text));
            continue;
        };
        let mut mark = |rate_per_s: u64, what: &str| {
            let is_it = |row: &&mut Row| row.engine == engine && row.depth as u64 == rate_per_s;
            if let Some(row) = section.rows.iter_mut().find(is_it) {
                row.measured.remarks.push(what.to_owned());
            }
        };
        mark(knee.rate_per_s, KNEE);
        mark(highest.rate_per_s, "the highest rate that is kept");
        let text = format!(
            "the knee of {engine} is at {}/s with a p99 of {}; it keeps {} {}/s, with {}",
            grouped(knee.rate_per_s as f64),
            latency_text(knee.p99_ns),
            if is_limit { "up to" } else { "at least" },
            grouped(highest.rate_per_s as f64),
            latency_text(highest.p99_ns)
        );
        section.findings.push((Told::NoDifference, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Figures, row};

    fn row_at(engine: &str, kind: RowKind, rate: usize, done: f64, latency_ns: u64) -> Row {
        let figures = Figures { ops_per_s: done, latency_ns, ..Figures::DIRECT };
        let mut row = row(engine, kind, rate, figures);
        let own = [(DUE, rate as f64), (GIVEN_UP, rate as f64 - done)];
        row.measured.samples.iter_mut().for_each(|sample| sample.figures.extend(own));
        row
    }

    #[test]
    fn the_knee_is_marked_and_said() {
        let mut section = Section::new(&OFFERED_FACTS, "x".to_owned(), Vec::new());
        let ring = |rate, done, ns| row_at("uring", RowKind::Subject, rate, done, ns);
        section.rows = vec![
            ring(10_000, 10_000.0, 100_000),
            ring(20_000, 20_000.0, 110_000),
            ring(30_000, 29_950.0, 400_000),
            ring(40_000, 33_000.0, 9_000_000),
            row_at("sync", RowKind::Rival, 10_000, 5_000.0, 1_000_000),
        ];
        conclude(&mut section);
        let remarks = |at: usize| section.rows[at].measured.remarks.join(", ");
        assert_eq!(
            [0, 1, 2, 3].map(remarks),
            ["", "the knee", "the highest rate that is kept", ""]
        );
        let texts: Vec<&str> = section.findings.iter().map(|(_, text)| &**text).collect();
        assert_eq!(
            texts,
            [
                "sync keeps none of the rates that were offered",
                "the knee of uring is at 20 000/s with a p99 of 110 µs; it keeps up to 30 000/s, with 400 µs"
            ]
        );
        assert_eq!(section.rows[3].measured.figures()[KEPT], 1.0 - 7_000.0 / 40_000.0);
    }

    #[test]
    fn load_is_offered_to_the_number_of_threads_that_is_fastest() {
        let at = |engine, kind, threads, ops_per_s| {
            row(engine, kind, threads, Figures { ops_per_s, ..Figures::DIRECT })
        };
        let rows = [
            at("sync", RowKind::Rival, 2, 9e4),
            at("uring", RowKind::Subject, 1, 1e5),
            at("uring", RowKind::Control, 2, 3e5),
            at("uring", RowKind::Subject, 2, 2e5),
            at("uring", RowKind::Control, 4, 9e5),
            at("uring", RowKind::Subject, 4, 1.9e5),
        ];
        let best = Best::of(&rows).unwrap();
        assert_eq!(best.threads, 2);
        let rates: Vec<(&str, f64)> =
            best.rates_per_s.iter().map(|(engine, _, rate)| (*engine, *rate)).collect();
        assert_eq!(rates, [("sync", 9e4), ("uring", 2e5)]);
        assert_eq!(Best::of(&rows[..1]), None);
    }
}
