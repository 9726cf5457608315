//! What the lab itself costs per read: measured with the null engine, before anything else.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ringwise_measure::quantity::latency_text;

use crate::{
    dataset::block::BLOCK_BYTES,
    engine::null::Null,
    error::LabError,
    results::{row::RowKind, section::Section},
    sampling::{
        job::{Cache, Extent, Job, Timing},
        sample,
    },
    workload::form::Context,
};

const CALIBRATION: Timing =
    Timing { warm_up: Duration::from_millis(10), extent: Extent::Time(Duration::from_millis(30)) };
const CALIBRATIONS: usize = 3;
/// More than any processor's own cache: what a device has just written is not in there.
const OUTSIDE_CACHE_BYTES: usize = 64 << 20;
/// Measures the lab's own time per operation with the null engine, as each row has it.
pub fn calibrate(
    context: &Context<'_>,
    job: &dyn Fn(usize, u64) -> Job,
    section: &mut Section,
) -> Result<(), LabError> {
    let sample_job = job(1, 0);
    let is_cached = sample_job.cache == Cache::Warm;
    let mut known: Vec<(usize, f64)> = Vec::new();
    for row in &mut section.rows {
        // Engines without a queue read the clock for each operation, as a queue of one does.
        let is_queue = row.engine.starts_with("uring") || row.engine == "aio";
        let depth = if is_queue { row.depth } else { 1 };
        if row.kind == RowKind::Program {
            continue;
        }
        let ns = match known.iter().find(|(at, _)| *at == depth) {
            Some((_, ns)) => *ns,
            None => {
                let buffers = (depth * sample_job.block_bytes).next_multiple_of(BLOCK_BYTES);
                let bytes = if is_cached { buffers } else { buffers.max(OUTSIDE_CACHE_BYTES) };
                let null = Null::new(bytes, sample_job.seed);
                let ns = harness_ns(context, &null, || Job {
                    files: [null.file()].into(),
                    cache: Cache::Warm,
                    ..job(depth, 1)
                })?;
                known.push((depth, ns));
                ns
            }
        };
        row.measured.harness_ns = Some(ns);
    }
    known.sort_unstable_by_key(|(depth, _)| *depth);
    let parts = known.iter().map(|(depth, ns)| format!("{} at depth {depth}", latency_text(*ns)));
    let parts: Vec<String> = parts.collect();
    section.notes.push(format!("the lab's own time per read: {}", parts.join(", ")));
    Ok(())
}

fn harness_ns(context: &Context<'_>, null: &Null, job: impl Fn() -> Job) -> Result<f64, LabError> {
    let mut times = Vec::with_capacity(CALIBRATIONS);
    for _ in 0..CALIBRATIONS {
        let job = Arc::new(job());
        let taken = sample::take(null, &job, CALIBRATION, context.instruments);
        let taken = taken.map_err(|failure| LabError::Failed(format!("calibrating: {failure}")))?;
        times.push(1e9 / taken.operations_per_second().max(1.0));
    }
    if context.interrupt.load(Ordering::Relaxed) {
        return Err(LabError::Interrupted);
    }
    // The least: what else the machine does meanwhile is no cost of the lab.
    Ok(times.into_iter().fold(f64::INFINITY, f64::min))
}
