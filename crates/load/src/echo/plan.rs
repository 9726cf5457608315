//! What is to be done: the command line, checked and with every default filled in.

use std::{net::SocketAddr, time::Duration};

use super::args::{Args, ModeName};
use crate::{error::LoadError, limits, target};

/// The largest warm-up that is not asked for.
const WARM_UP_MAX: Duration = Duration::from_secs(1);

/// What connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each sends, and sends again when its message has come back.
    PingPong,
    /// The same, beside connections that send and hardly read.
    SlowReader {
        /// How many of those.
        slow: usize,
    },
    /// Each sends, half-closes, reads to the end and connects again.
    HalfClose,
    /// Each connects, sends one message, takes it back and closes.
    ConnectStorm,
    /// As ping-pong, beside connections that are silent.
    Idle {
        /// How many of those.
        idle: usize,
    },
}

impl Mode {
    /// The mode's name, as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Mode::PingPong => "ping-pong",
            Mode::SlowReader { .. } => "slow-reader",
            Mode::HalfClose => "half-close",
            Mode::ConnectStorm => "connect-storm",
            Mode::Idle { .. } => "idle",
        }
    }

    /// Connections that are held open and silent.
    pub fn idle(self) -> usize {
        if let Mode::Idle { idle } = self { idle } else { 0 }
    }

    /// Connections that hardly read.
    pub fn slow(self) -> usize {
        if let Mode::SlowReader { slow } = self { slow } else { 0 }
    }

    /// Whether an operation is a connection.
    pub fn is_by_connection(self) -> bool {
        matches!(self, Mode::HalfClose | Mode::ConnectStorm)
    }
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server as it was named.
    pub name: String,
    /// The server.
    pub address: SocketAddr,
    /// Connections that send.
    pub connections: usize,
    /// What they do.
    pub mode: Mode,
    /// Bytes of a message.
    pub length_bytes: usize,
    /// Messages in flight on each connection.
    pub pipeline: usize,
    /// Operations per second over all connections; none is a closed loop.
    pub rate_per_s: Option<u64>,
    /// Sending before the measured time.
    pub warm_up: Duration,
    /// The measured time.
    pub duration: Duration,
    /// Threads.
    pub threads: usize,
    /// Processors that they are pinned to in turn; none: not pinned.
    pub processors: Vec<usize>,
    /// The server's process, where it is to be looked at.
    pub server_pid: Option<u32>,
}

impl Plan {
    /// Checks what was typed, finds the server's address and raises the limit of open files where
    /// it is too low.
    ///
    /// # Errors
    ///
    /// [`LoadError::Usage`] for what cannot be meant, [`LoadError::Failed`] for a name that does
    /// not resolve, a server that does not answer and a limit that is too low.
    pub fn new(args: &Args) -> Result<Plan, LoadError> {
        if args.duration.is_zero() {
            return Err(LoadError::Usage("--duration 0: expected more than nothing".into()));
        }
        let mode = match args.mode {
            ModeName::PingPong => Mode::PingPong,
            ModeName::SlowReader => Mode::SlowReader { slow: args.slow as usize },
            ModeName::HalfClose => Mode::HalfClose,
            ModeName::ConnectStorm => Mode::ConnectStorm,
            ModeName::Idle => Mode::Idle { idle: args.idle as usize },
        };
        if args.pipeline > 1 && mode == Mode::ConnectStorm {
            let message = "--pipeline: a connect storm sends one message on each connection";
            return Err(LoadError::Usage(message.into()));
        }
        limits::check_processors(&args.pin)?;
        let connections = args.number as usize;
        let plan = Plan {
            name: args.address.clone(),
            address: target::resolve("--address", &args.address)?,
            connections,
            mode,
            length_bytes: args.length as usize,
            pipeline: args.pipeline as usize,
            rate_per_s: args.rate,
            warm_up: args.warm_up.unwrap_or((args.duration / 10).min(WARM_UP_MAX)),
            duration: args.duration,
            threads: (args.threads as usize).min(connections),
            processors: args.pin.clone(),
            server_pid: args.server_pid,
        };
        plan.raise_open_files()?;
        Ok(plan)
    }

    /// Connections of all kinds.
    pub fn connections_in_all(&self) -> usize {
        self.connections + self.mode.idle() + self.mode.slow()
    }

    /// Raises the soft limit of open files to the hard one, where it is too low.
    ///
    /// # Errors
    ///
    /// [`LoadError::Failed`] where the hard limit is too low too.
    pub fn raise_open_files(&self) -> Result<(), LoadError> {
        limits::raise_open_files(self.connections_in_all(), self.threads)
    }
}
