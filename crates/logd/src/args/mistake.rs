//! What clap finds wrong with options, in one line, for places that have no room for its paragraphs.
//!
//! Options are named without dashes, since they are keys of a file or parameters of a request there.

use std::error::Error as _;

use clap::error::{ContextKind, ErrorKind};
use ringwise_measure::words::{refusal, shown};

/// Says what is wrong and what to do.
pub(crate) fn in_a_line(error: &clap::Error) -> String {
    let text = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let option = text(ContextKind::InvalidArg);
    let option = name(&option);
    let value = text(ContextKind::InvalidValue);
    let shown = shown(&value);
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let advice = error.get(ContextKind::SuggestedArg).map(ToString::to_string).map_or_else(
                || "`ringwise logd --help` lists the options".to_owned(),
                |near| format!("did you mean '{}'?", name(&near)),
            );
            format!("unknown key '{option}': {advice}")
        }
        ErrorKind::InvalidValue => {
            let expected = || format!("expected {}", text(ContextKind::ValidValue));
            let near = error.get(ContextKind::SuggestedValue).map(ToString::to_string);
            let advice = near.map_or_else(expected, |near| format!("did you mean '{near}'?"));
            format!("{option}: invalid value '{shown}': {advice}")
        }
        ErrorKind::ValueValidation => {
            let help = || "see `ringwise logd --help`".to_owned();
            let why = error.source().map_or_else(help, |why| refusal(why, &value));
            format!("{option}: invalid value '{shown}': {why}")
        }
        ErrorKind::ArgumentConflict => {
            match error.get(ContextKind::PriorArg).map(ToString::to_string) {
                Some(prior) if name(&prior) != option => {
                    format!("{option} does not go with {}: leave one out", name(&prior))
                }
                _ => format!("{option} is given twice: give it once"),
            }
        }
        _ => error.kind().to_string(),
    }
}

/// The name in clap's `--name <VALUE>`.
fn name(argument: &str) -> &str {
    let flag = argument.split([' ', '=', '[']).next().unwrap_or_default();
    flag.trim_start_matches("--")
}
