//! `ringwise load log`: connections that send lines to a log daemon, and see that every one is
//! taken, acknowledged and stored, once.
//!
//! A run goes so: what was typed ([`Args`]) becomes a [`Plan`]. Threads (`worker`) open their
//! connections (`connection`, over TLS by `wire`), which greet where acknowledgements are wanted.
//! Then they send lines (`lines`), first unmeasured, then measured, then nothing more; what is
//! under way is acknowledged, each connection is half-closed, and the target has to close it.
//! Then its files are read (`stored`), where that is asked for. `search` does this at many rates.
//! The [`Outcome`] is what all threads counted (`ledger`); `report` prints it.
//!
//! A line's latency begins when the schedule wants it to be sent, however late the target lets it
//! be, or without a schedule when it is made. It ends with the acknowledgement that covers it, or
//! without acknowledgements when the kernel has taken it.
//!
//! Invariant: lines sent, taken, acknowledged and stored agree, or the result is invalid; no target is
//! believed an acknowledgement of what it was not sent.
//!
//! Targets that are not `ringwise logd` are spoken to in ways of their own (`--protocol`), so that
//! they can be compared.

mod answers;
mod args;
mod connection;
mod ledger;
mod lines;
mod outcome;
mod plan;
mod report;
mod run;
mod search;
mod stored;
mod tls;
mod wire;
mod worker;

use std::{io::Write, time::Duration};

pub use self::{
    args::{Args, Guarantee, Protocol},
    outcome::Outcome,
    plan::{Plan, Source, window_lines},
    report::json::SCHEMA,
    run::run,
    search::{Found, Step, search},
    stored::Stored,
    tls::Tls,
};
use crate::{error::LoadError, interrupt};

/// The limit of a search.
const P99: Duration = Duration::from_millis(20);

/// Runs as typed, and prints to `out`.
pub(crate) fn command(args: Args, out: &mut dyn Write) -> Result<(), LoadError> {
    let json = args.common.json.as_deref();
    let plan = Plan::new(&args)?;
    let interrupted = interrupt::flag()?;
    if args.search {
        let found = search(&plan, args.p99.unwrap_or(P99), &interrupted)?;
        return report::give_found(&plan, &found, json, out);
    }
    let outcome = run(&plan, &interrupted)?;
    report::give(&plan, &outcome, json, out)?;
    match outcome.failure() {
        Some(failure) => Err(LoadError::Failed(failure)),
        None => Ok(()),
    }
}
