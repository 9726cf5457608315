//! Where the log daemon's lines end, in whatever pieces they come.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwise_logd::fuzzing;

fuzz_target!(|input: (u8, u8, bool, &[u8])| {
    let (piece_bytes, line_max, is_counted, bytes) = input;
    fuzzing::framing(bytes, piece_bytes.into(), line_max.into(), is_counted);
});
