//! Configured changes of requests before they are charged: excluded prefixes and resource transformations.

use super::{Quantities, Quantity};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether the transformed resource itself is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// It is charged in addition to the outputs.
    #[default]
    Retain,
    /// Only the outputs are charged.
    Replace,
}

/// The outputs charged for one unit of a resource.
#[derive(Clone, Debug, Default)]
pub struct Transformation {
    /// Whether the resource itself is charged.
    pub strategy: Strategy,
    /// Resource whose requested amount multiplies the outputs.
    pub multiply_by: Option<Arc<str>>,
    /// Quantities charged for each unit.
    pub outputs: Quantities,
}

/// All configured changes.
#[derive(Clone, Debug, Default)]
pub struct Transform {
    /// Resources whose names start with one of these are not charged.
    pub exclude_prefixes: Vec<String>,
    /// Transformations by input resource.
    pub transformations: BTreeMap<Arc<str>, Transformation>,
}

impl Transform {
    /// Returns the quantities to charge for requests; none is negative.
    pub fn apply(&self, requests: Quantities) -> Quantities {
        let mut requests = requests;
        requests
            .retain(|name, _| !self.exclude_prefixes.iter().any(|prefix| name.starts_with(prefix.as_str())));
        if !requests.keys().any(|name| self.transformations.contains_key(name)) {
            return requests;
        }
        let mut charged = Quantities::new();
        for (name, quantity) in &requests {
            let Some(rule) = self.transformations.get(name) else {
                add_quantity(&mut charged, name, quantity);
                continue;
            };
            let factor = rule
                .multiply_by
                .as_ref()
                .and_then(|by| requests.get(by))
                .map(|by| by.saturating_scaled_value(0));
            for (output, quantity_per_unit) in &rule.outputs {
                let units = quantity_per_unit.times(quantity.saturating_scaled_value(0));
                add_quantity(
                    &mut charged,
                    output,
                    &factor.map_or_else(|| units.clone(), |factor| units.times(factor)),
                );
            }
            if rule.strategy == Strategy::Retain {
                add_quantity(&mut charged, name, quantity);
            }
        }
        charged
            .values_mut()
            .filter(|quantity| quantity.is_negative())
            .for_each(|quantity| *quantity = Quantity::ZERO);
        charged
    }
}

fn add_quantity(sums: &mut Quantities, name: &Arc<str>, quantity: &Quantity) {
    let sum = sums.get(name).map_or_else(|| quantity.clone(), |current| current.plus(quantity));
    sums.insert(name.clone(), sum);
}
