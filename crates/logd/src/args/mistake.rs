//! What clap finds wrong with options, in one line, for places that have no room for its paragraphs.
//!
//! Options are named without dashes, since they are keys of a file or parameters of a request there.

use std::{
    error::Error as _,
    num::{IntErrorKind, ParseIntError},
};

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Says what is wrong and what to do.
pub(crate) fn in_a_line(error: &clap::Error) -> String {
    let text = |kind| error.get(kind).map(words).unwrap_or_default();
    let option = text(ContextKind::InvalidArg);
    let option = name(&option);
    let value = text(ContextKind::InvalidValue);
    let shown = shown(&value);
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let advice = error.get(ContextKind::SuggestedArg).map(words).map_or_else(
                || "`ringwise logd --help` lists the options".to_owned(),
                |near| format!("did you mean '{}'?", name(&near)),
            );
            format!("unknown key '{option}': {advice}")
        }
        ErrorKind::InvalidValue => {
            let expected = || format!("expected {}", text(ContextKind::ValidValue));
            let near = error.get(ContextKind::SuggestedValue).map(words);
            let advice = near.map_or_else(expected, |near| format!("did you mean '{near}'?"));
            format!("{option}: invalid value '{shown}': {advice}")
        }
        ErrorKind::ValueValidation => {
            format!("{option}: invalid value '{shown}': {}", reason(error, &value))
        }
        ErrorKind::ArgumentConflict => match error.get(ContextKind::PriorArg).map(words) {
            Some(prior) if name(&prior) != option => {
                format!("{option} does not go with {}: leave one out", name(&prior))
            }
            _ => format!("{option} is given twice: give it once"),
        },
        _ => error.kind().to_string(),
    }
}

/// The name in clap's `--name <VALUE>`.
fn name(argument: &str) -> &str {
    let flag = argument.split([' ', '=', '[']).next().unwrap_or_default();
    flag.trim_start_matches("--")
}

/// Returns a value on one line: control characters are escaped.
fn shown(value: &str) -> String {
    let escaped = |letter: char| match letter.is_control() {
        true => letter.escape_default().collect(),
        false => String::from(letter),
    };
    value.chars().map(escaped).collect()
}

/// Returns why a value is refused. clap's own words for numbers are those of a programmer.
fn reason(error: &clap::Error, value: &str) -> String {
    let Some(source) = error.source() else { return "see `ringwise logd --help`".to_owned() };
    if let Some(error) = source.downcast_ref::<ParseIntError>() {
        return match error.kind() {
            IntErrorKind::PosOverflow => "expected a smaller number".to_owned(),
            _ => "expected a whole number".to_owned(),
        };
    }
    let text = source.to_string();
    let bounds = text.strip_prefix(value).and_then(|rest| rest.strip_prefix(" is not in "));
    match bounds.and_then(|bounds| bounds.split_once("..")) {
        Some((least, most)) => match most.trim_start_matches('=') {
            most if UNBOUNDED.contains(&most) => format!("expected at least {least}"),
            most => format!("expected {least} to {most}"),
        },
        None => text,
    }
}

/// The ends that clap prints for ranges without one.
const UNBOUNDED: [&str; 4] = ["", "4294967295", "9223372036854775807", "18446744073709551615"];

fn words(value: &ContextValue) -> String {
    match value {
        ContextValue::String(word) => word.clone(),
        ContextValue::Strings(words) => words.join(", "),
        other => other.to_string(),
    }
}
