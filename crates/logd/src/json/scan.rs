//! Runs of bytes that need no look at each: a word of eight at a time, and the plain twin.
//!
//! Safe Rust has no wider registers. Whoever adds them (`core::arch`, unsafe, so in the library)
//! adds a third [`Scan`] here, and every test that compares the two compares the three.

/// Where runs end.
pub(super) trait Scan {
    /// The first byte from `at` on that ends a string's run of plain characters: a quote, a
    /// backslash, a control character or a byte beyond ASCII. The length where there is none.
    fn string(bytes: &[u8], at: usize) -> usize;

    /// The first byte from `at` on that is no white space of JSON.
    fn space(bytes: &[u8], at: usize) -> usize;
}

/// A word at a time.
pub(super) struct ByWord;

/// A byte at a time.
pub(super) struct ByByte;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;
const SPACES: u64 = b' ' as u64 * ONES;

impl Scan for ByWord {
    #[inline]
    fn string(bytes: &[u8], mut at: usize) -> usize {
        while let Some(word) = word_at(bytes, at) {
            let found = special(word);
            if found != 0 {
                return at + found.trailing_zeros() as usize / 8;
            }
            at += 8;
        }
        ByByte::string(bytes, at)
    }

    #[inline]
    fn space(bytes: &[u8], mut at: usize) -> usize {
        while word_at(bytes, at) == Some(SPACES) {
            at += 8;
        }
        ByByte::space(bytes, at)
    }
}

impl Scan for ByByte {
    #[inline]
    fn string(bytes: &[u8], at: usize) -> usize {
        let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20 | 0x80..);
        let rest = bytes.get(at..).unwrap_or_default();
        rest.iter().position(is_special).map_or(bytes.len(), |found| at + found)
    }

    #[inline]
    fn space(bytes: &[u8], at: usize) -> usize {
        let is_other = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        let rest = bytes.get(at..).unwrap_or_default();
        rest.iter().position(is_other).map_or(bytes.len(), |found| at + found)
    }
}

#[inline]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// The high bit of every byte that ends a run; those above the lowest one may be wrong, since a
/// subtraction borrows from the bytes above.
#[inline]
fn special(word: u64) -> u64 {
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let quote = zero(word ^ (b'"' as u64 * ONES));
    let backslash = zero(word ^ (b'\\' as u64 * ONES));
    let control = word.wrapping_sub(0x20 * ONES) & !word;
    (quote | backslash | control | word) & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_place() {
        for place in 0..8 {
            for byte in 0..=255_u8 {
                let mut bytes = [b'a'; 24];
                bytes[8 + place] = byte;
                let plain = ByByte::string(&bytes, 0);
                assert_eq!(ByWord::string(&bytes, 0), plain, "{byte:#x} at {place}");
                let mut spaces = [b' '; 24];
                spaces[8 + place] = byte;
                assert_eq!(ByWord::space(&spaces, 0), ByByte::space(&spaces, 0));
            }
        }
    }

    #[test]
    fn every_pair_of_bytes_in_a_word() {
        for first in 0..=255_u8 {
            for second in 0..=255_u8 {
                let bytes = [b'a', first, second, b'a', b'a', b'a', b'a', b'a'];
                assert_eq!(ByWord::string(&bytes, 0), ByByte::string(&bytes, 0));
            }
        }
    }

    #[test]
    fn beyond_the_end_there_is_nothing() {
        assert_eq!(ByWord::string(b"abc", 3), 3);
        assert_eq!(ByWord::string(b"", 0), 0);
        assert_eq!(ByWord::space(b"   ", 1), 3);
    }
}
