//! What the log daemon makes of RELP, in whatever pieces it comes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwise_logd::fuzzing;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece_bytes, bytes) = input;
    fuzzing::relp(bytes, piece_bytes.into());
});
