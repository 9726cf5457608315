//! The validator of lines against serde_json, and its two scanners against each other.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwise_logd::json::{Rules, Scanner};

fuzz_target!(|line: &[u8]| {
    let rules = Rules::new(127, Vec::new());
    let found = rules.check(line);
    for scanner in [Scanner::ByWord, Scanner::ByByte] {
        assert_eq!(found, rules.check_by(scanner, line, line.len()), "{scanner:?} differs");
    }
    match serde_json::from_slice::<serde_json::Value>(line) {
        Ok(_) => assert_eq!(found, Ok(())),
        // Numbers have any size here: docs/logd.md.
        Err(error) if error.to_string().contains("number out of range") => {}
        Err(error) => assert!(found.is_err(), "{error}"),
    }
});
