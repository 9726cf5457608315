//! Scans blocks of 64 bytes. Each block is read once and gives a word with a bit for each byte that ends a run,
//! so each string in the block costs one shift and one count of zeros.

use wide::{CmpEq, CmpLt, i8x16};

use super::{ByWord, Scan};

const BLOCK_BYTES: usize = 64;
const VECTOR_BYTES: usize = 16;

/// Scans a block at a time.
pub(crate) struct ByBlock {
    /// The start of the block that was read last.
    start: usize,
    /// A bit for each of its bytes, the first byte lowest; 1 if the byte ends a run.
    ends: u64,
}

impl Default for ByBlock {
    fn default() -> ByBlock {
        // No block starts here.
        ByBlock { start: usize::MAX, ends: 0 }
    }
}

impl Scan for ByBlock {
    #[inline(always)]
    fn string(&mut self, bytes: &[u8], at: usize) -> usize {
        let (start, place) = (at - at % BLOCK_BYTES, at % BLOCK_BYTES);
        if start != self.start {
            self.look(bytes, start);
        }
        match self.ends >> place {
            0 => self.go_on(bytes),
            ends => at + ends.trailing_zeros() as usize,
        }
    }

    #[inline]
    fn space(bytes: &[u8], at: usize) -> usize {
        ByWord::space(bytes, at)
    }
}

impl ByBlock {
    /// Finds the first byte in later blocks that ends a run.
    #[inline(never)]
    fn go_on(&mut self, bytes: &[u8]) -> usize {
        loop {
            let start = self.start + BLOCK_BYTES;
            self.look(bytes, start);
            if self.ends != 0 {
                return start + self.ends.trailing_zeros() as usize;
            }
        }
    }

    /// Reads the block at `start`. The end of the bytes ends a run too.
    #[inline(always)]
    fn look(&mut self, bytes: &[u8], start: usize) {
        self.start = start;
        self.ends = match bytes.get(start..start + BLOCK_BYTES).and_then(<[u8]>::first_chunk) {
            Some(block) => ends_of(block),
            None => ends_of_last(bytes, start),
        };
    }
}

/// Reads a block that is not whole.
#[inline(never)]
fn ends_of_last(bytes: &[u8], start: usize) -> u64 {
    let rest = bytes.get(start..).unwrap_or_default();
    // A zero is a control character.
    let mut block = [0; BLOCK_BYTES];
    block[..rest.len()].copy_from_slice(rest);
    ends_of(&block)
}

#[inline(always)]
fn ends_of(block: &[u8; BLOCK_BYTES]) -> u64 {
    let mut ends = 0;
    for (number, vector) in block.as_chunks::<VECTOR_BYTES>().0.iter().enumerate() {
        ends |= u64::from(ends_of_vector(vector)) << (number * VECTOR_BYTES);
    }
    ends
}

#[inline(always)]
fn ends_of_vector(bytes: &[u8; VECTOR_BYTES]) -> u16 {
    let vector: i8x16 = bytemuck::cast(*bytes);
    let quotes = vector.cmp_eq(i8x16::splat(b'"' as i8));
    let backslashes = vector.cmp_eq(i8x16::splat(b'\\' as i8));
    // As signed numbers, bytes beyond ASCII are less than a space too.
    let controls = vector.cmp_lt(i8x16::splat(b' ' as i8));
    (quotes | backslashes | controls).move_mask() as u16
}
