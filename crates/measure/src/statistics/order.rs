//! The order in which engines are run: random blocks, each followed by its mirror.
//!
//! In `A B C C B A` every engine has the same mean position, so a linear drift (heat, a filling cache) cancels out. The
//! permutation is random, so that an engine does not always follow the same neighbour.

use fastrand::Rng;

/// An endless iterator of blocks of engine indices.
#[derive(Clone, Debug)]
pub struct BlockOrder {
    engines: usize,
    random: Rng,
}

impl BlockOrder {
    /// Blocks over engines `0 .. engines`. The same seed gives the same blocks.
    pub fn new(engines: usize, seed: u64) -> Self {
        BlockOrder { engines, random: Rng::with_seed(seed) }
    }
}

impl Iterator for BlockOrder {
    type Item = Vec<usize>;

    /// The next block: every engine exactly twice. Never `None`.
    fn next(&mut self) -> Option<Vec<usize>> {
        let mut block: Vec<usize> = (0..self.engines).collect();
        self.random.shuffle(&mut block);
        block.extend_from_within(..);
        block[self.engines..].reverse();
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_a_permutation_and_its_mirror() {
        for block in BlockOrder::new(5, 3).take(50) {
            let mirrored: Vec<usize> = block.iter().rev().copied().collect();
            assert_eq!(block, mirrored);
            let mut first = block[..5].to_vec();
            first.sort_unstable();
            assert_eq!(first, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn seeded_and_not_always_the_same_order() {
        let blocks: Vec<_> = BlockOrder::new(4, 9).take(20).collect();
        assert_eq!(blocks, BlockOrder::new(4, 9).take(20).collect::<Vec<_>>());
        assert!(blocks.iter().any(|block| *block != blocks[0]));
        for engine in 0..4 {
            assert!(blocks.iter().any(|block| block[0] == engine), "{engine} never came first");
        }
    }

    #[test]
    fn none_and_one() {
        assert_eq!(BlockOrder::new(0, 1).next(), Some(vec![]));
        assert_eq!(BlockOrder::new(1, 1).next(), Some(vec![0, 0]));
    }
}
