//! What the status page of the log daemon makes of a request.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwise_logd::fuzzing;

fuzz_target!(|parts: (&[u8], &[u8])| fuzzing::page(parts.0, parts.1));
