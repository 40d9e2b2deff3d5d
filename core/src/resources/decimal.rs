//! Decimal shifts of natural numbers of any size, because quantities exceed 128 bits.

use num_bigint::BigUint;

fn power(base: u32, exponent: usize) -> BigUint {
    BigUint::from(base).pow(u32::try_from(exponent).unwrap_or(u32::MAX))
}

/// Parses ASCII digits. No digits are 0.
pub(super) fn from_digits(digits: &[u8]) -> BigUint {
    BigUint::parse_bytes(digits, 10).unwrap_or_default()
}

/// Returns `number × 10^places`.
pub(super) fn shifted_up(number: &BigUint, places: usize) -> BigUint {
    if *number == BigUint::ZERO { BigUint::ZERO } else { number * power(10, places) }
}

/// Returns `number ÷ 10^places` rounded down, and whether digits were cut off.
pub(super) fn shifted_down(number: &BigUint, places: usize) -> (BigUint, bool) {
    // A decimal digit takes at least three bits, so this many places leave 0; computing the power would only waste memory.
    if u64::try_from(places).is_ok_and(|places| places > number.bits() / 3 + 1) {
        return (BigUint::ZERO, *number != BigUint::ZERO);
    }
    let divisor = power(10, places);
    (number / &divisor, number % &divisor != BigUint::ZERO)
}

/// Returns `number ÷ 10^places`, rounded up.
pub(super) fn shifted_down_ceil(number: &BigUint, places: usize) -> BigUint {
    let (number, lossy) = shifted_down(number, places);
    number + u8::from(lossy)
}

/// Returns the 64 lowest bits.
pub(super) fn low_64(number: &BigUint) -> u64 {
    number.iter_u64_digits().next().unwrap_or(0)
}

/// Divides by a factor as often as it divides evenly, at most `max_times`. Returns the quotient and the number of divisions.
pub(super) fn without_factor(number: &BigUint, factor: u32, max_times: usize) -> (BigUint, usize) {
    let (mut number, mut times) = (number.clone(), 0);
    while times < max_times && number != BigUint::ZERO && &number % factor == BigUint::ZERO {
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
