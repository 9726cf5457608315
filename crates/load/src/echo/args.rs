//! The command line as typed. `plan` says what it means.
//!
//! `--address`, `--number`, `--duration` and `--length` with their letters and defaults are those of
//! the best-known echo benchmark, so that its users' scripts go on working.

use std::{path::PathBuf, time::Duration};

use ringwise_measure::quantity;

/// Send messages to an echo server over many connections, and check every byte that comes back.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The server
    #[arg(long, short, value_name = "HOST:PORT", default_value = "127.0.0.1:12345")]
    pub address: String,

    /// Connections that send
    #[arg(long, short = 'c', visible_short_alias = 'n', value_name = "N", default_value = "50")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub number: u64,

    /// How long to measure, such as 10s; a bare number is seconds
    #[arg(long, short = 't', value_name = "TIME", default_value = "60")]
    #[arg(value_parser = quantity::parse_duration)]
    pub duration: Duration,

    /// Bytes of a message, such as 64 or 4k
    #[arg(long, short, value_name = "BYTES", default_value = "512", value_parser = length)]
    pub length: u64,

    /// Send before measuring [default: a tenth of the duration, at most 1s]
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration)]
    pub warm_up: Option<Duration>,

    /// Open loop: this many operations per second over all connections, each timed from when it
    /// was to begin
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub rate: Option<u64>,

    /// Messages in flight on each connection
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub pipeline: u64,

    /// What the connections do
    #[arg(long, value_enum, default_value = "ping-pong")]
    pub mode: ModeName,

    /// With --mode idle: connections that are held open and silent beside those that send
    #[arg(long, value_name = "N", default_value = "1000")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub idle: u64,

    /// With --mode slow-reader: connections that hardly read, beside those that send
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub slow: u64,

    /// Threads; connections are dealt out to them
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: u64,

    /// Processors for the threads, one after the other
    #[arg(long, value_name = "CORE,CORE", value_delimiter = ',')]
    pub pin: Vec<usize>,

    /// The server's process, to tell its CPU time, context switches and memory
    #[arg(long, value_name = "PID")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub server_pid: Option<u32>,

    /// Write the result as JSON, to a file, or instead of the text where none is named
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

/// What the connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ModeName {
    /// Send a message, wait for it to come back, send the next
    PingPong,
    /// The same, beside connections that send and hardly read
    SlowReader,
    /// Send, half-close, read to the end, connect again; an operation is a connection
    HalfClose,
    /// Connect, send one message, take it back, close; an operation is a connection
    ConnectStorm,
    /// As ping-pong, beside connections that are held open and silent
    Idle,
}

fn length(text: &str) -> Result<u64, String> {
    const MOST: u64 = 16 << 20;
    match quantity::parse_size(text).map_err(|error| error.to_string())? {
        bytes @ 1..=MOST => Ok(bytes),
        _ => Err(format!("expected 1 to {}", quantity::size_text(MOST))),
    }
}
