//! Splits the text of a quantity into its parts.

use super::quantity::{Format, QuantityError};

/// The parts of the text of a quantity.
pub(super) struct Parts<'a> {
    pub(super) negative: bool,
    /// Number of leading zeros.
    pub(super) zeros: usize,
    /// Digits before the dot, without leading zeros.
    pub(super) whole: &'a str,
    /// Digits after the dot.
    pub(super) fraction: &'a str,
    pub(super) format: Format,
    /// Exponent of 10, or of 2 with binary suffixes.
    pub(super) exponent: i32,
}

/// Largest exponent of 10 that is accepted.
const MAX_EXPONENT: i64 = 1024;
/// Exponents of 10 below this make any accepted text less than a nano, so they are raised to it.
const MIN_EXPONENT: i64 = -10_000;

/// Splits a text. Everything after the number must be a suffix.
pub(super) fn split_parts(text: &str) -> Result<Parts<'_>, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Format);
    }
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let number = unsigned.trim_start_matches('0');
    let zeros = unsigned.len() - number.len();
    let (whole, rest) = split_digits(number);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    let (format, exponent) = parse_suffix(suffix)?;
    Ok(Parts { negative, zeros, whole, fraction, format, exponent })
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn parse_suffix(suffix: &str) -> Result<(Format, i32), QuantityError> {
    Ok(match suffix {
        "n" => (Format::Decimal, -9),
        "u" => (Format::Decimal, -6),
        "m" => (Format::Decimal, -3),
        "" => (Format::Decimal, 0),
        "k" => (Format::Decimal, 3),
        "M" => (Format::Decimal, 6),
        "G" => (Format::Decimal, 9),
        "T" => (Format::Decimal, 12),
        "P" => (Format::Decimal, 15),
        "E" => (Format::Decimal, 18),
        "Ki" => (Format::Binary, 10),
        "Mi" => (Format::Binary, 20),
        "Gi" => (Format::Binary, 30),
        "Ti" => (Format::Binary, 40),
        "Pi" => (Format::Binary, 50),
        "Ei" => (Format::Binary, 60),
        other => return parse_exponent(other),
    })
}

fn parse_exponent(suffix: &str) -> Result<(Format, i32), QuantityError> {
    let number = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
    let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    // An exponent that overflows `i64` is outside both bounds.
    let out_of_range = if number.starts_with('-') { MIN_EXPONENT } else { MAX_EXPONENT + 1 };
    let exponent = number.parse::<i64>().unwrap_or(out_of_range).max(MIN_EXPONENT);
    if exponent > MAX_EXPONENT {
        return Err(QuantityError::TooLarge);
    }
    i32::try_from(exponent).map(|exponent| (Format::Exponent, exponent)).map_err(|_| QuantityError::TooLarge)
}
