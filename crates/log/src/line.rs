//! What a line has to be before it is taken.
//!
//! The daemon counts lines by their ends and leaves out empty ones. If it saw more or fewer lines than the client
//! sent, the numbers of the two would differ, and acknowledgements would be for other lines. Whether a line is JSON
//! is the daemon's to say.

use crate::error::LineError;

/// Checks a line.
pub(crate) fn check(line: &[u8], line_max: usize) -> Result<(), LineError> {
    if line.is_empty() {
        return Err(LineError::Empty);
    }
    if line.len() > line_max {
        return Err(LineError::TooLong { bytes: line.len(), limit: line_max });
    }
    if line.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return Err(LineError::LineEnd);
    }
    std::str::from_utf8(line).map(|_| ()).map_err(|_| LineError::Utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_no_line_or_two_is_not_taken() {
        for (line, error) in [
            (&b""[..], LineError::Empty),
            (b"a\nb", LineError::LineEnd),
            (b"a\r", LineError::LineEnd),
            (b"\xff", LineError::Utf8),
            (b"12345", LineError::TooLong { bytes: 5, limit: 4 }),
        ] {
            assert_eq!(check(line, 4), Err(error), "{line:?}");
        }
        assert_eq!(check("ä12".as_bytes(), 4), Ok(()));
    }
}
