//! `echo`: servers that send back what they get, each a process of its own on one processor, under
//! the load of `ringwise_load` from another. An operation is a message there and back.
//!
//! CPU time and system calls are the server's. The generator checks every byte; a connection that
//! fails voids the row.

mod builtin;
mod command;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use ringwise_load::{
    LoadError,
    echo::{self, Moment},
};
use ringwise_measure::{
    Fact,
    counters::{Counters, Event},
    quantity::size_text,
};

pub(crate) use self::builtin::serve;
use super::{
    Context, Outcome,
    server::{Processors, Server},
};
use crate::{
    engine::{Engine, Tally},
    error::LabError,
    job::{Cache, Extent, Failure, Job, Pattern, Start, Timing},
    lane::Counts,
    plan::{EchoPlan, EchoServer, Spin, Workload},
    report::Section,
    row::{Row, RowKind},
    sample::Counted,
    schedule::Schedule,
    verdict,
};

/// Rows for each number of connections: all servers, and one of them again.
pub fn rows_per_count(plan: &EchoPlan) -> usize {
    plan.servers.len() + 1
}

/// A server under load, as the lab's engines are.
#[derive(Clone, Debug)]
struct Served {
    server: EchoServer,
    processors: Processors,
    timing: Timing,
    /// Samples in which the generator was the limit.
    client_bound: Arc<AtomicUsize>,
}

impl Engine for Served {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let server = command::start(&self.server, self.processors.server, job.depth)?;
        // The generator keeps its own time, which begins when its connections are open.
        start.ready()?;
        let outcome = self.load(job, &server, &mut |_| {})?;
        if outcome.totals.client.is_bound() {
            self.client_bound.fetch_add(1, Ordering::Relaxed);
        }
        let cpu_ns =
            outcome.totals.server.as_ref().and_then(|server| server.used.cpu_ns.known().copied());
        Ok(Tally {
            elapsed_ns: outcome.totals.elapsed_ns,
            foreign_cpu_ns: Some(cpu_ns.unwrap_or(0)),
            counts: Counts {
                operations: outcome.totals.operations,
                bytes: outcome.totals.operations * job.block_bytes as u64,
                issued: outcome.totals.sent,
                completed: outcome.totals.received,
                latency: outcome.totals.latency,
                ..Counts::default()
            },
            ..Tally::default()
        })
    }
}

impl Served {
    /// Has the generator at a server.
    fn load(
        &self,
        job: &Job,
        server: &Server,
        at: &mut dyn FnMut(Moment),
    ) -> Result<echo::Outcome, Failure> {
        let unavailable = |error: LoadError| Failure::Unavailable(error.to_string());
        let Extent::Time(duration) = self.timing.extent else {
            return Err(Failure::Io("echo is measured for a time".to_owned()));
        };
        let plan = echo::Plan {
            name: server.address.to_string(),
            address: server.address,
            connections: job.depth,
            mode: echo::Mode::PingPong,
            length_bytes: job.block_bytes,
            pipeline: 1,
            rate_per_s: None,
            warm_up: self.timing.warm_up,
            duration,
            threads: 1,
            processors: vec![self.processors.load],
            server_pid: server.pid,
        };
        plan.raise_open_files().map_err(unavailable)?;
        let outcome = echo::run_observed(&plan, &job.interrupt, at).map_err(unavailable)?;
        outcome.failure().map_or(Ok(outcome), |reason| Err(Failure::Unavailable(reason)))
    }

    /// Counts the server's system calls in a run of its own, which they slow down.
    fn count(&self, job: &Job, context: &Context<'_>) -> Result<Counted, Failure> {
        let server = command::start(&self.server, self.processors.server, job.depth)?;
        let sources = &context.instruments.sources;
        let events = [Event::SystemCalls, Event::WorkerPunts];
        let mut counters = server.pid.map(|pid| Counters::open_for(sources, pid, &events));
        let outcome = self.load(job, &server, &mut |moment| {
            if let Some(counters) = &mut counters {
                match moment {
                    Moment::Start => counters.start(),
                    Moment::End => counters.stop(),
                }
            }
        })?;
        let mut each = |event| match &mut counters {
            None => Fact::Unknown("the server's process is not known".to_owned()),
            Some(counters) => {
                counters.count(event).map(|count| count as f64 / outcome.totals.operations as f64)
            }
        };
        Ok(Counted {
            system_calls: each(Event::SystemCalls),
            worker_punts: each(Event::WorkerPunts),
        })
    }
}

/// Measures all servers at all numbers of connections, with messages of one length.
pub fn run(context: &Context<'_>, length_bytes: usize) -> Outcome {
    let plan = &context.plan.echo;
    let processors = Processors::choose();
    let mut served = Vec::new();
    let mut rows = Vec::new();
    for &connections in &plan.connections {
        for (server, kind) in servers(plan) {
            let (timing, client_bound) = (context.timing, Arc::default());
            let one = Served { server: server.clone(), processors, timing, client_bound };
            rows.push(Row::new(server.to_string(), kind, connections, Box::new(one.clone())));
            served.push(one);
        }
    }
    let title = format!("echo, {} bytes a message, closed loop", size_text(length_bytes as u64));
    let mut section = Section::new(Workload::Echo, None, title, rows);
    section.message_bytes = length_bytes;
    section.notes.push(processors.note());
    section.notes.push("every byte checked; CPU time and system calls are the server's".to_owned());
    let result = measure(context, &served, &mut section);
    context.progress.clear();
    remark(&served, &mut section);
    let seed = context.plan.seed;
    for &connections in &plan.connections {
        section.pairings.extend(verdict::pairings(&section.rows, connections, seed));
        let verdict = verdict::at_connections(&section.rows, connections, "request", seed);
        section.verdicts.push(verdict);
    }
    section.summarise();
    Outcome { section, result }
}

/// All servers, and what each is for: the first that is ours, or else the first, is there again.
fn servers(plan: &EchoPlan) -> Vec<(&EchoServer, RowKind)> {
    let kind = |server: &EchoServer| match server {
        EchoServer::Uring(Spin::Default) => RowKind::Subject,
        EchoServer::Uring(_) => RowKind::Variant,
        EchoServer::Target { .. } => RowKind::Program,
        _ => RowKind::Rival,
    };
    let subject = plan.servers.iter().find(|server| kind(server) == RowKind::Subject);
    let again = subject.or(plan.servers.first()).map(|server| (server, RowKind::Control));
    plan.servers.iter().map(|server| (server, kind(server))).chain(again).collect()
}

fn measure(
    context: &Context<'_>,
    served: &[Served],
    section: &mut Section,
) -> Result<(), LabError> {
    let length_bytes = section.message_bytes;
    let job = |row: &Row, order_seed| job(context, row, length_bytes, order_seed);
    let schedule = Schedule {
        blocks: context.plan.repeats,
        seed: context.plan.seed,
        timing: context.timing,
        instruments: context.instruments,
        job: &job,
        prepare: &|_| Ok(None),
        inspect: &|_, _| Ok(None),
        spare: context.spare,
    };
    context.restore(section);
    context.progress.begin((section.rows.len() * 2 * context.plan.repeats) as u64);
    schedule.run(&mut section.rows, &mut |row| {
        let what = format!("echo: {}, {} connections", row.label(), row.depth);
        context.progress.sample(&what, row);
    })?;
    for (row, served) in section.rows.iter_mut().zip(served) {
        if !row.is_valid() {
            continue;
        }
        let counted = served.count(&job(row, 0), context);
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

fn job(context: &Context<'_>, row: &Row, length_bytes: usize, order_seed: u64) -> Job {
    Job {
        files: [].into(),
        seed: context.plan.seed,
        block_bytes: length_bytes,
        depth: row.depth,
        pattern: Pattern::Sequential,
        cache: Cache::Warm,
        order_seed,
        heatmap: false,
        interrupt: context.interrupt.clone(),
        failed: false.into(),
    }
}

/// Says of each row what is to be known of it.
fn remark(served: &[Served], section: &mut Section) {
    for (row, served) in section.rows.iter_mut().zip(served) {
        let measured = &mut row.measured;
        let bound = served.client_bound.load(Ordering::Relaxed);
        if bound > 0 {
            let samples = measured.samples.len();
            measured.remarks.push(format!("client-bound in {bound} of {samples} samples"));
        }
        for sample in &mut measured.samples {
            if sample.cpu_ns_per_op == 0.0 {
                // A server whose process cannot be seen.
                sample.cpu_ns_per_op = f64::NAN;
            }
        }
        if measured.cpu_ns_per_op().is_nan() && !measured.samples.is_empty() {
            measured.remarks.push("CPU time unknown: its process is not seen".into());
        }
    }
}
