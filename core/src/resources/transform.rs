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
    /// Resources whose names start with one of these are not charged themselves; transformations read them.
    pub exclude_prefixes: Vec<String>,
    /// Transformations by input resource.
    pub transformations: BTreeMap<Arc<str>, Transformation>,
}

impl Transform {
    /// Returns the quantities to charge for requests; none is negative. Transformations read all requests, also of
    /// excluded resources: without its excluded multiplier, a rule would charge for one unit of it only.
    pub fn apply(&self, requests: &Quantities) -> Quantities {
        let mut charged = Quantities::new();
        for (name, quantity) in requests {
            let rule = self.transformations.get(name);
            if let Some(rule) = rule {
                rule.add_outputs(quantity, requests, &mut charged);
            }
            if rule.is_none_or(|rule| rule.strategy == Strategy::Retain) && !self.excludes(name) {
                add_quantity(&mut charged, name, quantity);
            }
        }
        charged
            .values_mut()
            .filter(|quantity| quantity.is_negative())
            .for_each(|quantity| *quantity = Quantity::ZERO);
        charged
    }

    fn excludes(&self, name: &str) -> bool {
        self.exclude_prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }
}

impl Transformation {
    /// Adds the outputs for a requested quantity. A multiplier that is not requested counts as 1.
    fn add_outputs(&self, quantity: &Quantity, requests: &Quantities, charged: &mut Quantities) {
        let multiplier = self.multiply_by.as_ref().and_then(|by| requests.get(by));
        let factor = multiplier.map_or(1, |by| by.saturating_scaled_value(0));
        for (output, quantity_per_unit) in &self.outputs {
            let units = quantity_per_unit.times(quantity.saturating_scaled_value(0)).times(factor);
            add_quantity(charged, output, &units);
        }
    }
}

fn add_quantity(sums: &mut Quantities, name: &Arc<str>, quantity: &Quantity) {
    let sum = sums.get(name).map_or_else(|| quantity.clone(), |current| current.plus(quantity));
    sums.insert(name.clone(), sum);
}
