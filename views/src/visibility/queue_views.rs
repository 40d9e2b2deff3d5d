//! ClusterQueues, cohorts and LocalQueues as views.
//!
//! Invariant: the view of a LocalQueue names no other tenant, and has sums of its ClusterQueue only if the reader may see sums.

use super::access::Access;
use super::amounts::{amount_view, limit_view};
use super::next_heads::NextHeads;
use super::page::{ModelError, PageQuery, RowKey};
use super::queue_state::inactive_reason;
use super::quota::{Children, Lending, Pair, PublishedQuota, Sums, pairs};
use super::views::{
    ClusterQueueView, CohortView, LendingPair, LocalQueueView, LocalQuotaView, PastUsage, PendingView,
    ReasonCount, ShareView, ViewMetadata,
};
use super::workload_row::node_text;
use super::workloads::{Rowset, list_metadata};
use crate::api::ObjectKey;
use crate::api::v1beta2::QueueingStrategy;
use crate::queue::PendingCounts;
use crate::quota::{FlavorResource, NodeRef};
use crate::snapshot::{self, ObjectFacts, Snapshot, UnadmittedKey};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn metadata(key: &ObjectKey, object: Option<&ObjectFacts>) -> ViewMetadata {
    ViewMetadata {
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        uid: object.map(|object| object.uid.to_string()).unwrap_or_default(),
        creation_timestamp: object.map(|object| object.created),
        labels: BTreeMap::new(),
    }
}

fn pending(counts: PendingCounts) -> PendingView {
    PendingView {
        total: count(counts.total()),
        active: count(counts.active),
        inadmissible: count(counts.inadmissible),
    }
}

fn reasons(unadmitted: &BTreeMap<UnadmittedKey, usize>) -> Vec<ReasonCount> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (key, number) in unadmitted {
        let reason = if key.underlying_cause.is_empty() { key.reason } else { key.underlying_cause };
        let sum = sums.entry(reason).or_default();
        *sum = sum.saturating_add(count(*number));
    }
    sums.into_iter().map(|(reason, count)| ReasonCount { reason: reason.to_owned(), count }).collect()
}

/// Returns the number of workloads that wait for a missing queue, by reason: of a namespace, or of all that the reader sees.
pub fn without_queue(snapshot: &Snapshot, access: &Access, namespace: Option<&str>) -> Vec<ReasonCount> {
    let wanted = |key: &ObjectKey| {
        access.sees(&key.namespace) && namespace.is_none_or(|namespace| *key.namespace == *namespace)
    };
    let counts = snapshot.queues.without_queue.iter().filter(|(key, _)| wanted(key));
    counts.flat_map(|(_, unadmitted)| reasons(unadmitted)).collect()
}

/// Returns the name of a strategy, as in the spec of a ClusterQueue.
pub(super) const fn strategy_name(strategy: QueueingStrategy) -> &'static str {
    match strategy {
        QueueingStrategy::StrictFIFO => "StrictFIFO",
        QueueingStrategy::BestEffortFIFO => "BestEffortFIFO",
    }
}

/// Views of queues of one snapshot.
struct QueueViews<'a> {
    snapshot: &'a Snapshot,
    quota: PublishedQuota<'a>,
    children: Children,
    lending: Lending,
    sums: Sums,
    next: NextHeads,
}

impl<'a> QueueViews<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        let (quota, children) = (PublishedQuota::of(snapshot), Children::of(&snapshot.queues));
        let lending = Lending::of(quota, &children);
        let next = NextHeads::of(snapshot, &children);
        Self { snapshot, quota, children, lending, sums: Sums::of(quota), next }
    }

    fn share(&self, node: &NodeRef, value: Option<i64>) -> Option<ShareView> {
        let share = self.quota.share(node, value)?;
        Some(ShareView { next: self.next.get(node), ..share })
    }

    fn cluster_queue(&self, name: &Arc<str>, queue: &snapshot::ClusterQueueView) -> ClusterQueueView {
        let node = NodeRef::ClusterQueue(Arc::clone(name));
        let facts = self.quota.facts.cluster_queues.get(name);
        let inactive = self.snapshot.queues.inactive.get(name);
        ClusterQueueView {
            metadata: metadata(&ObjectKey::cluster(name), facts.map(|facts| &facts.object)),
            cohort: queue.parent.as_deref().unwrap_or_default().to_owned(),
            active: queue.active,
            reason: inactive.map(|inactive| inactive.reason.to_string()).unwrap_or_default(),
            message: inactive.map(|inactive| inactive.message.to_string()).unwrap_or_default(),
            queueing_strategy: facts
                .map(|facts| strategy_name(facts.strategy).to_owned())
                .unwrap_or_default(),
            pending: pending(queue.pending),
            reserving: count(queue.reserving),
            admitted: count(queue.admitted),
            quota: self.quota.views(&node, &self.lending, &self.sums),
            share: self.share(&node, queue.weighted_share),
            reasons: reasons(&queue.unadmitted),
        }
    }

    fn cohort(&self, name: &Arc<str>, cohort: &snapshot::CohortView) -> CohortView {
        let node = NodeRef::Cohort(Arc::clone(name));
        let facts = self.quota.facts.cohorts.get(name);
        let (mut pending, mut reserving, mut admitted) = (0, 0, 0);
        self.children.each_leaf(name, |leaf| {
            if let Some(queue) = self.snapshot.queues.cluster_queues.get(leaf) {
                pending += count(queue.pending.total());
                reserving += count(queue.reserving);
                admitted += count(queue.admitted);
            }
        });
        let children = self.children.of_cohort(name);
        let names = |cohorts: bool| {
            let wanted = children.iter().filter(move |child| matches!(child, NodeRef::Cohort(_)) == cohorts);
            wanted.map(|child| child.as_str().to_owned()).collect()
        };
        CohortView {
            metadata: metadata(&ObjectKey::cluster(name), facts.map(|facts| &facts.object)),
            parent: cohort.parent.as_deref().unwrap_or_default().to_owned(),
            cohorts: names(true),
            cluster_queues: names(false),
            pending,
            reserving,
            admitted,
            quota: self.quota.views(&node, &self.lending, &self.sums),
            share: self.share(&node, cohort.weighted_share),
            cycle: self.quota.path(&node).is_none(),
        }
    }

    fn local_queue(
        &self,
        access: &Access,
        key: &ObjectKey,
        queue: &snapshot::LocalQueueView,
    ) -> LocalQueueView {
        let node = NodeRef::ClusterQueue(Arc::clone(&queue.cluster_queue));
        let shared = self.quota.views(&node, &self.lending, &self.sums);
        let units = &self.quota.facts.units;
        let mut all: Vec<FlavorResource> =
            shared.iter().map(|view| FlavorResource::new(&view.flavor, &view.resource)).collect();
        let known: BTreeSet<FlavorResource> = all.iter().cloned().collect();
        all.extend(queue.reserved_usage.keys().filter(|fr| !known.contains(fr)).cloned());
        let quota = all.into_iter().enumerate().map(|(index, fr)| LocalQuotaView {
            used: amount_view(
                units,
                &node,
                &fr,
                queue.reserved_usage.get(&fr).map_or(0, |used| used.to_i128()),
            ),
            available: limit_view(units, &node, &fr, self.quota.headroom(&node, &fr).0.available.max(0)),
            shared: shared.get(index).filter(|_| access.sees_sums()).cloned(),
            flavor: fr.flavor.to_string(),
            resource: fr.resource.to_string(),
        });
        let facts = self.quota.facts.cluster_queues.get(&queue.cluster_queue);
        let reason = inactive_reason(self.snapshot, key, queue);
        LocalQueueView {
            metadata: metadata(key, self.quota.facts.local_queues.get(key)),
            cluster_queue: queue.cluster_queue.to_string(),
            active: reason.is_empty(),
            reason,
            pending: pending(queue.pending),
            reserving: count(queue.reserving),
            admitted: count(queue.admitted),
            quota: quota.collect(),
            reasons: reasons(&queue.unadmitted),
            past_usage: queue.past_usage.map(PastUsage::new),
            by_past_usage: facts.is_some_and(|facts| facts.orders_by_past_usage),
        }
    }
}

/// Takes a page of objects that are in order.
fn take_page<K, V, T>(
    mut objects: impl Iterator<Item = (K, V)>,
    (scope, limit): (&str, usize),
    mut view: impl FnMut(&K, V) -> T,
    row_key: impl Fn(&K) -> RowKey,
) -> Rowset<T> {
    let (mut rows, mut last) = (Vec::new(), None);
    while rows.len() < limit {
        let Some((key, value)) = objects.next() else { break };
        rows.push(view(&key, value));
        last = Some(key);
    }
    let left = objects.count();
    (rows, list_metadata(scope, last.filter(|_| left > 0).map(|key| row_key(&key)), Some(left)))
}

/// Takes a page of objects of the cluster.
fn page_by_name<V, T>(
    objects: &BTreeMap<Arc<str>, V>,
    (scope, query): (&str, &PageQuery),
    view: impl Fn(&Arc<str>, &V) -> T,
) -> Result<Rowset<T>, ModelError> {
    let after = query.after(scope)?;
    let start = after.map_or(Bound::Unbounded, |key| Bound::Excluded(Arc::from(key.name.as_str())));
    let row_key = |name: &&Arc<str>| RowKey { name: name.to_string(), ..RowKey::default() };
    let left = objects.range::<Arc<str>, _>((start, Bound::Unbounded));
    Ok(take_page(left, (scope, query.limit), |name, value| view(name, value), row_key))
}

/// Returns `NotFound` for readers that do not see the cluster, as if no object existed.
fn for_cluster<'a>(snapshot: &'a Snapshot, access: &Access) -> Result<QueueViews<'a>, ModelError> {
    match (snapshot.synced, access.cluster) {
        (false, _) => Err(ModelError::NotSynced),
        (true, false) => Err(ModelError::NotFound),
        (true, true) => Ok(QueueViews::of(snapshot)),
    }
}

/// Returns a ClusterQueue.
///
/// # Errors
/// If the lists are not complete, or the reader may see no object of this name.
pub fn cluster_queue(
    snapshot: &Snapshot,
    access: &Access,
    name: &str,
) -> Result<ClusterQueueView, ModelError> {
    let views = for_cluster(snapshot, access)?;
    let (name, queue) = snapshot.queues.cluster_queues.get_key_value(name).ok_or(ModelError::NotFound)?;
    Ok(views.cluster_queue(name, queue))
}

/// Returns a page of ClusterQueues by name.
///
/// # Errors
/// If the lists are not complete, the reader does not see the cluster, or the token belongs to another list.
pub fn cluster_queues(
    snapshot: &Snapshot,
    access: &Access,
    query: &PageQuery,
) -> Result<Rowset<ClusterQueueView>, ModelError> {
    let views = for_cluster(snapshot, access)?;
    let all = &snapshot.queues.cluster_queues;
    page_by_name(all, ("clusterqueues", query), |name, queue| views.cluster_queue(name, queue))
}

/// Returns a cohort.
///
/// # Errors
/// If the lists are not complete, or the reader may see no object of this name.
pub fn cohort(snapshot: &Snapshot, access: &Access, name: &str) -> Result<CohortView, ModelError> {
    let views = for_cluster(snapshot, access)?;
    let (name, cohort) = snapshot.queues.cohorts.get_key_value(name).ok_or(ModelError::NotFound)?;
    Ok(views.cohort(name, cohort))
}

/// Returns a page of cohorts by name.
///
/// # Errors
/// If the lists are not complete, the reader does not see the cluster, or the token belongs to another list.
pub fn cohorts(
    snapshot: &Snapshot,
    access: &Access,
    query: &PageQuery,
) -> Result<Rowset<CohortView>, ModelError> {
    let views = for_cluster(snapshot, access)?;
    let all = &snapshot.queues.cohorts;
    page_by_name(all, ("cohorts", query), |name, cohort| views.cohort(name, cohort))
}

/// Returns which ClusterQueues borrow from which nodes, by flavor, resource, lender and borrower.
///
/// # Errors
/// If the lists are not complete, or the reader does not see the cluster.
pub fn lending_pairs(snapshot: &Snapshot, access: &Access) -> Result<Vec<LendingPair>, ModelError> {
    let views = for_cluster(snapshot, access)?;
    let units = &views.quota.facts.units;
    let found = pairs(views.quota, &views.children, &views.lending).into_iter();
    let view = |pair: Pair| LendingPair {
        flavor: pair.fr.flavor.to_string(),
        resource: pair.fr.resource.to_string(),
        borrower: pair.borrower.as_str().to_owned(),
        lender: node_text(&pair.lender),
        amount: amount_view(units, &pair.borrower, &pair.fr, pair.amount),
    };
    Ok(found.map(view).collect())
}

/// Returns the ClusterQueues below a cohort.
///
/// # Errors
/// If the lists are not complete, or the reader may see no cohort of this name.
pub fn cluster_queues_below(
    snapshot: &Snapshot,
    access: &Access,
    cohort: &str,
) -> Result<BTreeSet<Arc<str>>, ModelError> {
    if !snapshot.synced {
        return Err(ModelError::NotSynced);
    }
    if !access.cluster || !snapshot.queues.cohorts.contains_key(cohort) {
        return Err(ModelError::NotFound);
    }
    let mut below = BTreeSet::new();
    Children::of(&snapshot.queues).each_leaf(cohort, |queue| {
        below.insert(Arc::clone(queue));
    });
    Ok(below)
}

/// Returns a LocalQueue.
///
/// # Errors
/// If the lists are not complete, or the reader may see no object with this key.
pub fn local_queue(
    snapshot: &Snapshot,
    access: &Access,
    key: &ObjectKey,
) -> Result<LocalQueueView, ModelError> {
    if !snapshot.synced {
        return Err(ModelError::NotSynced);
    }
    let queue = snapshot.queues.local_queues.get(key).filter(|_| access.sees(&key.namespace));
    let queue = queue.ok_or(ModelError::NotFound)?;
    Ok(QueueViews::of(snapshot).local_queue(access, key, queue))
}

/// Returns a page of LocalQueues of a namespace, or of all that the reader may see, by namespace and name.
///
/// # Errors
/// If the lists are not complete, or the token belongs to another list.
pub fn local_queues(
    snapshot: &Snapshot,
    access: &Access,
    (namespace, query): (Option<&str>, &PageQuery),
) -> Result<Rowset<LocalQueueView>, ModelError> {
    if !snapshot.synced {
        return Err(ModelError::NotSynced);
    }
    let scope = format!("localqueues/{}", namespace.unwrap_or_default());
    let start = match query.after(&scope)? {
        Some(key) => Bound::Excluded(ObjectKey::new(&key.namespace, &key.name)),
        None => Bound::Included(ObjectKey::new(namespace.unwrap_or_default(), "")),
    };
    let views = QueueViews::of(snapshot);
    let left = snapshot.queues.local_queues.range((start, Bound::Unbounded));
    let left = left.take_while(|(key, _)| namespace.is_none_or(|namespace| *key.namespace == *namespace));
    let visible = left.filter(|(key, _)| access.sees(&key.namespace));
    let row_key = |key: &&ObjectKey| RowKey {
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        ..RowKey::default()
    };
    let view = |key: &&ObjectKey, queue: &snapshot::LocalQueueView| views.local_queue(access, key, queue);
    Ok(take_page(visible, (&scope, query.limit), view, row_key))
}

/// Returns all LocalQueues of these namespaces that the reader may see, by name in each. What all rows share is made once.
///
/// # Errors
/// If the lists are not complete.
pub fn local_queues_of(
    snapshot: &Snapshot,
    access: &Access,
    namespaces: &[&str],
) -> Result<Vec<LocalQueueView>, ModelError> {
    if !snapshot.synced {
        return Err(ModelError::NotSynced);
    }
    let views = QueueViews::of(snapshot);
    let mut found = Vec::new();
    for namespace in namespaces.iter().copied().filter(|namespace| access.sees(namespace)) {
        let from = snapshot.queues.local_queues.range(ObjectKey::new(namespace, "")..);
        let own = from.take_while(|(key, _)| *key.namespace == *namespace);
        found.extend(own.map(|(key, queue)| views.local_queue(access, key, queue)));
    }
    Ok(found)
}
