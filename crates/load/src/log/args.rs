//! The command line as typed. `plan` says what it means.

use std::{path::PathBuf, time::Duration};

use ringwise_measure::quantity;

/// Send lines to a log daemon over many connections, and see that every one is acknowledged and
/// stored, once.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The daemon
    #[arg(long, short, value_name = "HOST:PORT", default_value = "127.0.0.1:9000")]
    pub target: String,

    /// Open loop: this many lines per second over all connections, each timed from when it was to
    /// be sent [default: as fast as the target takes them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub rate: Option<u64>,

    /// Connections that send
    #[arg(long, short, value_name = "N", default_value = "50")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=99_999))]
    pub connections: u64,

    /// Connections that are held open and silent beside those that send
    #[arg(long, value_name = "N", default_value = "0")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub idle: u64,

    /// How long to measure, such as 10s; a bare number is seconds [default: 60s; with --search 2s
    /// for each rate]
    #[arg(long, short, value_name = "TIME", value_parser = quantity::parse_duration)]
    pub duration: Option<Duration>,

    /// Send before measuring [default: a tenth of the duration, at most 1s]
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration)]
    pub warm_up: Option<Duration>,

    /// Bytes of a line, its end included, such as 150 or 4k
    #[arg(long, short, value_name = "BYTES", default_value = "150", value_parser = line_bytes)]
    pub line: usize,

    /// Send the lines of a file in place of made ones, in turn and from the start on each
    /// connection
    #[arg(long, value_name = "FILE", conflicts_with = "line")]
    pub lines: Option<PathBuf>,

    /// Bursts with pauses: on all connections at one moment so many lines at once, as often as the
    /// rate wants it, or without --rate so often: 100/10ms
    #[arg(long, value_name = "LINES[/TIME]", value_parser = burst)]
    pub burst: Option<(u64, Option<Duration>)>,

    /// Ask for acknowledgements by `LOGD 1`: written, durable, or what the daemon promises
    #[arg(long, value_name = "GUARANTEE", num_args = 0..=1, default_missing_value = "any")]
    pub ack: Option<Guarantee>,

    /// How lines are told apart, and what answers are read
    #[arg(long, value_enum, default_value = "lines")]
    pub protocol: Protocol,

    /// Lines of a connection that may be sent and not acknowledged [default: 65536 over all
    /// connections; relp: 128 each, as of rsyslog's own client]
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(u64).range(1..))]
    pub window: Option<u64>,

    /// TLS, and the certificates (PEM) of whom the target's has to be signed by
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// The name that the target's certificate has to have [default: the host of --target]
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub tls_name: Option<String>,

    /// A certificate of the generator's own (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    pub tls_cert: Option<PathBuf>,

    /// Its key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Where the target stores lines, a file or a directory of files: at the end every line that
    /// was sent has to be there once
    #[arg(long, value_name = "PATH", conflicts_with = "search")]
    pub stored: Option<PathBuf>,

    /// Find the highest rate that is held with the 99th percentile under --p99, from --rate on
    #[arg(long, conflicts_with = "burst")]
    pub search: bool,

    /// With --search: the limit
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = quantity::parse_duration)]
    pub p99: Duration,

    /// Threads; connections are dealt out to them
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: u64,

    /// Processors for the threads, one after the other
    #[arg(long, value_name = "CORE,CORE", value_delimiter = ',')]
    pub pin: Vec<usize>,

    /// The target's process, to tell its CPU time, context switches and memory
    #[arg(long, value_name = "PID")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub server_pid: Option<u32>,

    /// Write the result as JSON, to a file, or instead of the text where none is named
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

/// What is to be true of a line that is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Guarantee {
    /// What the daemon promises, whatever it is
    Any,
    /// The kernel has it
    Written,
    /// It is synced
    Durable,
}

/// How lines are told apart, and what is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// Each ends in LF
    Lines,
    /// Each begins with its length (RFC 6587)
    OctetCounting,
    /// RELP: each is a transaction that is answered
    Relp,
}

impl Protocol {
    /// The name, as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Lines => "lines",
            Protocol::OctetCounting => "octet-counting",
            Protocol::Relp => "relp",
        }
    }
}

impl Guarantee {
    /// The name, as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Guarantee::Any => "any",
            Guarantee::Written => "written",
            Guarantee::Durable => "durable",
        }
    }
}

/// The shortest line that has a name of its own in it.
pub(super) const LINE_BYTES_MIN: usize = 40;

fn line_bytes(text: &str) -> Result<usize, String> {
    const LEAST: u64 = LINE_BYTES_MIN as u64;
    const MOST: u64 = 16 << 20;
    match quantity::parse_size(text).map_err(|error| error.to_string())? {
        bytes @ LEAST..=MOST => Ok(bytes as usize),
        _ => Err(format!("expected {LEAST} to {}", quantity::size_text(MOST))),
    }
}

fn burst(text: &str) -> Result<(u64, Option<Duration>), String> {
    let (lines, every) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let every =
        every.map(quantity::parse_duration).transpose().map_err(|error| error.to_string())?;
    match lines.parse() {
        Ok(lines @ 1..=1_000_000) if every.is_none_or(|every| !every.is_zero()) => {
            Ok((lines, every))
        }
        _ => Err("expected 1 to 1000000 lines, and how often, such as 100/10ms".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_read() {
        assert_eq!(burst("100"), Ok((100, None)));
        assert_eq!(burst("7/10ms"), Ok((7, Some(Duration::from_millis(10)))));
        for wrong in ["", "0", "x", "5/", "5/0", "/5ms", "5/5w"] {
            assert!(burst(wrong).is_err(), "{wrong}");
        }
    }
}
