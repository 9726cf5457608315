//! Skips bytes that need no look at each: in blocks of 64 with vectors, in words of eight, or byte by byte.
//! Tests compare the others with the last.
//!
//! The vectors come from the `wide` crate. It uses the instructions that every x86-64 and aarch64 processor has
//! (SSE2, NEON), so nothing is detected at run time, and arithmetic elsewhere.

mod block;

pub(super) use block::ByBlock;

/// Finds where plain bytes end.
pub(super) trait Scan: Default {
    /// Finds the first byte from `at` on that is no plain character of a string: a quote, a backslash, a
    /// control character or a byte beyond ASCII. Without one it is the length.
    fn string(&mut self, bytes: &[u8], at: usize) -> usize;

    /// Finds the first byte from `at` on that is not white space.
    fn space(bytes: &[u8], at: usize) -> usize;
}

/// Scans a word at a time.
#[derive(Default)]
pub(super) struct ByWord;

/// Scans a byte at a time.
#[derive(Default)]
pub(super) struct ByByte;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;
const SPACES: u64 = b' ' as u64 * ONES;

impl Scan for ByWord {
    #[inline]
    fn string(&mut self, bytes: &[u8], mut at: usize) -> usize {
        while let Some(word) = word_at(bytes, at) {
            let found = special(word);
            if found != 0 {
                return at + found.trailing_zeros() as usize / 8;
            }
            at += 8;
        }
        ByByte.string(bytes, at)
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
    fn string(&mut self, bytes: &[u8], at: usize) -> usize {
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

/// Sets the high bit of each byte that ends a run. Bits above the lowest set one may be wrong, since a
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

    /// All scanners find the same as the plain one.
    fn found(bytes: &[u8], at: usize) -> usize {
        let plain = ByByte.string(bytes, at);
        assert_eq!(ByWord.string(bytes, at), plain, "{bytes:x?} from {at}");
        assert_eq!(ByBlock::default().string(bytes, at), plain, "{bytes:x?} from {at}");
        plain
    }

    #[test]
    fn every_byte_at_every_place() {
        for place in 0..72 {
            for byte in 0..=255_u8 {
                let mut bytes = [b'a'; 150];
                bytes[place] = byte;
                let is_plain = (0x20..0x80).contains(&byte) && byte != b'"' && byte != b'\\';
                assert_eq!(found(&bytes, 0), if is_plain { 150 } else { place });
                assert_eq!(found(&bytes[..place + 1], place / 2), place + usize::from(is_plain));
                let mut spaces = [b' '; 96];
                spaces[8 + place] = byte;
                assert_eq!(ByWord::space(&spaces, 0), ByByte::space(&spaces, 0));
                assert_eq!(ByBlock::space(&spaces, 0), ByByte::space(&spaces, 0));
            }
        }
    }

    #[test]
    fn every_pair_of_bytes_in_a_word() {
        for first in 0..=255_u8 {
            for second in 0..=255_u8 {
                found(&[b'a', first, second, b'a', b'a', b'a', b'a', b'a'], 0);
            }
        }
    }

    /// A scanner goes on where it was: what it remembers of bytes is of those bytes.
    #[test]
    fn one_after_the_other() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..300 {
            let len = random.usize(0..400);
            let rare = random.usize(1..60);
            let bytes: Vec<u8> = std::iter::repeat_with(|| match random.usize(0..rare) {
                0 => random.u8(..),
                _ => random.alphanumeric() as u8,
            })
            .take(len)
            .collect();
            let (mut fastest, mut at) = (ByBlock::default(), 0);
            while at <= len {
                let expected = ByByte.string(&bytes, at);
                assert_eq!(fastest.string(&bytes, at), expected, "{bytes:x?} from {at}");
                at = (expected + 1).max(at + random.usize(0..90));
            }
        }
    }

    #[test]
    fn beyond_the_end_there_is_nothing() {
        assert_eq!(found(b"abc", 3), 3);
        assert_eq!(found(b"", 0), 0);
        assert_eq!(found(&[b'a'; 64], 64), 64);
        assert_eq!(ByWord::space(b"   ", 1), 3);
    }
}
