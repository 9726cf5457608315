//! The simulation's only source of chance: numbers that follow from a seed.
//!
//! `SplitMix64` (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
//! Each use has its own stream, so that adding a fault does not change where the others strike.

/// A stream of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Makes the stream of a seed that has this number.
    pub(crate) fn stream(seed: u64, number: u64) -> Random {
        let mut origin = Random(seed);
        let start = origin.next();
        Random(start ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The bias is below 2^-32 for every bound that occurs here.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns true with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64) < probability * (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_that_of_the_paper() {
        // The first outputs for seed 1234567, as the reference implementation prints them.
        let mut random = Random(1_234_567);
        let first = [random.next(), random.next(), random.next()];
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn rates_and_bounds_hold() {
        let mut random = Random::stream(1, 2);
        let hits = (0..10_000).filter(|_| random.chance(0.25)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
        assert!((0..1_000).all(|_| random.below(7) < 7));
        assert!(!random.chance(0.0) && random.chance(1.0));
    }
}
