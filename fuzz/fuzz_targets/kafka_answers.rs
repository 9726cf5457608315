//! What the log daemon makes of the answers of a broker of Kafka.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwise_logd::fuzzing;

fuzz_target!(|bytes: &[u8]| fuzzing::kafka(bytes));
