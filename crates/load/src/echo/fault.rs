//! A wrong echo, in words that name what was expected and what came.

use crate::crew::Fault;

/// Bytes that are shown of a wrong echo.
const SHOWN_BYTES: usize = 8;

/// Names where `found` first differs from `expected`, which begins at byte `position` of the
/// connection. Messages have `length` bytes.
pub(super) fn wrong_echo(position: u64, length: usize, expected: &[u8], found: &[u8]) -> Fault {
    let same = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    let (at, length) = (position + same as u64, length as u64);
    let shown = |bytes: &[u8]| {
        let shown = bytes[same..].iter().take(SHOWN_BYTES).map(|byte| format!("{byte:02x}"));
        shown.collect::<Vec<_>>().join(" ")
    };
    Fault::Wrong(format!(
        "echo wrong at byte {at} (byte {} of message {}): expected {}, got {}",
        at % length,
        at / length,
        shown(expected),
        shown(found)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_echo_is_shown_from_its_first_wrong_byte() {
        let fault = wrong_echo(120, 64, &[1, 2, 3, 4], &[1, 2, 255, 4]);
        assert_eq!(
            fault.to_string(),
            "echo wrong at byte 122 (byte 58 of message 1): expected 03 04, got ff 04"
        );
    }
}
