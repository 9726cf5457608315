//! What the log daemon makes of lines that are no JSON.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwise_logd::fuzzing;

fuzz_target!(|line: &[u8]| fuzzing::wrap(line));
