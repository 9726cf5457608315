//! `log`: log daemons, each a process of its own on one processor, under the load of
//! `ringwise_load` from another. An operation is a line, from the sender into a file.
//!
//! Daemons are compared within one guarantee, since a line that is synced costs something else than
//! one that is forgotten. Figures are of the whole run, from the first line until the daemon had
//! taken and stored all: what buffers take is nobody's speed. CPU time, context switches and system
//! calls are the daemon's process's, threads that io_uring made included. At the end every line that
//! was sent has to be in the daemon's files once, or the row is excluded.

mod daemon;
mod plan;
mod rsyslog;
mod scratch;
mod statistics;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use ringwise_load::{LoadError, log as load};
use ringwise_measure::{
    Fact, Sources,
    counters::{Counters, Event},
    cpu::{ForeignProcess, ForeignUse, KernelThreads, SystemCpu},
    quantity::size_text,
};
use serde_json::{Value, json};

use self::{
    daemon::{Daemon, Setting},
    plan::{Guarantee, LogGroup, LogPlan, LogServer, LogSwitches, RsyslogInput, Transport},
    scratch::Scratch,
};
use super::{
    form::{Context, Entry, Keep, Outcome, Workload, with_control},
    under_load::{self, UnderLoad},
};
use crate::{
    args::Args,
    engine::{Engine, Tally},
    error::LabError,
    plan::{Defaults, ExtentChoice},
    results::{
        row::{Row, RowKind},
        section::Section,
    },
    sampling::{
        job::{Extent, Failure, Job, Start, Timing},
        lane::Counts,
        sample::{Counted, KernelShares},
    },
    workload::{
        form::{
            columns::{self, Column, grouped},
            cost::Samples,
            facts::{Facts, Question, Target, start},
        },
        under_load::{derived_rate::DerivedRate, server::Processors, watch},
    },
};

/// What the rest of the lab knows of this workload.
pub static FACTS: Facts =
    Facts { name: "log", depth_is: "connections", columns: COLUMNS, question: &QUESTION };

/// What is used to store logs today.
static QUESTION: Question = Question {
    operations: "lines",
    alone: "one connection",
    in_flight: "connections",
    starts: &[
        start("rsyslog-imtcp", "use rsyslog", "rsyslog", ""),
        start("rsyslog-imptcp", "use rsyslog with imptcp", "rsyslog with imptcp", ""),
        start("rsyslog-relp", "use rsyslog over RELP", "rsyslog over RELP", ""),
        start("syslog-ng", "use syslog-ng", "syslog-ng", ""),
        start("epoll", "use a daemon on epoll", "epoll", ""),
    ],
    targets: &[Target { engine: "uring", name: "logd on io_uring", remedy: "Use ringwise logd." }],
};

const COLUMNS: &[Column] = &[
    columns::RATE,
    Column::Latencies,
    columns::CPU,
    columns::CPU_KINDS,
    columns::CALLS,
    Column::Of("switches/op", |row| figure(row, "switches_per_op")),
    Column::Of("ops/receive", |row| figure(row, "lines_per_receive")),
    Column::Of("ops/enter", |row| figure(row, "lines_per_enter")),
    Column::Of("ops/commit", |row| figure(row, "lines_per_commit")),
    Column::Of("B/commit", |row| figure(row, "bytes_per_commit")),
    Column::Of("B/write", |row| figure(row, "bytes_per_write")),
    Column::Of("syncs/s", |row| figure(row, "syncs_per_s")),
];

fn figure(row: &Row, name: &str) -> Option<String> {
    let figure = *row.measured.figures().get(name)?;
    Some(if figure < 10.0 { format!("{figure:.4}") } else { grouped(figure) })
}

/// Lines under way with RELP over all connections: it takes one after the other, and what is under
/// way at the end has to be over soon.
const RELP_WINDOW_LINES: u64 = 512;

/// Its line in the table.
pub static ENTRY: Entry = Entry {
    facts: &FACTS,
    // Each of its samples starts a daemon.
    suite_s: 9,
    has_files: false,
    flags: &[
        "engines",
        "connections",
        "length",
        "target",
        "guarantee",
        "transport",
        "rate",
        "batch",
    ],
    defaults,
    plan: |typed| {
        Ok(Box::new(match typed.is_suite() {
            true => LogPlan::of_suite(typed.args, typed.scale)?,
            false => LogPlan::new(typed.args)?,
        }))
    },
};

/// A daemon is started and its files are read for each sample, so that a budget of time would say
/// little.
fn defaults(args: &Args) -> Defaults {
    let (repeats, milliseconds) = match (args.quick, args.full) {
        (true, _) => (2, 250),
        (_, true) => (5, 2000),
        _ => (3, 500),
    };
    Defaults { repeats, extent: ExtentChoice::Time(Duration::from_millis(milliseconds)) }
}

/// A daemon starts in each sample, and its files are read at the end.
const DAEMON: Duration = Duration::from_millis(300);
/// The time for a connection of TCP, and for one with its handshake of TLS 1.3. All connections are
/// there before a sample begins.
const CONNECTION: Duration = Duration::from_micros(30);
const HANDSHAKE: Duration = Duration::from_micros(400);
/// As many lines as any daemon takes of one processor's load.
const LINES_PER_S: u64 = 2_000_000;

impl Workload for LogPlan {
    fn rows(&self) -> usize {
        let rows_of = |&group: &LogGroup| counts(self, group).count() * rows_per_count(self, group);
        self.groups.iter().map(rows_of).sum()
    }

    fn time(&self, samples: &Samples) -> Duration {
        let connecting = connecting(self, samples.per_row + 1);
        (samples.each + DAEMON) * (samples.count + samples.rows) + connecting
    }

    /// What a daemon stores of one sample.
    fn passing_bytes(&self, timing: Timing) -> u64 {
        let rates = self.groups.iter().map(|group| group.offered_per_s);
        let rate = rates.map(|rate| rate.unwrap_or(LINES_PER_S)).max().unwrap_or(0);
        let Extent::Time(time) = timing.extent else { return 0 };
        (time.as_secs_f64() * rate as f64) as u64 * self.line_bytes as u64
    }

    fn run(&self, context: &Context<'_>, keep: &mut Keep<'_>) -> Result<(), LabError> {
        for &group in &self.groups {
            let outcome = run(context, self, group, None);
            let (rows, counts) = (&outcome.section.rows, &self.connections[..]);
            let derived_rates = DerivedRate::after((rows, group.offered_per_s), counts, self.auto);
            keep(outcome)?;
            for derived in &derived_rates {
                let group = LogGroup { offered_per_s: Some(derived.rate_per_s), ..group };
                keep(run(context, self, group, Some(derived)))?;
            }
        }
        Ok(())
    }
}

/// The time until all samples have their connections, so many samples of each row.
fn connecting(plan: &LogPlan, samples: u32) -> Duration {
    let of_group = |&group: &LogGroup| {
        let connections = u32::try_from(counts(plan, group).sum::<usize>()).unwrap_or(u32::MAX);
        let each = if group.transport == Transport::Tls { HANDSHAKE } else { CONNECTION };
        let rows = u32::try_from(rows_per_count(plan, group)).unwrap_or(u32::MAX);
        each.saturating_mul(connections).saturating_mul(rows).saturating_mul(samples)
    };
    plan.groups.iter().map(of_group).sum()
}

/// The numbers of connections of a group, those for which a rate may be derived twice.
fn counts(plan: &LogPlan, group: LogGroup) -> impl Iterator<Item = usize> {
    let derived = plan.auto.connections(&plan.connections);
    let derived = derived.filter(move |_| group.offered_per_s.is_none());
    plan.connections.iter().copied().chain(derived)
}

/// Rows for each number of connections in a group: all daemons of its guarantee, and one of them
/// again.
fn rows_per_count(plan: &LogPlan, group: LogGroup) -> usize {
    plan.servers.iter().filter(|server| server.belongs_to(group)).count() + 1
}

/// A daemon under load, as the lab's engines are.
#[derive(Clone, Debug)]
struct Served {
    server: LogServer,
    group: LogGroup,
    switches: LogSwitches,
    processors: Processors,
    timing: Timing,
    directory: std::path::PathBuf,
}

/// Lines that were due and never sent, where there were any.
const UNSENT: &str = "unsent_lines";

/// What a run showed.
struct Shown {
    outcome: load::Outcome,
    /// Until all was stored.
    elapsed_ns: u64,
    used: ForeignUse,
    /// Its processor's time at both ends.
    processor: [Fact<SystemCpu>; 2],
    /// The kernel's own threads at both ends, where events are counted.
    kernel: Vec<Fact<KernelThreads>>,
    /// What the daemon counted.
    counted: statistics::Statistics,
    events: Option<Counters>,
}

impl Engine for Served {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        start.ready()?;
        let shown = self.load(job, None)?;
        let Shown { outcome, elapsed_ns, used, processor, counted, .. } = shown;
        let lines = outcome.totals.received;
        let mut figures = counted.figures(lines, elapsed_ns);
        if let Fact::Known(switches) = &used.context_switches {
            let all = switches.voluntary + switches.involuntary;
            figures.insert("switches_per_op", all as f64 / lines.max(1) as f64);
        }
        if outcome.totals.unsent > 0 {
            figures.insert(UNSENT, outcome.totals.unsent as f64);
        }
        Ok(Tally {
            elapsed_ns,
            client_bound: outcome.totals.client.is_bound(),
            foreign_cpu_ns: Some(used.cpu_ns.known().copied().unwrap_or(0)),
            foreign_split: watch::split(&used, &processor),
            counts: Counts {
                operations: lines,
                bytes: lines * job.block_bytes as u64,
                issued: outcome.totals.sent,
                completed: outcome.stored.map_or(lines, |stored| stored.lines),
                ..Counts::default()
            },
            latency: outcome.totals.latency,
            figures,
            ..Tally::default()
        })
    }
}

impl Served {
    /// Has the generator at a daemon that was started for it, with these counters, if any.
    fn load(&self, job: &Job, events: Option<&[Event]>) -> Result<Shown, Failure> {
        let unavailable = |error: LoadError| Failure::Unavailable(error.to_string());
        let Extent::Time(duration) = self.timing.extent else {
            return Err(Failure::Io("log is measured for a time".to_owned()));
        };
        let sources = Sources::default();
        let scratch = Scratch::make(&self.directory).map_err(Failure::Io)?;
        let setting = Setting {
            group: self.group,
            switches: self.switches,
            scratch: &scratch,
            connections: job.depth,
        };
        let daemon = Daemon::start(&self.server, &setting, self.processors)?;
        let plan = self.plan(job, &daemon, &scratch, duration)?;
        plan.raise_open_files().map_err(unavailable)?;
        let pid = daemon.server.pid;
        let look = || pid.map(|pid| ForeignProcess::read(&sources, pid));
        let processor = || SystemCpu::read_processor(&sources, self.processors.server);
        let mut kernel = Vec::with_capacity(2);
        let mut events = pid.zip(events).map(|(pid, list)| Counters::open_for(&sources, pid, list));
        if let Some(counters) = &mut events {
            kernel.push(KernelThreads::read(&sources));
            counters.start();
        }
        let at_start = processor();
        let (began, before) = (SystemTime::now(), look());
        let outcome = load::run(&plan, &job.interrupt).map_err(unavailable)?;
        let after = look();
        if let Some(counters) = &mut events {
            counters.stop();
            kernel.push(KernelThreads::read(&sources));
        }
        let processor = [at_start, processor()];
        if let Some(reason) = outcome.failure() {
            return Err(Failure::Unavailable(reason));
        }
        // A daemon that does not acknowledge may store a line long after it took it.
        let stored = scratch.last_change().and_then(|last| last.duration_since(began).ok());
        let stored_ns = stored.unwrap_or_default().as_nanos() as u64;
        let elapsed_ns = match outcome.is_answered {
            true => outcome.whole_ns,
            false => outcome.whole_ns.max(stored_ns),
        };
        let used = after.zip(before).map(|(after, before)| after.since(&before));
        let used = used.unwrap_or_else(|| ForeignUse::unknown("its process is not known"));
        let told = daemon.end();
        if let Some(reason) = statistics::lacks_sqpoll(&told) {
            return Err(Failure::Unavailable(format!("SQPOLL is not effective: {reason}")));
        }
        let counted = statistics::Statistics::read(&told);
        Ok(Shown { outcome, elapsed_ns, used, processor, kernel, counted, events })
    }

    fn plan(
        &self,
        job: &Job,
        daemon: &Daemon,
        scratch: &Scratch,
        duration: Duration,
    ) -> Result<load::Plan, Failure> {
        let is_relp = matches!(self.server, LogServer::Rsyslog(RsyslogInput::Relp));
        let protocol = if is_relp { load::Protocol::Relp } else { load::Protocol::Lines };
        let is_asked = !matches!(self.server, LogServer::Rsyslog(_) | LogServer::SyslogNg);
        let ack = match self.group.guarantee {
            Guarantee::Written if is_asked => Some(load::Guarantee::Written),
            Guarantee::Durable if is_asked => Some(load::Guarantee::Durable),
            _ => None,
        };
        let is_own = !matches!(self.server, LogServer::Target { .. });
        let tls = match self.group.transport {
            Transport::Plain => None,
            Transport::Tls => Some(
                load::Tls::new(&scratch.certificate(), scratch::HOST, None)
                    .map_err(|error| Failure::Unavailable(error.to_string()))?,
            ),
        };
        Ok(load::Plan {
            name: daemon.server.address.to_string(),
            address: daemon.server.address,
            connections: job.depth,
            idle: 0,
            protocol,
            window_lines: match is_relp {
                true => (RELP_WINDOW_LINES / job.depth as u64).max(1),
                false => load::window_lines(protocol, job.depth),
            },
            ack,
            tls,
            source: load::Source::Made(job.block_bytes),
            rate_per_s: self.group.offered_per_s,
            burst_lines: 1,
            burst_every: None,
            warm_up: Duration::ZERO,
            duration,
            stored: is_own.then(|| scratch.stored()),
            threads: 1,
            processors: vec![self.processors.load],
            server_pid: None,
        })
    }
}

impl under_load::Served for Served {
    fn count(&self, job: &Arc<Job>, _: &Context<'_>) -> Result<Counted, Failure> {
        let shown = self.load(job, Some(&Counted::EVENTS))?;
        let Shown { outcome, used, kernel, events, .. } = shown;
        Ok(Counted {
            shares: KernelShares::of_server(&used, &watch::between(&kernel)),
            ..Counted::of(events, outcome.totals.received, "the daemon's process is not known")
        })
    }
}

/// Measures all daemons of a group at all numbers of connections, or at the one that a derived rate is for.
fn run(
    context: &Context<'_>,
    plan: &LogPlan,
    group: LogGroup,
    derived: Option<&DerivedRate>,
) -> Outcome {
    let processors = Processors::choose();
    let timing = Timing { warm_up: Duration::ZERO, ..context.timing };
    let connections =
        derived.map_or_else(|| plan.connections.clone(), |derived| vec![derived.connections]);
    let all = UnderLoad::new(&connections, &servers(plan, group, derived), |server| {
        let directory = context.plan.directory.clone();
        let (server, switches) = (server.clone(), plan.switches);
        Served { server, group, switches, processors, timing, directory }
    });
    let mut title = format!("log, {group}, {} bytes a line", size_text(plan.line_bytes as u64));
    if let Some(derived) = derived {
        title += &format!(", {} connections", derived.connections);
    }
    let mut section = Section::new(&FACTS, title, Vec::new());
    section.place.block_bytes = plan.line_bytes;
    section.short = group.short();
    section.place.own = own_fields(group);
    section.place.offered_per_s = group.offered_per_s;
    let flags = plan.switches.flags();
    if !flags.is_empty() {
        // Of what was switched nothing else in the results file tells.
        section.notes.push(format!("uring and epoll run with {}", flags.join(" ")));
    }
    section.notes.push(
        "every line found in the daemon's files once; CPU time and system calls are the daemon's \
         (1 µs a line is 1 s for a million)"
            .to_owned(),
    );
    section.notes.extend(derived.into_iter().flat_map(|derived| derived.notes.clone()));
    all.run(context, section, "line", remark)
}

/// The fields of results files that tell a group.
fn own_fields(group: LogGroup) -> BTreeMap<&'static str, Value> {
    BTreeMap::from([("transport", json!(group.transport)), ("guarantee", json!(group.guarantee))])
}

/// All daemons of a group that are compared, and what each is for.
fn servers<'a>(
    plan: &'a LogPlan,
    group: LogGroup,
    derived: Option<&DerivedRate>,
) -> Vec<(&'a LogServer, RowKind)> {
    let is_compared = |server: &&LogServer| {
        server.belongs_to(group) && derived.is_none_or(|derived| derived.has(*server))
    };
    let of_group = plan.servers.iter().filter(is_compared);
    with_control(of_group, |server| match server {
        LogServer::Uring => RowKind::Subject,
        LogServer::UringSqpoll => RowKind::Variant,
        LogServer::Epoll => RowKind::Rival,
        _ => RowKind::Program,
    })
}

/// Says of a row what is to be known of its daemon.
fn remark(served: &Served, row: &mut Row) {
    let unsent = row.measured.samples.iter().filter_map(|sample| sample.figures.get(UNSENT));
    let unsent: f64 = unsent.sum();
    let remarks = &mut row.measured.remarks;
    if unsent > 0.0 {
        remarks.push(format!("{unsent} lines were due and never sent"));
    }
    let is_silent = match served.server {
        LogServer::Rsyslog(RsyslogInput::Imtcp | RsyslogInput::Imptcp) | LogServer::SyslogNg => {
            served.group.guarantee != Guarantee::None
        }
        _ => false,
    };
    if is_silent {
        remarks.push("syncs, but acknowledges nothing: latency is to the kernel".into());
    }
    if served.server == LogServer::UringSqpoll {
        remarks.push("SQPOLL, which excludes DEFER_TASKRUN".into());
    }
    if matches!(served.server, LogServer::Target { .. }) {
        remarks.push("its files are not looked at".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::scale::Scale;

    #[test]
    fn thousands_of_handshakes_take_time() {
        let standard = LogPlan::of_suite(&Args::default(), Scale::Standard).unwrap();
        let time = connecting(&standard, 11);
        assert!(time > Duration::from_secs(20), "{time:?}");
        let with = |rate: &str| {
            let args = Args {
                rate: Some(rate.into()),
                transport: Some("tls".into()),
                connections: Some("2000".into()),
                ..Args::default()
            };
            let plan = LogPlan::new(&args).unwrap();
            (plan.rows(), connecting(&plan, 11))
        };
        let (closed, derived) = (with("max"), with("auto"));
        assert_eq!((2 * closed.0, 2 * closed.1), derived);
    }
}
