//! What is to be done: the command line, checked and with every default filled in.

use std::{net::SocketAddr, time::Duration};

use super::args::{Args, Mode};
use crate::{error::LoadError, limits, target};

/// Silent connections of `--mode idle`.
const IDLE: u64 = 1000;

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
    /// Connections that are held open and silent.
    pub idle: usize,
    /// Connections that hardly read.
    pub slow: usize,
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
        let (mode, common) = (args.mode, &args.common);
        let warm_up = common.checked_warm_up(args.duration)?;
        let usage = |text: &str| Err(LoadError::Usage(text.to_owned()));
        if args.pipeline > 1 && mode == Mode::ConnectStorm {
            return usage("--pipeline does not go with --mode connect-storm: leave it out");
        }
        if args.idle.is_some() && mode != Mode::Idle {
            return usage("--idle needs --mode idle");
        }
        if args.slow.is_some() && mode != Mode::SlowReader {
            return usage("--slow needs --mode slow-reader");
        }
        let connections = args.number as usize;
        let plan = Plan {
            name: args.address.clone(),
            address: target::resolve("--address", &args.address)?,
            connections,
            mode,
            idle: if mode == Mode::Idle { args.idle.unwrap_or(IDLE) as usize } else { 0 },
            slow: if mode == Mode::SlowReader { args.slow.unwrap_or(1) as usize } else { 0 },
            length_bytes: args.length,
            pipeline: args.pipeline as usize,
            rate_per_s: args.rate,
            warm_up,
            duration: args.duration,
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
        limits::raise_open_files(self.connections + self.idle + self.slow, self.threads)
    }
}
