//! Units of the report: amounts of a flavor-resource are shown in the unit in which its quota is written.
//!
//! Invariant: only the report uses these units; objects and the outcomes of scenarios keep the canonical form.

use super::fake_api_server::FakeApiServer;
use super::objects::text_at;
use super::outcome::Grant;
use crate::cache::Kind;
use crate::quota::{NodeRef, QuotaUnits};
use crate::resources::{Quantity, amount, format_quantity};
use crate::scheduler::FlavorResource;
use serde_json::Value;

/// Reads the units of all quotas of a server, in the order of kinds and names.
pub(super) fn quota_units(server: &FakeApiServer) -> QuotaUnits {
    let mut units = QuotaUnits::default();
    for object in server.all(Kind::ClusterQueue) {
        add(&mut units, &NodeRef::ClusterQueue(text_at(object, "/metadata/name").into()), object);
    }
    for object in server.all(Kind::Cohort) {
        add(&mut units, &NodeRef::Cohort(text_at(object, "/metadata/name").into()), object);
    }
    units
}

fn add(units: &mut QuotaUnits, node: &NodeRef, object: &Value) {
    for group in items(object, "/spec/resourceGroups") {
        for flavor in items(group, "/flavors") {
            for quota in items(flavor, "/resources") {
                let fr = FlavorResource::new(text_at(flavor, "/name"), text_at(quota, "/name"));
                match quota.get("nominalQuota") {
                    Some(Value::String(text)) => units.add(node, fr, text),
                    Some(Value::Number(number)) => units.add(node, fr, &number.to_string()),
                    _ => {}
                }
            }
        }
    }
}

/// Writes the usage of a grant in the units of its ClusterQueue. A quantity that no amount equals is kept.
pub(super) fn convert(units: &QuotaUnits, mut grant: Grant) -> Grant {
    let queue = NodeRef::ClusterQueue(grant.cluster_queue.as_str().into());
    for set in &mut grant.pod_sets {
        for (resource, text) in &mut set.resource_usage {
            let (Some(flavor), Ok(quantity)) = (set.flavors.get(resource), Quantity::parse(text)) else {
                continue;
            };
            let amount = amount(resource, &quantity);
            if Quantity::parse(&format_quantity(resource, amount)) == Ok(quantity) {
                *text = units.format(&queue, &FlavorResource::new(flavor, resource), amount);
            }
        }
    }
    grant
}

/// Returns the elements of a list of an object; none if it is no list.
pub(super) fn items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}
