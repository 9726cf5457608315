//! `ringwise-peers`: the lab's random positioned reads over other runtimes, side by side.
//!
//! A run lays one test file out and takes interleaved samples (`run`), each in a process of its own:
//! this program again with a hidden subcommand (`child`), so that no runtime shares threads, signal
//! handlers or memory with another. What a peer does is in `peer` and the files below it; all else,
//! from the order of the offsets to the verification of each block, is the lab's.
//!
//! Every error is one line. The exit status is 0 when all is done, 1 when something failed or a
//! block was wrong, 2 when the command was used wrongly. A peer that refuses to start is no
//! failure: its row says why.

#![forbid(unsafe_code)]

mod args;
mod child;
mod peer;
mod report;
mod run;
mod shared_lane;
mod tokio_lanes;
mod versions;

use std::{io, process::ExitCode};

use clap::{Parser, Subcommand, error::ErrorKind};
use ringwise_lab::LabError;

/// The lab's random positioned reads over other runtimes, side by side.
#[derive(Debug, Parser)]
#[command(name = "ringwise-peers", version, args_conflicts_with_subcommands = true)]
struct Command {
    #[command(flatten)]
    args: args::Args,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Takes one sample in this process and prints it as JSON
    #[command(hide = true)]
    Sample {
        /// What to take, as JSON
        order: String,
    },
}

fn main() -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) => return misused(&error),
    };
    let result = match command.part {
        Some(Part::Sample { order }) => child::take(&order, &mut io::stdout().lock()),
        None => run::run(&command.args, &mut io::stdout().lock()),
    };
    match result {
        Ok(()) | Err(LabError::BrokenPipe) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ringwise-peers: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}

/// Help and version are what was asked for; all else is one line instead of clap's paragraphs.
fn misused(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Nobody is left to be told that nobody reads.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let message = text.split("\n\nUsage:").next().unwrap_or(&text);
    let message = message.split("\n\nFor more information").next().unwrap_or(message);
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    eprintln!("ringwise-peers: {}", lines.join("; "));
    ExitCode::from(2)
}
