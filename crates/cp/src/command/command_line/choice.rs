//! Words of which one is to be chosen, exactly or by a beginning that fits only one meaning.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use super::Misuse;
use crate::messages::quoting::Locale;

/// The names of one value; the first is the proper one.
pub(super) struct Choice<T>(pub(super) &'static [&'static str], pub(super) T);

/// Reads `word`. A word that is none of them is an error that lists them, as GNU's argmatch.
pub(super) fn read<T: Copy + PartialEq>(
    choices: &[Choice<T>],
    word: Option<&OsStr>,
    context: &str,
    locale: Locale,
) -> Result<T, Misuse> {
    let word = word.unwrap_or_default().as_bytes();
    let named = || {
        let names = choices.iter().flat_map(|choice| choice.0.iter().map(|name| (name, choice.1)));
        names.filter(|(name, _)| name.as_bytes().starts_with(word))
    };
    if let Some((_, value)) = named().find(|(name, _)| name.as_bytes() == word) {
        return Ok(value);
    }
    let problem = match named().next() {
        None => "invalid",
        Some((_, first)) if named().all(|(_, value)| value == first) => return Ok(first),
        Some(_) => "ambiguous",
    };
    let mut text = format!("{problem} argument ").into_bytes();
    text.extend(locale.words(word));
    text.extend_from_slice(b" for ");
    text.extend(locale.words(context.as_bytes()));
    text.extend_from_slice(b"\nValid arguments are:");
    for choice in choices {
        let names: Vec<Vec<u8>> =
            choice.0.iter().map(|name| locale.words(name.as_bytes())).collect();
        text.extend_from_slice(b"\n  - ");
        text.extend(names.join(&b", "[..]));
    }
    Err(Misuse::usage(text))
}
