//! Natural numbers of any size in decimal limbs: quantities go beyond 128 bits, and all that they need is decimal.
//!
//! Invariant: limbs are below `BASE`, least first, and the last is not zero.

use std::cmp::Ordering;
use std::fmt;

const BASE: u64 = 1_000_000_000;
const DIGITS: usize = 9;

/// A natural number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Natural(Vec<u64>);

impl Natural {
    /// The number that ASCII digits spell; other bytes are passed over.
    pub(super) fn from_digits(digits: &[u8]) -> Self {
        let digits: Vec<u64> = digits
            .iter()
            .filter(|byte| byte.is_ascii_digit())
            .map(|byte| u64::from(byte - b'0'))
            .collect();
        let limb = |chunk: &[u64]| chunk.iter().fold(0, |value, digit| value * 10 + digit);
        Self(digits.rchunks(DIGITS).map(limb).collect()).trimmed()
    }

    /// A machine integer.
    pub(super) fn from_u64(value: u64) -> Self {
        Self(vec![value % BASE, value / BASE % BASE, value / BASE / BASE]).trimmed()
    }

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    pub(super) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// The value modulo 2^64.
    pub(super) fn low_64(&self) -> u64 {
        self.0
            .iter()
            .rev()
            .fold(0_u64, |value, limb| value.wrapping_mul(BASE).wrapping_add(*limb))
    }

    /// The value, when it fits.
    pub(super) fn to_u64(&self) -> Option<u64> {
        self.0
            .iter()
            .rev()
            .try_fold(0_u64, |value, limb| value.checked_mul(BASE)?.checked_add(*limb))
    }

    /// `self × factor`, for a factor below 2^32.
    pub(super) fn times(&self, factor: u32) -> Self {
        let mut carry = 0;
        let mut limbs = Vec::with_capacity(self.0.len() + 1);
        for limb in &self.0 {
            let product = limb * u64::from(factor) + carry;
            limbs.push(product % BASE);
            carry = product / BASE;
        }
        while carry > 0 {
            limbs.push(carry % BASE);
            carry /= BASE;
        }
        Self(limbs).trimmed()
    }

    /// `self × other`
    pub(super) fn product(&self, other: &Self) -> Self {
        let parts = other.0.iter().enumerate().map(|(place, limb)| {
            self.times(u32::try_from(*limb).unwrap_or(0))
                .shifted_up(place * DIGITS)
        });
        parts.fold(Self::default(), |sum, part| sum.plus(&part))
    }

    /// Quotient and remainder by a small divisor; by zero the number itself remains.
    pub(super) fn divided(&self, divisor: u32) -> (Self, u64) {
        let mut rest = 0;
        let mut limbs: Vec<u64> = Vec::with_capacity(self.0.len());
        for limb in self.0.iter().rev() {
            let part = rest * BASE + limb;
            let Some(quotient) = part.checked_div(u64::from(divisor)) else {
                return (self.clone(), 0);
            };
            limbs.push(quotient);
            rest = part % u64::from(divisor);
        }
        limbs.reverse();
        (Self(limbs).trimmed(), rest)
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        let mut carry = 0;
        let mut limbs = Vec::with_capacity(self.0.len().max(other.0.len()) + 1);
        for place in 0..self.0.len().max(other.0.len()) {
            let sum = self.limb(place) + other.limb(place) + carry;
            limbs.push(sum % BASE);
            carry = sum / BASE;
        }
        limbs.push(carry);
        Self(limbs).trimmed()
    }

    /// The distance between two numbers.
    pub(super) fn distance(&self, other: &Self) -> Self {
        let (more, less) = if self < other {
            (other, self)
        } else {
            (self, other)
        };
        let mut borrow = 0;
        let mut limbs = Vec::with_capacity(more.0.len());
        for place in 0..more.0.len() {
            let take = less.limb(place) + borrow;
            let limb = more.limb(place);
            borrow = u64::from(limb < take);
            limbs.push(limb + borrow * BASE - take);
        }
        Self(limbs).trimmed()
    }

    fn limb(&self, place: usize) -> u64 {
        self.0.get(place).copied().unwrap_or(0)
    }

    /// `self × 10^places`.
    pub(super) fn shifted_up(&self, places: usize) -> Self {
        let small = (0..places % DIGITS).fold(self.clone(), |number, _| number.times(10));
        let zeros = std::iter::repeat_n(0, places / DIGITS);
        Self(zeros.chain(small.0).collect()).trimmed()
    }

    /// `self ÷ 10^places`, and whether anything was cut off.
    pub(super) fn shifted_down(&self, places: usize) -> (Self, bool) {
        let cut = (places / DIGITS).min(self.0.len());
        let mut lossy = self.0.iter().take(cut).any(|limb| *limb != 0);
        let mut number = Self(self.0.iter().skip(cut).copied().collect());
        for _ in 0..places % DIGITS {
            let (quotient, rest) = number.divided(10);
            lossy |= rest != 0;
            number = quotient;
        }
        (number, lossy)
    }

    /// The same, rounded up.
    pub(super) fn shifted_down_up(&self, places: usize) -> Self {
        let (number, lossy) = self.shifted_down(places);
        if lossy {
            number.plus(&Self::from_u64(1))
        } else {
            number
        }
    }

    /// Takes out a factor as often as it divides, at most `most` times: what is left, and how often.
    pub(super) fn without_factor(&self, factor: u32, most: usize) -> (Self, usize) {
        let (mut number, mut times) = (self.clone(), 0);
        while times < most && !number.is_zero() {
            let (quotient, rest) = number.divided(factor);
            if rest != 0 {
                break;
            }
            number = quotient;
            times += 1;
        }
        (number, times)
    }
}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0
            .len()
            .cmp(&other.0.len())
            .then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

impl fmt::Display for Natural {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut limbs = self.0.iter().rev();
        write!(f, "{}", limbs.next().unwrap_or(&0))?;
        limbs.try_for_each(|limb| write!(f, "{limb:09}"))
    }
}
