//! `ringwise load echo`: connections that send messages to an echo server, and check what comes
//! back.
//!
//! A run goes so: what was typed ([`Args`]) becomes a [`Plan`]. Threads (`worker`) open their
//! connections (`connection`), each of which proves by one message that the server has taken it.
//! Then they send, first unmeasured, then measured, then nothing more; what is under way is waited
//! for. Meanwhile the controller (`run`) takes the time at the edges and looks at the server's
//! process. The [`Outcome`] is what all threads counted; `report` prints
//! it.
//!
//! An operation is a message that has come back whole; in the modes that make a connection for
//! each operation it is the connection. Its latency begins when it was to begin: in a closed loop
//! just before its first byte is handed to the kernel, in an open loop (`--rate`) when the
//! schedule (`pace`) wants it, however late the server lets it be. Of operations that are under way
//! in the measured time every latency is recorded whole, so that a stall at either edge shows.
//!
//! Invariant: the bytes of a connection are those of no other, and never repeat (`pattern`), so
//! that what is lost, doubled, swapped or stale is found.

mod args;
mod connection;
mod fault;
mod outcome;
mod pattern;
mod plan;
mod report;
mod run;
mod worker;

use std::io::Write;

pub use crate::{
    account::{ClientUse, ServerUse},
    crew::{Moment, Totals},
};

pub use self::{
    args::{Args, Mode},
    outcome::Outcome,
    plan::Plan,
    report::json::SCHEMA,
    run::run,
};
use crate::{error::LoadError, interrupt};

/// Runs as typed, and prints to `out`.
pub(crate) fn command(args: Args, out: &mut dyn Write) -> Result<(), LoadError> {
    let plan = Plan::new(&args)?;
    let interrupted = interrupt::flag()?;
    let outcome = run(&plan, &interrupted, &mut |_| ())?;
    report::give(&plan, &outcome, args.common.json.as_deref(), out)?;
    match outcome.failure() {
        Some(failure) => Err(LoadError::Failed(failure)),
        None => Ok(()),
    }
}
