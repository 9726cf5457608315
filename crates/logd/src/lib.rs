//! `ringwise logd`: newline-delimited JSON over TCP, validated, appended, durable, acknowledged.
//!
//! It exists because an acknowledgement is worth what stands behind it: here, that the line is on
//! stable storage. What it does not do: change a line, or answer a client that did not ask.
//!
//! Reading order: `args`, `json` (what a line has to be), `framing`, `letter`, `tls`, `refusal`, `tokens`,
//! `names` (of clients), `connection` (the rules), `segment` (where lines are kept), `space` (how much is left),
//! `storage` (a thread's streams), `keeper` (what becomes of ended segments), `worker` (one thread's
//! loop), `daemon` (what is around the threads), `stats`, `log`, `monitor` and `http` (what is told of
//! it), `tool` (cat, tail, verify), `fuzzing`. Threads and signals are `ringwise-serve`.

#![forbid(unsafe_code)]

mod addresses;
mod args;
mod connection;
mod daemon;
mod error;
mod framing;
#[doc(hidden)]
pub mod fuzzing;
mod guarantee;
mod http;
pub mod json;
mod keeper;
mod letter;
mod live;
mod log;
mod monitor;
mod names;
mod refusal;
mod segment;
mod space;
mod stats;
mod storage;
mod tenants;
mod tls;
mod tokens;
mod tool;
mod unfinished;
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
            log::flush();
            served
        }
    }
}
