//! What is to be done: the command line, checked and with every default filled in.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{
    args::{Args, Guarantee, Protocol},
    lines::Lines,
    tls::{self, Tls},
};
use crate::{error::LoadError, error::plain, limits, target};

/// Lines under way over all connections, and at least of one.
const WINDOW_LINES: u64 = 1 << 16;
const WINDOW_LINES_MIN: u64 = 64;
/// Of a session of RELP (omrelp, `windowsize`).
const RELP_WINDOW_LINES: u64 = 128;
/// How long a run is that is not asked for, and one of a search.
const DURATION: Duration = Duration::from_secs(60);
const SEARCH_DURATION: Duration = Duration::from_secs(2);

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The target as it was named.
    pub name: String,
    /// The target.
    pub address: SocketAddr,
    /// Connections that send.
    pub connections: usize,
    /// Connections that are silent.
    pub idle: usize,
    /// How lines are told apart.
    pub protocol: Protocol,
    /// Which acknowledgements are asked for by `LOGD 1`.
    pub ack: Option<Guarantee>,
    /// Lines of a connection that may be sent and not answered.
    pub window_lines: u64,
    /// Whom to trust, with TLS.
    pub tls: Option<Tls>,
    /// What is sent.
    pub source: Source,
    /// Lines per second over all connections; none is as many as the target takes.
    pub rate_per_s: Option<u64>,
    /// Lines of a connection that are sent at one moment.
    pub burst_lines: u64,
    /// How often bursts come where no rate says it.
    pub burst_every: Option<Duration>,
    /// Sending before the measured time.
    pub warm_up: Duration,
    /// The measured time.
    pub duration: Duration,
    /// Where lines are to be found at the end.
    pub stored: Option<PathBuf>,
    /// Threads.
    pub threads: usize,
    /// Processors that they are pinned to in turn; none: not pinned.
    pub processors: Vec<usize>,
    /// The target's process, where it is to be looked at.
    pub server_pid: Option<u32>,
}

/// What is sent.
#[derive(Clone, Debug)]
pub enum Source {
    /// Lines of so many bytes, ends included.
    Made(usize),
    /// The lines of a file.
    File(PathBuf, Arc<[u8]>),
}

impl Source {
    pub(super) fn lines(&self, protocol: Protocol, key: u64) -> Option<Lines> {
        match self {
            Source::Made(bytes) => Some(Lines::made(protocol, *bytes, key)),
            Source::File(_, content) => Lines::given(protocol, content),
        }
    }

    /// A file's lines.
    ///
    /// # Errors
    ///
    /// [`LoadError::Failed`] where it cannot be read or holds no line.
    pub fn file(path: &Path) -> Result<Source, LoadError> {
        let failed =
            |reason: &str| LoadError::Failed(format!("--lines {}: {reason}", path.display()));
        let content = fs::read(path)
            .map_err(|error| failed(&format!("{}; name an existing file", plain(&error))))?;
        let source = Source::File(path.to_owned(), content.into());
        match source.lines(Protocol::Lines, 0) {
            Some(_) => Ok(source),
            None => Err(failed("has no lines; name a file with at least one")),
        }
    }
}

impl Plan {
    /// Checks what was typed, finds the target's address, reads files and raises the limit of open
    /// files where it is too low.
    ///
    /// # Errors
    ///
    /// [`LoadError::Usage`] for what cannot be meant, [`LoadError::Failed`] for a name that does
    /// not resolve, files that cannot be read and a limit that is too low.
    pub fn new(args: &Args) -> Result<Plan, LoadError> {
        let usage = |text: &str| Err(LoadError::Usage(text.to_owned()));
        let default = if args.search { SEARCH_DURATION } else { DURATION };
        let duration = args.duration.unwrap_or(default);
        let common = &args.common;
        let warm_up = common.checked_warm_up(duration)?;
        let (burst_lines, burst_every) = args.burst.unwrap_or((1, None));
        match (args.rate, args.burst) {
            (Some(_), Some((_, Some(_)))) => {
                return usage("--burst: with --rate, expected only a number of lines, such as 100");
            }
            (None, Some((_, None))) => {
                return usage("--burst needs --rate, or a time between bursts, such as 100/10ms");
            }
            _ => {}
        }
        if args.ack.is_some() && args.protocol == Protocol::Relp {
            return usage("--ack does not go with --protocol relp: leave it out");
        }
        if args.p99.is_some() && !args.search {
            return usage("--p99 needs --search");
        }
        if args.window.is_some() && args.ack.is_none() && args.protocol != Protocol::Relp {
            return usage("--window needs --ack or --protocol relp");
        }
        if let Some(text) = tls_parts(args) {
            return usage(text);
        }
        if let Some(path) = args.stored.as_deref().filter(|path| !may_come(path)) {
            let path = path.display();
            return Err(LoadError::Failed(format!(
                "--stored {path}: No such file or directory; name the file or directory that the target \
                 stores lines in"
            )));
        }
        let connections = args.connections as usize;
        let plan = Plan {
            name: args.target.clone(),
            address: target::resolve("--target", &args.target)?,
            connections,
            idle: args.idle as usize,
            protocol: args.protocol,
            ack: args.ack,
            window_lines: args.window.unwrap_or(window_lines(args.protocol, connections)),
            tls: tls::from(args)?,
            source: match &args.lines {
                Some(path) => Source::file(path)?,
                None => Source::Made(args.line),
            },
            rate_per_s: args.rate,
            burst_lines,
            burst_every,
            warm_up,
            duration,
            stored: args.stored.clone(),
            threads: (common.threads as usize).min(connections),
            processors: common.pin.clone(),
            server_pid: common.server_pid,
        };
        plan.raise_open_files()?;
        Ok(plan)
    }

    /// Raises the soft limit of open files to the hard one, where it is too low.
    ///
    /// # Errors
    ///
    /// [`LoadError::Failed`] where the hard limit is too low too.
    pub fn raise_open_files(&self) -> Result<(), LoadError> {
        limits::raise_open_files(self.connections + self.idle, self.threads)
    }

    /// Whether the target answers for each line.
    pub fn is_answered(&self) -> bool {
        self.ack.is_some() || self.protocol == Protocol::Relp
    }

    /// Whether a schedule says when lines are sent.
    pub fn is_paced(&self) -> bool {
        self.rate_per_s.is_some() || self.burst_every.is_some()
    }

    /// How often each connection has a burst, where there are bursts.
    pub fn burst_period_ns(&self) -> Option<f64> {
        let by_rate = || {
            let rate = self.rate_per_s.filter(|_| self.burst_lines > 1)?;
            Some(self.burst_lines as f64 * self.connections as f64 * 1e9 / rate as f64)
        };
        self.burst_every.map(|every| every.as_nanos() as f64).or_else(by_rate)
    }
}

/// Names the options that are missing beside those of TLS.
fn tls_parts(args: &Args) -> Option<&'static str> {
    let (cert, key) = (args.tls_cert.is_some(), args.tls_key.is_some());
    match (args.tls_ca.is_some(), cert, key) {
        (true, true, false) => Some("--tls-cert needs --tls-key"),
        (true, false, true) => Some("--tls-key needs --tls-cert"),
        (false, true, _) => Some("--tls-cert needs --tls-ca and --tls-key"),
        (false, false, true) => Some("--tls-key needs --tls-ca and --tls-cert"),
        (false, false, false) if args.tls_name.is_some() => Some("--tls-name needs --tls-ca"),
        _ => None,
    }
}

/// How many lines of a connection may be under way where nobody says it: what a slow target leaves
/// at the end is to be over soon, and what a fast one takes meanwhile is to be enough.
pub fn window_lines(protocol: Protocol, connections: usize) -> u64 {
    match protocol {
        Protocol::Relp => RELP_WINDOW_LINES,
        Protocol::Lines | Protocol::OctetCounting => {
            (WINDOW_LINES / connections.max(1) as u64).max(WINDOW_LINES_MIN)
        }
    }
}

/// Whether it is there, or may be with the first line.
fn may_come(path: &Path) -> bool {
    let parent = path.parent().map(|parent| match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => parent,
    });
    path.exists() || parent.is_some_and(Path::is_dir)
}
