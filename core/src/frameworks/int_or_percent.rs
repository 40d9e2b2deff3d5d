//! Fields that are a number or a percentage of another number, as `IntOrString` of Kubernetes.

use crate::api::validation::FieldError;
use serde_json::Value;

/// A number, or a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntOrPercent {
    Int(i32),
    Percent(i32),
}

impl IntOrPercent {
    /// Reads a number of at least 0, or a text such as `25%`; `None` if it is neither.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let read = match value {
            Value::String(text) => {
                let digits = text.strip_suffix('%').filter(|digits| !digits.starts_with('+'))?;
                Self::Percent(digits.parse().ok()?)
            }
            value => Self::Int(i32::try_from(value.as_i64()?).ok()?),
        };
        let (Self::Int(number) | Self::Percent(number)) = read;
        (number >= 0).then_some(read)
    }

    /// Returns the number, a percentage of `total` rounded up.
    pub(super) fn of_rounded_up(self, total: i32) -> i32 {
        match self {
            Self::Int(number) => number,
            Self::Percent(percent) => {
                let part = i64::from(percent).saturating_mul(total.into()).saturating_add(99) / 100;
                i32::try_from(part).unwrap_or(i32::MAX)
            }
        }
    }

    /// Returns the fault of a field, if it is present and neither.
    pub(super) fn fault(path: &str, value: Option<&Value>) -> Option<FieldError> {
        let value = value.filter(|value| !value.is_null() && Self::read(value).is_none())?;
        let detail = "must be a number of at least 0, or a percentage such as 25%";
        Some(FieldError::invalid(path, value.clone(), detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_and_percentages_are_read() {
        for (value, of_two, of_seven) in [
            (json!(3), Some(3), Some(3)),
            (json!(0), Some(0), Some(0)),
            (json!("50%"), Some(1), Some(4)),
            (json!("1%"), Some(1), Some(1)),
            (json!("0%"), Some(0), Some(0)),
            (json!("100%"), Some(2), Some(7)),
            (json!("150%"), Some(3), Some(11)),
            (json!("2147483647%"), Some(42_949_673), Some(150_323_856)),
            (json!("2147483648%"), None, None),
            (json!("2"), None, None),
            (json!("abc%"), None, None),
            (json!("-1%"), None, None),
            (json!("+5%"), None, None),
            (json!(" 5%"), None, None),
            (json!("%"), None, None),
            (json!(-1), None, None),
            (json!(1.5), None, None),
            (json!(true), None, None),
        ] {
            let read = IntOrPercent::read(&value);
            assert_eq!(read.map(|read| read.of_rounded_up(2)), of_two, "{value}");
            assert_eq!(read.map(|read| read.of_rounded_up(7)), of_seven, "{value}");
            assert_eq!(IntOrPercent::fault("f", Some(&value)).is_some(), of_two.is_none(), "{value}");
        }
        assert!(
            IntOrPercent::fault("f", Some(&Value::Null)).is_none()
                && IntOrPercent::fault("f", None).is_none()
        );
    }
}
