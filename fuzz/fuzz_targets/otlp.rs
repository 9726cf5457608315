//! Bodies of OTLP logs, as the log daemon takes them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwise_logd::fuzzing;

fuzz_target!(|input: (bool, &[u8])| {
    let (is_json, body) = input;
    fuzzing::otlp(body, is_json);
});
