//! Amounts of resources: what pods ask for and what quotas give.
//!
//! Invariant: values are exact until they become an `Amount`, which rounds up and never wraps.

mod amount;
mod decimal;
mod float;
mod layer;
pub mod limit_range;
mod pod;
mod quantity;
mod quantity_text;
pub mod transform;

pub use amount::Amount;
pub use float::float;
pub use layer::Layer;
pub use limit_range::LimitRangeSummary;
pub use pod::{
    Quantities, amounts, apply_overhead, pod_quantities, pod_requests, total, without_reclaimable,
};
pub use quantity::{Quantity, QuantityError};

use std::collections::BTreeMap;
use std::sync::Arc;

/// Amounts by resource name.
pub type Requests = BTreeMap<Arc<str>, Amount>;

/// The resource that is counted in thousandths.
const CPU: &str = "cpu";

/// The amount that a quantity of a resource is: thousandths of cpu, whole units of others, rounded away from 0.
pub fn amount(resource: &str, quantity: &Quantity) -> Amount {
    Amount::new(quantity.saturating(if resource == CPU { -3 } else { 0 }))
}

/// The text of an amount of a resource: bytes in the binary family, others in the decimal one.
pub fn quantity_text(resource: &str, amount: Amount) -> String {
    let binary = matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    Quantity::of_units(amount.get(), if resource == CPU { -3 } else { 0 }, binary).canonical()
}
