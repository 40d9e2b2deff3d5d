//! Configured changes of requests before they are charged: prefixes that are left out, resources that count as others.

use super::{Quantities, Quantity};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What becomes of the resource that is transformed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// It is charged too.
    #[default]
    Retain,
    /// Only what it is turned into is charged.
    Replace,
}

/// What a unit of one resource counts as.
#[derive(Clone, Debug, Default)]
pub struct Transformation {
    /// What becomes of the resource itself.
    pub strategy: Strategy,
    /// A resource whose amount multiplies the outputs.
    pub multiply_by: Option<Arc<str>>,
    /// Charged for each unit.
    pub outputs: Quantities,
}

/// The configured changes.
#[derive(Clone, Debug, Default)]
pub struct Transform {
    /// Resources whose names start so are not charged.
    pub exclude_prefixes: Vec<String>,
    /// By the resource that they apply to.
    pub transformations: BTreeMap<Arc<str>, Transformation>,
}

impl Transform {
    /// What is charged for what is asked. Nothing that comes out is negative.
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
            for (output, each) in &rule.outputs {
                let units = each.times(quantity.saturating_scaled_value(0));
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

fn add_quantity(to: &mut Quantities, name: &Arc<str>, quantity: &Quantity) {
    let sum = to.get(name).map_or_else(|| quantity.clone(), |have| have.plus(quantity));
    to.insert(name.clone(), sum);
}
