//! The search beside plain models: each line by itself, by serde_json and by substring search.

use clap::FromArgMatches;
use proptest::prelude::*;
use serde_json::{Value, value::RawValue};

use super::*;

fn sought(words: &[&str]) -> Result<Sought, clap::Error> {
    let command = <Sought as clap::Args>::augment_args(clap::Command::new("query"));
    let matches = command.try_get_matches_from([&["query"], words].concat())?;
    Sought::from_arg_matches(&matches)
}

fn found(words: &[&str], lines: &str) -> (String, u64) {
    let filter = Filter::new(&sought(words).unwrap());
    let mut found = Vec::new();
    let bytes = lines.as_bytes();
    let looked_at = filter.find(bytes, |line| found.extend_from_slice(&bytes[line]));
    (String::from_utf8(found).unwrap(), looked_at)
}

/// The members of an object in their order, with names that occur more than once.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> serde::Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Members, A::Error> {
                let mut all = Vec::new();
                while let Some(member) = map.next_entry()? {
                    all.push(member);
                }
                Ok(Members(all))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// What a condition means, by serde_json. Numbers in these tests are whole and fit into a double.
fn holds(line: &str, path: &[&str], value: &Value) -> bool {
    let Ok(Members(members)) = serde_json::from_str(line) else { return false };
    members.iter().filter(|(name, _)| name == path[0]).any(|(_, raw)| match &path[1..] {
        [] => {
            let meant: Value = serde_json::from_str(raw.get()).unwrap();
            match (meant.as_f64(), value.as_f64()) {
                (Some(own), Some(other)) => own == other,
                _ => &meant == value,
            }
        }
        deeper => holds(raw.get(), deeper, value),
    })
}

/// A string of JSON in one of the ways to write it.
fn written(text: &'static str) -> impl Strategy<Value = String> {
    let letters = text.chars().count();
    prop::collection::vec(0..8_u8, letters..=letters).prop_map(move |ways| {
        let mut all = String::from("\"");
        for (letter, way) in text.chars().zip(ways) {
            match (way, letter) {
                (0, _) => {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        all += &format!("\\u{unit:04X}");
                    }
                }
                (1, '/') => all += "\\/",
                (_, '"' | '\\') => all.extend(['\\', letter]),
                (_, '\n') => all += "\\n",
                _ => all.push(letter),
            }
        }
        all + "\""
    })
}

const NAMES: [&str; 7] = ["a", "status", "k/v", "\"", ":", "\u{e9}\u{1f600}", "a.b"];
const TEXTS: [&str; 8] = ["", "error", "a", "\"a\":1", "x/y\\z", ":", "\u{1f600}\n", "500"];
const NUMBERS: [&str; 9] = ["0", "-0.0", "1", "1e3", "1000", "1000.0", "-5", "50e-1", "5"];

fn string() -> impl Strategy<Value = String> {
    prop::sample::select(&TEXTS[..]).prop_flat_map(written)
}

fn value() -> impl Strategy<Value = String> {
    let word = prop::sample::select(&["true", "false", "null"][..]).prop_map(str::to_owned);
    let number = prop::sample::select(&NUMBERS[..]).prop_map(str::to_owned);
    prop_oneof![string(), number, word].prop_recursive(3, 12, 4, |inner| {
        let array = prop::collection::vec(inner.clone(), 0..3);
        prop_oneof![array.prop_map(|all| format!("[{}]", all.join(","))), object(inner)]
    })
}

fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let name = prop::sample::select(&NAMES[..]).prop_flat_map(written);
    let space = prop::sample::select(&["", " ", "\t ", "\r"][..]);
    let member = (name, space.clone(), space, value)
        .prop_map(|(name, before, after, value)| format!("{name}{before}:{after}{value}"));
    prop::collection::vec(member, 0..5).prop_map(|all| format!("{{{}}}", all.join(",")))
}

fn lines() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop_oneof![4 => object(value()), 1 => value()], 0..12)
}

/// A condition as it is typed, its path and its value.
fn condition() -> impl Strategy<Value = (String, Vec<&'static str>, Value)> {
    let path = prop::collection::vec(prop::sample::select(&NAMES[..]), 1..3);
    let text = prop::sample::select(&TEXTS[..]).prop_map(Value::from);
    let number = prop::sample::select(&NUMBERS[..]);
    let word = prop::sample::select(&[Value::Bool(true), Value::Bool(false), Value::Null][..]);
    let value = prop_oneof![
        // Quotes make a text of what would be something else.
        text.prop_map(|text| (text.to_string(), text)),
        number.prop_map(|number| (number.to_owned(), serde_json::from_str(number).unwrap())),
        word.prop_map(|word| (word.to_string(), word)),
        Just(("error".to_owned(), Value::from("error"))),
    ];
    (path, value).prop_map(|(path, (typed, value))| {
        let escaped = |name: &&str| name.replace('\\', "\\\\").replace('.', "\\.");
        let names: Vec<String> = path.iter().map(escaped).collect();
        (format!("{}={typed}", names.join(".")), path, value)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn where_finds_what_serde_json_finds(
        lines in lines(),
        (typed, path, value) in condition(),
        second in prop::option::of(condition()),
    ) {
        let is_wanted = |line: &&String| {
            holds(line, &path, &value)
                && second.as_ref().is_none_or(|(_, path, value)| holds(line, path, value))
        };
        let expected: Vec<&str> = lines.iter().filter(is_wanted).map(|line| &**line).collect();
        let mut words = vec!["--where", &typed];
        if let Some((typed, ..)) = &second {
            words.extend(["--where", typed]);
        }
        let (found, _) = found(&words, &(lines.join("\n") + "\n"));
        prop_assert_eq!(found.lines().collect::<Vec<_>>(), expected, "{:?}", words);
    }

    #[test]
    fn match_finds_what_a_plain_loop_finds(
        lines in prop::collection::vec("[ab\"\\\\\u{e9} ]{0,12}", 0..20),
        texts in prop::collection::vec("[ab\"\u{e9} ]{0,3}", 1..3),
        has_last_end in any::<bool>(),
    ) {
        let words: Vec<String> = texts.iter().map(|text| format!("--match={text}")).collect();
        let words: Vec<&str> = words.iter().map(|word| &**word).collect();
        let mut all: String = lines.iter().map(|line| format!("{line}\n")).collect();
        if !has_last_end {
            all.pop();
        }
        let is_wanted = |line: &&str| texts.iter().all(|text| line.contains(text));
        let expected: String = all.split_inclusive('\n')
            .filter(|line| is_wanted(&line.trim_end_matches('\n')))
            .collect();
        prop_assert_eq!(found(&words, &all).0, expected, "{:?}", words);
    }

    #[test]
    fn what_is_no_json_is_searched_without_a_panic(
        bytes in prop::collection::vec(prop::sample::select(b"\"\\{}[]:,05-.eua/ \n\xc3\xa9".to_vec()), 0..60),
        name in prop::sample::select(&["a", "u", ":", "/"][..]),
    ) {
        let filter = Filter::new(&sought(&["--where", &format!("{name}=5")]).unwrap());
        filter.find(&bytes, |line| assert!(bytes[line].contains(&b'5')));
    }
}

#[test]
fn only_lines_with_a_hit_are_looked_at() {
    let lines = "{\"a\":\"x\",\"b\":\"error\"}\n".repeat(1000);
    let one = format!("{lines}{{\"a\":\"error\"}}\n{lines}{{\"\\u0061\":1}}\n{lines}");
    assert_eq!(found(&["--where=a=error"], &one), ("{\"a\":\"error\"}\n".to_owned(), 2));
    assert_eq!(found(&["--match=:\"error\"}\n".trim_end(), "--match=a\":\"e"], &one).0.len(), 14);
    assert_eq!(found(&["--match=nowhere"], &one), (String::new(), 0));
    // A text is rarer than a field.
    assert_eq!(found(&["--where=b=error", "--match=nowhere"], &one).1, 0);
}

/// A name in quotes may begin with the quote that ends another one, and a slash has an escape of its own.
#[test]
fn no_way_to_write_a_name_is_missed() {
    for (condition, line) in [
        (",=5", r#"{"a":"x",",":5}"#),
        ("k/v=5", r#"{"k\/v":5}"#),
        ("k/v=5", r#"{"k\u002fv":5}"#),
        ("\"=5", r#"{"\"":5}"#),
        ("\"=5", r#"{"\u0022":5}"#),
        ("\t=5", r#"{"\t":5}"#),
    ] {
        let all = format!("{{\"b\":5}}\n{line}\n{{\"b\":5}}\n");
        assert_eq!(found(&["--where", condition], &all).0, format!("{line}\n"), "{condition}");
    }
}

#[test]
fn a_text_with_a_line_end_is_refused() {
    let error = sought(&["--match", "a\nb"]).unwrap_err().to_string();
    assert!(error.contains("without a line end"), "{error}");
}
