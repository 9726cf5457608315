//! The validator against two parsers that others wrote, on documents that are right, nearly right
//! and wrong. Where they differ the difference is one that docs/reference/logd.md decides, and is named here.

use proptest::prelude::*;
use ringwise_logd::lines::json::{Reason, Rules, Scanner};

/// As deep as serde_json goes.
fn rules() -> Rules {
    Rules::new(127, Vec::new())
}

fn agree(line: &[u8]) {
    let found = rules().check(line);
    for scanner in [Scanner::ByWord, Scanner::ByByte] {
        let other = rules().check_by(scanner, line, line.len());
        assert_eq!(found, other, "{scanner:?} differs on {line:?}");
    }
    // As it lies among others in what was received.
    let among =
        [line, b"\n{\"another\":\"line, long enough to fill a vector of 64 bytes\"}\n"].concat();
    assert_eq!(found, rules().check_first(&among, line.len()), "{line:?}");
    let text = String::from_utf8_lossy(line);
    match serde_json::from_slice::<serde_json::Value>(line) {
        Ok(_) => assert_eq!(found, Ok(()), "serde_json takes {text}"),
        // Numbers have any size here.
        Err(error) if error.to_string().contains("number out of range") => {}
        Err(error) => assert!(found.is_err(), "serde_json refuses {text}: {error}"),
    }
    match jiter::JsonValue::parse(line, false) {
        Ok(_) => assert_eq!(found, Ok(()), "jiter takes {text}"),
        Err(error) => {
            let is_choice = error.to_string().contains("number out of range");
            assert!(found.is_err() || is_choice, "jiter refuses {text}: {error}");
        }
    }
}

/// Documents, with every kind of white space and escape.
fn document() -> impl Strategy<Value = String> {
    let space = prop_oneof![Just(""), Just(" "), Just("\t"), Just("\r\n"), Just("            ")];
    let number = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>()
            .prop_filter("JSON has no others", |number| number.is_finite())
            .prop_map(|number| format!("{number:e}")),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?",
    ];
    let escape = prop_oneof![
        "\\\\[\"\\\\/bfnrt]",
        "\\\\u[0-9a-cA-CeEfF][0-9a-fA-F]{3}",
        "\\\\u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}",
    ];
    let piece = prop_oneof![4 => "[ -!#-\\[\\]-~]{0,40}", 1 => "[^\\x00-\\x7f]{1,3}", 1 => escape];
    let string =
        prop::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()));
    let word = prop_oneof![Just("true"), Just("false"), Just("null")].prop_map(str::to_owned);
    let leaf = prop_oneof![number, string.clone(), word];
    leaf.prop_recursive(6, 40, 6, move |inner| {
        let member = (space.clone(), string.clone(), space.clone(), inner.clone()).prop_map(
            |(before, name, after, value)| format!("{before}{name}{after}:{after}{value}{before}"),
        );
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(|all| format!("[{}]", all.join(","))),
            prop::collection::vec(member, 0..6).prop_map(|all| format!("{{{}}}", all.join(","))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_right_is_taken(document in document()) {
        prop_assert_eq!(rules().check(document.as_bytes()), Ok(()), "{}", document);
        agree(document.as_bytes());
    }

    #[test]
    fn what_is_nearly_right_is_judged_alike(
        document in document(),
        place in any::<prop::sample::Index>(),
        byte in prop_oneof![any::<u8>(), prop::sample::select(b"\"\\{}[]:,0-.eEu \x1f\x7f\x80".to_vec())],
        manner in 0..4,
    ) {
        let mut bytes = document.into_bytes();
        let place = place.index(bytes.len());
        match manner {
            0 => bytes[place] = byte,
            1 => bytes.insert(place, byte),
            2 => drop(bytes.remove(place)),
            _ => bytes.truncate(place),
        }
        agree(&bytes);
    }

    #[test]
    fn what_is_made_of_the_grammars_bytes_is_judged_alike(
        bytes in prop::collection::vec(prop::sample::select(b"\"\\{}[]:,01-.eEu truefalsn\xc3\xa9\xed\xa0\x80\x01".to_vec()), 0..24),
    ) {
        agree(&bytes);
    }
}

#[test]
fn the_choices_that_the_grammar_leaves_open() {
    // Each is what docs/reference/logd.md says, and a parser that chooses otherwise is named.
    assert_eq!(rules().check(br#"{"a":1,"a":2}"#), Ok(()), "a name twice");
    assert_eq!(rules().check(b"1e999"), Ok(()), "serde_json refuses a number beyond an f64");
    let refused = |line: &[u8]| rules().check(line).unwrap_err().reason;
    assert_eq!(refused(br#""\udead""#), Reason::Surrogate);
    assert_eq!(refused(b"\xef\xbb\xbf{}"), Reason::Syntax, "a byte order mark");
}
