//! The benchmark lab: measures engines side by side on this machine, and says which one pays.
//!
//! The command line (`args`) becomes a suite (`session::suite`): workloads, which make rows, one engine at one
//! depth each. All rows of a section are sampled in interleaved blocks (`sampling::schedule`). Each sample runs
//! one engine, while the controller reads clocks and counters at the edges of the measured time
//! (`sampling::sample`, `sampling::job`). Operations pass through a `sampling::lane`, which times, verifies and counts
//! them; `nop`, `copy`, `fio`, `echo` and `log` are counted elsewhere. `checks` exclude results that cannot be right.
//! `results` compare the rest, and print and write them.
//!
//! A workload is a file or a directory below `workload`, and a line in its table. It fills in `workload::form`:
//! flags, sizes, rows, what it needs, and how it runs. `plan` holds what is the same for all.
//!
//! Reading order: `session`, [`plan`], [`dataset`], [`sampling`], [`engine`], [`checks`], [`results`], [`workload`].
//! `program` is about the reader's own program: recorded, explained, replayed.
//!
//! Invariant: engines are compared only within one interleaved run and at equal depth. A program that does
//! one thing at a time is also compared with the ring at the greatest depth.
//!
//! It judges nothing that it has not measured in the same run, and it does not tune the machine.

// The comparison engines `aio`, `mmap` and the bare ring opt in, each with its contract.
#![deny(unsafe_code)]

pub mod args;
pub mod checks;
pub mod dataset;
pub mod engine;
pub mod error;
pub mod plan;
mod program;
pub mod results;
pub mod sampling;
pub mod session;
pub mod workload;

#[cfg(test)]
mod testing;

use std::io::Write;

use crate::{
    args::Action,
    results::resumed::Resumed,
    session::{run::Run, suite::Suite},
    workload::{echo, http},
};
pub use crate::{args::Args, error::LabError};

/// Runs the lab as typed, and prints to `out`.
///
/// # Errors
///
/// [`LabError`], one line, with the exit status that belongs to it.
pub fn run(args: Args, out: &mut dyn Write) -> Result<(), LabError> {
    match args.action {
        Some(Action::Record(args)) => return program::recording::run(args),
        Some(Action::RecordTracee(args)) => return program::recording::become_tracee(&args),
        Some(Action::Explain(args)) => return program::explain::run(&args, out),
        Some(Action::Replay(args)) => return program::replay::run(&args, out),
        Some(Action::Report(args)) => return results::offline::report(&args, out),
        Some(Action::Compare(args)) => return results::offline::compare_results(&args, out),
        None => {}
    }
    if let Some(name) = &args.child_server {
        return match &args.dir {
            Some(directory) if http::is_meant(name) => http::serve(name, directory, out),
            _ => echo::serve(name, out),
        };
    }
    let (args, resumed) = match &args.resume {
        Some(path) => Resumed::read(path).map(|(args, resumed)| (args, Some(resumed)))?,
        None => (args.with_config()?, None),
    };
    let suite = Suite::new(&args)?;
    let mut run = Run::begin(&suite, &args, resumed.as_ref(), out)?;
    let result = run.measure(out);
    run.end(result, out)
}
