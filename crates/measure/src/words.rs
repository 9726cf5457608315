//! The word that was meant, for messages about a mistyped one.

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
