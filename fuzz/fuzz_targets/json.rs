//! The validator of lines against two that others wrote, serde_json and jiter, and its scanners against
//! each other.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwise_logd::lines::json::{Rules, Scanner};

/// What others say of a number that has more digits than they hold: here numbers have any size
/// (docs/reference/logd.md).
const TOO_LARGE: &str = "number out of range";

fuzz_target!(|line: &[u8]| {
    let rules = Rules::new(127, Vec::new());
    let found = rules.check(line);
    for scanner in [Scanner::ByWord, Scanner::ByByte] {
        assert_eq!(found, rules.check_by(scanner, line, line.len()), "{scanner:?} differs");
    }
    // As it lies among others in what was received.
    let among =
        [line, b"\n{\"another\":\"line, long enough to fill a vector of 64 bytes\"}\n"].concat();
    assert_eq!(found, rules.check_first(&among, line.len()), "among others it differs");
    let judge = |whose: &str, error: Option<String>| match error {
        None => assert_eq!(found, Ok(()), "{whose} takes it"),
        Some(error) if error.contains(TOO_LARGE) => {}
        Some(error) => assert!(found.is_err(), "{whose} refuses it: {error}"),
    };
    let other = serde_json::from_slice::<serde_json::Value>(line).err();
    judge("serde_json", other.map(|error| error.to_string()));
    let other = jiter::JsonValue::parse(line, false).err();
    judge("jiter", other.map(|error| error.to_string()));
});
