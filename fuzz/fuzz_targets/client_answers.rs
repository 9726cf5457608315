//! What the log daemon's client makes of its answers, in whatever pieces they come.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwise_log::fuzzing;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece_bytes, bytes) = input;
    fuzzing::answers(bytes, piece_bytes.into());
});
