//! The values of the pages of flavors.
//!
//! Invariant: a viewer that does not see the cluster gets the names of the flavors of its namespace's queues, what these queues may use,
//! the nodes with workloads of that namespace, and a sum of the other nodes; no other amount of the cluster's quota, no name of a
//! workload of another namespace, and nothing at all where sums are hidden.

use super::choices;
use crate::api::ObjectKey;
use crate::dashboard::flavors::{FlavorPage, FlavorQuery};
use crate::dashboard::heat::HeatMap;
use crate::scheduler::CapacityReport;
use crate::snapshot::Snapshot;
use crate::visibility::access::Access;
use crate::visibility::flavors::{flavors, queue_capacity};
use crate::visibility::node_workloads::{NodeWorkloads, flavors_of_namespace};
use crate::visibility::page::ModelError;
use crate::visibility::views::{FlavorResourceView, FlavorView, QueueCapacityView, Source, ViewMetadata};

/// Most LocalQueues of a page.
const MAX_QUEUES: usize = 20;

/// Returns the value of a page of flavors from what the core found on the nodes.
///
/// # Errors
/// The viewer sees neither the cluster nor the namespace, or there is no such flavor or ClusterQueue.
pub fn flavor_page(
    snapshot: &Snapshot,
    access: &Access,
    (query, source): (&FlavorQuery, Source),
    report: &CapacityReport,
) -> Result<FlavorPage, ModelError> {
    let mut items = if access.cluster {
        let queue = Some(query.cluster_queue.as_str()).filter(|name| !name.is_empty());
        flavors(snapshot, access, (report, queue))?
    } else {
        flavors_of_tenant(snapshot, access, (&query.namespace, report))?
    };
    if items.is_empty() && !query.flavor.is_empty() {
        return Err(ModelError::NotFound);
    }
    // Only a flavor that was asked for by its name has domains.
    let map = items.first_mut().and_then(|flavor| map(snapshot, access, flavor));
    let mut own = OwnQueues::default();
    if !access.cluster {
        items = items.iter().map(without_amounts).collect();
        own = OwnQueues::of(snapshot, access, (query, report))?;
    }
    Ok(FlavorPage {
        query: query.clone(),
        items,
        map,
        local_queues: own.shown,
        cluster_queues: choices(snapshot, access).0,
        source,
        partial: report.is_cut || own.is_cut,
    })
}

/// The LocalQueues of a namespace.
#[derive(Default)]
struct OwnQueues {
    shown: Vec<QueueCapacityView>,
    /// Whether the namespace has others.
    is_cut: bool,
}

impl OwnQueues {
    /// Returns what each may use, as `capacity --queue` says it: of the flavor that was asked for, or of all.
    fn of(
        snapshot: &Snapshot,
        access: &Access,
        (query, report): (&FlavorQuery, &CapacityReport),
    ) -> Result<Self, ModelError> {
        let from = snapshot.queues.local_queues.range(ObjectKey::new(&query.namespace, "")..);
        let mut keys = from.map(|(key, _)| key).take_while(|key| *key.namespace == *query.namespace);
        // Without a pod nothing is counted.
        let counted = (!query.pod.is_empty()).then_some(report);
        let mut shown = Vec::new();
        for key in keys.by_ref().take(MAX_QUEUES) {
            let mut queue = queue_capacity(snapshot, access, (key, counted))?;
            queue.flavors.retain(|flavor| query.flavor.is_empty() || flavor.flavor == query.flavor);
            shown.push(queue);
        }
        shown.retain(|queue| !queue.flavors.is_empty());
        Ok(Self { shown, is_cut: keys.next().is_some() })
    }
}

/// Takes the domains of a flavor as a map, with their workloads.
fn map(snapshot: &Snapshot, access: &Access, flavor: &mut FlavorView) -> Option<HeatMap> {
    let domains = std::mem::take(&mut flavor.domains);
    if domains.is_empty() {
        return None;
    }
    let resource = flavor.resources.first().map(|row| row.resource.as_str()).unwrap_or_default();
    let workloads = NodeWorkloads::of(snapshot, access, (&flavor.metadata.name, resource));
    if access.cluster { HeatMap::of(&domains, &workloads) } else { HeatMap::of_tenant(&domains, &workloads) }
}

/// Returns the flavors of a report that the queues of a namespace have.
fn flavors_of_tenant(
    snapshot: &Snapshot,
    access: &Access,
    (namespace, report): (&str, &CapacityReport),
) -> Result<Vec<FlavorView>, ModelError> {
    if namespace.is_empty() || !access.sees(namespace) || !access.sees_sums() {
        return Err(ModelError::NotFound);
    }
    let own = flavors_of_namespace(snapshot, namespace);
    let mut all = flavors(snapshot, &Access::everything(), (report, None))?;
    all.retain(|flavor| own.contains(flavor.metadata.name.as_str()));
    Ok(all)
}

/// Returns a flavor with its name, its topology and the name of the resource that its map shows.
fn without_amounts(flavor: &FlavorView) -> FlavorView {
    let resource = |row: &FlavorResourceView| FlavorResourceView {
        resource: row.resource.clone(),
        ..FlavorResourceView::default()
    };
    FlavorView {
        metadata: ViewMetadata { name: flavor.metadata.name.clone(), ..ViewMetadata::default() },
        topology: flavor.topology.clone(),
        resources: flavor.resources.first().map(resource).into_iter().collect(),
        ..FlavorView::default()
    }
}
