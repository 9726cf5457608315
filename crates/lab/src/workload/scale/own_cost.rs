//! What the lab itself costs for each read when more and more threads are at work: the same lanes over memory.
//!
//! Nothing is read, so all CPU time is the lab's: choosing blocks, clocks, histograms, verification. Threads beyond the
//! number of processors stand for a larger machine: they wait for a processor, which costs no CPU time, so an operation
//! must not become dearer. If it does, threads of the lab disturb each other, and the lab would saturate first. What the
//! caches of a larger machine do to each other is not seen.

use std::sync::Arc;

use ringwise_measure::{
    quantity::latency_text,
    statistics::{Comparison, compare},
};

use super::{facts::FACTS, ground::Shape};
use crate::{
    engine::{
        crew::{Crew, Share},
        null::Null,
    },
    results::{
        row::{Row, RowKind},
        section::Section,
        verdict::{self, Noise, interval_text},
    },
    sampling::job::{Cache, Job, Pattern},
    workload::form::{
        Context, Outcome,
        columns::{self, Column},
        remark,
    },
};

const COLUMNS: &[Column] = &[columns::RATE, columns::CPU, columns::CPU_KINDS, Column::Latencies];
/// More than any processor's own cache: what a device has just written is not in there.
const MEMORY_BYTES: usize = 64 << 20;
/// The seed of what lies in memory.
const SEED: u64 = 1;

/// How many rows it has: one for each number of threads, and the first again.
pub(super) fn row_count(threads: &[usize]) -> usize {
    threads.len() + 1
}

/// The lab's own CPU time per read, by the number of threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs(Vec<(usize, f64)>);

impl Costs {
    /// What the rows show.
    pub(super) fn of(rows: &[Row]) -> Costs {
        let valid = rows.iter().filter(|row| row.is_valid() && row.kind != RowKind::Control);
        Costs(valid.map(|row| (row.depth, row.measured.cpu_ns_per_op())).collect())
    }

    /// In nanoseconds. None where it was not measured.
    pub(super) fn at(&self, threads: usize) -> Option<f64> {
        self.0.iter().find(|(own, _)| *own == threads).map(|(_, cost_ns)| *cost_ns)
    }
}

/// Measures all numbers of threads.
pub(super) fn run(
    context: &Context<'_>,
    threads: &[usize],
    shape: Shape,
    processors: &[usize],
) -> Outcome {
    let title = format!("scale of the lab itself over memory, {}", shape.text());
    let mut section = Section::new(&FACTS, title.clone(), rows(threads, shape, processors));
    section.columns = COLUMNS;
    section.place = shape.place(None);
    section.short = format!("memory, {} in flight each", shape.depth);
    section.notes.push("nothing is read: all CPU time is the lab's own".to_owned());
    let of_row = |_: &Row, order_seed| Job {
        block_bytes: shape.block_bytes,
        pattern: Pattern::Random,
        // No file is opened; nothing comes from a device.
        cache: Cache::Warm,
        ..context.job(shape.depth, order_seed)
    };
    let tell = |row: &Row| format!("{title}: {} threads", row.depth);
    let result = context.take(&context.schedule(&of_row), &mut section, &tell);
    section.rows.iter_mut().filter(|row| row.is_valid()).for_each(remark);
    let seed = context.plan.seed;
    section.notes.extend(findings(&section.rows, processors.len(), seed));
    Outcome { section, result }
}

fn rows(threads: &[usize], shape: Shape, processors: &[usize]) -> Vec<Row> {
    let bytes = (shape.depth * shape.block_bytes).max(MEMORY_BYTES);
    let null = Arc::new(Null::new(bytes.next_multiple_of(shape.block_bytes), SEED));
    let share = |thread: usize| Share {
        files: [null.file()].into(),
        seed: SEED,
        processor: processors.get(thread % processors.len().max(1)).copied(),
    };
    let row = |threads: usize, kind| {
        let crew = Crew::new(null.clone(), (0..threads).map(share).collect());
        Row::new("null".to_owned(), kind, threads, Box::new(crew))
    };
    let mut rows: Vec<Row> = threads.iter().map(|&count| row(count, RowKind::Subject)).collect();
    rows.insert(1.min(rows.len()), row(threads[0], RowKind::Control));
    rows
}

/// Whether the lab becomes dearer: on as many processors beside one thread, on more threads than processors beside as many
/// threads as there are. A sentence each. They are no verdicts: no engine is compared.
fn findings(rows: &[Row], processors: usize, seed: u64) -> Vec<String> {
    let of = |threads: usize| {
        let own =
            |row: &&Row| row.depth == threads && row.kind != RowKind::Control && row.is_valid();
        rows.iter().find(own)
    };
    let mut counts: Vec<usize> = rows.iter().map(|row| row.depth).collect();
    counts.dedup();
    let base = |threads: usize| match threads > processors {
        true => counts.iter().copied().filter(|&count| count <= processors).max(),
        false => counts.first().copied().filter(|&first| first < threads),
    };
    let base = |threads: usize| {
        base(threads).or_else(|| counts.first().copied()).filter(|&own| own < threads)
    };
    let finding = |&threads: &usize| Some(beside(of(threads)?, of(base(threads)?)?, rows, seed));
    counts.iter().filter_map(finding).collect()
}

fn beside(row: &Row, base: &Row, rows: &[Row], seed: u64) -> String {
    let noise = Noise::at(rows, rows[0].depth, seed).cpu;
    let ratio = row.measured.ratio(&base.measured, verdict::cpu, seed);
    let finding = match ratio.map(|ratio| compare(&ratio, noise.unwrap_or(0.0))) {
        None => "inconclusive",
        Some(Comparison::Faster) => "dearer",
        Some(Comparison::Slower | Comparison::NoDifference) => "not dearer",
    };
    let times = ratio.map_or_else(|| "too few samples".to_owned(), |ratio| interval_text(&ratio));
    format!(
        "{} threads are {finding}: the lab's own CPU time per read is {}, {times} times the {} with {} (noise {})",
        row.depth,
        latency_text(row.measured.cpu_ns_per_op()),
        latency_text(base.measured.cpu_ns_per_op()),
        base.depth,
        noise.map_or_else(|| "unknown".to_owned(), |noise| format!("{:.0} %", noise * 100.0))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Figures, row};

    fn null(kind: RowKind, threads: usize, cpu_ns: f64) -> Row {
        row("null", kind, threads, Figures { cpu_ns, ..Figures::DIRECT })
    }

    #[test]
    fn a_lab_that_becomes_dearer_with_its_threads_is_told() {
        let rows = |many_ns| {
            [
                null(RowKind::Subject, 1, 400.0),
                null(RowKind::Control, 1, 404.0),
                null(RowKind::Subject, 2, 480.0),
                null(RowKind::Subject, 32, many_ns),
            ]
        };
        let found = |rows: &[Row], processors| {
            let findings = findings(rows, processors, 1).into_iter();
            findings.map(|own| own.split(':').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let (two, not_many) = ("2 threads are dearer", "32 threads are not dearer");
        assert_eq!(found(&rows(484.0), 2), [two, not_many]);
        assert_eq!(found(&rows(600.0), 2), [two, "32 threads are dearer"]);
        // On one processor two threads are beside one.
        assert_eq!(found(&rows(400.0), 1), [two, not_many]);
        let told = &findings(&rows(600.0), 2, 1)[1];
        assert_eq!(
            told,
            "32 threads are dearer: the lab's own CPU time per read is 600 ns, 1.25 [1.25, 1.25] times \
             the 480 ns with 2 (noise 1 %)"
        );
    }

    #[test]
    fn rows_have_as_many_threads_as_asked_and_the_first_again() {
        let shape = Shape { block_bytes: 4096, depth: 2 };
        let rows = rows(&[1, 32], shape, &[0, 1]);
        let kinds: Vec<(usize, RowKind)> = rows.iter().map(|row| (row.depth, row.kind)).collect();
        let (subject, control) = (RowKind::Subject, RowKind::Control);
        assert_eq!(kinds, [(1, subject), (1, control), (32, subject)]);
        assert_eq!(rows.len(), row_count(&[1, 32]));
    }
}
