//! Units of the report: amounts of a flavor-resource are shown in the unit in which its quota is written.
//!
//! Invariant: only the report uses these units; objects and the outcomes of scenarios keep the canonical form.

use super::fake_api_server::FakeApiServer;
use super::objects::text_at;
use super::outcome::Grant;
use crate::cache::Kind;
use crate::quota::NodeRef;
use crate::resources::{Amount, Quantity, QuantityUnit, amount, format_quantity};
use crate::scheduler::FlavorResource;
use serde_json::Value;
use std::collections::BTreeMap;

/// Units by flavor-resource.
#[derive(Debug, Default)]
pub(super) struct QuotaUnits {
    by_node: BTreeMap<(NodeRef, FlavorResource), QuantityUnit>,
    /// Unit of the first quota: for nodes without an own quota.
    by_flavor_resource: BTreeMap<FlavorResource, QuantityUnit>,
}

impl QuotaUnits {
    /// Reads the units of all quotas of a server, in the order of kinds and names.
    pub(super) fn from_server(server: &FakeApiServer) -> Self {
        let mut units = Self::default();
        for object in server.all(Kind::ClusterQueue) {
            units.add(&NodeRef::ClusterQueue(text_at(object, "/metadata/name").into()), object);
        }
        for object in server.all(Kind::Cohort) {
            units.add(&NodeRef::Cohort(text_at(object, "/metadata/name").into()), object);
        }
        units
    }

    fn add(&mut self, node: &NodeRef, object: &Value) {
        for group in items(object, "/spec/resourceGroups") {
            for flavor in items(group, "/flavors") {
                for quota in items(flavor, "/resources") {
                    let fr = FlavorResource::new(text_at(flavor, "/name"), text_at(quota, "/name"));
                    let unit = match quota.get("nominalQuota") {
                        Some(Value::String(text)) => QuantityUnit::of(text.trim()),
                        Some(Value::Number(number)) => QuantityUnit::of(&number.to_string()),
                        _ => None,
                    };
                    if let Some(unit) = unit {
                        self.by_flavor_resource.entry(fr.clone()).or_insert_with(|| unit.clone());
                        self.by_node.insert((node.clone(), fr), unit);
                    }
                }
            }
        }
    }

    /// Formats a limit in the unit of the node's quota, or as `unlimited`.
    pub(super) fn format_limit(&self, node: &NodeRef, fr: &FlavorResource, limit: Amount) -> String {
        if limit == Amount::UNLIMITED { "unlimited".to_owned() } else { self.format(node, fr, limit) }
    }

    /// Formats an amount in the unit of the node's quota. A node without an own quota uses the unit of another one.
    pub(super) fn format(&self, node: &NodeRef, fr: &FlavorResource, amount: Amount) -> String {
        let own = self.by_node.get(&(node.clone(), fr.clone()));
        own.or_else(|| self.by_flavor_resource.get(fr))
            .map_or_else(|| format_quantity(&fr.resource, amount), |unit| unit.format(&fr.resource, amount))
    }

    /// Writes the usage of a grant in the units of its ClusterQueue. A quantity that no amount equals is kept.
    pub(super) fn convert(&self, mut grant: Grant) -> Grant {
        let queue = NodeRef::ClusterQueue(grant.cluster_queue.as_str().into());
        for set in &mut grant.pod_sets {
            for (resource, text) in &mut set.resource_usage {
                let (Some(flavor), Ok(quantity)) = (set.flavors.get(resource), Quantity::parse(text)) else {
                    continue;
                };
                let amount = amount(resource, &quantity);
                if Quantity::parse(&format_quantity(resource, amount)) == Ok(quantity) {
                    *text = self.format(&queue, &FlavorResource::new(flavor, resource), amount);
                }
            }
        }
        grant
    }
}

fn items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}
