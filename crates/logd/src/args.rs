//! The command line as typed, and the configuration file, which has the same options.
//!
//! A file's options are read as flags are, by the same definitions, so what one takes the other
//! takes, and errors are the same. A flag wins over the file; a default over neither.

mod file;
mod kafka;
pub(crate) mod mistake;
mod sources;
pub(crate) mod value;

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
    Packing, WriteChoice, address, kept_size, kept_time, line_number, line_size, memory_size,
    pack_level, some_memory, some_size, some_time,
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

/// Receive newline-delimited JSON over TCP, store it, and acknowledge what is durable
///
/// Prints "listening on ADDRESS" when it accepts connections. A client that wants acknowledgements
/// sends "LOGD 1" as its first line. On SIGTERM or SIGINT, logd stores and acknowledges what was
/// sent, then ends. On SIGHUP it reads limits again; on SIGUSR1 it prints statistics.
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
    /// Print the lines of whole batches, ordered by the batches' times
    Cat {
        /// Read this directory: the --dir of a daemon, which may be running
        directory: PathBuf,
        /// Print only the stream of this thread
        #[arg(long, value_name = "N")]
        stream: Option<u32>,
        /// Start at this line of each stream; lines are numbered from 0
        #[arg(long, value_name = "LINE", default_value_t = 0, value_parser = line_number)]
        from: u64,
        /// Print dead letters instead of lines
        #[arg(long, conflicts_with_all = Shown::OPTIONS)]
        dead: bool,
        #[command(flatten)]
        shown: Shown,
    },
    /// Print the last lines of each stream by time, and wait for new lines
    Tail {
        /// Read this directory: the --dir of a daemon, which may be running
        directory: PathBuf,
        /// Print only the stream of this thread
        #[arg(long, value_name = "N")]
        stream: Option<u32>,
        /// Start at this line of each stream, instead of ten lines before its end
        #[arg(long, value_name = "LINE", value_parser = line_number)]
        from: Option<u64>,
        /// Print dead letters instead of lines
        #[arg(long, conflicts_with_all = Shown::OPTIONS)]
        dead: bool,
        /// End after the last line instead of waiting for more
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
        /// Read this directory: the --dir of a daemon, which may be running
        directory: PathBuf,
    },
    /// Download uploaded segments, and check each against its checksums
    Fetch {
        /// Fetch from this URL: that of --upload, plus /ID if several directories were uploaded there
        #[arg(value_name = "URL", value_parser = place)]
        place: Place,
        /// Put the segments into this directory; create it if it does not exist
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
    /// Read options from this TOML file; keys are named as flags, and flags win
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check the options and the files that they name, and end; --dir, ports, brokers and --upload are not tried
    #[arg(long)]
    pub(crate) check: bool,

    /// Listen on this address; port 0 picks one [default: 127.0.0.1:9000]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Option<SocketAddr>,

    /// Store segments in this directory; create it if it does not exist [default: logd-data]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Acknowledge lines with this guarantee [default: durable]
    #[arg(long, value_enum)]
    ack: Option<Guarantee>,

    /// Do I/O with this engine; uring fails if io_uring does not work here [default: auto]
    #[arg(long, value_enum)]
    engine: Option<EngineChoice>,

    /// With io_uring: let a kernel thread submit I/O for each thread of the daemon (SQPOLL). The kernel thread spins,
    /// and sleeps after it was idle for this time [default: none]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    sqpoll: Option<Duration>,

    /// Run this many threads, each with its own listener (SO_REUSEPORT) and streams [default: one for each processor;
    /// fewer if --budget cannot hold a line of --max-line for each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=THREADS_MAX))]
    threads: Option<u32>,

    /// Keep at most this many connections over all threads; further ones wait to be accepted
    /// [default: 10000, or as many as the limit on open files allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_connections: Option<u32>,

    /// Keep at most this many connections from one address; close further ones [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    address_connections: Option<u32>,

    /// Let these clients name themselves, so that logd stores no line of them twice [default: certified]
    #[arg(long, value_enum)]
    names: Option<NameRule>,

    /// Accept at most this many new names from one address or tenant [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    address_names: Option<u32>,

    /// Identify clients by the tokens in this file (LOGD 1 token=...); each line has a token, a space and its
    /// tenant. SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,

    /// Accept tokens over these transports [default: private]
    #[arg(long, value_enum)]
    token_transport: Option<Transport>,

    /// Accept lines from these clients [default: anyone]
    #[arg(long, value_enum)]
    senders: Option<Senders>,

    /// Let names expire that were not used for this time. Clients with an expired name are refused ("E 1 expired"),
    /// and a new name may take its place [default: never]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    forget_names: Option<Duration>,

    /// Separate lines in this way [default: lines]
    #[arg(long, value_enum)]
    framing: Option<Framing>,

    /// Wrap lines that are not JSON in an object; lines of JSON stay as they are [default: none]
    #[arg(long, value_enum)]
    wrap: Option<Wrap>,

    /// Accept lines of at most this length, without the line end [default: 1m]
    #[arg(long, value_name = "SIZE", value_parser = line_size)]
    max_line: Option<usize>,

    /// Treat longer lines in this way [default: dead-letter]
    #[arg(long, value_enum)]
    long_lines: Option<LongLines>,

    /// Accept JSON that is nested at most this deep [default: 64]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)))]
    max_depth: Option<u32>,

    /// Accept only lines that have this field; TYPE is any, string, number, bool, object or array
    #[arg(long, value_name = "NAME[:TYPE]")]
    require: Vec<Field>,

    /// Stop receiving from a connection while this many of its bytes are not yet stored [default: 4m]
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    connection_budget: Option<usize>,

    /// Stop receiving while this many bytes of all connections are not yet stored; each thread has an equal share
    /// [default: 256m, or 16m for each thread if that is more]
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    budget: Option<usize>,

    /// Let a thread's batch grow to this size while its previous batch is being stored [default: 4m]
    #[arg(long, value_name = "SIZE", value_parser = some_memory)]
    commit_size: Option<usize>,

    /// End a segment when it has this many bytes [default: 256m]
    #[arg(long, value_name = "SIZE", value_parser = some_size)]
    segment_size: Option<u64>,

    /// End a segment that has lines when it is this old [default: 60m]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    segment_age: Option<Duration>,

    /// Write segments in this way [default: direct]
    #[arg(long, value_enum)]
    write: Option<WriteChoice>,

    /// Compress ended segments with zstd at this level, from 1 to 19; none leaves them uncompressed [default: none]
    #[arg(long, value_name = "LEVEL", value_parser = pack_level)]
    pack: Option<Packing>,

    /// Remove the oldest ended segments while the files of all segments have more bytes than this [default: never]
    #[arg(long, value_name = "SIZE", value_parser = kept_size)]
    retain_size: Option<u64>,

    /// Remove the oldest ended segments of dead letters while these have more bytes than this [default: 1g]
    #[arg(long, value_name = "SIZE", value_parser = some_size)]
    retain_dead: Option<u64>,

    /// Remove segments this long after they ended [default: never]
    #[arg(long, value_name = "TIME", value_parser = kept_time)]
    retain_age: Option<Duration>,

    /// Set rules for a tenant: from= (its networks, for clients without a certificate), quota= (how many of its bytes
    /// may be stored before its senders wait), retain-size= and retain-age= (when its lines expire, instead of
    /// --retain-age). A segment is removed when all lines in it have expired
    #[arg(long, value_name = "NAME[,KEY=VALUE]...", value_parser = tenants::rule)]
    tenant: Vec<Rule>,

    /// Stop accepting and acknowledging lines while the file system has less free space than this [default: 64m]
    #[arg(long, value_name = "SIZE", value_parser = quantity::parse_size)]
    min_free: Option<u64>,

    /// Serve the status page, /metrics, /livez and /readyz on this address [default: none]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    http: Option<SocketAddr>,

    /// Show stored lines on the status page only to readers with a token from this file; each line has a token, a
    /// space and the tenant whose lines the token shows, or * for all. SIGHUP reads it again [default: show them on
    /// loopback addresses only]
    #[arg(long, value_name = "FILE")]
    page_tokens: Option<PathBuf>,

    /// Accept lines over HTTP on this address: POST /ingest, OTLP, Loki and Elasticsearch bulk [default: none]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    http_intake: Option<SocketAddr>,

    /// Accept lines over RELP on this address, as rsyslog's omrelp sends them [default: none]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    relp_intake: Option<SocketAddr>,

    /// Accept events over Fluent Forward on this address, as Fluentd and Fluent Bit send them [default: none]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    fluent_intake: Option<SocketAddr>,

    /// Keep at most this many connections on each of the ports --http-intake, --relp-intake and --fluent-intake;
    /// further ones wait to be accepted [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    intake_connections: Option<u32>,

    #[command(flatten)]
    kafka: KafkaArgs,

    /// Copy sealed segments to this object storage: file:///DIRECTORY, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or
    /// az://CONTAINER/PREFIX. Environment variables provide the credentials [default: none]
    #[arg(long, value_name = "URL", value_parser = place)]
    upload: Option<Place>,

    /// Speak TLS, with the certificate chain in this PEM file; SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// Use the private key in this PEM file for --tls-cert
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// Trust client certificates that are signed by the authorities in this PEM file; the name in a certificate is
    /// the client's tenant
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,

    /// Request or require client certificates [default: optional]
    #[arg(long, value_enum)]
    tls_client_auth: Option<ClientAuth>,

    /// Close a connection if its TLS handshake takes longer than this [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    tls_handshake: Option<Duration>,

    /// Close connections that sent nothing for this time, also before their first line [default: never]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    idle: Option<Duration>,

    /// Process at most this many results before asking the kernel for more; 1 also sends each answer separately, to
    /// measure what that costs [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,

    /// Print messages on standard error in this form [default: text]
    #[arg(long, value_enum)]
    log: Option<Form>,

    /// Wait at most this time at the end until all received lines are stored [default: 5s]
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
        // Another number takes effect at the next start: these threads share the budget.
        let sharing = serving.unwrap_or(threads) as usize;
        let sharers = sharing + usize::from(has_intake);
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
        holds_a_line(&limits, sharing, has_intake)?;
        let segments = SegmentLimits {
            bytes: either!(segment_size).unwrap_or(256 << 20),
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

/// Checks that the budgets hold a line. Unfinished lines have half of a thread's budget.
fn holds_a_line(limits: &Limits, threads: usize, has_intake: bool) -> Result<(), LogdError> {
    let line_max = limits.line_max;
    let size = |bytes: usize| quantity::size_text(bytes as u64);
    let line = size(line_max);
    let mut wrong = Vec::new();
    if limits.budget_each < line_max {
        wrong.push(format!(
            "--connection-budget {} is smaller than --max-line {line}: raise --connection-budget or lower --max-line",
            size(limits.budget_each)
        ));
    }
    if limits.budget_all / 2 < line_max {
        let needed = size(2 * line_max * (threads + usize::from(has_intake)));
        let (needers, need) = match (threads, has_intake) {
            (1, false) => ("1 thread".to_owned(), "needs"),
            (1, true) => ("1 thread and the intake".to_owned(), "need"),
            (_, false) => (format!("{threads} threads"), "need"),
            (_, true) => (format!("{threads} threads and the intake"), "need"),
        };
        wrong.push(format!(
            "--budget is too small: {needers} with --max-line {line} {need} {needed}; raise --budget or lower \
             --max-line"
        ));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(LogdError::Usage(wrong.join("; "))),
    }
}

/// Returns the engine, if it can do what is asked of a ring.
fn engine_with(
    engine: Option<EngineChoice>,
    sqpoll: Option<Duration>,
) -> Result<EngineChoice, LogdError> {
    match engine.unwrap_or(EngineChoice::Auto) {
        EngineChoice::Epoll if sqpoll.is_some() => {
            Err(LogdError::Usage("--sqpoll needs io_uring: use --engine uring or auto".into()))
        }
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

/// Checks that each rule is of another tenant, and that there are not too many.
fn tenant_rules(rules: Vec<Rule>) -> Result<Vec<Rule>, LogdError> {
    let mut names = BTreeSet::new();
    if let Some(again) = rules.iter().find(|rule| !names.insert(&*rule.name)) {
        let text = format!("--tenant {} is given twice: give it once", again.name);
        return Err(LogdError::Usage(text));
    }
    if rules.len() > TENANTS_MAX {
        let text = format!("--tenant: expected at most {TENANTS_MAX} tenants");
        return Err(LogdError::Usage(text));
    }
    Ok(rules)
}

#[cfg(test)]
mod tests;
