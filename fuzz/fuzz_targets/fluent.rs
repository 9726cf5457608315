//! What the log daemon makes of Fluent Forward, in whatever pieces it comes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwise_logd::fuzzing;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece_bytes, bytes) = input;
    fuzzing::fluent(bytes, piece_bytes.into());
});
