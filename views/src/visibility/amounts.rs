//! Amounts in the unit of the quota, as text and as number.

use super::views::AmountView;
use crate::quota::{FlavorResource, NodeRef, QuotaUnits};
use crate::resources::{Amount, format_quantity, to_f64, units_per_whole};
use serde_json::Number;

/// Greatest whole number that every reader of JSON reads exactly.
const MAX_EXACT: u64 = 1 << 53;

/// Returns the value in cores, bytes or pieces; `None` if some readers would lose digits of it.
fn number(resource: &str, amount: Amount) -> Option<Number> {
    let (units, whole) = (amount.get(), units_per_whole(resource));
    if units.unsigned_abs() > MAX_EXACT {
        return None;
    }
    if units.checked_rem(whole) == Some(0) {
        return units.checked_div(whole).map(Number::from);
    }
    Number::from_f64(to_f64(units.into()) / to_f64(whole.into()))
}

/// Returns an amount of a flavor-resource at a node.
pub(super) fn amount_view(
    units: &QuotaUnits,
    node: &NodeRef,
    fr: &FlavorResource,
    amount: i128,
) -> AmountView {
    let amount = Amount::saturating_from_i128(amount);
    AmountView { value: units.format(node, fr, amount), number: number(&fr.resource, amount) }
}

/// Returns a limit of a flavor-resource at a node; the limit may be infinite.
pub(super) fn limit_view(units: &QuotaUnits, node: &NodeRef, fr: &FlavorResource, limit: i128) -> AmountView {
    if Amount::saturating_from_i128(limit) == Amount::UNLIMITED {
        return AmountView { value: "unlimited".to_owned(), number: None };
    }
    amount_view(units, node, fr, limit)
}

/// Returns an amount of a resource without a flavor.
pub(super) fn plain_amount_view(resource: &str, amount: i128) -> AmountView {
    let amount = Amount::saturating_from_i128(amount);
    AmountView { value: format_quantity(resource, amount), number: number(resource, amount) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_have_their_unit_and_an_exact_number() {
        let (node, mut units) = (NodeRef::ClusterQueue("cq".into()), QuotaUnits::default());
        let fr = |resource: &str| FlavorResource::new("f", resource);
        units.add(&node, fr("memory"), "32Ti");
        units.add(&node, fr("cpu"), "4");
        for (resource, amount, value, number) in [
            ("memory", 9 << 40, "9Ti", json!(9_u64 << 40)),
            ("cpu", 8_000, "8", json!(8)),
            ("cpu", 1_500, "1500m", json!(1.5)),
            ("cpu", -2_000, "-2", json!(-2)),
            ("gpu", 64, "64", json!(64)),
            ("gpu", 1 << 53, "9007199254740992", json!(1_u64 << 53)),
            ("gpu", (1 << 53) + 1, "9007199254740993", json!(null)),
        ] {
            let view = amount_view(&units, &node, &fr(resource), amount);
            assert_eq!(json!(view), json!({"value": value, "number": number}), "{resource} {amount}");
        }
        let unlimited = limit_view(&units, &node, &fr("cpu"), i128::from(i64::MAX));
        assert_eq!(json!(unlimited), json!({"value": "unlimited", "number": null}));
    }
}
