//! Resource amounts: requests of pods and numbers of quotas.
//!
//! Invariant: values are exact until they become an `Amount`, which rounds away from 0 and never wraps (I4).

mod amount;
mod decimal;
mod float;
pub mod limit_range;
mod pod;
mod quantity;
mod quantity_format;
mod quantity_unit;
pub mod transform;
mod usage_layer;

pub use amount::Amount;
pub use float::to_f64;
pub use limit_range::LimitRangeSummary;
pub use pod::{
    Quantities, apply_overhead, default_requests, pod_quantities, pod_requests, to_requests, total_requests,
    without_reclaimable,
};
pub use quantity::{Quantity, QuantityError};
pub use quantity_unit::QuantityUnit;
pub use usage_layer::UsageLayer;

use std::collections::BTreeMap;
use std::sync::Arc;

/// Amounts by resource name.
pub type Requests = BTreeMap<Arc<str>, Amount>;

/// Returns the first resource of which more is requested than asked for, with both amounts.
pub fn first_excess<'a>(requests: &'a Requests, asked: &Requests) -> Option<(&'a str, Amount, Amount)> {
    requests.iter().find_map(|(resource, request)| {
        let asked = asked.get(resource).copied().unwrap_or(Amount::ZERO);
        (*request > asked).then_some((&**resource, *request, asked))
    })
}

/// The resource counted in thousandths.
const CPU: &str = "cpu";

/// Converts a quantity of a resource: thousandths of cpu, whole units of others, rounded away from 0.
pub fn amount(resource: &str, quantity: &Quantity) -> Amount {
    Amount::new(quantity.saturating_scaled_value(resource_scale(resource)))
}

/// Formats an amount of a resource: bytes with binary suffixes, others with decimal ones.
pub fn format_quantity(resource: &str, amount: Amount) -> String {
    let binary = matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    Quantity::from_units(amount.get(), resource_scale(resource), binary).canonical()
}

/// Number of units of an amount in a core, byte or piece.
pub fn units_per_whole(resource: &str) -> i64 {
    if resource == CPU { 1_000 } else { 1 }
}

/// Returns the power of 10 that a unit of an amount is.
fn resource_scale(resource: &str) -> i32 {
    if resource == CPU { -3 } else { 0 }
}
