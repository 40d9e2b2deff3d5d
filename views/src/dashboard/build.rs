//! The values of pages from the published state.
//!
//! Invariants: everything is read through `visibility`, with the viewer's access; the cost of a page is its rows and one pass
//! over the queues, never over the workloads; a search reads a bounded number of rows and returns the address of the next page.

mod flavors;
mod mine;
mod overview;
mod pending;
mod search;
mod similar;
mod workload_list;

pub use flavors::flavor_page;
pub use mine::mine_page;
pub use overview::overview;
pub use pending::pending_page;
pub use similar::similar;
pub use workload_list::workload_list_page;

use super::audit::{AuditPage, AuditQuery, MAX_FINDINGS};
use super::data::{ClusterQueuePage, NamespacePage, PathNode};
use super::preemptions::VictimNow;
use super::question::DEFAULT_ROWS;
use crate::api::ObjectKey;
use crate::snapshot::{NoWorkload, Snapshot};
use crate::visibility::access::Access;
use crate::visibility::findings::count;
use crate::visibility::page::{ModelError, PageQuery};
use crate::visibility::pending_list::{ListOrder, pending_workloads};
use crate::visibility::queue_views::{cluster_queue, cohort, local_queues, without_queue};
use crate::visibility::selector::{WorkloadSelector, keeps_out};
use crate::visibility::views::{
    AmountView, ClusterQueueView, CohortView, Finding, LocalQueueView, PreemptionReport, QuotaView,
    ReasonCount, Source, WorkloadState,
};
use crate::visibility::workloads::{Rowset, WorkloadQuery, largest, workload, workloads};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Rows of next and largest workloads on the page of a queue.
const FEW_ROWS: usize = 5;
/// Rows on the page of a namespace.
const NAMESPACE_ROWS: usize = 20;
/// Most names to choose from.
const MAX_CHOICES: usize = 500;

/// Reads a whole list.
fn all<T>(page: impl FnOnce(&PageQuery) -> Result<Rowset<T>, ModelError>) -> Result<Vec<T>, ModelError> {
    page(&PageQuery::whole()).map(|(rows, _)| rows)
}

/// Adds up counts by reason, the most frequent first.
fn sum_reasons<'a>(counts: impl Iterator<Item = &'a ReasonCount>) -> Vec<ReasonCount> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for count in counts {
        let sum = sums.entry(&count.reason).or_default();
        *sum = sum.saturating_add(count.count);
    }
    let row = |(reason, count): (&str, u64)| ReasonCount { reason: reason.to_owned(), count };
    let mut rows: Vec<ReasonCount> = sums.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
    rows
}

/// Returns the LocalQueues whose ClusterQueues exist. `without_queue` counts the workloads of the other LocalQueues already.
fn queues_that_exist<'a>(snapshot: &Snapshot, queues: &'a [LocalQueueView]) -> Vec<&'a LocalQueueView> {
    let exists =
        |queue: &&LocalQueueView| snapshot.queues.cluster_queues.contains_key(queue.cluster_queue.as_str());
    queues.iter().filter(exists).collect()
}

/// Returns the number of pending workloads that only a change can admit, in the queues that `is_meant` selects: workloads that
/// the state of an object keeps out, and workloads that can never be admitted or are queued behind such a workload.
fn sum_needing_change(
    (snapshot, access): (&Snapshot, &Access),
    reasons: &[ReasonCount],
    is_meant: impl Fn(&str, &ObjectKey) -> bool,
) -> u64 {
    let kept_out = reasons.iter().filter(|row| keeps_out(&row.reason)).map(|row| row.count);
    let standings = snapshot.queues.standings.iter();
    let stuck = standings.flat_map(|(queue, standing)| standing.stuck.iter().map(move |row| (queue, row)));
    let stuck = stuck.filter(|(queue, (local, _))| access.sees(&local.namespace) && is_meant(queue, local));
    kept_out.chain(stuck.map(|(_, (_, count))| number(*count))).sum()
}

/// Returns the row limit of a list: `limit` of its address, or the default if that is 0.
fn rows(limit: u64) -> usize {
    usize::try_from(if limit == 0 { DEFAULT_ROWS } else { limit }).unwrap_or(usize::MAX)
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Returns the value of the page of findings. `found` are all findings for readers like the viewer.
///
/// # Errors
/// The viewer sees neither the cluster nor the namespace.
pub fn audit_page(
    snapshot: &Snapshot,
    access: &Access,
    (query, source): (&AuditQuery, Source),
    (checked_at, found): (Timestamp, &[Finding]),
) -> Result<AuditPage, ModelError> {
    let namespace = query.namespace.as_str();
    if !(access.cluster || (!namespace.is_empty() && access.sees(namespace))) {
        return Err(ModelError::NotFound);
    }
    let meant = |finding: &&Finding| namespace.is_empty() || finding.metadata.namespace == namespace;
    let seen: Vec<Finding> = found.iter().filter(meant).cloned().collect();
    let counts = count(&seen);
    let mut items: Vec<Finding> = seen.into_iter().filter(|finding| query.selects(finding)).collect();
    let total = number(items.len());
    items.truncate(MAX_FINDINGS);
    let of_cluster = |count: usize| access.cluster.then(|| number(count));
    Ok(AuditPage {
        query: query.clone(),
        counts,
        items,
        total,
        checked_at: Some(checked_at),
        cluster_queue_count: of_cluster(snapshot.queues.cluster_queues.len()),
        workload_count: of_cluster(snapshot.workloads.len()),
        source,
        partial: false,
    })
}

/// Returns the value of the page of a ClusterQueue.
///
/// # Errors
/// The lists are not complete, or there is no such ClusterQueue that the viewer may see.
pub fn cluster_queue_page(
    snapshot: &Snapshot,
    access: &Access,
    (name, source): (&str, Source),
) -> Result<ClusterQueuePage, ModelError> {
    let queue = cluster_queue(snapshot, access, name)?;
    let selected = |status: &str, limit: usize| {
        let selector = selector(&[("status", status), ("clusterQueue", name)])?;
        let page = PageQuery { limit, ..PageQuery::default() };
        workloads(snapshot, access, &WorkloadQuery { namespace: None, selector, page })
    };
    let queues = all(|page| local_queues(snapshot, access, (None, page)))?;
    Ok(ClusterQueuePage {
        path: path(snapshot, access, &queue),
        next: selected("pending", FEW_ROWS)?.0,
        local_queues: queues.into_iter().filter(|queue| queue.cluster_queue == name).collect(),
        largest: largest(snapshot, access, name, FEW_ROWS),
        cluster_queue: queue,
        trend: None,
        source,
        partial: false,
    })
}

/// Returns the names of the cohorts of a ClusterQueue from the root, if the viewer sees them.
pub fn cohorts_above(snapshot: &Snapshot, access: &Access, queue: &str) -> Vec<String> {
    let Ok(queue) = cluster_queue(snapshot, access, queue) else { return Vec::new() };
    let mut names: Vec<String> =
        above(snapshot, access, &queue).into_iter().map(|c| c.metadata.name).collect();
    names.reverse();
    names
}

/// Returns the cohorts of a ClusterQueue up to the root. Terminates also if parents form a cycle.
fn above(snapshot: &Snapshot, access: &Access, queue: &ClusterQueueView) -> Vec<CohortView> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut next = queue.cohort.clone();
    while !next.is_empty() && seen.insert(next.clone()) {
        let Ok(view) = cohort(snapshot, access, &next) else { break };
        next.clone_from(&view.parent);
        found.push(view);
    }
    found
}

/// Returns the nodes from a ClusterQueue to its root for the flavor-resource with the highest usage. The node that can provide
/// least is the binding one; of several, the first.
fn path(snapshot: &Snapshot, access: &Access, queue: &ClusterQueueView) -> Vec<PathNode> {
    let use_and_borrowed = |quota: &&QuotaView| {
        let value = |amount: &AmountView| super::text::value(amount).unwrap_or(0.0);
        let limit = value(&quota.limit);
        (if limit > 0.0 { value(&quota.used) / limit } else { 0.0 }, value(&quota.borrowed))
    };
    let Some(first) = super::text::fullest(&queue.quota, use_and_borrowed) else { return Vec::new() };
    let node = |kind: &str, name: &str, quota: &QuotaView| PathNode {
        kind: kind.to_owned(),
        name: name.to_owned(),
        quota: quota.clone(),
        binds: false,
    };
    let mut nodes = vec![node("ClusterQueue", &queue.metadata.name, first)];
    for cohort in above(snapshot, access, queue) {
        let same = |quota: &&QuotaView| quota.flavor == first.flavor && quota.resource == first.resource;
        if let Some(quota) = cohort.quota.iter().find(same) {
            nodes.push(node("Cohort", &cohort.metadata.name, quota));
        }
    }
    let available = |node: &PathNode| super::text::value(&node.quota.available).unwrap_or(f64::MAX);
    let amounts: Vec<f64> = nodes.iter().map(available).collect();
    if let Some(node) = binding(&amounts).and_then(|position| nodes.get_mut(position)) {
        node.binds = true;
    }
    nodes
}

/// Returns the index of the first of the least amounts, from a ClusterQueue to its root. `why` names the same node if several
/// provide equally little.
fn binding(amounts: &[f64]) -> Option<usize> {
    let least = amounts.iter().copied().min_by(f64::total_cmp)?;
    amounts.iter().position(|amount| amount.total_cmp(&least).is_eq())
}

/// Makes a selector of fields with their values. An empty value adds no condition.
fn selector(fields: &[(&str, &str)]) -> Result<WorkloadSelector, ModelError> {
    let mut parts = Vec::new();
    for (field, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        if value.contains([',', '=', '|']) {
            return Err(ModelError::Invalid(format!("{field}: {value:?} is no name")));
        }
        parts.push(format!("{field}={value}"));
    }
    WorkloadSelector::parse(&parts.join(",")).map_err(ModelError::Invalid)
}

/// Returns the ClusterQueues and namespaces to choose from; none if the viewer does not see all of them.
fn choices(snapshot: &Snapshot, access: &Access) -> (Vec<String>, Vec<String>) {
    if !access.cluster {
        return (Vec::new(), Vec::new());
    }
    let queues = snapshot.queues.cluster_queues.keys().take(MAX_CHOICES).map(ToString::to_string).collect();
    let namespaces: BTreeSet<&str> = snapshot.queues.local_queues.keys().map(|key| &*key.namespace).collect();
    (queues, namespaces.into_iter().take(MAX_CHOICES).map(str::to_owned).collect())
}

/// Returns the value of the page of a namespace.
///
/// # Errors
/// The lists are not complete, or there is no such namespace.
pub fn namespace_page(
    snapshot: &Snapshot,
    access: &Access,
    (namespace, source): (&str, Source),
) -> Result<NamespacePage, ModelError> {
    let queues: Vec<LocalQueueView> = all(|page| local_queues(snapshot, access, (Some(namespace), page)))?;
    if queues.is_empty() && !snapshot.references.namespaces.contains_key(namespace) {
        return Err(ModelError::NotFound);
    }
    let page = PageQuery { limit: NAMESPACE_ROWS, ..PageQuery::default() };
    let asked = WorkloadQuery {
        namespace: Some(namespace.to_owned()),
        selector: selector(&[("status", "pending")])?,
        page,
    };
    let lost = without_queue(snapshot, access, Some(namespace));
    let existing = queues_that_exist(snapshot, &queues);
    let reasons = sum_reasons(existing.iter().flat_map(|queue| &queue.reasons).chain(&lost));
    let pending = existing.iter().map(|queue| queue.pending.total);
    let pending = pending.chain(lost.iter().map(|row| row.count)).sum();
    Ok(NamespacePage {
        namespace: namespace.to_owned(),
        pending,
        needs_change: sum_needing_change((snapshot, access), &reasons, |_, local| {
            *local.namespace == *namespace
        }),
        admitted: queues.iter().map(|queue| queue.admitted).sum(),
        workloads: pending_workloads(snapshot, access, &asked, ListOrder::Position)?.0,
        local_queues: queues,
        source,
        partial: false,
    })
}

/// Returns the text of a job's page if the job has no Workload.
pub fn without_workload((namespace, kind, name): (&str, &str, &str), why: &NoWorkload) -> String {
    format!("{kind}/{name} in namespace {namespace} has no Workload: {}.", why.message)
}

/// Returns the name of the Workload of a job; of several, as for an elastic job, the newest.
///
/// # Errors
/// The lists are not complete, or the job has no Workload that the viewer may see.
pub fn workload_of_job(
    snapshot: &Snapshot,
    access: &Access,
    (namespace, kind, name): (&str, &str, &str),
) -> Result<String, ModelError> {
    let job = format!("{}/{name}", kind.split('.').next().unwrap_or(kind));
    if job.contains([',', '=', '|']) {
        return Err(ModelError::NotFound);
    }
    let selector = WorkloadSelector::parse(&format!("status=all,job={job}")).map_err(ModelError::Invalid)?;
    let asked = WorkloadQuery { namespace: Some(namespace.to_owned()), selector, page: PageQuery::default() };
    let (found, _) = workloads(snapshot, access, &asked)?;
    let newest = found.into_iter().max_by_key(|view| view.metadata.creation_timestamp);
    newest.map(|view| view.metadata.name).ok_or(ModelError::NotFound)
}

/// Returns the present state of the victims of preemptions, by UID. Victims that no longer exist, or that the viewer may not
/// see, have no entry.
pub fn victims_now(
    snapshot: &Snapshot,
    access: &Access,
    report: &PreemptionReport,
) -> BTreeMap<String, VictimNow> {
    let mut found = BTreeMap::new();
    for item in &report.items {
        let victim = &item.victim;
        let key = ObjectKey::new(&victim.namespace, &victim.name);
        let Ok(row) = workload(snapshot, access, &key) else { continue };
        if row.metadata.uid != victim.uid {
            continue;
        }
        let admitted = row.since.filter(|_| row.state == WorkloadState::Admitted);
        let after = admitted.zip(item.time).map(|(at, evicted)| at.duration_since(evicted).as_secs());
        let now = VictimNow {
            state: row.state,
            position: row.position.map(|position| position.cluster_queue),
            admitted_after_seconds: after.filter(|after| *after >= 0),
        };
        found.insert(victim.uid.clone(), now);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::binding;

    #[test]
    fn nearest_of_equal_nodes_binds() {
        let cases: [(&[f64], Option<usize>); 5] = [
            (&[], None),
            (&[0.0, 0.0, 0.0], Some(0)),
            (&[4.0, 0.0, 0.0], Some(1)),
            (&[4.0, 2.0, 8.0], Some(1)),
            (&[f64::MAX, f64::MAX], Some(0)),
        ];
        for (amounts, expected) in cases {
            assert_eq!(binding(amounts), expected, "{amounts:?}");
        }
    }
}
