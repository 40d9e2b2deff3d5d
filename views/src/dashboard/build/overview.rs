//! The value of the start page, and of the page of a cohort.

use super::{all, number, sum_needing_change, sum_reasons};
use crate::api::ObjectKey;
use crate::dashboard::data::{Overview, OverviewNumbers, OverviewQuery};
use crate::dashboard::page::given;
use crate::snapshot::Snapshot;
use crate::visibility::access::Access;
use crate::visibility::findings::{count, grouped};
use crate::visibility::page::ModelError;
use crate::visibility::queue_views::{cluster_queues, cohort, cohorts, lending_pairs, without_queue};
use crate::visibility::views::{ClusterQueueView, CohortView, Finding, LendingPair, Source};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Findings on the start page; equal ones of several objects count once.
const FEW_FINDINGS: usize = 3;
/// Most findings of equal ones.
const MAX_EQUAL: usize = 20;

/// Returns the value of the start page, or of the page of a cohort.
///
/// # Errors
/// The lists are not complete, the viewer does not see the cluster, or there is no such cohort.
pub fn overview(
    snapshot: &Snapshot,
    access: &Access,
    (query, source): (&OverviewQuery, Source),
    found: &[Finding],
) -> Result<Overview, ModelError> {
    let root = given(&query.cohort);
    let mut cohorts = all(|page| cohorts(snapshot, access, page))?;
    let mut queues = all(|page| cluster_queues(snapshot, access, page))?;
    if let Some(root) = root {
        cohort(snapshot, access, root)?;
        let below = subtree(&cohorts, root);
        cohorts.retain(|cohort| below.contains(&cohort.metadata.name));
        queues.retain(|queue| below.contains(&queue.cohort));
    }
    let is_meant = |finding: &&Finding| {
        let object = &finding.object;
        root.is_none()
            || (object.kind == "Cohort" && cohorts.iter().any(|known| known.metadata.name == object.name))
            || (object.kind == "ClusterQueue"
                && queues.iter().any(|known| known.metadata.name == object.name))
    };
    let found: Vec<Finding> = found.iter().filter(is_meant).cloned().collect();
    let lost = if root.is_none() { without_queue(snapshot, access, None) } else { Vec::new() };
    let reasons = sum_reasons(queues.iter().flat_map(|queue| &queue.reasons).chain(&lost));
    let mut lending = lending_pairs(snapshot, access)?;
    if root.is_some() {
        lending.retain(is_beside(&cohorts, &queues));
    }
    let waiting = |queue: &&ClusterQueueView| {
        let view = snapshot.queues.cluster_queues.get(queue.metadata.name.as_str());
        view.is_some_and(|view| view.waiting_head.is_some())
    };
    let is_meant = |queue: &str, _: &ObjectKey| queues.iter().any(|known| known.metadata.name == queue);
    let needs_change = sum_needing_change((snapshot, access), &reasons, is_meant);
    Ok(Overview {
        cohort: query.cohort.clone(),
        fr: query.fr.clone(),
        pending: queues.iter().map(|queue| queue.pending.total).chain(lost.iter().map(|row| row.count)).sum(),
        needs_change,
        reasons,
        admitted: queues.iter().map(|queue| queue.admitted).sum(),
        numbers: OverviewNumbers {
            cluster_queue_count: number(queues.len()),
            cohort_count: number(cohorts.len()),
            waiting_heads: number(queues.iter().filter(waiting).count()),
            oldest: if root.is_none() { oldest(snapshot) } else { BTreeMap::new() },
            cluster_queues_by_flavor_resource: by_flavor_resource(&queues),
            lending,
        },
        cohorts,
        cluster_queues: queues,
        finding_counts: Some(count(&found)),
        findings: first_findings(&found),
        source,
        ..Overview::default()
    })
}

/// Returns a condition on pairs of which the lender or the borrower is one of these nodes.
fn is_beside(cohorts: &[CohortView], queues: &[ClusterQueueView]) -> impl Fn(&LendingPair) -> bool + use<> {
    let of_cohorts = cohorts.iter().map(|cohort| format!("Cohort/{}", cohort.metadata.name));
    let of_queues = queues.iter().map(|queue| format!("ClusterQueue/{}", queue.metadata.name));
    let nodes: BTreeSet<String> = of_cohorts.chain(of_queues).collect();
    move |pair| nodes.contains(&pair.lender) || nodes.contains(&format!("ClusterQueue/{}", pair.borrower))
}

/// Returns the number of ClusterQueues with a quota of each flavor-resource.
fn by_flavor_resource(queues: &[ClusterQueueView]) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for quota in queues.iter().flat_map(|queue| &queue.quota) {
        *counts.entry(format!("{}:{}", quota.flavor, quota.resource)).or_default() += 1;
    }
    counts
}

/// Returns the findings of the first groups of equal ones.
fn first_findings(found: &[Finding]) -> Vec<Finding> {
    let groups = grouped(found).into_iter().take(FEW_FINDINGS);
    groups.flat_map(|group| group.findings().take(MAX_EQUAL).cloned().collect::<Vec<_>>()).collect()
}

/// Returns when the longest pending workload of each reason became pending.
fn oldest(snapshot: &Snapshot) -> BTreeMap<String, Timestamp> {
    let reasons = snapshot.workloads.pending_by_reason();
    reasons.map(|summary| (summary.reason.as_str().to_owned(), summary.oldest)).collect()
}

/// Returns a cohort and all cohorts below it. Terminates also if parents form a cycle.
fn subtree(cohorts: &[CohortView], root: &str) -> BTreeSet<String> {
    let (mut below, mut open) = (BTreeSet::new(), vec![root.to_owned()]);
    while let Some(name) = open.pop() {
        if let Some(cohort) = cohorts.iter().find(|cohort| cohort.metadata.name == name) {
            open.extend(cohort.cohorts.iter().filter(|child| !below.contains(*child)).cloned());
        }
        below.insert(name);
    }
    below
}
