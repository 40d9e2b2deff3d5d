//! Exact quantities that parse, print, round and overflow like Kubernetes' own.
//!
//! A quantity is `number × 10^scale` with a family of suffixes. Short numbers are an `i64`, others have any size. The
//! representation is observable: it decides how `value` and `milli` behave when the result does not fit.
//! Invariants: parsing is total; order and equality are by value; anything finer than a nano is rounded away from 0.

use super::decimal::{from_digits, low_64, shifted_down, shifted_down_ceil, shifted_up, without_factor};
use super::quantity_format::{Parts, split_parts};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use num_bigint::BigUint;
use std::cmp::Ordering;
use std::fmt;

/// An exact quantity, like `resource.Quantity`.
#[derive(Clone, Debug)]
pub struct Quantity {
    number: Number,
    format: Format,
    /// The parsed text, if Kubernetes prints it unchanged.
    text: Option<Box<str>>,
}

/// Family of suffixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// `12e6`
    Exponent,
    /// `12Mi`
    Binary,
    /// `12M`
    Decimal,
}

/// `value × 10^scale`
#[derive(Clone, Debug)]
enum Number {
    Short { value: i64, scale: i32 },
    Wide(Wide),
}

#[derive(Clone, Debug)]
struct Wide {
    negative: bool,
    digits: BigUint,
    scale: i32,
}

/// Why a text is not a valid quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// Not a number with a suffix.
    Format,
    /// No digits.
    Digits,
    /// Unknown suffix.
    Suffix,
    /// Text too long or exponent too large for any amount.
    TooLarge,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => "not a number with an optional suffix",
            Self::Digits => "no digits",
            Self::Suffix => "unknown suffix",
            Self::TooLarge => "too many digits or too great an exponent",
        })
    }
}

impl std::error::Error for QuantityError {}

/// The smallest scale.
const NANO: i32 = -9;
/// Number of digits that always fit into an `i64`.
const SHORT_DIGITS: usize = 18;
/// Maximum length of a text in bytes. Longer ones would only consume memory.
const MAX_TEXT_LENGTH: usize = 1024;

impl Quantity {
    /// Zero.
    pub const ZERO: Self =
        Self { number: Number::Short { value: 0, scale: 0 }, format: Format::Decimal, text: None };

    /// Parses a quantity like Kubernetes. A sign, dot or suffix alone is 0.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.len() > MAX_TEXT_LENGTH {
            return Err(QuantityError::TooLarge);
        }
        let parts = split_parts(text)?;
        if let Some(short) = Self::parse_short(text, &parts) {
            return Ok(short);
        }
        Self::parse_wide(&parts)
    }

    fn parse_short(text: &str, parts: &Parts<'_>) -> Option<Self> {
        let digits = parts.whole.len().max(1) + parts.fraction.len();
        let exponent = usize::try_from(parts.exponent).unwrap_or(0);
        let (is_short, factor, scale) = if parts.format == Format::Binary {
            // 2^10 takes three digits.
            let digit_bound = parts.whole.len().max(1) + exponent / 10 * 3 + 1;
            (digit_bound <= 15 && parts.fraction.is_empty(), 1_i64 << exponent.min(62), 0)
        } else {
            (digits <= SHORT_DIGITS, 1, parts.exponent)
        };
        let scale = scale.checked_sub(i32::try_from(parts.fraction.len()).ok()?)?;
        if !is_short || scale < NANO {
            return None;
        }
        let shifted = format!("{}{}", if parts.whole.is_empty() { "0" } else { parts.whole }, parts.fraction);
        let unscaled: i64 = shifted.parse().ok()?;
        let value = unscaled.checked_mul(factor)?;
        let keeps_text = if parts.format == Format::Binary {
            unscaled & 7 != 0
        } else {
            scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0')
        };
        let value = if parts.negative { -value } else { value };
        Some(Self {
            number: Number::Short { value, scale },
            format: parts.format,
            text: keeps_text.then(|| Box::from(text)),
        })
    }

    fn parse_wide(parts: &Parts<'_>) -> Result<Self, QuantityError> {
        if parts.zeros == 0 && parts.whole.is_empty() && parts.fraction.is_empty() {
            return Err(QuantityError::Digits);
        }
        let mut digits = from_digits(format!("{}{}", parts.whole, parts.fraction).as_bytes());
        let fraction_digits = i32::try_from(parts.fraction.len()).map_err(|_| QuantityError::TooLarge)?;
        let mut format = parts.format;
        let mut scale = if format == Format::Binary {
            digits = (0..parts.exponent / 10).fold(digits, |digits, _| digits * 1024_u32);
            -fraction_digits
        } else {
            parts.exponent.saturating_sub(fraction_digits)
        };
        if digits != BigUint::ZERO {
            digits = rescaled(&digits, scale, NANO);
            scale = NANO;
        }
        if format == Format::Binary {
            let max = BigUint::from(i64::MAX.unsigned_abs());
            if digits > shifted_up(&max, 9) {
                (digits, scale) = (max, 0);
            } else if digits != BigUint::ZERO && digits < BigUint::from(1_000_000_000_u32) {
                format = Format::Decimal;
            }
        }
        let negative = parts.negative && digits != BigUint::ZERO;
        Ok(Self { number: Number::Wide(Wide { negative, digits, scale }), format, text: None })
    }

    /// Returns `value × 10^scale` with binary or decimal suffixes.
    pub(super) const fn from_units(value: i64, scale: i32, binary: bool) -> Self {
        let format = if binary { Format::Binary } else { Format::Decimal };
        Self { number: Number::Short { value, scale }, format, text: None }
    }

    /// Returns whether it is below 0.
    pub fn is_negative(&self) -> bool {
        self.sign() < 0
    }

    /// Returns whether it is 0.
    pub fn is_zero(&self) -> bool {
        self.sign() == 0
    }

    /// Returns -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        match &self.number {
            Number::Short { value, .. } => i32::from(*value > 0) - i32::from(*value < 0),
            Number::Wide(wide) if wide.digits == BigUint::ZERO => 0,
            Number::Wide(wide) => {
                if wide.negative {
                    -1
                } else {
                    1
                }
            }
        }
    }

    /// Returns whole units like Kubernetes: rounded up, and wrong on overflow.
    pub fn value(&self) -> i64 {
        self.go_scaled(0)
    }

    /// Returns thousandths like Kubernetes: rounded up, and wrong on overflow.
    pub fn milli(&self) -> i64 {
        self.go_scaled(-3)
    }

    /// Returns units of `10^scale`, rounded away from 0 and clamped to `i64`.
    pub fn saturating_scaled_value(&self, scale: i32) -> i64 {
        if let Number::Short { value, scale: own_scale } = &self.number
            && let Some(exact) = scaled_short(*value, *own_scale, scale)
        {
            return exact;
        }
        let wide = self.to_wide();
        let magnitude = i64::try_from(rescaled(&wide.digits, wide.scale, scale)).ok();
        match (magnitude, wide.negative) {
            (Some(value), false) => value,
            (Some(value), true) => -value,
            (None, false) => i64::MAX,
            (None, true) => i64::MIN,
        }
    }

    fn go_scaled(&self, scale: i32) -> i64 {
        match &self.number {
            Number::Short { value, scale: own_scale } => scaled_short(*value, *own_scale, scale)
                .unwrap_or_else(|| {
                    // Where Kubernetes multiplies in one step, the result wraps; otherwise it is 0.
                    let places = own_scale.saturating_sub(scale);
                    if matches!(places, 1..=3 | 6 | 9) {
                        value.wrapping_mul(10_i64.wrapping_pow(places.unsigned_abs()))
                    } else {
                        0
                    }
                }),
            Number::Wide(wide) => wide.scaled(scale),
        }
    }

    /// Returns the sum, with the suffix family of the first operand that is not 0.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        let number = match (&self.number, &other.number) {
            (Number::Short { value: a, scale: sa }, Number::Short { value: b, scale: sb }) => {
                add_short(*a, *sa, *b, *sb)
            }
            _ => None,
        };
        let number = number.unwrap_or_else(|| Number::Wide(self.to_wide().plus(&other.to_wide())));
        Self { number, format, text: None }
    }

    /// Returns the difference, with the suffix family of the first operand that is not 0.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let number = match &other.number {
            Number::Short { value, scale } if *value != i64::MIN => {
                Number::Short { value: -value, scale: *scale }
            }
            _ => {
                let wide = other.to_wide();
                Number::Wide(Wide { negative: !wide.negative, ..wide })
            }
        };
        self.plus(&Self { number, format: other.format, text: None })
    }

    /// Returns the product with `factor`.
    #[must_use]
    pub fn times(&self, factor: i64) -> Self {
        let wide = self.to_wide();
        let digits = wide.digits * factor.unsigned_abs();
        let negative = wide.negative != (factor < 0) && digits != BigUint::ZERO;
        Self {
            number: Number::Wide(Wide { negative, digits, scale: wide.scale }),
            format: self.format,
            text: None,
        }
    }

    fn to_wide(&self) -> Wide {
        match &self.number {
            Number::Short { value, scale } => {
                Wide { negative: *value < 0, digits: BigUint::from(value.unsigned_abs()), scale: *scale }
            }
            Number::Wide(wide) => wide.clone(),
        }
    }

    /// Returns the shortest text in its suffix family, regardless of the parsed text.
    pub fn canonical(&self) -> String {
        let wide = self.to_wide();
        if wide.digits == BigUint::ZERO {
            return "0".to_owned();
        }
        let sign = if wide.negative { "-" } else { "" };
        let whole = (self.format == Format::Binary).then(|| wide.to_whole()).flatten();
        if let Some(whole) = whole.filter(|whole| *whole >= BigUint::from(1024_u32)) {
            let (number, times) = without_factor(&whole, 1024, BINARY_SUFFIXES.len() - 1);
            return format!("{sign}{number}{}", BINARY_SUFFIXES.get(times).unwrap_or(&""));
        }
        let (number, times) = without_factor(&wide.digits, 10, usize::MAX);
        let exponent = wide.scale.saturating_add(i32::try_from(times).unwrap_or(i32::MAX));
        let mut aligned = exponent.div_euclid(3) * 3;
        if self.format != Format::Exponent {
            aligned = aligned.min(18);
        }
        let number = shifted_up(&number, usize::try_from(exponent - aligned).unwrap_or(0));
        if self.format == Format::Exponent {
            return if aligned == 0 {
                format!("{sign}{number}")
            } else {
                format!("{sign}{number}e{aligned}")
            };
        }
        let suffix_index = usize::try_from((aligned - NANO) / 3).unwrap_or(0);
        format!("{sign}{number}{}", DECIMAL_SUFFIXES.get(suffix_index).unwrap_or(&""))
    }
}

const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// Returns the digits at another scale, rounded up.
fn rescaled(digits: &BigUint, from: i32, to: i32) -> BigUint {
    let places = from.saturating_sub(to);
    let distance = usize::try_from(places.unsigned_abs()).unwrap_or(usize::MAX);
    if places >= 0 { shifted_up(digits, distance) } else { shifted_down_ceil(digits, distance) }
}

/// Returns a short number at another scale, rounded away from 0. `None` on overflow.
fn scaled_short(value: i64, from: i32, to: i32) -> Option<i64> {
    let power = |places: i32| 10_i64.checked_pow(places.unsigned_abs());
    if value == 0 || from == to {
        return Some(value);
    }
    if from > to {
        return value.checked_mul(power(from.checked_sub(to)?)?);
    }
    let Some(divisor) = power(to.checked_sub(from)?) else {
        return Some(value.signum());
    };
    let quotient = value / divisor;
    if value % divisor == 0 { Some(quotient) } else { quotient.checked_add(value.signum()) }
}

fn add_short(a: i64, a_scale: i32, b: i64, b_scale: i32) -> Option<Number> {
    if b == 0 {
        return Some(Number::Short { value: a, scale: a_scale });
    }
    if a == 0 {
        return Some(Number::Short { value: b, scale: b_scale });
    }
    let scale = a_scale.min(b_scale);
    let value = scaled_short(a, a_scale, scale)?.checked_add(scaled_short(b, b_scale, scale)?)?;
    Some(Number::Short { value, scale })
}

impl Wide {
    /// Returns the magnitude if it is a whole number.
    fn to_whole(&self) -> Option<BigUint> {
        if let Ok(places) = usize::try_from(self.scale) {
            return Some(shifted_up(&self.digits, places));
        }
        let (whole, lossy) = shifted_down(&self.digits, usize::try_from(self.scale.unsigned_abs()).ok()?);
        (!lossy).then_some(whole)
    }

    fn plus(&self, other: &Self) -> Self {
        let scale = self.scale.min(other.scale);
        let (a, b) = (rescaled(&self.digits, self.scale, scale), rescaled(&other.digits, other.scale, scale));
        let (negative, digits) = if self.negative == other.negative {
            (self.negative, a + b)
        } else if a < b {
            (other.negative, b - a)
        } else {
            (self.negative, a - b)
        };
        Self { negative: negative && digits != BigUint::ZERO, digits, scale }
    }

    /// Truncates to 64 bits in two's complement.
    fn low_64_bits(&self) -> i64 {
        let low = low_64(&self.digits).cast_signed();
        if self.negative { low.wrapping_neg() } else { low }
    }

    /// Returns units of `10^scale` like Kubernetes, with the same errors for negative numbers and above 63 bits.
    fn scaled(&self, scale: i32) -> i64 {
        let places = scale.saturating_sub(self.scale);
        if places <= 0 {
            return self.low_64_bits().wrapping_mul(10_i64.wrapping_pow(places.unsigned_abs()));
        }
        let short = self.negative || self.digits < BigUint::from(i64::MAX.unsigned_abs());
        match 10_i64.checked_pow(places.unsigned_abs()) {
            Some(divisor) if short => {
                let low = self.low_64_bits();
                (low / divisor).wrapping_add(i64::from(low % divisor != 0))
            }
            _ => low_64(&rescaled(&self.digits, self.scale, scale)).cast_signed(),
        }
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sign().cmp(&other.sign()).then_with(|| {
            let (a, b) = (self.to_wide(), other.to_wide());
            let scale = a.scale.min(b.scale);
            let magnitude = rescaled(&a.digits, a.scale, scale).cmp(&rescaled(&b.digits, b.scale, scale));
            if a.negative { magnitude.reverse() } else { magnitude }
        })
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => f.write_str(&self.canonical()),
        }
    }
}

impl TryFrom<&ApiQuantity> for Quantity {
    type Error = QuantityError;

    fn try_from(quantity: &ApiQuantity) -> Result<Self, QuantityError> {
        Self::parse(quantity.0.trim())
    }
}
