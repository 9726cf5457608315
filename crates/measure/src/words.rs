//! Words of messages about what was mistyped: the one that was meant, the value on one line, and why it is refused.

use std::{
    error::Error,
    num::{IntErrorKind, ParseIntError},
};

/// Returns the word most like the one that was typed, if one is like it.
///
/// Words are alike if one letter is wrong, missing, too many or swapped with its neighbour, or if they share most
/// letters at about the same places.
///
/// # Examples
///
/// ```
/// use ringwise_measure::words::nearest;
///
/// assert_eq!(nearest("raed", ["write", "read"]), Some("read"));
/// assert_eq!(nearest("banana", ["write", "read"]), None);
/// ```
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |word: &str| strsim::jaro(typed, word);
    let is_near = |word: &&str| strsim::osa_distance(typed, word) <= 1 || likeness(word) > 0.8;
    let first = known.into_iter().filter(is_near);
    first.min_by(|one, other| {
        let distance = |word: &str| strsim::osa_distance(typed, word);
        distance(one).cmp(&distance(other)).then(likeness(other).total_cmp(&likeness(one)))
    })
}

/// Returns a value on one line: control characters are escaped.
pub fn shown(value: &str) -> String {
    let escaped = |letter: char| match letter.is_control() {
        true => letter.escape_default().collect(),
        false => String::from(letter),
    };
    value.chars().map(escaped).collect()
}

/// Returns why a value is refused, from the error of its parser. The words of `clap` and of the standard library for
/// numbers are those of a programmer, so they are replaced.
pub fn refusal(error: &(dyn Error + 'static), value: &str) -> String {
    if let Some(error) = error.downcast_ref::<ParseIntError>() {
        return match error.kind() {
            IntErrorKind::PosOverflow => "expected a smaller number".to_owned(),
            _ => "expected a whole number".to_owned(),
        };
    }
    let text = error.to_string();
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

#[cfg(test)]
mod tests {
    use super::*;

    const TOOLS: [&str; 7] = ["doctor", "lab", "cp", "logd", "echo", "load", "generate"];

    #[test]
    fn a_wrong_letter_is_seen_in_short_words_and_many_in_long_ones() {
        for (typed, meant) in [
            ("lb", "lab"),
            ("log", "logd"),
            ("pc", "cp"),
            ("doctr", "doctor"),
            ("docter", "doctor"),
            ("genrte", "generate"),
            ("ehco", "echo"),
        ] {
            assert_eq!(nearest(typed, TOOLS), Some(meant), "{typed}");
        }
    }

    #[test]
    fn a_word_like_no_other_has_none() {
        for typed in ["banana", "", "xyzzy", "read"] {
            assert_eq!(nearest(typed, TOOLS), None, "{typed}");
        }
        assert_eq!(nearest("read", ["record", "report", "replay"]), None, "a word of its own");
    }
}
