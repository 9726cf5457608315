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
use ringwise_measure::{Sources, quantity::size_text, statistics::MINIMUM_DIFFERENCE};

pub(crate) use self::builtin::serve;
use self::plan::{EchoPlan, EchoServer, Spin};
use super::{
    form::{Context, Entry, Keep, Outcome, Workload, with_control},
    under_load::{self, UnderLoad},
};
use crate::{
    engine::{Engine, Tally},
    error::LabError,
    plan::{Defaults, rate::offered_text},
    results::{
        row::{Row, RowKind},
        section::Section,
    },
    sampling::{
        job::{Extent, Failure, Job, Start, Timing},
        lane::Counts,
        sample::Counted,
    },
    workload::{
        form::{
            columns,
            cost::Samples,
            facts::{Facts, Question, Target, start},
        },
        under_load::{
            derived_rate::DerivedRate,
            server::{Processors, Server},
            watch::Watch,
        },
    },
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
    suite_s: 13,
    has_files: false,
    flags: &["engines", "connections", "length", "target", "rate"],
    defaults: Defaults::of,
    plan: |typed| Ok(Box::new(EchoPlan::new(typed.args)?)),
};

/// What is said of a section at a fixed rate.
const NO_SPIN: &str =
    "uring and epoll do not spin: a spin takes what the requests leave of the processor";

/// A server starts and is connected to in each sample: 22 ms on average over six servers on the reference machine.
const SERVER: Duration = Duration::from_millis(35);

impl Workload for EchoPlan {
    /// All servers and one of them again, for each length, rate and number of connections.
    fn rows(&self) -> usize {
        let loads = self.rates.len() * self.connections.len()
            + self.auto.connections(&self.connections).count();
        loads * self.lengths.len() * (self.servers.len() + 1)
    }

    fn time(&self, samples: &Samples) -> Duration {
        (samples.each + SERVER) * (samples.count + samples.rows)
    }

    fn run(&self, context: &Context<'_>, keep: &mut Keep<'_>) -> Result<(), LabError> {
        for &length_bytes in &self.lengths {
            for &rate_per_s in &self.rates {
                let load = Load { length_bytes, rate_per_s, derived: None };
                let outcome = run(context, self, &load);
                let (rows, counts) = (&outcome.section.rows, &self.connections[..]);
                let derived_rates = DerivedRate::after((rows, rate_per_s), counts, self.auto);
                keep(outcome)?;
                for derived in &derived_rates {
                    let rate_per_s = Some(derived.rate_per_s);
                    let load = Load { length_bytes, rate_per_s, derived: Some(derived) };
                    keep(run(context, self, &load))?;
                }
            }
        }
        Ok(())
    }
}

/// What the servers of a section are given.
#[derive(Clone, Copy, Debug)]
struct Load<'a> {
    length_bytes: usize,
    /// None is a closed loop.
    rate_per_s: Option<u64>,
    /// Where the rate is from, if a closed loop gave it.
    derived: Option<&'a DerivedRate>,
}

/// A server under load, as the lab's engines are.
#[derive(Clone, Debug)]
struct Served {
    server: EchoServer,
    rate_per_s: Option<u64>,
    processors: Processors,
    timing: Timing,
}

impl Engine for Served {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let server = self.start(job.depth)?;
        // The generator keeps its own time, which begins when its connections are open.
        start.ready()?;
        let sources = Sources::default();
        let mut watch = Watch::new(&sources, &server, self.processors);
        let outcome = self.load(job, &server, &mut |_| watch.look())?;
        Ok(watch.charged(Tally {
            elapsed_ns: outcome.totals.elapsed_ns,
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
        }))
    }
}

impl Served {
    fn start(&self, connections: usize) -> Result<Server, Failure> {
        let is_at_rate = self.rate_per_s.is_some();
        command::start(&self.server, self.processors.server, connections, is_at_rate)
    }

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
            rate_per_s: self.rate_per_s,
            warm_up: self.timing.warm_up,
            duration,
            threads: 1,
            processors: vec![self.processors.load],
            server_pid: None,
        };
        plan.raise_open_files().map_err(unavailable)?;
        let outcome = echo::run(&plan, &job.interrupt, at).map_err(unavailable)?;
        outcome.failure().map_or(Ok(outcome), |reason| Err(Failure::Unavailable(reason)))
    }
}

impl under_load::Served for Served {
    fn count(&self, job: &Arc<Job>, context: &Context<'_>) -> Result<Counted, Failure> {
        let server = self.start(job.depth)?;
        let sources = &context.instruments.sources;
        let mut watch = Watch::new(sources, &server, self.processors).counting();
        let totals = self.load(job, &server, &mut |_| watch.look())?.totals;
        Ok(watch.counted(totals.operations, totals.elapsed_ns))
    }
}

/// Measures all servers under a load at all numbers of connections, or at the one that a derived rate is for.
fn run(context: &Context<'_>, plan: &EchoPlan, load: &Load<'_>) -> Outcome {
    let (processors, timing) = (Processors::choose(), context.timing);
    let Load { length_bytes, rate_per_s, derived } = *load;
    let connections =
        derived.map_or_else(|| plan.connections.clone(), |derived| vec![derived.connections]);
    let all = UnderLoad::new(&connections, &servers(plan, load), |server| Served {
        server: server.clone(),
        rate_per_s,
        processors,
        timing,
    });
    let length = size_text(length_bytes as u64);
    let mut title = format!("echo, {length} bytes a message");
    if let Some(derived) = derived {
        title += &format!(", {} connections", derived.connections);
    }
    title += &match rate_per_s {
        None => ", closed loop".to_owned(),
        Some(rate) => format!(", {}", offered_text(rate, FACTS.question.operations)),
    };
    let mut section = Section::new(&FACTS, title, Vec::new());
    section.short = format!("{length} bytes");
    section.place.block_bytes = length_bytes;
    section.place.offered_per_s = rate_per_s;
    section.notes.push("every byte checked; CPU time and system calls are the server's".to_owned());
    if rate_per_s.is_some() {
        section.notes.push(NO_SPIN.to_owned());
    }
    section.notes.extend(derived.into_iter().flat_map(|derived| derived.notes.clone()));
    all.run(context, section, "request", remark)
}

/// Says of a row that its server does not keep the rate.
fn remark(served: &Served, row: &mut Row) {
    let Some(rate) = served.rate_per_s.filter(|_| row.is_valid()) else { return };
    let share = row.measured.ops_per_s() / rate as f64;
    if share < 1.0 - MINIMUM_DIFFERENCE {
        row.measured.remarks.push(format!("keeps {:.0} % of the rate", share * 100.0));
    }
}

/// All servers that a load tells apart, and what each is for.
fn servers<'a>(plan: &'a EchoPlan, load: &Load<'_>) -> Vec<(&'a EchoServer, RowKind)> {
    let has_default = plan.servers.contains(&EchoServer::Uring(Spin::Default));
    let is_compared = |server: &&EchoServer| {
        // At a fixed rate the default does not spin either.
        let is_twice =
            load.rate_per_s.is_some() && has_default && **server == EchoServer::Uring(Spin::Off);
        !is_twice && load.derived.is_none_or(|derived| derived.has(server))
    };
    let compared: Vec<&EchoServer> = plan.servers.iter().filter(is_compared).collect();
    with_control(compared.iter().copied(), |server| match server {
        EchoServer::Uring(Spin::Default) => RowKind::Subject,
        EchoServer::Uring(_) => RowKind::Variant,
        EchoServer::Target { .. } => RowKind::Program,
        _ => RowKind::Rival,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Args,
        testing::{Figures, row},
    };

    fn plan(rate: Option<&str>) -> EchoPlan {
        let args = Args {
            workload: Some("echo".to_owned()),
            rate: rate.map(str::to_owned),
            connections: Some("1,50".to_owned()),
            ..Args::default()
        };
        EchoPlan::new(&args).unwrap()
    }

    /// A closed loop in which the generator was at its limit with 50 connections, or was not.
    fn closed_loop(is_client_bound: bool) -> Vec<Row> {
        let mut rows = vec![
            row("uring", RowKind::Subject, 1, Figures::DIRECT),
            row("uring", RowKind::Subject, 50, Figures::DIRECT),
            row("epoll", RowKind::Rival, 50, Figures::DIRECT),
        ];
        rows[1].measured.samples[0].client_bound = is_client_bound;
        rows
    }

    fn derived_rates(plan: &EchoPlan, rows: &[Row]) -> Vec<DerivedRate> {
        DerivedRate::after((rows, None), &plan.connections, plan.auto)
    }

    #[test]
    fn a_fixed_rate_follows_a_closed_loop_that_does_not_answer() {
        let at = |rate: Option<&str>, is_client_bound| {
            derived_rates(&plan(rate), &closed_loop(is_client_bound))
                .iter()
                .map(|derived| (derived.connections, derived.rate_per_s))
                .collect::<Vec<_>>()
        };
        assert_eq!(at(None, true), [(50, 30_000)]);
        assert_eq!(at(None, false), []);
        assert_eq!(at(Some("max"), true), []);
        assert_eq!(at(Some("auto"), false), [(1, 30_000), (50, 30_000)]);
    }

    #[test]
    fn all_rows_that_there_may_be_are_counted() {
        let each = EchoServer::DEFAULT.len() + 1;
        assert_eq!(plan(Some("max")).rows(), 2 * each);
        assert_eq!(plan(None).rows(), 3 * each);
        assert_eq!(plan(Some("60000,auto")).rows(), 6 * each);
    }

    #[test]
    fn at_a_fixed_rate_the_default_is_the_ring_without_a_spin() {
        let plan = plan(None);
        let names = |load: Load<'_>| {
            let all = servers(&plan, &load);
            all.iter().map(|(server, _)| server.to_string()).collect::<Vec<_>>().join(" ")
        };
        let closed = Load { length_bytes: 64, rate_per_s: None, derived: None };
        assert_eq!(names(closed), "uring uring-spin epoll tokio blocking node uring");
        let fixed = Load { rate_per_s: Some(60_000), ..closed };
        assert_eq!(names(fixed), "uring epoll tokio blocking node uring");
        let derived = derived_rates(&plan, &closed_loop(true)).remove(0);
        assert_eq!(names(Load { derived: Some(&derived), ..fixed }), "uring epoll uring");
    }

    #[test]
    fn a_server_that_does_not_keep_the_rate_says_so() {
        let remarks = |rate_per_s: Option<u64>| {
            let server = EchoServer::Epoll;
            let timing =
                Timing { warm_up: Duration::ZERO, extent: Extent::Time(Duration::from_secs(1)) };
            let served = Served { server, rate_per_s, processors: Processors::choose(), timing };
            let mut row = row("epoll", RowKind::Rival, 50, Figures::DIRECT);
            remark(&served, &mut row);
            row.measured.remarks
        };
        assert_eq!(remarks(Some(200_000)), ["keeps 50 % of the rate"]);
        assert!(remarks(Some(100_000)).is_empty() && remarks(None).is_empty());
    }
}
