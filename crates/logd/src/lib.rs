//! `ringwise logd`: newline-delimited JSON over TCP, validated, appended, durable, acknowledged.
//!
//! It exists because an acknowledgement is worth what stands behind it: here, that the line is on
//! stable storage. What it does not do: change a line, or answer a client that did not ask.
//!
//! Reading order: `args` and `live` (options), `guarantee`, `lines`, `clients`, `session` (the rules of a connection),
//! `disk`, `worker` (one thread's loop), `daemon` (locks, recovery and the end), `monitoring`, `tool` (cat, tail,
//! verify), `error`, `fuzzing`. Threads and signals are `ringwise-serve`.

#![forbid(unsafe_code)]

mod args;
mod clients;
mod daemon;
mod disk;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod guarantee;
pub mod lines;
mod live;
mod monitoring;
mod session;
mod tool;
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
