//! Units in which users write quantities, to show related amounts in the same unit.
//!
//! Invariant: a formatted amount is exact; an amount that is no multiple of the unit is not written in it.

use super::quantity::{Format, Quantity};
use super::quantity_format::split_parts;
use super::{Amount, format_quantity, resource_scale};

/// The suffix of a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityUnit {
    suffix: String,
    /// Whether `exponent` is one of 2 instead of 10.
    binary: bool,
    exponent: i32,
}

impl QuantityUnit {
    /// Returns the unit of a text; `None` if it is invalid, or 0, whose unit means nothing.
    pub fn of(text: &str) -> Option<Self> {
        Quantity::parse(text).ok().filter(|quantity| !quantity.is_zero())?;
        let parts = split_parts(text).ok()?;
        let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.".contains(c));
        Some(Self {
            suffix: suffix.to_owned(),
            binary: parts.format == Format::Binary,
            exponent: parts.exponent,
        })
    }

    /// Formats an amount in this unit if it is a multiple of it, else as `format_shortest`.
    pub fn format(&self, resource: &str, amount: Amount) -> String {
        match self.multiple_of(resource, amount) {
            Some(0) => "0".to_owned(),
            Some(number) => format!("{number}{}", self.suffix),
            None => format_shortest(resource, amount),
        }
    }

    fn multiple_of(&self, resource: &str, amount: Amount) -> Option<i128> {
        let scale = resource_scale(resource);
        // Size of the unit in units of the amount.
        let (size, exponent) = if self.binary {
            (2_i128.checked_pow(self.exponent.unsigned_abs())?, 0)
        } else {
            (1, self.exponent)
        };
        // In a unit finer than the amount, which is rounded up to the server's precision, it would not read as written.
        let decimal = u32::try_from(exponent.checked_sub(scale)?).ok()?;
        let units = size.checked_mul(10_i128.checked_pow(decimal)?)?;
        let amount = amount.to_i128();
        (amount.checked_rem(units)? == 0).then(|| amount.checked_div(units)).flatten()
    }
}

/// Formats an amount in its canonical form: that of `format_quantity`, or with decimal suffixes if that is shorter.
fn format_shortest(resource: &str, amount: Amount) -> String {
    let usual = format_quantity(resource, amount);
    let decimal = Quantity::from_units(amount.get(), resource_scale(resource), false).canonical();
    if decimal.len() < usual.len() { decimal } else { usual }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quota as written, resource, amount, and the amount in the quota's unit.
    #[test]
    fn unit_cases() {
        const GI: i64 = 1 << 30;
        let cases = [
            ("36G", "memory", 36_000_000_000, "36G"),
            ("36G", "memory", 9_000_000_000, "9G"),
            ("36G", "memory", 1_500_000_000, "1500M"),
            ("36G", "memory", 100 << 20, "100Mi"),
            ("36G", "memory", -2_000_000_000, "-2G"),
            ("36Gi", "memory", 36 * GI, "36Gi"),
            ("2048Mi", "memory", 2 * GI, "2048Mi"),
            ("36Gi", "memory", GI / 2, "512Mi"),
            ("1.5Gi", "memory", GI + GI / 2, "1536Mi"),
            ("36000000000", "memory", 36_000_000_000, "36000000000"),
            ("1e3", "memory", 2_000, "2e3"),
            ("1e3", "memory", 2_500, "2500"),
            ("1e1000", "memory", 2_500, "2500"),
            ("2", "cpu", 2_000, "2"),
            ("2", "cpu", 500, "500m"),
            ("500m", "cpu", 500, "500m"),
            ("4000m", "cpu", 1_000, "1000m"),
            ("1500000u", "cpu", 1_500, "1500m"),
            ("100u", "cpu", 1, "1m"),
            ("3n", "cpu", 1, "1m"),
            ("1e-20", "cpu", 1, "1m"),
            ("1500m", "memory", 2, "2"),
            ("1k", "cpu", 2_000_000, "2k"),
            ("1k", "cpu", 2_000, "2"),
            ("1Ki", "cpu", 1_024_000, "1Ki"),
            ("8", "nvidia.com/gpu", 2_000, "2000"),
            ("8", "nvidia.com/gpu", 0, "0"),
            ("8Gi", "memory", 0, "0"),
        ];
        for (quota, resource, units, text) in cases {
            let unit = QuantityUnit::of(quota).unwrap();
            assert_eq!(unit.format(resource, Amount::new(units)), text, "{units} of {resource} with {quota}");
        }
    }

    #[test]
    fn zero_and_invalid_texts_have_no_unit() {
        for text in ["0", "0Gi", "", "many", "1x"] {
            assert_eq!(QuantityUnit::of(text), None, "{text:?}");
        }
    }
}
