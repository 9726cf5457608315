//! Bodies of Elasticsearch's `_bulk`, as the log daemon takes them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwise_logd::fuzzing;

fuzz_target!(|body: &[u8]| fuzzing::bulk(body));
