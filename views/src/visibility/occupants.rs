//! Workloads on the nodes of a flavor, for a Workload that finds no capacity there.
//!
//! Invariant: another Workload has its name only for a reader that may see its namespace.

use super::amounts::amount_view;
use super::verdict::Asked;
use crate::cache::nodes::placement_of;
use crate::cache::records::WorkloadRecord;
use crate::cache::state_index::granted_amount;
use crate::quota::FlavorResource;
use std::collections::BTreeMap;

/// Maximum number of Workloads that are examined.
const MAX_EXAMINED: usize = 10_000;
/// Maximum number of places that the text names.
const MAX_NAMED: usize = 3;

impl Asked<'_> {
    /// Returns the Workloads on the nodes of a flavor, or of all flavors of its ClusterQueue if the name is empty, by place:
    /// `on f are h1: team/llama (8 gpu); h2: team/eval (4 gpu); and 3 more places`. `None` if no Workload has a topology
    /// assignment there.
    pub(super) fn occupants(&self, flavor: &str) -> Option<String> {
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for record in self.rows.snapshot.workloads.starting_at(0).take(MAX_EXAMINED) {
            for (place, amount) in self.placed(record, flavor) {
                let key = &record.meta.key;
                let name = if self.rows.access.sees(&key.namespace) {
                    key.to_string()
                } else {
                    "a workload of another namespace".to_owned()
                };
                let amount =
                    if self.rows.access.sees_sums() { format!(" ({amount})") } else { String::new() };
                places.entry(place).or_default().push(format!("{name}{amount}"));
            }
        }
        let all = places.len();
        let named = places.iter().take(MAX_NAMED);
        let named: Vec<String> =
            named.map(|(place, names)| format!("{place}: {}", names.join(", "))).collect();
        if named.is_empty() {
            return None;
        }
        let more = match all.saturating_sub(MAX_NAMED) {
            0 => String::new(),
            1 => "; and 1 more place".to_owned(),
            more => format!("; and {more} more places"),
        };
        let nodes = if flavor.is_empty() { "its nodes" } else { flavor };
        Some(format!("on {nodes} are {}{more}", named.join("; ")))
    }

    /// Returns the places of a Workload on these nodes, with its usage of its scarcest resource there.
    fn placed(&self, record: &WorkloadRecord, flavor: &str) -> Vec<(String, String)> {
        let admission = record.status.admission.as_ref();
        let mut found = Vec::new();
        for set in admission.iter().flat_map(|admission| &admission.pod_set_assignments) {
            let is_asked = |resource: &str, of: &str| match flavor {
                "" => self.quota().declares(&self.queue, &FlavorResource::new(of, resource)),
                asked => asked == of,
            };
            let asked = set.flavors.iter().filter(|(resource, of)| is_asked(resource, of));
            // Devices are scarcer than resources that every node has.
            let Some((resource, of)) = asked.max_by_key(|(resource, _)| resource.contains('/')) else {
                continue;
            };
            let Some(placement) = placement_of(set) else { continue };
            let total = set.resource_usage.get(resource).map_or(0, |usage| granted_amount(resource, usage));
            let pods = i128::from(set.count.unwrap_or(1).max(1));
            let fr = FlavorResource::new(of, resource);
            for (values, here) in &placement.domains {
                let amount = total.saturating_mul(i128::from(*here)).checked_div(pods).unwrap_or(0);
                let amount = amount_view(&self.quota().facts.units, &self.queue, &fr, amount).value;
                found.push((values.join("/"), format!("{amount} {}", short_name(resource))));
            }
        }
        found
    }
}

/// Returns the name of a resource without its domain, for the amount in parentheses behind a name. Sentences have the whole name.
fn short_name(resource: &str) -> &str {
    resource.rsplit('/').next().unwrap_or(resource)
}
