//! What a client of the log daemon may say, and what it is answered.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwise_logd::fuzzing;

fuzz_target!(|input: (u8, bool, &[u8])| {
    let (piece_bytes, is_counted, bytes) = input;
    fuzzing::greeting(bytes, piece_bytes.into(), is_counted);
});
