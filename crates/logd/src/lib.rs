//! `ringwise logd`: takes lines of JSON over TCP or TLS, validates them, stores them, and acknowledges them.
//!
//! An acknowledgement means that the line is on stable storage, unless `--ack` asks for less. The daemon never
//! changes a line that is JSON. It sends nothing to a client that did not ask for acknowledgements.
//!
//! Reading order: `args` and `live` (options), `guarantee`, `lines`, `clients`, `session` (the rules of a connection),
//! `disk`, `worker` (one thread's loop), `intake` (HTTP, RELP, Fluent Forward), `ship` (Kafka), `upload` (object storage), `daemon` (locks, recovery
//! and the end), `monitoring`, `tool` (cat, tail, query, verify), `error`, `fuzzing`. `ringwise-serve` has the threads and
//! signals.

#![forbid(unsafe_code)]

mod args;
mod clients;
mod daemon;
mod disk;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod guarantee;
mod intake;
pub mod lines;
mod live;
mod monitoring;
mod session;
mod ship;
mod tool;
mod upload;
mod worker;

use std::io::Write;

pub use args::Args;
pub use error::LogdError;
pub use guarantee::Guarantee;

/// Runs as typed, and prints to `out`.
///
/// # Errors
///
/// [`LogdError`], one line, with the exit status that belongs to it.
pub fn run(args: &Args, out: &mut impl Write) -> Result<(), LogdError> {
    match &args.tool {
        Some(tool) => tool::run(tool, out),
        None => {
            let served = daemon::serve(&args.serve, out);
            monitoring::log::flush();
            served
        }
    }
}
