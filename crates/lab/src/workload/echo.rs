//! `echo`: servers that send back what they get, each a process of its own on one processor, under
//! the load of `ringwise_load` from another. An operation is a message there and back.
//!
//! CPU time and system calls are the server's. The generator checks every byte; a failed
//! connection excludes the row.

mod builtin;
mod command;
mod plan;

use std::{sync::Arc, time::Duration};

use ringwise_load::{
    LoadError,
    echo::{self, Moment},
};
use ringwise_measure::{
    Sources,
    counters::Counters,
    cpu::{KernelThreads, SystemCpu},
    quantity::size_text,
};

pub(crate) use self::builtin::serve;
use self::plan::{EchoPlan, EchoServer, Spin};
use super::{
    columns,
    cost::Samples,
    facts::{Facts, Question, Target, start},
    form::{Context, Entry, Keep, Outcome, Workload, with_control},
    server::{self, Processors, Server},
    under_load::{self, UnderLoad},
};
use crate::{
    engine::{Engine, Tally},
    error::LabError,
    job::{Extent, Failure, Job, Start, Timing},
    lane::Counts,
    plan::Defaults,
    row::RowKind,
    sample::{Counted, KernelShares},
    section::Section,
};

/// What the rest of the lab knows of this workload.
pub static FACTS: Facts = Facts {
    name: "echo",
    depth_is: "connections",
    columns: columns::CALLS_ONLY,
    question: &QUESTION,
};

/// What servers do today.
static QUESTION: Question = Question {
    operations: "requests",
    alone: "one connection",
    in_flight: "connections",
    starts: &[
        start("epoll", "serve with epoll", "epoll", ""),
        start("tokio", "serve with tokio::net", "tokio::net", ""),
        start("blocking", "have a thread for each connection", "thread-per-connection", ""),
        start("node", "serve with node", "node", ""),
    ],
    targets: &[Target { engine: "uring", name: "io_uring", remedy: "Use ringwise::Local." }],
};

/// Its line in the table.
pub static ENTRY: Entry = Entry {
    facts: &FACTS,
    suite_s: 12,
    has_files: false,
    flags: &["engines", "connections", "length", "target"],
    defaults: Defaults::of,
    plan: |typed| Ok(Box::new(EchoPlan::new(typed.args)?)),
};

/// A server starts and is connected to in each sample.
const SERVER: Duration = Duration::from_millis(60);

impl Workload for EchoPlan {
    /// All servers and one of them again, for each length and number of connections.
    fn rows(&self) -> usize {
        self.connections.len() * self.lengths.len() * (self.servers.len() + 1)
    }

    fn time(&self, samples: &Samples) -> Duration {
        (samples.each + SERVER) * (samples.count + samples.rows)
    }

    fn run(&self, context: &Context<'_>, keep: &mut Keep<'_>) -> Result<(), LabError> {
        self.lengths.iter().try_for_each(|&length| keep(run(context, self, length)))
    }
}

/// A server under load, as the lab's engines are.
#[derive(Clone, Debug)]
struct Served {
    server: EchoServer,
    processors: Processors,
    timing: Timing,
}

impl Engine for Served {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let server = command::start(&self.server, self.processors.server, job.depth)?;
        // The generator keeps its own time, which begins when its connections are open.
        start.ready()?;
        let (sources, mut edges) = (Sources::default(), Vec::with_capacity(2));
        let outcome = self.load(job, &server, &mut |_| {
            edges.push(SystemCpu::read_processor(&sources, self.processors.server));
        })?;
        let used = outcome.totals.server.as_ref().map(|server| &server.used);
        Ok(Tally {
            elapsed_ns: outcome.totals.elapsed_ns,
            foreign_cpu_ns: Some(used.and_then(|used| used.cpu_ns.known().copied()).unwrap_or(0)),
            foreign_split: used.and_then(|used| server::split(used, &edges)),
            client_bound: outcome.totals.client.is_bound(),
            counts: Counts {
                operations: outcome.totals.operations,
                bytes: outcome.totals.operations * job.block_bytes as u64,
                issued: outcome.totals.sent,
                completed: outcome.totals.received,
                ..Counts::default()
            },
            latency: outcome.totals.latency,
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
            idle: 0,
            slow: 0,
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
        let outcome = echo::run(&plan, &job.interrupt, at).map_err(unavailable)?;
        outcome.failure().map_or(Ok(outcome), |reason| Err(Failure::Unavailable(reason)))
    }
}

impl under_load::Served for Served {
    fn count(&self, job: &Arc<Job>, context: &Context<'_>) -> Result<Counted, Failure> {
        let server = command::start(&self.server, self.processors.server, job.depth)?;
        let sources = &context.instruments.sources;
        let mut counters = server.pid.map(|pid| Counters::open_for(sources, pid, &Counted::EVENTS));
        let mut kernel = Vec::with_capacity(2);
        let outcome = self.load(job, &server, &mut |moment| {
            kernel.push(KernelThreads::read(sources));
            if let Some(counters) = &mut counters {
                match moment {
                    Moment::Start => counters.start(),
                    Moment::End => counters.stop(),
                }
            }
        })?;
        let totals = &outcome.totals;
        let used = totals.server.as_ref().map(|server| &server.used);
        Ok(Counted {
            shares: used.and_then(|used| KernelShares::of_server(used, &server::between(&kernel))),
            ..Counted::of(counters, totals.operations, "the server's process is not known")
        })
    }
}

/// Measures all servers at all numbers of connections, with messages of one length.
fn run(context: &Context<'_>, plan: &EchoPlan, length_bytes: usize) -> Outcome {
    let (processors, timing) = (Processors::choose(), context.timing);
    let all = UnderLoad::new(&plan.connections, &servers(plan), |server| Served {
        server: server.clone(),
        processors,
        timing,
    });
    let title = format!("echo, {} bytes a message, closed loop", size_text(length_bytes as u64));
    let mut section = Section::new(&FACTS, title, Vec::new());
    section.short = format!("{} bytes", size_text(length_bytes as u64));
    section.place.block_bytes = length_bytes;
    section.notes.push("every byte checked; CPU time and system calls are the server's".to_owned());
    all.run(context, section, "request", |_, _| {})
}

/// All servers, and what each is for.
fn servers(plan: &EchoPlan) -> Vec<(&EchoServer, RowKind)> {
    with_control(plan.servers.iter(), |server| match server {
        EchoServer::Uring(Spin::Default) => RowKind::Subject,
        EchoServer::Uring(_) => RowKind::Variant,
        EchoServer::Target { .. } => RowKind::Program,
        _ => RowKind::Rival,
    })
}
