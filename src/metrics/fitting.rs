//! Workloads that do not run although the quota is free: the sign that scheduling does not make progress.
//!
//! The snapshot contains the total requests of the pending workloads of a ClusterQueue, not those of each. So of pending
//! workloads only those of a ClusterQueue whose pending workloads all fit together are reported: then its head fits as well.
//! Workloads whose reservation was decided and has not landed fit by that decision. Invariant: a pending workload is not
//! reported if another workload of its tree may have a claim on the free quota.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::reason::PendingReason;
use crate::quota::FlavorResource;
use crate::snapshot::{ClusterQueueView, QueueView};

/// Reasons of workloads that take part in scheduling cycles.
const EVALUATED: [PendingReason; 7] = [
    PendingReason::PendingEvaluation,
    PendingReason::NoMatchingFlavor,
    PendingReason::ExceedsMaxQuota,
    PendingReason::WaitingForQuota,
    PendingReason::TopologyPlacementFailed,
    PendingReason::WaitingForPreemptedWorkloads,
    PendingReason::WaitingForPodsReady,
];

/// Returns the number of such workloads by ClusterQueue; 0 for all others.
pub(super) fn fitting_workloads(view: &QueueView) -> BTreeMap<&str, usize> {
    let blocked: BTreeSet<&str> = view
        .cluster_queues
        .values()
        .filter(|queue| may_claim_quota(view, queue))
        .filter_map(|queue| path(view, queue)?.last().copied())
        .collect();
    let pending = |queue: &ClusterQueueView| {
        let shares_tree =
            path(view, queue).is_none_or(|path| path.last().is_some_and(|root| blocked.contains(root)));
        if shares_tree || !queue.active || !fit_together(view, queue) { 0 } else { waiting(queue) }
    };
    let count = |queue: &ClusterQueueView| pending(queue).saturating_add(undelivered(queue));
    view.cluster_queues.iter().map(|(name, queue)| (&**name, count(queue))).collect()
}

/// Whether workloads of a ClusterQueue may withhold free quota from others: while they wait for victims, and while not all
/// of its pending workloads fit.
fn may_claim_quota(view: &QueueView, queue: &ClusterQueueView) -> bool {
    number(queue, PendingReason::WaitingForPreemptedWorkloads) > 0
        || (queue.pending.total() > 0 && !fit_together(view, queue))
}

/// Number of pending workloads that only quota keeps from running, as far as their reasons say. One that was not evaluated
/// counts only while it is queued: otherwise it waits for its time to be requeued.
fn waiting(queue: &ClusterQueueView) -> usize {
    let unevaluated = number(queue, PendingReason::PendingEvaluation).min(queue.pending.active);
    let waiting = number(queue, PendingReason::WaitingForQuota).saturating_add(unevaluated);
    waiting.min(queue.pending.total())
}

/// Number of workloads whose reservation was decided and has not landed: they are evaluated and no longer pending. A lower
/// bound, since workloads that were not evaluated may be pending too.
fn undelivered(queue: &ClusterQueueView) -> usize {
    let evaluated = EVALUATED.iter().fold(0_usize, |sum, reason| sum.saturating_add(number(queue, *reason)));
    evaluated.saturating_sub(queue.pending.total())
}

fn number(queue: &ClusterQueueView, reason: PendingReason) -> usize {
    let counts = queue.unadmitted.iter().filter(|(key, _)| key.underlying_cause == reason.as_str());
    counts.fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

/// Whether all pending workloads fit into the available quota at once, each resource group into any of its flavors: the
/// pods may not match some of them.
fn fit_together(view: &QueueView, queue: &ClusterQueueView) -> bool {
    let mut flavors: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for fr in queue.usage_by_flavor_resource.keys() {
        flavors.entry(&fr.resource).or_default().insert(&fr.flavor);
    }
    // A flavor belongs to one group, so resources with equal flavors form a group.
    let mut groups: BTreeMap<&BTreeSet<&str>, Vec<(&Arc<str>, i128)>> = BTreeMap::new();
    for (resource, amount) in &queue.pending_requests {
        let Some(flavors) = flavors.get(&**resource) else { return false };
        groups.entry(flavors).or_default().push((resource, amount.to_i128()));
    }
    groups.iter().all(|(flavors, requests)| {
        flavors.iter().all(|flavor| {
            requests.iter().all(|(resource, amount)| {
                available(view, queue, &FlavorResource::new(flavor, resource)) >= *amount
            })
        })
    })
}

/// Quota available to a ClusterQueue by current usage; 0 below a cycle.
fn available(view: &QueueView, queue: &ClusterQueueView, fr: &FlavorResource) -> i128 {
    let Some(ancestors) = path(view, queue) else { return 0 };
    let usage_at =
        |name: &&str| view.cohorts.get(*name).and_then(|cohort| cohort.usage_by_flavor_resource.get(fr));
    let own = queue.usage_by_flavor_resource.get(fr);
    let nodes = std::iter::once(own).chain(ancestors.iter().map(usage_at));
    let (mut minimum, mut local) = (None::<i128>, 0_i128);
    for (index, node) in nodes.enumerate() {
        let (headroom, node_local) = node.copied().unwrap_or_default().headroom(index == ancestors.len());
        if let Some(headroom) = headroom.map(|headroom| headroom.saturating_add(local)) {
            minimum = Some(minimum.map_or(headroom, |minimum| minimum.min(headroom)));
        }
        local = local.saturating_add(node_local);
    }
    minimum.unwrap_or(0)
}

/// Names of the cohorts above a ClusterQueue, up to the root; `None` if they form a cycle.
fn path<'a>(view: &'a QueueView, queue: &'a ClusterQueueView) -> Option<Vec<&'a str>> {
    let (mut path, mut next) = (Vec::new(), queue.parent.as_deref());
    while let Some(name) = next {
        if path.contains(&name) {
            return None;
        }
        path.push(name);
        next = view.cohorts.get(name).and_then(|cohort| cohort.parent.as_deref());
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::reason::PendingReason::{
        PendingEvaluation, Suspended, WaitingForPreemptedWorkloads, WaitingForQuota,
    };
    use crate::quota::{NodeUsage, QuotaLimits};
    use crate::resources::Amount;
    use crate::scheduler::PendingCounts;
    use crate::snapshot::{CohortView, UnadmittedKey};

    fn usage(nominal: i64, usage: i64, borrowing: Option<i64>) -> NodeUsage {
        let limits = QuotaLimits {
            nominal: Amount::new(nominal),
            borrowing_limit: borrowing.map(Amount::new),
            lending_limit: None,
        };
        NodeUsage { limits, subtree_quota: Amount::new(nominal), usage: Amount::new(usage) }
    }

    /// A ClusterQueue with this quota (flavor, resource, nominal, usage) and two queued workloads that request this much CPU.
    fn queue(
        parent: Option<&str>,
        quota: &[(&str, &str, i64, i64)],
        cpu: i64,
        reason: PendingReason,
    ) -> ClusterQueueView {
        let key = UnadmittedKey { reason: "NoReservation", underlying_cause: reason.as_str() };
        ClusterQueueView {
            parent: parent.map(Arc::from),
            active: true,
            pending: PendingCounts { active: 1, inadmissible: 1 },
            usage_by_flavor_resource: quota
                .iter()
                .map(|(flavor, resource, nominal, used)| {
                    (FlavorResource::new(flavor, resource), usage(*nominal, *used, None))
                })
                .collect(),
            pending_requests: BTreeMap::from([(Arc::from("cpu"), Amount::new(cpu))]),
            unadmitted: BTreeMap::from([(key, 2)]),
            ..ClusterQueueView::default()
        }
    }

    fn view(queues: &[(&str, ClusterQueueView)], cohorts: &[(&str, Option<&str>, NodeUsage)]) -> QueueView {
        let cohort = |(name, parent, usage): &(&str, Option<&str>, NodeUsage)| {
            let usage_by_flavor_resource = BTreeMap::from([(FlavorResource::new("f", "cpu"), *usage)]);
            let view =
                CohortView { parent: parent.map(Arc::from), usage_by_flavor_resource, weighted_share: None };
            (Arc::from(*name), view)
        };
        QueueView {
            cluster_queues: queues.iter().map(|(name, queue)| (Arc::from(*name), queue.clone())).collect(),
            cohorts: cohorts.iter().map(cohort).collect(),
            ..QueueView::default()
        }
    }

    #[test]
    fn single_queue_cases() {
        let cases = [
            ("exactly fits", 4, WaitingForQuota, 2),
            ("one too many", 5, WaitingForQuota, 0),
            ("only the queued one can be due", 4, PendingEvaluation, 1),
            ("waits for something else", 4, Suspended, 0),
            ("waits for victims", 4, WaitingForPreemptedWorkloads, 0),
        ];
        for (name, cpu, reason, expected) in cases {
            let queue = queue(None, &[("f", "cpu", 10, 6)], cpu, reason);
            assert_eq!(fitting_workloads(&view(&[("a", queue)], &[]))["a"], expected, "{name}");
        }
        let mut inactive = queue(None, &[("f", "cpu", 10, 6)], 1, WaitingForQuota);
        inactive.active = false;
        assert_eq!(fitting_workloads(&view(&[("a", inactive)], &[]))["a"], 0);
    }

    #[test]
    fn decided_workloads_count_until_their_write_lands() {
        let mut full = queue(None, &[("f", "cpu", 10, 10)], 4, WaitingForQuota);
        assert_eq!(fitting_workloads(&view(&[("a", full.clone())], &[]))["a"], 0);
        let key = |reason: PendingReason| UnadmittedKey {
            reason: "NoReservation",
            underlying_cause: reason.as_str(),
        };
        full.unadmitted.insert(key(PendingEvaluation), 3);
        assert_eq!(fitting_workloads(&view(&[("a", full.clone())], &[]))["a"], 3, "3 are not pending");
        // Not pending either, and not decided.
        full.unadmitted.insert(key(PendingReason::Deactivated), 5);
        assert_eq!(fitting_workloads(&view(&[("a", full)], &[]))["a"], 3);
    }

    #[test]
    fn each_flavor_of_a_group_must_have_room() {
        let mut split = queue(None, &[("f", "cpu", 4, 0), ("g", "cpu", 4, 0)], 6, WaitingForQuota);
        assert_eq!(fitting_workloads(&view(&[("a", split.clone())], &[]))["a"], 0, "no flavor has 6");
        split.pending_requests.insert(Arc::from("gpu"), Amount::new(1));
        split.pending_requests.insert(Arc::from("cpu"), Amount::new(4));
        assert_eq!(fitting_workloads(&view(&[("a", split.clone())], &[]))["a"], 0, "no flavor has GPUs");
        split.usage_by_flavor_resource.insert(FlavorResource::new("h", "gpu"), usage(1, 0, None));
        assert_eq!(fitting_workloads(&view(&[("a", split.clone())], &[]))["a"], 2);
        split.usage_by_flavor_resource.insert(FlavorResource::new("g", "cpu"), usage(4, 1, None));
        let counted = fitting_workloads(&view(&[("a", split)], &[]))["a"];
        assert_eq!(counted, 0, "the pods may match only the flavor that is in use");
    }

    #[test]
    fn quota_of_cohorts_counts() {
        let of = |parent: &str, cpu| queue(Some(parent), &[("f", "cpu", 2, 2)], cpu, WaitingForQuota);
        let cohorts = [("team", Some("org"), usage(3, 2, Some(1))), ("org", None, usage(10, 4, None))];
        let counted = |queues: &[(&str, ClusterQueueView)], name: &str| {
            fitting_workloads(&view(queues, &cohorts))[name]
        };
        assert_eq!(
            counted(&[("a", of("team", 2))], "a"),
            2,
            "1 of the team's own quota, and 1 that it may borrow"
        );
        assert_eq!(counted(&[("a", of("team", 3))], "a"), 0, "more than the team may borrow");
        let full = ("b", of("org", 7));
        assert_eq!(counted(&[("a", of("team", 2)), full], "a"), 0, "another queue of the tree does not fit");
        let mut preemptor = of("org", 1);
        preemptor.unadmitted = queue(None, &[], 1, WaitingForPreemptedWorkloads).unadmitted;
        assert_eq!(
            counted(&[("a", of("team", 2)), ("b", preemptor)], "a"),
            0,
            "quota is reserved for a preemptor"
        );
        let cycle = [("x", Some("y"), usage(9, 0, None)), ("y", Some("x"), usage(9, 0, None))];
        assert_eq!(fitting_workloads(&view(&[("a", of("x", 1))], &cycle))["a"], 0);
    }
}
