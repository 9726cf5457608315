//! Copies of the caller's memory, for types whose callers lend it for the time of one call.
//!
//! The ring needs memory until its operation is over, so such a type copies what it is lent into a buffer that it
//! owns. The streams of `net` and the cursors of `fs` do.

use std::io::IoSlice;

/// Fills a buffer with the parts, without their first `skipped` bytes, until it has `bytes_max` bytes.
pub(crate) fn gather(
    into: &mut Vec<u8>,
    parts: &[IoSlice<'_>],
    mut skipped: usize,
    bytes_max: usize,
) {
    into.clear();
    for part in parts {
        let start = skipped.min(part.len());
        skipped -= start;
        let room = bytes_max - into.len();
        into.extend_from_slice(&part[start..part.len().min(start + room)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_skipped_bytes_and_any_room() {
        let parts = [&b"one"[..], b"", b"two", b"three"].map(IoSlice::new);
        let all = b"onetwothree";
        for skipped in 0..=all.len() {
            for bytes_max in 0..=all.len() + 1 {
                let mut buffer = b"older".to_vec();
                gather(&mut buffer, &parts, skipped, bytes_max);
                let end = all.len().min(skipped + bytes_max);
                assert_eq!(buffer, all[skipped..end], "{bytes_max} bytes after {skipped}");
            }
        }
    }
}
