//! A set of bytes of a file, as ranges that do not touch each other.

use std::collections::BTreeMap;

/// Ranges by their begin, each with its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds the bytes from `from` to before `to`.
    pub fn add(&mut self, mut from: u64, mut to: u64) {
        if from >= to {
            return;
        }
        // From the last range that begins before the end, backwards, as long as they meet.
        while let Some((&begin, &end)) = self.0.range(..=to).next_back() {
            if end < from {
                break;
            }
            (from, to) = (from.min(begin), to.max(end));
            self.0.remove(&begin);
        }
        self.0.insert(from, to);
    }

    /// The parts of a range that are not in the set.
    pub fn gaps(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let mut gaps = Vec::new();
        let mut next = from;
        let before = self.0.range(..from).next_back();
        for (&begin, &end) in before.into_iter().chain(self.0.range(from..to)) {
            if begin > next {
                gaps.push((next, begin));
            }
            next = next.max(end);
        }
        if next < to {
            gaps.push((next, to));
        }
        gaps.into_iter()
    }

    /// The ranges in their order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(&from, &to)| (from, to))
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> u64 {
        self.iter().map(|(from, to)| to - from).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ranges_are_the_bytes_that_were_added() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let (mut ranges, mut bytes) = (Ranges::default(), [false; 64]);
            for _ in 0..random.usize(0..12) {
                let (from, to) = (random.usize(0..64), random.usize(0..64));
                ranges.add(from as u64, to as u64);
                (from..to).for_each(|at| bytes[at] = true);
            }
            assert_eq!(ranges.bytes(), bytes.iter().filter(|own| **own).count() as u64);
            let apart: Vec<_> = ranges.iter().collect();
            assert!(apart.windows(2).all(|pair| pair[0].1 < pair[1].0), "{apart:?}");
            let (from, to) = (random.usize(0..32), random.usize(32..64));
            let gaps: Vec<u64> =
                ranges.gaps(from as u64, to as u64).flat_map(|(from, to)| from..to).collect();
            let expected: Vec<u64> =
                (from..to).filter(|at| !bytes[*at]).map(|at| at as u64).collect();
            assert_eq!(gaps, expected);
        }
    }
}
