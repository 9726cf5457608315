//! `ringwise cp`: GNU cp's flags, messages and exit status, with many files in flight.
//!
//! One walk decides what becomes of each name. Threads or a ring move the content of several files
//! meanwhile. Messages keep the order of the sources, and results are the same with each.
//!
//! Reading order: `command` (the command line), `copier` (decides about each name), `copier/tree` (the walk), `job`
//! (one regular file), `bundle` (many small ones), `flight` (files in flight), `memory` (which sources are in the
//! page cache), `way` (chooses how to move content), `data` (moves it), `attributes`, `names` (opens and makes
//! names), `messages`.
//!
//! Invariant: a copy that was interrupted is shorter than its source, or longer by a part of a block.
//!
//! It does not set SELinux contexts: it accepts and ignores them, as GNU cp does without SELinux.

#![forbid(unsafe_code)]

mod attributes;
mod bundle;
mod command;
mod copier;
mod data;
mod flight;
mod job;
mod memory;
mod messages;
mod names;
mod way;

use std::{ffi::OsString, io::Write, process::ExitCode, sync::Arc};

use command::command_line::{Misuse, Typed};
pub use command::help::HELP;
use copier::Copier;
use messages::{
    progress::{Meter, Progress},
    quoting::Locale,
    report::{Line, Report},
};

/// Runs `cp` with the words after its name. Everything is said by the time it returns. `called` is how the user called
/// it: `cp` or `ringwise cp`.
///
/// The exit status is GNU cp's: 0 when all was copied, 1 when something was not, wrong usage
/// included.
pub fn run(called: &str, words: Vec<OsString>) -> ExitCode {
    copy(words).unwrap_or_else(|refused| refuse(called, *refused))
}

fn copy(words: Vec<OsString>) -> Result<ExitCode, Box<(Report, Misuse)>> {
    let locale = Locale::from_environment();
    let mut report = Report::new(locale);
    let (options, warnings) = match command::command_line::read(words, locale) {
        Ok(Typed::Copy(options, warnings)) => (Arc::new(*options), warnings),
        Ok(Typed::Help) => return Ok(print(report, HELP)),
        Ok(Typed::Version) => return Ok(print(report, &command::help::version())),
        Err(misuse) => return Err(Box::new((report, misuse))),
    };
    for warning in warnings {
        report.error(warning, &[], None);
    }
    let meter = Arc::new(Meter::new());
    let progress = Progress::start(options.progress, &options.sources, &meter);
    let bar = progress.as_ref().map(Progress::bar);
    if (options.atomic || bar.is_some())
        && let Err(reason) = names::temporary::remove_on_signals(bar.clone())
    {
        return Err(Box::new((report, Misuse { text: reason.into(), hint: false })));
    }
    report.present(options.json, bar);
    if options.json {
        report.say(messages::events::start(&options));
    }
    let mut copier = match Copier::new(options, report, meter) {
        Ok(copier) => copier,
        Err(failed) => {
            let (report, reason) = *failed;
            return Err(Box::new((report, Misuse { text: reason.into(), hint: false })));
        }
    };
    if let Err((text, hint)) = copier.copy_all() {
        return Err(Box::new((copier.report, Misuse { text, hint })));
    }
    // The bar goes when the last file has come.
    let ok = copier.finish();
    drop(progress);
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn refuse(called: &str, (mut report, misuse): (Report, Misuse)) -> ExitCode {
    report.say(Line::Error(misuse.text));
    report.finish();
    if misuse.hint {
        // Nobody is left to be told that nobody reads.
        let _ = writeln!(std::io::stderr(), "Try '{called} --help' for more information.");
    }
    ExitCode::FAILURE
}

fn print(mut report: Report, text: &str) -> ExitCode {
    report.say(Line::Out(text.strip_suffix('\n').unwrap_or(text).into()));
    if report.finish() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
