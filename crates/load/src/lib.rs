//! Load generators: what `ringwise load` runs against a server, any server.
//!
//! A generator must not be made of what it measures, so this crate does not know the library:
//! sockets, epoll(7) and threads by safe system calls, instruments from `ringwise_measure`. Every
//! byte that comes back is checked, every connection that fails is counted, and either makes the
//! result a failure.
//!
//! Reading order: [`echo`] and [`log`], whose headers say how a run goes; [`LoadError`].
//!
//! It starts no server and judges none.

#![forbid(unsafe_code)]

mod account;
mod args;
mod crew;
mod document;
pub mod echo;
mod error;
mod interrupt;
mod limits;
pub mod log;
mod pace;
mod poll;
mod target;

use std::io::Write;

pub use crate::{account::ClientUse, args::Common, error::LoadError};

/// The arguments of `ringwise load`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    generator: Generator,
}

/// A help that begins with the three things that people do.
const EXAMPLES_OF_ECHO: &str = "\
{about-with-newline}
  ringwise load echo --address HOST:PORT   measure an echo server for a minute
  ringwise load echo -c 1 -t 10            measure one connection for 10 seconds
  ringwise load echo --rate 50000          measure latencies at a fixed rate

{usage-heading} {usage}

{all-args}";

/// The same for `load log`.
const EXAMPLES_OF_LOG: &str = "\
{about-with-newline}
  ringwise load log --ack durable          wait until lines are durable
  ringwise load log --rate 50000 --ack     measure latencies at a fixed rate
  ringwise load log --search --ack         find the highest rate under a limit

{usage-heading} {usage}

{all-args}";

#[derive(Clone, Debug, clap::Subcommand)]
enum Generator {
    #[command(help_template = EXAMPLES_OF_ECHO)]
    Echo(Box<echo::Args>),
    #[command(help_template = EXAMPLES_OF_LOG)]
    Log(Box<log::Args>),
}

/// Runs a generator as typed, and prints to `out`.
///
/// # Errors
///
/// [`LoadError`], one line, with the exit status that belongs to it. What was measured has been
/// printed and written before, where anything was.
pub fn run(args: Args, out: &mut dyn Write) -> Result<(), LoadError> {
    match args.generator {
        Generator::Echo(args) => echo::command(*args, out),
        Generator::Log(args) => log::command(*args, out),
    }
}
