//! Decimal shifts of natural numbers of any size: quantities go beyond 128 bits.

use num_bigint::BigUint;

fn power(base: u32, exponent: usize) -> BigUint {
    BigUint::from(base).pow(u32::try_from(exponent).unwrap_or(u32::MAX))
}

/// The number that ASCII digits spell; no digits are 0.
pub(super) fn from_digits(digits: &[u8]) -> BigUint {
    BigUint::parse_bytes(digits, 10).unwrap_or_default()
}

/// `number × 10^places`
pub(super) fn shifted_up(number: &BigUint, places: usize) -> BigUint {
    if *number == BigUint::ZERO { BigUint::ZERO } else { number * power(10, places) }
}

/// `number ÷ 10^places`, and whether anything was cut off.
pub(super) fn shifted_down(number: &BigUint, places: usize) -> (BigUint, bool) {
    // A digit takes three bits at least: so many places leave nothing, and their power would only cost memory.
    if u64::try_from(places).is_ok_and(|places| places > number.bits() / 3 + 1) {
        return (BigUint::ZERO, *number != BigUint::ZERO);
    }
    let divisor = power(10, places);
    (number / &divisor, number % &divisor != BigUint::ZERO)
}

/// `number ÷ 10^places`, rounded up.
pub(super) fn shifted_down_ceil(number: &BigUint, places: usize) -> BigUint {
    let (number, lossy) = shifted_down(number, places);
    number + u8::from(lossy)
}

/// The 64 lowest bits.
pub(super) fn low_64(number: &BigUint) -> u64 {
    number.iter_u64_digits().next().unwrap_or(0)
}

/// Takes out a factor as often as it divides, at most `most` times: what is left, and how often.
pub(super) fn without_factor(number: &BigUint, factor: u32, most: usize) -> (BigUint, usize) {
    let (mut number, mut times) = (number.clone(), 0);
    while times < most && number != BigUint::ZERO && &number % factor == BigUint::ZERO {
        number /= factor;
        times += 1;
    }
    (number, times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_shifts_leave_no_digits() {
        let nine = BigUint::from(9_u8);
        assert_eq!(shifted_down(&nine, usize::MAX), (BigUint::ZERO, true));
        assert_eq!(shifted_down(&nine, 1), (BigUint::ZERO, true));
        assert_eq!(shifted_down(&BigUint::from(900_u16), 2), (nine.clone(), false));
        assert_eq!(shifted_down_ceil(&nine, 5), BigUint::from(1_u8));
        assert_eq!(shifted_up(&BigUint::ZERO, usize::MAX), BigUint::ZERO);
    }
}
