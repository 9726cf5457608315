//! What a configuration file of the log daemon may say.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwise_logd::fuzzing;

fuzz_target!(|text: &str| fuzzing::configuration(text));
