//! `http`: what an HTTP/1.1 server gains from ringwise. hyper serves keep-alive connections in tokio, over
//! the sockets and from the files of tokio or of the library. An operation is a request with its answer.
//!
//! Each server is a process of its own on one processor; the client is a thread of the lab on another. CPU
//! time and system calls are the server's. The client verifies each answer: status, length and every byte.
//!
//! It measures no TLS, no HTTP/2 and no routing, which are the same over all sockets, and no cold files,
//! for which there is `read`.

mod client;
mod plan;
mod server;
mod site;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::Command,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use ringwise_measure::{Sources, quantity::size_text};
use serde_json::json;

pub(crate) use self::server::{is_meant, serve};
use self::{
    client::Load,
    plan::{Bodies, HttpPlan, HttpServer},
    server::child_name,
    site::{FILES, Site},
};
use super::{
    form::{Context, Entry, Keep, Outcome, Workload, with_control},
    under_load::{self, UnderLoad},
};
use crate::{
    engine::{Engine, Tally},
    error::LabError,
    plan::Defaults,
    results::{
        row::{Row, RowKind},
        section::Section,
        verdict,
    },
    sampling::{
        job::{Cache, Failure, Job, Start, Timing, Until, Window},
        sample::Counted,
    },
    workload::{
        form::{
            columns::{self, Column},
            cost::Samples,
            facts::{Facts, Question, Target, start},
        },
        under_load::{
            server::{Announced, Processors, Server, own},
            watch::Watch,
        },
    },
};

/// What the rest of the lab knows of this workload.
pub static FACTS: Facts =
    Facts { name: "http", depth_is: "connections", columns: COLUMNS, question: &QUESTION };

/// What servers do today.
static QUESTION: Question = Question {
    operations: "requests",
    alone: "one connection",
    in_flight: "connections",
    starts: &[start("tokio", "serve HTTP with hyper in tokio", "tokio", "")],
    targets: &[
        Target {
            engine: "tokio+ringwise-files",
            name: "tokio with ringwise's files",
            remedy: "Keep tokio's sockets, and read files with ringwise::fs.",
        },
        Target {
            engine: "ringwise",
            name: "ringwise's sockets",
            remedy: "Use ringwise::net with io_uring.",
        },
    ],
};

const COLUMNS: &[Column] = &[
    columns::RATE,
    columns::MIB_RATE,
    Column::Latencies,
    columns::CPU,
    columns::CPU_KINDS,
    columns::CALLS,
];

/// Its line in the table.
pub static ENTRY: Entry = Entry {
    facts: &FACTS,
    suite_s: 3,
    has_files: false,
    flags: &["engines", "connections", "length", "bodies"],
    defaults: Defaults::of,
    plan: |typed| Ok(Box::new(HttpPlan::new(typed.args)?)),
};

/// A server starts and is connected to in each sample.
const SERVER: Duration = Duration::from_millis(60);

impl Workload for HttpPlan {
    /// All servers and one of them again, for each source of bodies, length and number of connections.
    fn rows(&self) -> usize {
        let contestants = self.bodies.iter().map(|&bodies| self.contestants(bodies).len() + 1);
        self.connections.len() * self.lengths.len() * contestants.sum::<usize>()
    }

    fn time(&self, samples: &Samples) -> Duration {
        (samples.each + SERVER) * (samples.count + samples.rows)
    }

    fn passing_bytes(&self, _: Timing) -> u64 {
        FILES * self.lengths.iter().copied().max().unwrap_or(0) as u64
    }

    fn run(&self, context: &Context<'_>, keep: &mut Keep<'_>) -> Result<(), LabError> {
        self.bodies.iter().try_for_each(|&bodies| {
            self.lengths.iter().try_for_each(|&length| keep(run(context, self, bodies, length)))
        })
    }
}

/// A server under load, as the lab's engines are.
#[derive(Clone, Debug)]
struct Served {
    server: HttpServer,
    bodies: Bodies,
    processors: Processors,
    timing: Timing,
    /// The directory of the files.
    directory: PathBuf,
}

impl Engine for Served {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let (server, sources, mut start) = (self.start()?, Sources::default(), Some(start));
        let mut watch = Watch::new(&sources, &server, self.processors);
        let begin = &mut || start.take().expect("a sample begins once").ready();
        let tally = self.load(job, server, begin, &mut || watch.look())?;
        Ok(watch.charged(tally))
    }
}

impl Served {
    fn start(&self) -> Result<Server, Failure> {
        let mut command: Command = own().map_err(Failure::Unavailable)?;
        command.args(["lab", "--child-server", &child_name(self.server, self.bodies), "--dir"]);
        command.arg(&self.directory);
        Server::start(command, self.processors.server, Announced::Printed)
    }

    /// Has the client at a server. `begin` says when it is measured; `at` is called at both edges of that.
    fn load(
        &self,
        job: &Arc<Job>,
        server: Server,
        begin: &mut (dyn FnMut() -> Result<Window, Failure> + Send),
        at: &mut dyn FnMut(),
    ) -> Result<Tally, Failure> {
        let load = Load { address: server.address, job, processor: self.processors.load };
        let (tell, told) = mpsc::channel();
        let tally = thread::scope(|scope| {
            let client = scope.spawn(move || {
                load.run(&mut || {
                    let window = begin()?;
                    // Somebody hears it: the other end is below.
                    let _ = tell.send(window);
                    Ok(window)
                })
            });
            if let Ok(window) = told.recv() {
                for edge in edges(&window) {
                    // Nothing more is sent: it waits for the edge, or for the client's end.
                    let _ = told.recv_timeout(edge.saturating_duration_since(Instant::now()));
                    at();
                }
            }
            client.join()
        });
        match tally.unwrap_or_else(|_| Err(Failure::Io("the client panicked".to_owned()))) {
            Err(Failure::Unavailable(reason)) => {
                let said = server.end();
                let line = said.lines().find(|line| !line.trim().is_empty());
                Err(Failure::Unavailable(match line {
                    Some(line) => format!("{reason} (the server: {line})"),
                    None => reason,
                }))
            }
            result => result,
        }
    }
}

/// The edges of the measured time.
fn edges(window: &Window) -> [Instant; 2] {
    let until_ns = match window.until {
        Until::Time { ns } => ns,
        // The client refuses it.
        Until::Operations { .. } => window.from_ns,
    };
    [window.from_ns, until_ns].map(|ns| window.instant(ns))
}

impl under_load::Served for Served {
    fn count(&self, job: &Arc<Job>, context: &Context<'_>) -> Result<Counted, Failure> {
        let server = self.start()?;
        let sources = &context.instruments.sources;
        let mut watch = Watch::new(sources, &server, self.processors).counting();
        let begin = &mut || Ok(Window::beginning_now(self.timing));
        let tally = self.load(job, server, begin, &mut || watch.look())?;
        Ok(watch.counted(tally.counts.operations, tally.elapsed_ns))
    }
}

/// Measures all servers at all numbers of connections, with bodies of one length from one source.
fn run(context: &Context<'_>, plan: &HttpPlan, bodies: Bodies, length_bytes: usize) -> Outcome {
    let cached = if bodies == Bodies::Files { "cached " } else { "" };
    let length = size_text(length_bytes as u64);
    let title = format!("http, bodies of {length} from {cached}{bodies}, keep-alive, closed loop");
    let mut section = Section::new(&FACTS, title, Vec::new());
    section.short = format!("{length} from {bodies}");
    section.place.block_bytes = length_bytes;
    section.place.cache = (bodies == Bodies::Files).then_some(Cache::Warm);
    section.place.own = BTreeMap::from([("bodies", json!(bodies))]);
    section.notes.push(
        "status, length and every byte of each answer checked; CPU time and system calls are the server's"
            .to_owned(),
    );
    let (directory, seed) = (&context.plan.directory, context.plan.seed);
    let site = match Site::make(directory, seed, length_bytes, context.interrupt) {
        Ok(site) => site,
        Err(error) => return Outcome { section, result: Err(error) },
    };
    let (processors, timing) = (Processors::choose(), context.timing);
    let servers = plan.contestants(bodies);
    let kind = |server| servers.iter().find(|(own, _)| *own == server).expect("listed").1;
    let contestants = with_control(servers.iter().map(|(server, _)| *server), kind);
    let all = UnderLoad::new(&plan.connections, &contestants, |server| Served {
        server,
        bodies,
        processors,
        timing,
        directory: site.path().to_owned(),
    });
    let mut outcome =
        all.with_files(site.files().clone()).run(context, section, "request", |_, _| {});
    compare_variants(&mut outcome.section.rows, seed);
    outcome
}

/// Says of each variant what it is beside tokio: the verdict is on the subject only.
fn compare_variants(rows: &mut [Row], seed: u64) {
    let tokio = HttpServer::Tokio.to_string();
    let text = |row: &Row, rows: &[Row]| {
        let is_rival = |rival: &&Row| rival.engine == tokio && rival.kind == RowKind::Rival;
        let rival = rows.iter().filter(|rival| rival.depth == row.depth).find(is_rival)?;
        let is_compared = row.kind == RowKind::Variant && row.is_valid() && rival.is_valid();
        let times = |of| {
            let ratio = row.measured.ratio(&rival.measured, of, seed)?;
            Some(verdict::interval_text(&ratio))
        };
        let rate = times(|sample| sample.ops_per_s).filter(|_| is_compared)?;
        let cpu = times(|sample| sample.cpu_ns_per_op)?;
        Some(format!("{rate} times tokio, CPU {cpu} times"))
    };
    let texts: Vec<Option<String>> = rows.iter().map(|row| text(row, rows)).collect();
    for (row, text) in rows.iter_mut().zip(texts) {
        row.measured.remarks.extend(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Figures, row};

    #[test]
    fn a_variant_is_told_beside_tokio() {
        let fast = Figures { ops_per_s: 2.0 * Figures::DIRECT.ops_per_s, ..Figures::DIRECT };
        let mut rows = [
            row("tokio", RowKind::Rival, 16, Figures::DIRECT),
            row("tokio+ringwise-files", RowKind::Subject, 16, fast),
            row("ringwise", RowKind::Variant, 16, fast),
        ];
        compare_variants(&mut rows, 1);
        let remarks: Vec<&[String]> = rows.iter().map(|row| &row.measured.remarks[..]).collect();
        assert!(remarks[0].is_empty() && remarks[1].is_empty(), "{remarks:?}");
        let [text] = remarks[2] else { panic!("{remarks:?}") };
        assert!(text.starts_with("2.00 [") && text.contains(" times tokio, CPU 1.00 ["), "{text}");
    }
}
