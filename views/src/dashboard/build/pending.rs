//! The value of a list of pending workloads: filters of the address, counts that the queues keep, and a bounded search.

use super::search::Search;
use super::{
    MAX_CHOICES, all, choices, number, queues_that_exist, rows, selector, sum_needing_change, sum_reasons,
};
use crate::api::ObjectKey;
use crate::dashboard::data::{PendingPage, PendingQuery};
use crate::dashboard::page::given;
use crate::snapshot::Snapshot;
use crate::visibility::access::Access;
use crate::visibility::page::{ModelError, PageQuery};
use crate::visibility::pending_list::{ListOrder, pending_workloads};
use crate::visibility::queue_views::{cluster_queues, cluster_queues_below, local_queues, without_queue};
use crate::visibility::selector::is_pending_reason;
use crate::visibility::views::{ReasonCount, Source};
use crate::visibility::workloads::WorkloadQuery;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns the value of a page of pending workloads.
///
/// # Errors
/// The lists are not complete, or a parameter is invalid.
pub fn pending_page(
    snapshot: &Snapshot,
    access: &Access,
    (query, source): (&PendingQuery, Source),
) -> Result<PendingPage, ModelError> {
    let search = Search::of(&query.min, &query.q)?;
    let order = ListOrder::parse(&query.sort).map_err(|text| ModelError::Invalid(format!("sort: {text}")))?;
    let namespace = Some(query.namespace.clone()).filter(|name| !name.is_empty());
    let below = Below::of(snapshot, access, &query.cohort)?;
    let selector = selector(&[
        ("status", "pending"),
        ("clusterQueue", &query.cluster_queue),
        ("localQueue", &query.local_queue),
        ("reason", &query.reason),
    ])?;
    let asked = WorkloadQuery {
        namespace,
        selector: match &below.0 {
            Some(queues) => selector.within(queues.clone()),
            None => selector,
        },
        page: PageQuery { limit: rows(query.limit), continue_token: query.after.clone() },
    };
    let found = search.page(asked, |asked| pending_workloads(snapshot, access, asked, order))?;
    let counts = Counts::of(snapshot, access, (query, &below))?;
    let is_asked = |asked: &str, name: &str| asked.is_empty() || asked == name;
    let is_meant = |queue: &str, local: &ObjectKey| {
        is_asked(&query.cluster_queue, queue)
            && below.contains(queue)
            && is_asked(&query.namespace, &local.namespace)
            && is_asked(&query.local_queue, &local.name)
    };
    let needs_change = sum_needing_change((snapshot, access), &counts.reasons, is_meant);
    let (cluster_queues, namespaces) = choices(snapshot, access);
    let by_queue = query.namespace.is_empty() && query.cluster_queue.is_empty() && below.0.is_none();
    let queue_count = (by_queue && access.sees_everything())
        .then(|| number(snapshot.pending.cluster_queues_from("").count()));
    Ok(PendingPage {
        query: query.clone(),
        queue_count,
        metadata: found.metadata,
        items: found.items,
        total: counts.total,
        waiting: counts.reasons.iter().map(|row| row.count).sum::<u64>().saturating_sub(needs_change),
        needs_change,
        reasons: counts.reasons,
        cluster_queues,
        namespaces,
        local_queues: names_of_local_queues(snapshot, access, &query.namespace),
        cohorts: if access.cluster {
            snapshot.queues.cohorts.keys().take(MAX_CHOICES).map(ToString::to_string).collect()
        } else {
            Vec::new()
        },
        searched: found.searched,
        source,
        partial: false,
    })
}

/// Returns the LocalQueues of a namespace to choose from; none without a namespace.
fn names_of_local_queues(snapshot: &Snapshot, access: &Access, namespace: &str) -> Vec<String> {
    if namespace.is_empty() || !access.sees(namespace) {
        return Vec::new();
    }
    let queues = snapshot.queues.local_queues.range(ObjectKey::new(namespace, "")..);
    let names = queues.take_while(|(key, _)| *key.namespace == *namespace).take(MAX_CHOICES);
    names.map(|(key, _)| key.name.to_string()).collect()
}

/// The ClusterQueues below the requested cohort; `None` without one.
struct Below(Option<BTreeSet<Arc<str>>>);

impl Below {
    fn of(snapshot: &Snapshot, access: &Access, cohort: &str) -> Result<Self, ModelError> {
        given(cohort).map(|cohort| cluster_queues_below(snapshot, access, cohort)).transpose().map(Self)
    }

    fn contains(&self, queue: &str) -> bool {
        self.0.as_ref().is_none_or(|queues| queues.contains(queue))
    }
}

/// Sums of the counters that the queues keep, over the queues that the query selects.
struct Counts {
    total: Option<u64>,
    reasons: Vec<ReasonCount>,
}

impl Counts {
    fn of(
        snapshot: &Snapshot,
        access: &Access,
        (query, below): (&PendingQuery, &Below),
    ) -> Result<Self, ModelError> {
        let of_all = query.namespace.is_empty() && query.cluster_queue.is_empty() && below.0.is_none();
        if of_all && access.sees_everything() {
            let reasons = snapshot.workloads.pending_by_reason().map(|summary| ReasonCount {
                reason: summary.reason.as_str().to_owned(),
                count: number(summary.count),
            });
            let reasons = sum_reasons(reasons.collect::<Vec<_>>().iter());
            return Ok(Self { total: Some(reasons.iter().map(|row| row.count).sum()), reasons });
        }
        if query.namespace.is_empty() {
            let mut queues = all(|page| cluster_queues(snapshot, access, page))?;
            queues.retain(|queue| {
                let name = &queue.metadata.name;
                below.contains(name) && (query.cluster_queue.is_empty() || *name == query.cluster_queue)
            });
            let lost = if of_all { without_queue(snapshot, access, None) } else { Vec::new() };
            let total = queues.iter().map(|queue| queue.pending.total);
            let total = total.chain(lost.iter().map(|row| row.count)).sum();
            let reasons = pending_reasons(queues.iter().flat_map(|queue| &queue.reasons).chain(&lost));
            return Ok(Self { total: Some(total), reasons });
        }
        let mut queues = all(|page| local_queues(snapshot, access, (Some(&query.namespace), page)))?;
        queues.retain(|queue| {
            (query.cluster_queue.is_empty() || queue.cluster_queue == query.cluster_queue)
                && below.contains(&queue.cluster_queue)
                && (query.local_queue.is_empty() || queue.metadata.name == query.local_queue)
        });
        let is_whole = query.cluster_queue.is_empty() && query.local_queue.is_empty() && below.0.is_none();
        let lost =
            if is_whole { without_queue(snapshot, access, Some(&query.namespace)) } else { Vec::new() };
        let counted =
            if is_whole { queues_that_exist(snapshot, &queues) } else { queues.iter().collect::<Vec<_>>() };
        let total = counted.iter().map(|queue| queue.pending.total);
        let total = total.chain(lost.iter().map(|row| row.count)).sum();
        let reasons = pending_reasons(counted.iter().flat_map(|queue| &queue.reasons).chain(&lost));
        Ok(Self { total: Some(total), reasons })
    }
}

/// Adds up counts of pending workloads by reason, without workloads that have quota and wait for checks: no list of pending
/// workloads has them.
fn pending_reasons<'a>(counts: impl Iterator<Item = &'a ReasonCount>) -> Vec<ReasonCount> {
    sum_reasons(counts.filter(|row| is_pending_reason(&row.reason)))
}
