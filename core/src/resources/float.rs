//! Floating-point values of quantities and amounts, for dominant resource shares.
//!
//! Shares use the same floating-point operations as Kueue, so that ties are broken equally. Quota is never computed this way.

use super::Quantity;

/// Returns the float nearest to an integer, which is first clamped to `i64`.
pub fn to_f64(whole: i128) -> f64 {
    let clamped = whole.clamp(i64::MIN.into(), i64::MAX.into());
    let high = i32::try_from(clamped >> 32).unwrap_or_default();
    let low = u32::try_from(clamped & i128::from(u32::MAX)).unwrap_or_default();
    f64::from(high).mul_add(4_294_967_296.0, f64::from(low))
}

impl Quantity {
    /// Returns the nearest float.
    pub fn to_f64(&self) -> f64 {
        let nano = self.saturating_scaled_value(-9);
        if nano == i64::MAX || nano == i64::MIN {
            return to_f64(self.value().into());
        }
        to_f64(nano.into()) / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::to_f64;
    use crate::resources::Quantity;

    #[test]
    fn float_conversion_is_nearest() {
        for text in ["0", "0.5", "3", "-2", "1.1", "100m", "7Gi", "9007199254740993", "-1500m"] {
            let exact = Quantity::parse(text).unwrap();
            let milli: f64 = exact.milli().to_string().parse().unwrap();
            assert!((exact.to_f64() - milli / 1e3).abs() <= (milli / 1e3).abs() * 1e-15, "{text}");
        }
        assert_eq!(Quantity::parse("1e18").unwrap().to_f64().to_bits(), 1e18_f64.to_bits());
        assert_eq!(to_f64(i128::MAX).to_bits(), 9_223_372_036_854_775_807_f64.to_bits());
        assert_eq!(to_f64(-1).to_bits(), (-1.0_f64).to_bits());
    }
}
