//! The command line as typed, and the configuration file, which has the same options.
//!
//! A file's options are read as flags are, by the same definitions, so what one takes the other
//! takes, and errors are the same. A flag wins over the file; a default over neither.

mod file;
mod kafka;
pub(crate) mod mistake;
mod sources;
mod value;

use std::{
    collections::BTreeSet, net::SocketAddr, num::NonZero, path::PathBuf, sync::Arc,
    thread::available_parallelism, time::Duration,
};

pub(crate) use file::parse;
use file::read;
use kafka::KafkaArgs;
use ringwise_measure::quantity;
use ringwise_serve::EngineChoice;
use sources::Sources;
use value::{
    Packing, WriteChoice, address, line_number, line_size, memory_size, pack_level, some_time,
};

use crate::{
    clients::{
        names::NameRule,
        tenants::{self, Rule, TENANTS_MAX},
        tokens::{Tokens, Transport},
    },
    disk::segment::{retention::Policy, writing::appender::Limits as SegmentLimits},
    error::LogdError,
    guarantee::Guarantee,
    intake::Protocol,
    lines::{
        framing::Framing,
        json::{DEPTH_MAX, Field, Rules},
        wrap::Wrap,
    },
    live::{Care, Live},
    monitoring::log::Form,
    session::{
        connection::{Limits, LongLines, Senders},
        tls::{ClientAuth, Files},
    },
    ship::kafka::Settings as KafkaSettings,
    tool::{query::QueryArgs, shown::Shown},
    upload::place::{Place, place},
};

/// Take newline-delimited JSON over TCP, store it, and acknowledge what is durable
///
/// Prints "listening on ADDRESS" when connections are taken. A client that wants acknowledgements
/// sends "LOGD 1" as its first line. SIGTERM or SIGINT drains: what was sent is stored and
/// acknowledged, then it ends. SIGHUP reads limits again, SIGUSR1 prints statistics.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(flatten)]
    pub(crate) serve: ServeArgs,

    #[command(subcommand)]
    pub(crate) tool: Option<Tool>,
}

/// What is done with segments.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Tool {
    /// Print stored lines in the order of their batches' times, whole batches only
    Cat {
        /// Read the directory of a daemon, which may run
        directory: PathBuf,
        /// Print only the stream of this thread
        #[arg(long, value_name = "N")]
        stream: Option<u32>,
        /// Begin at this line of each stream; lines are numbered from 0
        #[arg(long, value_name = "LINE", default_value_t = 0, value_parser = line_number)]
        from: u64,
        /// Print dead letters instead of lines
        #[arg(long, conflicts_with_all = Shown::OPTIONS)]
        dead: bool,
        #[command(flatten)]
        shown: Shown,
    },
    /// Print the last lines of each stream, merged by time, and go on as they are stored
    Tail {
        /// Read the directory of a daemon, which may run
        directory: PathBuf,
        /// Print only the stream of this thread
        #[arg(long, value_name = "N")]
        stream: Option<u32>,
        /// Begin at this line of each stream, instead of ten before its end
        #[arg(long, value_name = "LINE", value_parser = line_number)]
        from: Option<u64>,
        /// Print dead letters instead of lines
        #[arg(long, conflicts_with_all = Shown::OPTIONS)]
        dead: bool,
        /// End after the last line, instead of waiting for more
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        shown: Shown,
    },
    /// Print stored lines by time, sender, field or text
    #[command(help_template = EXAMPLES_OF_QUERY)]
    Query(QueryArgs),
    /// Check every segment against its checksums
    Verify {
        /// Read the directory of a daemon, which may run
        directory: PathBuf,
    },
    /// Bring uploaded segments back, each checked against its checksums
    Fetch {
        /// Fetch from this URL, that of --upload, with the name of the daemon's directory if there are several
        #[arg(value_name = "URL", value_parser = place)]
        place: Place,
        /// Put the segments into this directory, which is made if it is not there
        directory: PathBuf,
    },
}

/// A help that begins with what people do.
const EXAMPLES_OF_QUERY: &str = "\
{about-with-newline}
  ringwise logd query DIR --since 10m --where level=error
  ringwise logd query DIR --match 'connection refused' --count
  ringwise logd query DIR --tenant web --where http.status=500 --follow

{usage-heading} {usage}

{all-args}";

/// More than have a use, and few enough that each has a stream's number of three digits.
const THREADS_MAX: i64 = 256;
/// A segment with so much of an index ends. A reader takes five times as much memory.
const INDEX_BYTES: u64 = 4 << 20;

/// Flags of the daemon. Without a value: the file's, or the default.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ServeArgs {
    /// Read options from a TOML file, each named as its flag; flags win
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Say whether the options are right, and end
    #[arg(long)]
    pub(crate) check: bool,

    /// Listen on this address; port 0 picks one [default: 127.0.0.1:9000]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Option<SocketAddr>,

    /// Store segments in this directory, which is made if it is not there [default: logd-data]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Acknowledge a line when this is true of it [default: durable]
    #[arg(long, value_enum)]
    ack: Option<Guarantee>,

    /// Move the bytes by this; "uring" fails where there is no ring [default: auto]
    #[arg(long, value_enum)]
    engine: Option<EngineChoice>,

    /// On a ring: let a kernel thread submit for each of the daemon's threads (SQPOLL). It spins, and sleeps
    /// when it was idle for this time [default: none]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    sqpoll: Option<Duration>,

    /// Run this many threads, each with a listener and streams of its own (SO_REUSEPORT) [default: one for
    /// each processor that it may use, of which --budget has to hold a long line each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=THREADS_MAX))]
    threads: Option<u32>,

    /// Keep at most this many connections, over all threads together; more wait to be accepted
    /// [default: 10000, or what the limit of open descriptors has room for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_connections: Option<u32>,

    /// Keep at most this many connections of one address; more are closed [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    address_connections: Option<u32>,

    /// Let these clients name themselves, so that none of their lines is stored twice [default: certified]
    #[arg(long, value_enum)]
    names: Option<NameRule>,

    /// Take at most this many new names from one address, or from one tenant of a certificate [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    address_names: Option<u32>,

    /// Know clients by tokens (LOGD 1 token=...) in this file, each line a token, a space and its tenant;
    /// SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,

    /// Let tokens travel like this [default: private]
    #[arg(long, value_enum)]
    token_transport: Option<Transport>,

    /// Take lines from these clients [default: anyone]
    #[arg(long, value_enum)]
    senders: Option<Senders>,

    /// Forget the numbers of names that were not used for so long; such a name is refused from then on
    /// ("E 1 expired") and another may take its place [default: never]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    forget_names: Option<Duration>,

    /// Tell lines apart like this [default: lines]
    #[arg(long, value_enum)]
    framing: Option<Framing>,

    /// Wrap lines that are not JSON: raw makes an object with the text of the line, syslog one with its fields too.
    /// Lines of JSON stay as they are [default: none]
    #[arg(long, value_enum)]
    wrap: Option<Wrap>,

    /// Take lines of at most this length, without their end [default: 1m]
    #[arg(long, value_name = "SIZE", value_parser = line_size)]
    max_line: Option<usize>,

    /// Do this with lines that are longer [default: dead-letter]
    #[arg(long, value_enum)]
    long_lines: Option<LongLines>,

    /// Take values that nest at most this deep [default: 64]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)))]
    max_depth: Option<u32>,

    /// Take only lines that have this field; TYPE is any, string, number, bool, object or array
    #[arg(long, value_name = "NAME[:TYPE]")]
    require: Vec<Field>,

    /// Stop receiving from a connection while this many of its bytes are not stored [default: 4m]
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    connection_budget: Option<usize>,

    /// Stop receiving while this many bytes of all connections are not stored; each thread has an equal share
    /// [default: 256m, or 16m for each thread if that is more]
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    budget: Option<usize>,

    /// Let a thread's batch grow to this size while the batch before is stored [default: 4m]
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    commit_size: Option<usize>,

    /// End a segment when it has this many bytes [default: 256m]
    #[arg(long, value_name = "SIZE", value_parser = quantity::parse_size)]
    segment_size: Option<u64>,

    /// End a segment that has lines when it is this old [default: 60m]
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration)]
    segment_age: Option<Duration>,

    /// Write past the page cache where the file system allows it (direct), or through it (cached), so that other
    /// tools than "logd tail" can follow an open segment [default: direct]
    #[arg(long, value_enum)]
    write: Option<WriteChoice>,

    /// Pack segments when they have ended, with zstd at this level, from 1 to 19; "none" leaves them
    /// plain [default: none]
    #[arg(long, value_name = "LEVEL", value_parser = pack_level)]
    pack: Option<Packing>,

    /// Remove the oldest ended segments when all have more bytes, packed or not [default: never]
    #[arg(long, value_name = "SIZE", value_parser = quantity::parse_size)]
    retain_size: Option<u64>,

    /// Remove the oldest ended segments of dead letters when these have more bytes [default: 1g]
    #[arg(long, value_name = "SIZE", value_parser = quantity::parse_size)]
    retain_dead: Option<u64>,

    /// Remove segments this long after they ended [default: never]
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration)]
    retain_age: Option<Duration>,

    /// Set rules of a tenant: its networks (from=, for clients without a certificate), how many of its bytes
    /// may be stored before its senders wait (quota=), and when its lines expire (retain-size=,
    /// retain-age=, instead of --retain-age). A segment goes when all lines in it have expired
    #[arg(long, value_name = "NAME[,KEY=VALUE]...", value_parser = tenants::rule)]
    tenant: Vec<Rule>,

    /// Take and acknowledge nothing while the file system has less free than this [default: 64m]
    #[arg(long, value_name = "SIZE", value_parser = quantity::parse_size)]
    min_free: Option<u64>,

    /// Serve the status page, /metrics, /livez and /readyz on this address [default: none]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    http: Option<SocketAddr>,

    /// Show stored lines on the status page only to who has a token in this file, each line a token, a space and the
    /// tenant whose lines it shows, or * for all; SIGHUP reads it again [default: show them on loopback addresses alone]
    #[arg(long, value_name = "FILE")]
    page_tokens: Option<PathBuf>,

    /// Take lines by HTTP requests (POST /ingest) on this address [default: none]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    http_intake: Option<SocketAddr>,

    /// Take lines by RELP, as omrelp of rsyslog sends them, on this address [default: none]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    relp_intake: Option<SocketAddr>,

    /// Take events by Fluent Forward, as Fluentd and Fluent Bit send them, on this address [default: none]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    fluent_intake: Option<SocketAddr>,

    /// Keep at most this many connections on each port of the intake (--http-intake, --relp-intake, --fluent-intake);
    /// more wait to be accepted [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    intake_connections: Option<u32>,

    #[command(flatten)]
    kafka: KafkaArgs,

    /// Copy sealed segments to object storage: file:///DIRECTORY, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or
    /// az://CONTAINER/PREFIX; credentials are in environment variables [default: none]
    #[arg(long, value_name = "URL", value_parser = place)]
    upload: Option<Place>,

    /// Speak TLS, with the certificates in this PEM file; SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// Use this private key for the certificate, a PEM file
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// Trust client certificates that these authorities signed, a PEM file; the name in a certificate is the
    /// client's tenant
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,

    /// Say whether a client has to show a certificate [default: optional]
    #[arg(long, value_enum)]
    tls_client_auth: Option<ClientAuth>,

    /// Close a connection whose TLS handshake takes longer [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration)]
    tls_handshake: Option<Duration>,

    /// Close connections that were silent for this time, also before their first line [default: never]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    idle: Option<Duration>,

    /// Process this many results before the kernel is asked for more [default: all]; 1 also sends each answer
    /// by itself, to measure what that costs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,

    /// Print remarks on standard error in this form [default: text]
    #[arg(long, value_enum)]
    log: Option<Form>,

    /// Wait at the end for at most this time for what is still to be stored [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration)]
    drain: Option<Duration>,
}

/// All options, decided.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Where they were given.
    pub(crate) sources: Sources,
    pub(crate) listen: SocketAddr,
    pub(crate) directory: PathBuf,
    pub(crate) guarantee: Guarantee,
    pub(crate) engine: EngineChoice,
    pub(crate) sqpoll: Option<Duration>,
    pub(crate) threads: u32,
    pub(crate) connections: Option<u32>,
    pub(crate) drain: Duration,
    pub(crate) log: Form,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) http_intake: Option<SocketAddr>,
    pub(crate) relp_intake: Option<SocketAddr>,
    pub(crate) fluent_intake: Option<SocketAddr>,
    pub(crate) intake_connections: u32,
    pub(crate) tenants: Vec<Rule>,
    pub(crate) kafka: Option<KafkaSettings>,
    pub(crate) upload: Option<Place>,
    pub(crate) live: Live,
}

/// Threads of a daemon that nobody told how many: one for each processor that it may use, by its
/// affinity and its cgroup's quota, of whose budget each thread's share holds a line of this length.
fn default_threads(budget: Option<usize>, line_max: usize, has_intake: bool) -> u32 {
    let processors = available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX as usize);
    let budget = budget.unwrap_or_else(|| default_budget(processors));
    // The intake has a share too.
    let shares = (budget / (2 * line_max)).saturating_sub(usize::from(has_intake));
    processors.min(shares).max(1) as u32
}

fn default_budget(threads: usize) -> usize {
    (256 << 20).max(threads * (16 << 20))
}

impl Options {
    /// The ports of the intake: the option, what is spoken, and where.
    pub(crate) fn intakes(&self) -> impl Iterator<Item = (&'static str, Protocol, SocketAddr)> {
        let all = [
            ("--http-intake", Protocol::Http, self.http_intake),
            ("--relp-intake", Protocol::Relp, self.relp_intake),
            ("--fluent-intake", Protocol::Fluent, self.fluent_intake),
        ];
        all.into_iter().filter_map(|(option, protocol, address)| Some((option, protocol, address?)))
    }
}

impl ServeArgs {
    /// Reads the file, if one is named, and decides. `serving`: how many threads there are, where
    /// they run already.
    pub(crate) fn decide(&self, serving: Option<u32>) -> Result<Options, LogdError> {
        let path = self.config.as_deref();
        let file = path.map_or_else(|| Ok(ServeArgs::default()), read)?;
        let mut sources = Sources::new(path);
        let options = self.combine(file, serving, &mut sources);
        options.map_err(|error| sources.blame(error))
    }

    /// The flags, and where they say nothing the file's options.
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn combine(
        &self,
        file: ServeArgs,
        serving: Option<u32>,
        sources: &mut Sources,
    ) -> Result<Options, LogdError> {
        let flags = self.clone();
        macro_rules! either {
            ($option:ident) => {
                sources.pick(stringify!($option), flags.$option, file.$option)
            };
        }
        let line_max = either!(max_line).unwrap_or(1 << 20);
        let budget = either!(budget);
        let (http_intake, relp_intake) = (either!(http_intake), either!(relp_intake));
        let fluent_intake = either!(fluent_intake);
        let has_intake = http_intake.or(relp_intake).or(fluent_intake).is_some();
        let threads = either!(threads).or(serving);
        let threads = threads.unwrap_or_else(|| default_threads(budget, line_max, has_intake));
        // What another number would be is for the next start: these are who share it.
        let sharers = serving.unwrap_or(threads) as usize + usize::from(has_intake);
        let depth_max = either!(max_depth).unwrap_or(64);
        let fields = sources.pick("require", given(flags.require), given(file.require));
        let budget = budget.unwrap_or_else(|| default_budget(sharers));
        let transport = either!(token_transport).unwrap_or_default();
        let page_tokens = either!(page_tokens)
            .map(|path| Tokens::read("--page-tokens", Some(&path), transport).map(Arc::new));
        let limits = Limits {
            rules: Rules::new(depth_max, fields.unwrap_or_default()),
            line_max,
            long_lines: either!(long_lines).unwrap_or(LongLines::DeadLetter),
            framing: either!(framing).unwrap_or(Framing::Lines),
            wrap: either!(wrap).unwrap_or_default(),
            budget_each: either!(connection_budget).unwrap_or(4 << 20),
            budget_all: budget / sharers,
            // More saves no call that counts, and leaves the processor's caches.
            commit_max: either!(commit_size).unwrap_or(4 << 20),
            names: (
                either!(names).unwrap_or(NameRule::Certified),
                either!(address_names).unwrap_or(1000) as usize,
            ),
            tokens: Arc::new(Tokens::read("--tokens", either!(tokens).as_deref(), transport)?),
            senders: either!(senders).unwrap_or_default(),
            address_connections: either!(address_connections),
            idle: either!(idle),
            turn_max: either!(batch).map_or(usize::MAX, |count| count as usize),
        };
        holds_a_line(&limits, sharers)?;
        let segments = SegmentLimits {
            bytes: either!(segment_size).unwrap_or(256 << 20).max(1),
            age: either!(segment_age).unwrap_or(Duration::from_secs(3600)),
            index_bytes: INDEX_BYTES,
            min_free: either!(min_free).unwrap_or(64 << 20),
            is_direct: either!(write) != Some(WriteChoice::Buffered),
        };
        let care = Care {
            policy: Policy {
                bytes: either!(retain_size),
                dead_bytes: Some(either!(retain_dead).unwrap_or(1 << 30)),
                age: either!(retain_age),
            },
            pack_level: either!(pack).and_then(|Packing(level)| level),
            forget_names: either!(forget_names),
        };
        let sqpoll = either!(sqpoll);
        let engine = engine_with(either!(engine), sqpoll)?;
        let files = tls_files(
            either!(tls_cert),
            either!(tls_key),
            either!(tls_client_ca),
            either!(tls_client_auth),
        )?;
        let tls = files.map(|files| files.load()).transpose()?;
        let handshake = either!(tls_handshake).unwrap_or(Duration::from_secs(10));
        let tenants = sources.pick("tenant", given(flags.tenant), given(file.tenant));
        let guarantee = either!(ack).unwrap_or(Guarantee::Durable);
        Ok(Options {
            listen: either!(listen).unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 9000))),
            directory: either!(dir).unwrap_or_else(|| "logd-data".into()),
            guarantee,
            engine,
            sqpoll,
            threads,
            connections: either!(max_connections),
            drain: either!(drain).unwrap_or(Duration::from_secs(5)),
            http: either!(http),
            http_intake,
            relp_intake,
            fluent_intake,
            intake_connections: either!(intake_connections).unwrap_or(1000),
            tenants: tenant_rules(tenants.unwrap_or_default())?,
            upload: either!(upload),
            kafka: flags.kafka.decide(file.kafka, sources, guarantee)?,
            log: either!(log).unwrap_or(Form::Text),
            live: Live {
                limits,
                segments,
                care,
                tls,
                handshake,
                page_tokens: page_tokens.transpose()?,
            },
            sources: std::mem::take(sources),
        })
    }
}

/// The values of an option that can be given several times, if it was given.
fn given<T>(values: Vec<T>) -> Option<Vec<T>> {
    (!values.is_empty()).then_some(values)
}

/// Unfinished lines have half of a thread's budget: one has to fit.
fn holds_a_line(limits: &Limits, sharers: usize) -> Result<(), LogdError> {
    let line_max = limits.line_max;
    let mut needed = Vec::new();
    if limits.budget_each < line_max {
        needed.push("a --connection-budget of as many".to_owned());
    }
    if limits.budget_all / 2 < line_max {
        let bytes = 2 * line_max * sharers;
        let each = "a --budget of twice as many for each thread";
        needed.push(format!("{each}: {bytes}, for {sharers}"));
    }
    if needed.is_empty() {
        return Ok(());
    }
    let needed = needed.join(", and ");
    Err(LogdError::Usage(format!("lines of {line_max} bytes (--max-line) need {needed}")))
}

/// The engine, if what is asked of a ring goes with it.
fn engine_with(
    engine: Option<EngineChoice>,
    sqpoll: Option<Duration>,
) -> Result<EngineChoice, LogdError> {
    match engine.unwrap_or(EngineChoice::Auto) {
        EngineChoice::Epoll if sqpoll.is_some() => Err(LogdError::Usage(
            "--sqpoll is a ring's: it goes with --engine uring or auto, and not with epoll".into(),
        )),
        engine => Ok(engine),
    }
}

/// What is said of TLS, where it goes together.
fn tls_files(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    client_auth: Option<ClientAuth>,
) -> Result<Option<Files>, LogdError> {
    let usage = |text: &str| Err(LogdError::Usage(text.to_owned()));
    let client_auth = match client_auth {
        Some(_) if client_ca.is_none() => return usage("--tls-client-auth needs --tls-client-ca"),
        asked => asked.unwrap_or(ClientAuth::Optional),
    };
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            Ok(Some(Files { certificate, key, client_ca, client_auth }))
        }
        (Some(_), None) => usage("--tls-cert needs --tls-key"),
        (None, Some(_)) => usage("--tls-key needs --tls-cert"),
        (None, None) if client_ca.is_none() => Ok(None),
        (None, None) => usage("--tls-client-ca needs --tls-cert and --tls-key"),
    }
}

/// Tenants' rules, each of another tenant.
fn tenant_rules(rules: Vec<Rule>) -> Result<Vec<Rule>, LogdError> {
    let names: BTreeSet<&str> = rules.iter().map(|rule| &*rule.name).collect();
    if names.len() < rules.len() || rules.len() > TENANTS_MAX {
        let text = format!("--tenant: each is named once, and at most {TENANTS_MAX} are");
        return Err(LogdError::Usage(text));
    }
    Ok(rules)
}

#[cfg(test)]
mod tests;
