//! The command line as typed. `plan` says what it means.
//!
//! `--address`, `--number`, `--duration` and `--length` with their letters and defaults are those of
//! the best-known echo benchmark, so that its users' scripts go on working.

use std::time::Duration;

use ringwise_measure::quantity;

use crate::args::{self, Common};

/// Send messages to an echo server over many connections, and check every byte that comes back
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Connect to this server
    #[arg(long, short, value_name = "HOST:PORT", default_value = "127.0.0.1:12345")]
    pub address: String,

    /// Send over this many connections
    #[arg(long, short = 'c', visible_short_alias = 'n', value_name = "N", default_value = "50")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub number: u64,

    /// Measure for this long, such as 10s; a bare number is seconds
    #[arg(long, short = 't', value_name = "TIME", default_value = "60")]
    #[arg(value_parser = quantity::parse_duration)]
    pub duration: Duration,

    /// Send messages of this many bytes, such as 64 or 4k
    #[arg(long, short, value_name = "BYTES", default_value = "512", value_parser = length)]
    pub length: usize,

    /// Begin this many operations per second over all connections (open loop);
    /// measure each latency from the scheduled begin
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub rate: Option<u64>,

    /// Keep this many messages in flight on each connection
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub pipeline: u64,

    /// Use the connections in this way
    #[arg(long, value_enum, default_value = "ping-pong")]
    pub mode: Mode,

    /// With --mode idle: open this many connections that send nothing
    /// [default: 1000]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub idle: Option<u64>,

    /// With --mode slow-reader: add this many connections that hardly read
    /// [default: 1]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub slow: Option<u64>,

    /// The flags of every generator.
    #[command(flatten)]
    pub common: Common,
}

/// What the connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Send a message, wait for it to come back, send the next
    PingPong,
    /// As ping-pong, beside connections that send and hardly read
    SlowReader,
    /// Send, half-close, read to the end, connect again; a connection is one operation
    HalfClose,
    /// Connect, send one message, receive it, close; a connection is one operation
    ConnectStorm,
    /// As ping-pong, beside open connections that send nothing
    Idle,
}

impl Mode {
    /// Whether an operation is a connection.
    pub fn is_by_connection(self) -> bool {
        matches!(self, Mode::HalfClose | Mode::ConnectStorm)
    }
}

fn length(text: &str) -> Result<usize, String> {
    args::size(text, 1, 16 << 20)
}
