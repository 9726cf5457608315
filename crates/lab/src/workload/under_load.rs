//! Servers under the load of a generator, which `echo`, `http` and `log` measure alike: a row for each
//! number of connections and server, samples interleaved, system calls in a pass of their own.
//!
//! What a server speaks, and how it is started and loaded, is its workload's.

pub(super) mod derived_rate;
pub(super) mod server;
pub(super) mod watch;

use std::sync::{Arc, atomic::Ordering};

use super::{
    form::{Context, Outcome},
    read::page_cache,
};
use crate::{
    dataset::DataFile,
    engine::Engine,
    error::LabError,
    results::{
        row::{Row, RowKind},
        section::Section,
        verdict,
    },
    sampling::{
        job::{Failure, Job},
        sample::Counted,
        schedule::Schedule,
    },
    workload::under_load::server::Processors,
};

/// A server that can be put under load, as the lab's engines can be put to work.
pub(super) trait Served: Engine + Clone + 'static {
    /// Counts the server's system calls in a run of its own, which they slow down.
    fn count(&self, job: &Arc<Job>, context: &Context<'_>) -> Result<Counted, Failure>;
}

/// The servers of a section, in the order of its rows.
pub(super) struct UnderLoad<S> {
    served: Vec<S>,
    rows: Vec<Row>,
    files: Arc<[DataFile]>,
}

impl<S: Served> UnderLoad<S> {
    /// Every server at every number of connections. `make` makes it ready to be loaded.
    pub(super) fn new<T: std::fmt::Display + Copy>(
        connections: &[usize],
        servers: &[(T, RowKind)],
        make: impl Fn(T) -> S,
    ) -> UnderLoad<S> {
        let mut all = UnderLoad { served: Vec::new(), rows: Vec::new(), files: [].into() };
        for &connections in connections {
            for &(server, kind) in servers {
                let one = make(server);
                let runner = Box::new(one.clone());
                all.rows.push(Row::new(server.to_string(), kind, connections, runner));
                all.served.push(one);
            }
        }
        all
    }

    /// The same servers with files, which are brought into the page cache before each sample.
    pub(super) fn with_files(self, files: Arc<[DataFile]>) -> UnderLoad<S> {
        UnderLoad { files, ..self }
    }

    /// Measures all of them in a section. `operation` names one operation; `remark` adds what else is
    /// to be known of a row.
    pub(super) fn run(
        self,
        context: &Context<'_>,
        mut section: Section,
        operation: &str,
        remark: impl Fn(&S, &mut Row),
    ) -> Outcome {
        let UnderLoad { served, rows, files } = self;
        section.rows = rows;
        section.notes.insert(0, Processors::choose().note());
        let result = measure(context, &served, &files, &mut section);
        for (row, served) in section.rows.iter_mut().zip(&served) {
            be_frank(row);
            remark(served, row);
        }
        let (seed, offered) = (context.plan.seed, section.place.offered_per_s);
        let mut counts: Vec<usize> = section.rows.iter().map(|row| row.depth).collect();
        counts.dedup();
        for connections in counts {
            section.pairings.extend(verdict::pairings(&section.rows, connections, seed));
            let rows = &section.rows;
            let verdict = verdict::at_connections(rows, connections, operation, offered, seed);
            section.verdicts.push(verdict);
        }
        section.summarise();
        Outcome { section, result }
    }
}

fn measure<S: Served>(
    context: &Context<'_>,
    served: &[S],
    files: &Arc<[DataFile]>,
    section: &mut Section,
) -> Result<(), LabError> {
    let block_bytes = section.place.block_bytes;
    let job = |row: &Row, order_seed| Job {
        files: files.clone(),
        block_bytes,
        ..context.job(row.depth, order_seed)
    };
    let title = section.title.clone();
    let prepare = |job: &Job| match job.files.is_empty() {
        true => Ok(None),
        false => page_cache::prepare(job),
    };
    let schedule = Schedule { prepare: &prepare, ..context.schedule(&job) };
    context.take(&schedule, section, &|row| {
        format!("{title}: {}, {} connections", row.label(), row.depth)
    })?;
    if context.plan.self_check.is_some() {
        // A row is not the server that it is called after.
        return Ok(());
    }
    for (row, served) in section.rows.iter_mut().zip(served).filter(|(row, _)| row.is_valid()) {
        let counted = served.count(&Arc::new(job(row, 0)), context);
        if context.interrupt.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        match counted {
            Ok(counted) => row.measured.counted = Some(counted),
            Err(failure) => row.measured.void = Some(failure.to_string()),
        }
    }
    Ok(())
}

/// Says of a row what keeps its figures from being the server's own.
fn be_frank(row: &mut Row) {
    let measured = &mut row.measured;
    let (client_bound, samples) = (measured.client_bound(), measured.samples.len());
    if client_bound > 0 {
        measured.remarks.push(format!("client-bound in {client_bound} of {samples} samples"));
    }
    for sample in measured.samples.iter_mut().filter(|sample| sample.cpu_ns_per_op == 0.0) {
        // A server whose process cannot be seen.
        sample.cpu_ns_per_op = f64::NAN;
    }
    if samples > 0 && measured.cpu_ns_per_op().is_nan() {
        measured.remarks.push("CPU time unknown: its process is not seen".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Figures, row};

    #[test]
    fn a_generator_at_its_limit_is_said_with_the_row_and_with_the_verdict() {
        let mut rows = [
            row("uring", RowKind::Subject, 50, Figures::DIRECT),
            row("epoll", RowKind::Rival, 50, Figures::DIRECT),
        ];
        rows[0].measured.samples[1..3].iter_mut().for_each(|sample| sample.client_bound = true);
        rows.iter_mut().for_each(be_frank);
        assert_eq!(rows[0].measured.remarks, ["client-bound in 2 of 6 samples"]);
        assert!(rows[1].measured.remarks.is_empty());
        let verdict = verdict::at_connections(&rows, 50, "request", None, 1);
        assert_eq!((verdict.verdict, verdict.winner), (verdict::Finding::Inconclusive, None));
        let clause = "client-bound: the load was at its limit in 2 of 6 samples of uring";
        assert!(verdict.reason.starts_with(clause), "{}", verdict.reason);
    }

    #[test]
    fn no_time_of_a_server_that_is_not_seen_is_not_none() {
        let mut row = row("far", RowKind::Program, 50, Figures { cpu_ns: 0.0, ..Figures::DIRECT });
        be_frank(&mut row);
        assert!(row.measured.cpu_ns_per_op().is_nan());
        assert_eq!(row.measured.remarks, ["CPU time unknown: its process is not seen"]);
    }
}
