//! The bytes of each connection: a sequence that never repeats and is no other connection's.
//!
//! Words of random bits, from one table for the run, each mixed with a number that follows from the
//! connection's key and the place in its sequence. So a byte's value follows from where it belongs,
//! with no memory of what was sent, at the price of little more than a copy.

/// Words of the table.
const TABLE_WORDS: usize = 512;
const WORD_BYTES: usize = 8;

/// The bytes of all connections of a run.
pub(super) struct Pattern {
    table: Box<[u64; TABLE_WORDS]>,
    seed: u64,
}

/// Which connection's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Key(u64);

impl Pattern {
    /// A pattern that follows from a seed.
    pub(super) fn new(seed: u64) -> Pattern {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut table = Box::new([0; TABLE_WORDS]);
        table.fill_with(|| random.u64(..));
        Pattern { table, seed }
    }

    /// The key of a connection: of any two numbers it differs.
    pub(super) fn key(&self, number: u64) -> Key {
        Key(mix(self.seed ^ mix(number)))
    }

    /// Writes what belongs from `position` on.
    pub(super) fn fill(&self, key: Key, position: u64, out: &mut [u8]) {
        let within = (position % WORD_BYTES as u64) as usize;
        let mut index = position / WORD_BYTES as u64;
        let mut rest = out;
        if within > 0 {
            let count = rest.len().min(WORD_BYTES - within);
            let word = self.word(key, index).to_le_bytes();
            rest[..count].copy_from_slice(&word[within..within + count]);
            rest = &mut rest[count..];
            index += 1;
        }
        while rest.len() >= WORD_BYTES {
            let first = (index % TABLE_WORDS as u64) as usize;
            let count = (TABLE_WORDS - first).min(rest.len() / WORD_BYTES);
            let (whole, behind) = rest.split_at_mut(count * WORD_BYTES);
            let mask = mask(key, index);
            let words = &self.table[first..first + count];
            for (bytes, word) in whole.chunks_exact_mut(WORD_BYTES).zip(words) {
                bytes.copy_from_slice(&(word ^ mask).to_le_bytes());
            }
            rest = behind;
            index += count as u64;
        }
        if !rest.is_empty() {
            let word = self.word(key, index).to_le_bytes();
            rest.copy_from_slice(&word[..rest.len()]);
        }
    }

    fn word(&self, key: Key, index: u64) -> u64 {
        self.table[(index % TABLE_WORDS as u64) as usize] ^ mask(key, index)
    }
}

/// What all words of one pass over the table are mixed with.
fn mask(key: Key, index: u64) -> u64 {
    mix(key.0.wrapping_add(index / TABLE_WORDS as u64))
}

/// Spreads a number's bits over a word, one to one (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn bytes(pattern: &Pattern, key: Key, position: u64, count: usize) -> Vec<u8> {
        let mut out = vec![0; count];
        pattern.fill(key, position, &mut out);
        out
    }

    #[test]
    fn pieces_of_any_size_from_anywhere_are_the_same_bytes() {
        let pattern = Pattern::new(1);
        let key = pattern.key(3);
        let whole = bytes(&pattern, key, 0, 20_000);
        for (at, count) in [(0, 1), (1, 6), (7, 2), (8, 8), (4090, 13), (4095, 4098), (9001, 9999)]
        {
            assert_eq!(bytes(&pattern, key, at as u64, count), whole[at..at + count], "{at}");
        }
    }

    #[test]
    fn nothing_repeats_within_a_connection_or_between_two() {
        let pattern = Pattern::new(7);
        let mut seen = HashSet::new();
        for number in 0..4 {
            let key = pattern.key(number);
            // More than four passes over the table, and places beyond 32 bits.
            for start in [0, 1 << 40] {
                for message in bytes(&pattern, key, start, 1 << 15).chunks(16) {
                    assert!(seen.insert(message.to_vec()), "connection {number}");
                }
            }
        }
        assert_ne!(
            bytes(&Pattern::new(8), pattern.key(0), 0, 64),
            bytes(&pattern, pattern.key(0), 0, 64)
        );
    }
}
