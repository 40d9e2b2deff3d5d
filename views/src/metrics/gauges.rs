//! Computation of gauge values from a snapshot.
//!
//! Invariants: a value that the snapshot does not contain is omitted, not exported as 0; traversals terminate in the
//! presence of cohort cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::model::{
    ClusterQueueGauges, CohortGauges, Gauges, LocalQueueGauges, PendingGauges, QueueStatus, ResourceGauges,
    UnadmittedGauge,
};
use crate::quota::FlavorResource;
use crate::resources::{Amount, to_f64};
use crate::scheduler::PendingCounts;
use crate::snapshot::{ClusterQueueView, CohortView, LocalQueueView, QueueView, Snapshot, UnadmittedKey};
use jiff::Timestamp;

/// Returns the values of all queues and cohorts at a time.
pub fn gauges(snapshot: &Snapshot, now: Timestamp) -> Gauges {
    let view = &*snapshot.queues;
    let sums = cohort_totals(view);
    let local = |(key, queue): (&crate::api::ObjectKey, &LocalQueueView)| LocalQueueGauges {
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        cluster_queue: queue.cluster_queue.to_string(),
        active: queue.active,
        pending: pending(queue.pending, queue.active),
        reserving: count(queue.reserving),
        admitted: count(queue.admitted),
        finished: count(queue.finished),
        unadmitted: unadmitted(&queue.unadmitted),
        resources: local_resources(queue),
        past_usage: queue.past_usage,
    };
    Gauges {
        cluster_queues: view
            .cluster_queues
            .iter()
            .map(|(name, queue)| cluster_queue(view, name, queue, now))
            .collect(),
        local_queues: view.local_queues.iter().filter(|(_, queue)| queue.exported).map(local).collect(),
        ledger_drift: count(snapshot.ledger_drift),
        history: Arc::clone(&snapshot.history),
        cohorts: view
            .cohorts
            .iter()
            .map(|(name, c)| cohort(view, name, c, sums.get(name).unwrap_or(&SubtreeTotals::default())))
            .collect(),
    }
}

/// Sums over all ClusterQueues in the subtree of a cohort.
#[derive(Clone, Debug, Default)]
struct SubtreeTotals {
    admitted: u64,
    reserved: BTreeMap<FlavorResource, Amount>,
}

fn cohort_totals(view: &QueueView) -> BTreeMap<Arc<str>, SubtreeTotals> {
    let mut sums: BTreeMap<Arc<str>, SubtreeTotals> = BTreeMap::new();
    for queue in view.cluster_queues.values() {
        for ancestor in ancestors(view, queue.parent.as_ref()) {
            let sum = sums.entry(Arc::clone(ancestor)).or_default();
            sum.admitted = sum.admitted.saturating_add(count(queue.admitted));
            for (fr, node_usage) in &queue.usage_by_flavor_resource {
                let slot = sum.reserved.entry(fr.clone()).or_default();
                *slot = slot.plus(node_usage.usage);
            }
        }
    }
    sums
}

/// Returns the cohorts on the path from `from` to its root, each once.
fn ancestors<'a>(view: &'a QueueView, from: Option<&'a Arc<str>>) -> Vec<&'a Arc<str>> {
    let (mut seen, mut path, mut next) = (BTreeSet::new(), Vec::new(), from);
    while let Some(name) = next.filter(|name| seen.insert(*name)) {
        path.push(name);
        next = view.cohorts.get(name).and_then(|cohort| cohort.parent.as_ref());
    }
    path
}

/// Returns the root cohort, or an empty text if there is none.
fn root_cohort(view: &QueueView, from: Option<&Arc<str>>) -> String {
    ancestors(view, from).last().map(ToString::to_string).unwrap_or_default()
}

fn cluster_queue(
    view: &QueueView,
    name: &str,
    queue: &ClusterQueueView,
    now: Timestamp,
) -> ClusterQueueGauges {
    let resource = |(fr, node_usage): (&FlavorResource, &crate::quota::NodeUsage)| {
        let limit =
            |limit: Option<Amount>| limit.map_or(f64::INFINITY, |amount| in_base_units(&fr.resource, amount));
        ResourceGauges {
            flavor: fr.flavor.to_string(),
            resource: fr.resource.to_string(),
            quota: in_base_units(&fr.resource, node_usage.limits.nominal),
            borrowing_limit: limit(node_usage.limits.borrowing_limit),
            lending_limit: limit(node_usage.limits.lending_limit),
            reserved: in_base_units(&fr.resource, node_usage.usage),
            used: in_base_units(&fr.resource, queue.admitted_usage.get(fr).copied().unwrap_or_default()),
        }
    };
    ClusterQueueGauges {
        name: name.to_owned(),
        cohort: queue.parent.as_deref().unwrap_or_default().to_owned(),
        root_cohort: root_cohort(view, queue.parent.as_ref()),
        status: match (queue.terminating, queue.active) {
            (true, _) => QueueStatus::Terminated,
            (false, true) => QueueStatus::Active,
            (false, false) => QueueStatus::Pending,
        },
        pending: pending(queue.pending, queue.active),
        pending_hashes: pending(queue.pending_hashes, queue.active),
        preemption_skips: queue.preemption_skips.map(count),
        reserving: count(queue.reserving),
        admitted: count(queue.admitted),
        finished: count(queue.finished),
        unadmitted: unadmitted(&queue.unadmitted),
        pending_requests: queue
            .pending_requests
            .iter()
            .map(|(resource, amount)| (resource.to_string(), in_base_units(resource, *amount)))
            .collect(),
        resources: queue.usage_by_flavor_resource.iter().map(resource).collect(),
        share: queue.weighted_share.map(share_value),
        head_fits_seconds: queue.waiting_head.as_ref().map_or(0.0, |head| {
            // The clock of the core may be ahead.
            now.duration_since(head.since).as_secs_f64().max(0.0)
        }),
    }
}

/// Converts a weighted share; an unlimited share is NaN.
fn share_value(weighted: i64) -> f64 {
    if weighted == Amount::UNLIMITED.get() { f64::NAN } else { to_f64(weighted.into()) }
}

fn local_resources(queue: &LocalQueueView) -> Vec<ResourceGauges> {
    let flavor_resources: BTreeSet<&FlavorResource> =
        queue.reserved_usage.keys().chain(queue.admitted_usage.keys()).collect();
    let amount = |usage: &BTreeMap<FlavorResource, Amount>, fr: &FlavorResource| {
        in_base_units(&fr.resource, usage.get(fr).copied().unwrap_or_default())
    };
    let resource = |fr: &FlavorResource| ResourceGauges {
        flavor: fr.flavor.to_string(),
        resource: fr.resource.to_string(),
        reserved: amount(&queue.reserved_usage, fr),
        used: amount(&queue.admitted_usage, fr),
        ..ResourceGauges::default()
    };
    flavor_resources.into_iter().map(resource).collect()
}

fn cohort(view: &QueueView, name: &Arc<str>, cohort: &CohortView, sum: &SubtreeTotals) -> CohortGauges {
    let flavor_resources: BTreeSet<&FlavorResource> =
        cohort.usage_by_flavor_resource.keys().chain(sum.reserved.keys()).collect();
    let resource = |fr: &FlavorResource| ResourceGauges {
        flavor: fr.flavor.to_string(),
        resource: fr.resource.to_string(),
        quota: in_base_units(
            &fr.resource,
            cohort
                .usage_by_flavor_resource
                .get(fr)
                .map(|node_usage| node_usage.subtree_quota)
                .unwrap_or_default(),
        ),
        reserved: in_base_units(&fr.resource, sum.reserved.get(fr).copied().unwrap_or_default()),
        ..ResourceGauges::default()
    };
    CohortGauges {
        name: name.to_string(),
        parent: cohort.parent.as_deref().unwrap_or_default().to_owned(),
        root: root_cohort(view, Some(name)),
        admitted: sum.admitted,
        resources: flavor_resources.into_iter().map(resource).collect(),
        share: cohort.weighted_share.map(share_value),
    }
}

fn unadmitted(by_reason: &BTreeMap<UnadmittedKey, usize>) -> Vec<UnadmittedGauge> {
    let gauge = |(why, number): (&UnadmittedKey, &usize)| UnadmittedGauge {
        reason: why.reason,
        underlying_cause: why.underlying_cause,
        count: count(*number),
    };
    by_reason.iter().map(gauge).collect()
}

/// Returns the pending counts; in an inactive queue all workloads count as inadmissible.
fn pending(counts: PendingCounts, queue_active: bool) -> PendingGauges {
    if queue_active {
        PendingGauges { active: count(counts.active), inadmissible: count(counts.inadmissible) }
    } else {
        PendingGauges { active: 0, inadmissible: count(counts.total()) }
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Converts an amount to the unit of the resource: cores, bytes or pieces.
fn in_base_units(resource: &str, amount: Amount) -> f64 {
    if amount == Amount::UNLIMITED {
        return f64::INFINITY;
    }
    let whole = amount.get();
    let (high, low) = (i32::try_from(whole >> 32), u32::try_from(whole & 0xffff_ffff));
    let value = f64::from(high.unwrap_or_default()) * 4_294_967_296.0 + f64::from(low.unwrap_or_default());
    if resource == "cpu" { value / 1000.0 } else { value }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "the numbers are exact")]
mod tests {
    use super::*;
    use crate::api::ObjectKey;
    use crate::quota::{NodeUsage, QuotaLimits};
    use crate::snapshot::WaitingHead;

    fn pair() -> FlavorResource {
        FlavorResource::new("f", "cpu")
    }

    fn cell(nominal: i64, borrowing: Option<i64>, usage: i64) -> BTreeMap<FlavorResource, NodeUsage> {
        let limits = QuotaLimits {
            nominal: Amount::new(nominal),
            borrowing_limit: borrowing.map(Amount::new),
            lending_limit: None,
        };
        let usage = NodeUsage { limits, subtree_quota: Amount::new(nominal), usage: Amount::new(usage) };
        BTreeMap::from([(pair(), usage)])
    }

    fn queue(parent: &str, usage: i64, admitted: usize) -> ClusterQueueView {
        ClusterQueueView {
            parent: Some(Arc::from(parent)),
            active: true,
            pending: PendingCounts { active: 1, inadmissible: 2 },
            reserving: admitted + 1,
            admitted,
            usage_by_flavor_resource: cell(4000, Some(500), usage),
            admitted_usage: BTreeMap::from([(pair(), Amount::new(usage / 2))]),
            ..ClusterQueueView::default()
        }
    }

    fn snapshot(cohorts: &[(&str, Option<&str>)], queues: &[(&str, ClusterQueueView)]) -> Snapshot {
        let cohort = |(name, parent): &(&str, Option<&str>)| {
            (
                Arc::from(*name),
                CohortView {
                    parent: parent.map(Arc::from),
                    usage_by_flavor_resource: cell(9000, None, 0),
                    weighted_share: Some(i64::MAX),
                },
            )
        };
        let local = LocalQueueView {
            cluster_queue: Arc::from("a"),
            active: true,
            exported: true,
            reserving: 3,
            reserved_usage: BTreeMap::from([(pair(), Amount::new(1500))]),
            ..LocalQueueView::default()
        };
        let queues = QueueView {
            cluster_queues: queues.iter().map(|(name, queue)| (Arc::from(*name), queue.clone())).collect(),
            local_queues: BTreeMap::from([(ObjectKey::new("ns", "lq"), local)]),
            cohorts: cohorts.iter().map(cohort).collect(),
            inactive: BTreeMap::new(),
            standings: BTreeMap::new(),
            without_queue: BTreeMap::new(),
        };
        Snapshot { queues: Arc::new(queues), ..Snapshot::default() }
    }

    #[test]
    fn gauges_cover_queues_and_ancestor_cohorts() {
        let snapshot = snapshot(
            &[("org", None), ("team", Some("org"))],
            &[("a", queue("team", 3000, 2)), ("b", queue("org", 1000, 5))],
        );
        let gauges = gauges(&snapshot, Timestamp::UNIX_EPOCH);
        let a = &gauges.cluster_queues[0];
        assert_eq!(
            (a.cohort.as_str(), a.root_cohort.as_str(), a.status),
            ("team", "org", QueueStatus::Active)
        );
        assert_eq!(
            (a.pending, a.reserving, a.admitted),
            (PendingGauges { active: 1, inadmissible: 2 }, 3, 2)
        );
        let r = &a.resources[0];
        let numbers = [r.quota, r.borrowing_limit, r.lending_limit, r.reserved, r.used];
        assert_eq!(numbers, [4.0, 0.5, f64::INFINITY, 3.0, 1.5]);
        let cohorts: Vec<_> = gauges
            .cohorts
            .iter()
            .map(|c| {
                (c.name.as_str(), c.parent.as_str(), c.root.as_str(), c.admitted, c.resources[0].reserved)
            })
            .collect();
        assert_eq!(cohorts, [("org", "", "org", 7, 4.0), ("team", "org", "org", 2, 3.0)]);
        assert_eq!(gauges.cohorts[0].resources[0].quota, 9.0);
        let local = &gauges.local_queues[0];
        assert_eq!((local.namespace.as_str(), local.name.as_str(), local.reserving), ("ns", "lq", 3));
        assert_eq!((local.resources[0].reserved, local.resources[0].used), (1.5, 0.0));
    }

    #[test]
    fn cohort_cycle_terminates() {
        let snapshot = snapshot(&[("x", Some("y")), ("y", Some("x"))], &[("a", queue("x", 1000, 1))]);
        let gauges = gauges(&snapshot, Timestamp::UNIX_EPOCH);
        assert_eq!(gauges.cohorts.iter().map(|c| c.admitted).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn queue_status_cases() {
        let table = [
            (false, true, QueueStatus::Active),
            (false, false, QueueStatus::Pending),
            (true, true, QueueStatus::Terminated),
        ];
        for (terminating, active, want) in table {
            let view = ClusterQueueView { active, terminating, ..ClusterQueueView::default() };
            let gauges = gauges(&snapshot(&[], &[("a", view)]), Timestamp::UNIX_EPOCH);
            assert_eq!(gauges.cluster_queues[0].status, want);
        }
    }

    #[test]
    fn age_of_waiting_head_counts_to_the_given_time() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let waiting = |since| {
            let head = WaitingHead { workload: ObjectKey::new("ns", "w"), since: at(since) };
            ClusterQueueView { waiting_head: Some(head), ..ClusterQueueView::default() }
        };
        let queues = [("a", ClusterQueueView::default()), ("b", waiting(70)), ("c", waiting(101))];
        let gauges = gauges(&snapshot(&[], &queues), at(100));
        let ages: Vec<f64> = gauges.cluster_queues.iter().map(|queue| queue.head_fits_seconds).collect();
        assert_eq!(ages, [0.0, 30.0, 0.0]);
    }

    #[test]
    fn metric_families_are_unique() {
        use crate::metrics::counters::Counters;
        use crate::metrics::model::{MetricFamilies, Role};
        use crate::metrics::render;
        let snapshot = snapshot(&[("org", None)], &[("a", queue("org", 1000, 1))]);
        let gauges = gauges(&snapshot, Timestamp::UNIX_EPOCH);
        let families = MetricFamilies {
            cluster_queue_resources: true,
            local_queues: true,
            cohorts: true,
            creation_latency: true,
        };
        let page = Counters::new("linux", families).render().unwrap()
            + &render(&gauges, families, Role::Standalone).unwrap();
        let names: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let names: Vec<&str> = names.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        assert!(names.contains(&"kueue_pending_workloads") && !page.contains("EOF"));
    }

    #[test]
    fn unselected_local_queues_are_omitted() {
        let mut hidden = snapshot(&[], &[]);
        let mut queues = (*hidden.queues).clone();
        queues.local_queues.values_mut().for_each(|queue| queue.exported = false);
        assert_eq!(gauges(&hidden, Timestamp::UNIX_EPOCH).local_queues.len(), 1);
        hidden.queues = Arc::new(queues);
        assert_eq!(gauges(&hidden, Timestamp::UNIX_EPOCH).local_queues, Vec::new());
    }

    #[test]
    fn units_cases() {
        let table = [
            ("cpu", 1500, 1.5),
            ("cpu", -250, -0.25),
            ("memory", 1 << 40, 1_099_511_627_776.0),
            ("example.com/gpu", 7, 7.0),
            ("memory", i64::MAX, f64::INFINITY),
        ];
        for (resource, amount, want) in table {
            assert_eq!(in_base_units(resource, Amount::new(amount)), want, "{resource} {amount}");
        }
    }
}
