//! Amounts of flavor-resources in the resource groups of ClusterQueues and Cohorts.
//!
//! Invariants: only a Cohort gets a quota that it does not have, and only of a flavor-resource that another object has, so that a misspelt
//! flavor is an error; what is added beside it is a nominal quota of 0, which changes nothing.

use super::{Change, Target};
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::simulate::objects::{set, text_at, value_at};
use crate::simulate::simulation::Simulation;
use serde_json::{Value, json};

impl Change {
    /// Changes a field or an amount of an object, after it has got a nominal quota of 0 if `adds_quota` is set.
    pub(super) fn set_in(&self, object: &mut Value, subject: &str, adds_quota: bool) -> Result<(), String> {
        match self {
            Self::Set(path, value) => path.set(object, value.clone()),
            Self::Amount { field, flavor, resource, quantity } => {
                if adds_quota {
                    add_quota(object, flavor, resource);
                }
                let amount = amount_of(object, subject, flavor, resource)?;
                match quantity {
                    Some(quantity) => set(amount, &[*field], json!(quantity)),
                    None => drop(amount.as_object_mut().and_then(|fields| fields.shift_remove(*field))),
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Simulation {
    /// Returns whether a Cohort exists only because ClusterQueues or Cohorts name it.
    pub(super) fn is_implied(&self, target: &Target) -> bool {
        let server = &self.harness.server;
        let is_named = |kind, field: &str| server.any(kind, |object| text_at(object, field) == target.name);
        target.kind == Kind::Cohort
            && server.get(Kind::Cohort, &ObjectKey::cluster(&target.name)).is_none()
            && (is_named(Kind::ClusterQueue, "/spec/cohortName")
                || is_named(Kind::Cohort, "/spec/parentName"))
    }

    /// Returns whether a change gives a Cohort its first quota of a flavor-resource of which another object has one.
    pub(super) fn adds_quota(&self, target: &Target, change: &Change) -> bool {
        let Change::Amount { field: "nominalQuota", flavor, resource, .. } = change else { return false };
        let server = &self.harness.server;
        let has = |object: &Value| has_quota(object, flavor, resource);
        target.kind == Kind::Cohort
            && !server.get(Kind::Cohort, &ObjectKey::cluster(&target.name)).is_some_and(has)
            && (server.any(Kind::ClusterQueue, has) || server.any(Kind::Cohort, has))
    }
}

/// Returns the object with the amounts of a flavor-resource in a ClusterQueue or Cohort.
fn amount_of<'a>(
    object: &'a mut Value,
    subject: &str,
    flavor: &str,
    resource: &str,
) -> Result<&'a mut Value, String> {
    let mut known = Vec::new();
    let groups = object.pointer_mut("/spec/resourceGroups").and_then(Value::as_array_mut);
    for group in groups.into_iter().flatten() {
        for quotas in items(group, "flavors") {
            let name = text_at(quotas, "/name").to_owned();
            for amounts in items(quotas, "resources") {
                let of = text_at(amounts, "/name");
                if name == flavor && of == resource {
                    return Ok(amounts);
                }
                known.push(format!("{name}:{of}"));
            }
        }
    }
    let known = if known.is_empty() { "no quota".to_owned() } else { known.join(", ") };
    Err(format!("{subject} has no quota for {resource} in flavor {flavor}; it has {known}"))
}

fn items<'a>(object: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Returns a list of an object; an empty one if there is none.
fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    value_at(object, pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn has_quota(object: &Value, flavor: &str, resource: &str) -> bool {
    let flavors = list(object, "/spec/resourceGroups").iter().flat_map(|group| list(group, "/flavors"));
    let amounts = flavors.filter(|quotas| text_at(quotas, "/name") == flavor);
    amounts.flat_map(|quotas| list(quotas, "/resources")).any(|amounts| text_at(amounts, "/name") == resource)
}

/// Adds a nominal quota of 0 of a flavor-resource. Each flavor of a group has all resources of the group, and neither is in two groups: does
/// nothing where that leaves no place.
fn add_quota(object: &mut Value, flavor: &str, resource: &str) {
    let zero = |name: &str| json!({"name": name, "nominalQuota": "0"});
    if list(object, "/spec/resourceGroups").is_empty() {
        set(object, &["spec", "resourceGroups"], json!([]));
    }
    let Some(groups) = object.pointer_mut("/spec/resourceGroups").and_then(Value::as_array_mut) else {
        return;
    };
    let covering = groups.iter().position(|group| {
        list(group, "/coveredResources").iter().any(|name| name.as_str() == Some(resource))
    });
    let offering = groups
        .iter()
        .position(|group| list(group, "/flavors").iter().any(|quotas| text_at(quotas, "/name") == flavor));
    match (covering, offering) {
        (None, None) => groups.push(json!({"coveredResources": [resource],
            "flavors": [{"name": flavor, "resources": [zero(resource)]}]})),
        (Some(at), None) => {
            let Some(group) = groups.get_mut(at) else { return };
            let covered = list(group, "/coveredResources").iter().filter_map(Value::as_str);
            let resources: Vec<Value> = covered.map(zero).collect();
            push(group, "flavors", json!({"name": flavor, "resources": resources}));
        }
        (None, Some(at)) => {
            let Some(group) = groups.get_mut(at) else { return };
            items(group, "flavors").for_each(|quotas| push(quotas, "resources", zero(resource)));
            push(group, "coveredResources", json!(resource));
        }
        (Some(_), Some(_)) => {}
    }
}

fn push(object: &mut Value, list: &str, item: Value) {
    if let Some(items) = object.get_mut(list).and_then(Value::as_array_mut) {
        items.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_added_where_its_group_has_a_place() {
        let group =
            |covered: &Value, flavors: &Value| json!({"coveredResources": covered, "flavors": flavors});
        let amount = |name: &str, quota: &str| json!({"name": name, "nominalQuota": quota});
        let flavor = |name: &str, resources: &Value| json!({"name": name, "resources": resources});
        let cpu = group(&json!(["cpu"]), &json!([flavor("a", &json!([amount("cpu", "1")]))]));
        let zero = |name: &str| amount(name, "0");
        let another = group(&json!(["gpu"]), &json!([flavor("b", &json!([zero("gpu")]))]));
        let both =
            group(&json!(["cpu", "gpu"]), &json!([flavor("a", &json!([amount("cpu", "1"), zero("gpu")]))]));
        let two = group(
            &json!(["cpu"]),
            &json!([flavor("a", &json!([amount("cpu", "1")])), flavor("b", &json!([zero("cpu")]))]),
        );
        for (groups, (flavor, resource), expected) in [
            (json!(null), ("b", "gpu"), json!([another])),
            (json!([cpu]), ("b", "gpu"), json!([cpu, another])),
            (json!([cpu]), ("a", "gpu"), json!([both])),
            (json!([cpu]), ("b", "cpu"), json!([two])),
            (json!([cpu, another]), ("a", "gpu"), json!([cpu, another])),
        ] {
            let mut cohort = json!({"metadata": {"name": "c"}, "spec": {"resourceGroups": groups}});
            add_quota(&mut cohort, flavor, resource);
            assert_eq!(cohort["spec"]["resourceGroups"], expected, "{flavor}:{resource} in {groups}");
        }
    }
}
