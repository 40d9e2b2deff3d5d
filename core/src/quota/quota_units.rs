//! Units of answers to users: amounts of a flavor-resource are shown in the unit in which its quota is written.
//!
//! Invariant: only answers use these units; objects and messages keep the canonical form.

use super::{FlavorResource, NodeRef};
use crate::resources::{Amount, QuantityUnit, format_quantity};
use std::collections::BTreeMap;

/// Units by flavor-resource.
#[derive(Clone, Debug, Default)]
pub struct QuotaUnits {
    by_node: BTreeMap<(NodeRef, FlavorResource), QuantityUnit>,
    /// Unit of the first quota: for nodes without an own quota.
    by_flavor_resource: BTreeMap<FlavorResource, QuantityUnit>,
}

impl QuotaUnits {
    /// Adds the unit of a quota, as its text has it. Texts without a unit are skipped.
    pub fn add(&mut self, node: &NodeRef, fr: FlavorResource, text: &str) {
        if let Some(unit) = QuantityUnit::of(text.trim()) {
            self.by_flavor_resource.entry(fr.clone()).or_insert_with(|| unit.clone());
            self.by_node.insert((node.clone(), fr), unit);
        }
    }

    /// Formats a limit in the unit of the node's quota, or as `unlimited`.
    pub fn format_limit(&self, node: &NodeRef, fr: &FlavorResource, limit: Amount) -> String {
        if limit == Amount::UNLIMITED { "unlimited".to_owned() } else { self.format(node, fr, limit) }
    }

    /// Formats an amount in the unit of the node's quota. A node without an own quota uses the unit of another one.
    pub fn format(&self, node: &NodeRef, fr: &FlavorResource, amount: Amount) -> String {
        let own = self.by_node.get(&(node.clone(), fr.clone()));
        own.or_else(|| self.by_flavor_resource.get(fr))
            .map_or_else(|| format_quantity(&fr.resource, amount), |unit| unit.format(&fr.resource, amount))
    }
}
