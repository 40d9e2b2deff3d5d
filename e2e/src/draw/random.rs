//! Random numbers and digests that are the same on every machine and with every version of every crate.

use std::fmt;
use std::ops::RangeInclusive;

/// A generator of random numbers (SplitMix64).
pub(super) struct Random(u64);

impl Random {
    /// Returns the generator of one of the scenarios of a seed.
    pub(super) fn new(seed: u64, number: u64) -> Self {
        let start = Self(seed).bits();
        Self(start.wrapping_add(number.wrapping_mul(0xd134_2543_de82_ef95)))
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`; 0 if there is none.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.bits().checked_rem(limit).unwrap_or_default()
    }

    /// Returns a number of the range, which must not be empty.
    pub(super) fn between(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (least, most) = range.into_inner();
        least + self.below(most - least + 1)
    }

    /// Returns true in so many of a hundred draws.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns the index of one of `count` items; 0 if there are none.
    pub(super) fn index(&mut self, count: usize) -> usize {
        let limit = u64::try_from(count).unwrap_or(u64::MAX);
        usize::try_from(self.below(limit)).unwrap_or_default()
    }

    /// Returns one of the items, of which there must be one. An item that is listed twice is drawn twice as often.
    pub(super) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }
}

/// Digest of a list of texts (FNV-1a of 128 bits): other texts practically never have the same one.
pub(super) struct Digest(u128);

impl Digest {
    /// Returns the digest of the empty list.
    pub(super) const fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// Adds a text, which must be one line.
    pub(super) fn add(&mut self, line: &str) {
        for byte in line.bytes().chain([b'\n']) {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_algorithm() {
        // The first numbers that the reference implementation gives for the seed 1234567.
        let mut random = Random(1_234_567);
        let first = [random.bits(), random.bits(), random.bits()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(1, 2);
        let drawn: Vec<u64> = (0..100).map(|_| random.between(2..=4)).collect();
        assert!([2, 3, 4].iter().all(|number| drawn.contains(number)), "{drawn:?}");
        assert!(drawn.iter().all(|number| (2..=4).contains(number)), "{drawn:?}");
        assert_eq!((random.below(0), random.index(0), *random.pick(&["one"])), (0, 0, "one"));
        assert!(random.chance(100) && !random.chance(0));
    }

    #[test]
    fn digest_follows_the_algorithm() {
        let digest = |lines: &[&str]| {
            let mut digest = Digest::new();
            for line in lines {
                digest.add(line);
            }
            digest.to_string()
        };
        assert_eq!(digest(&["a"]), "0880954523ab1be95aa0733055b71a5a");
        assert_ne!(digest(&["a", "b"]), digest(&["ab"]));
    }
}
