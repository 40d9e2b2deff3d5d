//! Workloads on the nodes of a flavor, by topology domain.
//!
//! Invariants: a workload of a namespace that the reader may not see is counted, without its name and amount; only workloads with
//! a topology assignment are known to be on a node; the cost is that of the reserving workloads of the flavor's queues, bounded for
//! each queue.

use super::access::Access;
use super::amounts::amount_view;
use super::views::OccupantView;
use crate::api::ObjectKey;
use crate::cache::nodes::placement_of;
use crate::cache::records::WorkloadRecord;
use crate::cache::state_index::granted_amount;
use crate::quota::{FlavorResource, NodeRef};
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of reserving workloads that are examined, of each flavor-resource of a ClusterQueue: the largest.
const MAX_EXAMINED: usize = 5_000;

/// Workloads on the nodes of a flavor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeWorkloads(BTreeMap<Vec<String>, DomainWorkloads>);

/// Workloads in a domain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DomainWorkloads {
    /// Workloads that the reader may see, the largest amount first.
    pub seen: Vec<OccupantView>,
    /// Number of the other workloads.
    pub others: u64,
}

/// A workload in a domain.
struct Placed<'a> {
    amount: i128,
    key: &'a ObjectKey,
    queue: &'a Arc<str>,
}

impl NodeWorkloads {
    /// Returns the workloads on the nodes of a flavor, with their amounts of a resource of it.
    pub fn of(snapshot: &Snapshot, access: &Access, (flavor, resource): (&str, &str)) -> Self {
        let fr = FlavorResource::new(flavor, resource);
        let mut places: BTreeMap<Vec<String>, Vec<Placed<'_>>> = BTreeMap::new();
        for (queue, view) in &snapshot.queues.cluster_queues {
            if !view.usage_by_flavor_resource.keys().any(|known| known.flavor == fr.flavor) {
                continue;
            }
            for key in snapshot.workloads.largest(queue, MAX_EXAMINED) {
                let Some(record) = snapshot.workloads.get(key) else { continue };
                for (values, amount) in placed(record, &fr) {
                    places.entry(values).or_default().push(Placed { amount, key, queue });
                }
            }
        }
        let in_domain = |mut placed: Vec<Placed<'_>>| {
            placed.sort_by(|a, b| b.amount.cmp(&a.amount).then_with(|| a.key.cmp(b.key)));
            let mut found = DomainWorkloads::default();
            for workload in placed {
                if !access.sees(&workload.key.namespace) {
                    found.others = found.others.saturating_add(1);
                    continue;
                }
                let node = NodeRef::ClusterQueue(Arc::clone(workload.queue));
                found.seen.push(OccupantView {
                    namespace: workload.key.namespace.to_string(),
                    name: workload.key.name.to_string(),
                    amount: amount_view(&snapshot.facts.units, &node, &fr, workload.amount),
                });
            }
            found
        };
        Self(places.into_iter().map(|(values, placed)| (values, in_domain(placed))).collect())
    }

    /// Returns the workloads in a domain with these values, the widest level first. An assignment to hosts has their names alone.
    pub fn on(&self, values: &[String]) -> Option<&DomainWorkloads> {
        let by_host = || self.0.get(std::slice::from_ref(values.last()?));
        self.0.get(values).or_else(by_host)
    }
}

/// Returns the domains of a Workload on a flavor, with its amount of the resource in each.
fn placed(record: &WorkloadRecord, fr: &FlavorResource) -> BTreeMap<Vec<String>, i128> {
    let mut found: BTreeMap<Vec<String>, i128> = BTreeMap::new();
    let admission = record.status.admission.as_ref();
    for set in admission.iter().flat_map(|admission| &admission.pod_set_assignments) {
        let has = |flavor: &String| flavor.as_str() == &*fr.flavor;
        if !set.flavors.values().any(has) {
            continue;
        }
        let Some(placement) = placement_of(set) else { continue };
        let usage = set.resource_usage.get(&*fr.resource);
        let usage = usage.filter(|_| set.flavors.get(&*fr.resource).is_some_and(has));
        let total = usage.map_or(0, |usage| granted_amount(&fr.resource, usage));
        let pods = i128::from(set.count.unwrap_or(1).max(1));
        for (values, here) in &placement.domains {
            let amount = total.saturating_mul(i128::from(*here)).checked_div(pods).unwrap_or(0);
            let values = values.iter().map(ToString::to_string).collect();
            let sum = found.entry(values).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    found
}

/// Returns the flavors of the ClusterQueues that LocalQueues of a namespace name.
pub fn flavors_of_namespace(snapshot: &Snapshot, namespace: &str) -> BTreeSet<Arc<str>> {
    let local = snapshot.references.local_queues.iter().filter(|(key, _)| *key.namespace == *namespace);
    let queues = local.filter_map(|(_, queue)| snapshot.queues.cluster_queues.get(&queue.cluster_queue));
    queues.flat_map(|queue| queue.usage_by_flavor_resource.keys().map(|fr| Arc::clone(&fr.flavor))).collect()
}
