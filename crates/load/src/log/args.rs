//! The command line as typed. `plan` says what it means.

use std::{path::PathBuf, time::Duration};

use ringwise_measure::quantity;

use crate::args::{self, Common};

/// Send lines to a log daemon over many connections, and check that each is acknowledged and stored
/// once
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Connect to this daemon
    #[arg(long, short, value_name = "HOST:PORT", default_value = "127.0.0.1:9000")]
    pub target: String,

    /// Send this many lines per second over all connections (open loop); measure
    /// each latency from the scheduled begin [default: as many as the target
    /// accepts]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub rate: Option<u64>,

    /// Send over this many connections
    #[arg(long, short, value_name = "N", default_value = "50")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=99_999))]
    pub connections: u64,

    /// Also open this many connections that send nothing
    #[arg(long, value_name = "N", default_value = "0")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub idle: u64,

    /// Measure for this long, such as 10s; a bare number is seconds
    /// [default: 60s; with --search 2s for each rate]
    #[arg(long, short, value_name = "TIME", value_parser = quantity::parse_duration)]
    pub duration: Option<Duration>,

    /// Send lines of this many bytes, line end included, such as 150 or 4k
    #[arg(long, short, value_name = "BYTES", default_value = "150", value_parser = line_bytes)]
    pub line: usize,

    /// Send the lines of this file instead of generated ones; begin at its first
    /// line on each connection, and repeat it
    #[arg(long, value_name = "FILE", conflicts_with = "line")]
    pub lines: Option<PathBuf>,

    /// Send lines in bursts of this many, on all connections at the same time: 100
    /// with --rate, or 100/10ms (every 10 ms) without --rate
    #[arg(long, value_name = "LINES[/TIME]", value_parser = burst)]
    pub burst: Option<(u64, Option<Duration>)>,

    /// Request acknowledgements with `LOGD 1`, of lines that are written or durable,
    /// or as the daemon is configured (any)
    #[arg(long, value_name = "GUARANTEE", num_args = 0..=1, default_missing_value = "any")]
    pub ack: Option<Guarantee>,

    /// Use this framing of lines and answers
    #[arg(long, value_enum, default_value = "lines")]
    pub protocol: Protocol,

    /// Allow this many unacknowledged lines on each connection [default: 65536
    /// divided by the connections; relp: 128, as rsyslog's own client]
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(u64).range(1..))]
    pub window: Option<u64>,

    /// Use TLS, and trust the certificate authorities in this file (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// Expect this name in the target's certificate [default: the host of --target]
    #[arg(long, value_name = "NAME")]
    pub tls_name: Option<String>,

    /// Present this client certificate (PEM); needs --tls-ca and --tls-key
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// Read the client certificate's key from this file (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Check at the end that this file or directory of the target contains each
    /// line once
    #[arg(long, value_name = "PATH", conflicts_with = "search")]
    pub stored: Option<PathBuf>,

    /// Find the highest rate at which the 99th percentile of latency stays below
    /// --p99; start at --rate
    #[arg(long, conflicts_with = "burst")]
    pub search: bool,

    /// With --search: set the limit of the 99th percentile [default: 20ms]
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration)]
    pub p99: Option<Duration>,

    /// The flags of every generator.
    #[command(flatten)]
    pub common: Common,
}

/// What is to be true of a line that is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Guarantee {
    /// The guarantee that the daemon is configured for
    Any,
    /// The line is in the page cache
    Written,
    /// The line is on stable storage
    Durable,
}

/// How lines are told apart, and what is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// Each line ends with LF
    Lines,
    /// Each line begins with its length (RFC 6587)
    OctetCounting,
    /// RELP: each line is a transaction, which the target answers
    Relp,
}

/// The shortest line that has a name of its own in it.
pub(super) const LINE_BYTES_MIN: usize = 40;

fn line_bytes(text: &str) -> Result<usize, String> {
    args::size(text, LINE_BYTES_MIN as u64, 16 << 20)
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
