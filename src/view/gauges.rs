//! From a snapshot to the numbers that gauges show.
//!
//! Invariants: a number that the snapshot does not have is left out rather than shown as 0; cohorts that are each
//! other's ancestors end no walk late.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::metrics::{
    ClusterQueueGauges, CohortGauges, Gauges, LocalQueueGauges, Pending, QueueStatus, ResourceGauges,
    UnadmittedGauge,
};
use crate::quota::FlavorResource;
use crate::resources::{Amount, float};
use crate::scheduler::PendingCounts;
use crate::state::{ClusterQueueView, CohortView, LocalQueueView, QueueView, Snapshot, Unadmitted};

/// The numbers of all queues and cohorts.
pub fn gauges(snapshot: &Snapshot) -> Gauges {
    let view = &*snapshot.queues;
    let sums = cohort_sums(view);
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
            .map(|(name, queue)| cluster_queue(view, name, queue))
            .collect(),
        local_queues: view.local_queues.iter().filter(|(_, queue)| queue.shown).map(local).collect(),
        ledger_drift: count(snapshot.ledger_drift),
        cohorts: view
            .cohorts
            .iter()
            .map(|(name, c)| cohort(view, name, c, sums.get(name).unwrap_or(&Sum::default())))
            .collect(),
    }
}

/// What the queues below a cohort have together.
#[derive(Clone, Debug, Default)]
struct Sum {
    admitted: u64,
    reserved: BTreeMap<FlavorResource, Amount>,
}

fn cohort_sums(view: &QueueView) -> BTreeMap<Arc<str>, Sum> {
    let mut sums: BTreeMap<Arc<str>, Sum> = BTreeMap::new();
    for queue in view.cluster_queues.values() {
        for above in ancestors(view, queue.parent.as_ref()) {
            let sum = sums.entry(Arc::clone(above)).or_default();
            sum.admitted = sum.admitted.saturating_add(count(queue.admitted));
            for (pair, cell) in &queue.cells {
                let slot = sum.reserved.entry(pair.clone()).or_default();
                *slot = slot.plus(cell.usage);
            }
        }
    }
    sums
}

/// The cohorts from one up to its root, each once.
fn ancestors<'a>(view: &'a QueueView, from: Option<&'a Arc<str>>) -> Vec<&'a Arc<str>> {
    let (mut seen, mut way, mut next) = (BTreeSet::new(), Vec::new(), from);
    while let Some(name) = next.filter(|name| seen.insert(*name)) {
        way.push(name);
        next = view.cohorts.get(name).and_then(|cohort| cohort.parent.as_ref());
    }
    way
}

/// The root above; empty where there is none.
fn root(view: &QueueView, from: Option<&Arc<str>>) -> String {
    ancestors(view, from).last().map(ToString::to_string).unwrap_or_default()
}

fn cluster_queue(view: &QueueView, name: &str, queue: &ClusterQueueView) -> ClusterQueueGauges {
    let resource = |(pair, cell): (&FlavorResource, &crate::quota::NodeUsage)| {
        let limit =
            |limit: Option<Amount>| limit.map_or(f64::INFINITY, |amount| units(&pair.resource, amount));
        ResourceGauges {
            flavor: pair.flavor.to_string(),
            resource: pair.resource.to_string(),
            quota: units(&pair.resource, cell.limits.nominal),
            borrowing_limit: limit(cell.limits.borrowing),
            lending_limit: limit(cell.limits.lending),
            reserved: units(&pair.resource, cell.usage),
            used: units(&pair.resource, queue.admitted_usage.get(pair).copied().unwrap_or_default()),
        }
    };
    ClusterQueueGauges {
        name: name.to_owned(),
        cohort: queue.parent.as_deref().unwrap_or_default().to_owned(),
        root_cohort: root(view, queue.parent.as_ref()),
        status: match (queue.terminating, queue.active) {
            (true, _) => QueueStatus::Terminated,
            (false, true) => QueueStatus::Active,
            (false, false) => QueueStatus::Pending,
        },
        pending: pending(queue.pending, queue.active),
        hashes: pending(queue.hashes, queue.active),
        preemption_skips: queue.preemption_skips.map(count),
        reserving: count(queue.reserving),
        admitted: count(queue.admitted),
        finished: count(queue.finished),
        unadmitted: unadmitted(&queue.unadmitted),
        asked: queue
            .pending_requests
            .iter()
            .map(|(resource, amount)| (resource.to_string(), units(resource, *amount)))
            .collect(),
        resources: queue.cells.iter().map(resource).collect(),
        share: queue.share.map(share),
    }
}

/// A share as a number: one without limit is none.
fn share(weighted: i64) -> f64 {
    if weighted == Amount::UNLIMITED.get() { f64::NAN } else { float(weighted.into()) }
}

fn local_resources(queue: &LocalQueueView) -> Vec<ResourceGauges> {
    let pairs: BTreeSet<&FlavorResource> =
        queue.reserved_usage.keys().chain(queue.admitted_usage.keys()).collect();
    let of = |usage: &BTreeMap<FlavorResource, Amount>, pair: &FlavorResource| {
        units(&pair.resource, usage.get(pair).copied().unwrap_or_default())
    };
    let resource = |pair: &FlavorResource| ResourceGauges {
        flavor: pair.flavor.to_string(),
        resource: pair.resource.to_string(),
        reserved: of(&queue.reserved_usage, pair),
        used: of(&queue.admitted_usage, pair),
        ..ResourceGauges::default()
    };
    pairs.into_iter().map(resource).collect()
}

fn cohort(view: &QueueView, name: &Arc<str>, cohort: &CohortView, sum: &Sum) -> CohortGauges {
    let pairs: BTreeSet<&FlavorResource> = cohort.cells.keys().chain(sum.reserved.keys()).collect();
    let resource = |pair: &FlavorResource| ResourceGauges {
        flavor: pair.flavor.to_string(),
        resource: pair.resource.to_string(),
        quota: units(&pair.resource, cohort.cells.get(pair).map(|cell| cell.subtree).unwrap_or_default()),
        reserved: units(&pair.resource, sum.reserved.get(pair).copied().unwrap_or_default()),
        ..ResourceGauges::default()
    };
    CohortGauges {
        name: name.to_string(),
        parent: cohort.parent.as_deref().unwrap_or_default().to_owned(),
        root: root(view, Some(name)),
        admitted: sum.admitted,
        resources: pairs.into_iter().map(resource).collect(),
        share: cohort.share.map(share),
    }
}

fn unadmitted(by_reason: &BTreeMap<Unadmitted, usize>) -> Vec<UnadmittedGauge> {
    let gauge = |(why, number): (&Unadmitted, &usize)| UnadmittedGauge {
        reason: why.reason,
        underlying_cause: why.underlying_cause,
        number: count(*number),
    };
    by_reason.iter().map(gauge).collect()
}

/// In a queue that admits nothing, nothing is active.
fn pending(counts: PendingCounts, open: bool) -> Pending {
    if open {
        Pending { active: count(counts.active), inadmissible: count(counts.inadmissible) }
    } else {
        Pending { active: 0, inadmissible: count(counts.total()) }
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// An amount in the resource's own unit: cores, bytes, pieces.
fn units(resource: &str, amount: Amount) -> f64 {
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
    use crate::quota::{Limits, NodeUsage};

    fn pair() -> FlavorResource {
        FlavorResource::new("f", "cpu")
    }

    fn cell(nominal: i64, borrowing: Option<i64>, usage: i64) -> BTreeMap<FlavorResource, NodeUsage> {
        let limits =
            Limits { nominal: Amount::new(nominal), borrowing: borrowing.map(Amount::new), lending: None };
        let usage = NodeUsage { limits, subtree: Amount::new(nominal), usage: Amount::new(usage) };
        BTreeMap::from([(pair(), usage)])
    }

    fn queue(parent: &str, usage: i64, admitted: usize) -> ClusterQueueView {
        ClusterQueueView {
            parent: Some(Arc::from(parent)),
            active: true,
            pending: PendingCounts { active: 1, inadmissible: 2 },
            reserving: admitted + 1,
            admitted,
            cells: cell(4000, Some(500), usage),
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
                    cells: cell(9000, None, 0),
                    share: Some(i64::MAX),
                },
            )
        };
        let local = LocalQueueView {
            cluster_queue: Arc::from("a"),
            active: true,
            shown: true,
            reserving: 3,
            reserved_usage: BTreeMap::from([(pair(), Amount::new(1500))]),
            ..LocalQueueView::default()
        };
        let queues = QueueView {
            cluster_queues: queues.iter().map(|(name, queue)| (Arc::from(*name), queue.clone())).collect(),
            local_queues: BTreeMap::from([(ObjectKey::new("ns", "lq"), local)]),
            cohorts: cohorts.iter().map(cohort).collect(),
        };
        Snapshot { queues: Arc::new(queues), ..Snapshot::default() }
    }

    #[test]
    fn queues_and_the_cohorts_above_them() {
        let found = gauges(&snapshot(
            &[("org", None), ("team", Some("org"))],
            &[("a", queue("team", 3000, 2)), ("b", queue("org", 1000, 5))],
        ));
        let a = &found.cluster_queues[0];
        assert_eq!(
            (a.cohort.as_str(), a.root_cohort.as_str(), a.status),
            ("team", "org", QueueStatus::Active)
        );
        assert_eq!((a.pending, a.reserving, a.admitted), (Pending { active: 1, inadmissible: 2 }, 3, 2));
        let r = &a.resources[0];
        let numbers = [r.quota, r.borrowing_limit, r.lending_limit, r.reserved, r.used];
        assert_eq!(numbers, [4.0, 0.5, f64::INFINITY, 3.0, 1.5]);
        let cohorts: Vec<_> = found
            .cohorts
            .iter()
            .map(|c| {
                (c.name.as_str(), c.parent.as_str(), c.root.as_str(), c.admitted, c.resources[0].reserved)
            })
            .collect();
        assert_eq!(cohorts, [("org", "", "org", 7, 4.0), ("team", "org", "org", 2, 3.0)]);
        assert_eq!(found.cohorts[0].resources[0].quota, 9.0);
        let local = &found.local_queues[0];
        assert_eq!((local.namespace.as_str(), local.name.as_str(), local.reserving), ("ns", "lq", 3));
        assert_eq!((local.resources[0].reserved, local.resources[0].used), (1.5, 0.0));
    }

    #[test]
    fn a_cycle_of_cohorts_ends() {
        let found = gauges(&snapshot(&[("x", Some("y")), ("y", Some("x"))], &[("a", queue("x", 1000, 1))]));
        assert_eq!(found.cohorts.iter().map(|c| c.admitted).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn status_of_a_queue() {
        let table = [
            (false, true, QueueStatus::Active),
            (false, false, QueueStatus::Pending),
            (true, true, QueueStatus::Terminated),
        ];
        for (terminating, active, want) in table {
            let view = ClusterQueueView { active, terminating, ..ClusterQueueView::default() };
            assert_eq!(gauges(&snapshot(&[], &[("a", view)])).cluster_queues[0].status, want);
        }
    }

    #[test]
    fn no_family_is_on_the_page_twice() {
        use crate::view::counters::Counters;
        use crate::view::metrics::{Families, Role};
        use crate::view::render;
        let found = gauges(&snapshot(&[("org", None)], &[("a", queue("org", 1000, 1))]));
        let families = Families {
            cluster_queue_resources: true,
            local_queues: true,
            cohorts: true,
            creation_latency: true,
        };
        let page = Counters::new("linux", families).render().unwrap()
            + &render(&found, families, Role::Standalone).unwrap();
        let names: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let names: Vec<&str> = names.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        assert!(names.contains(&"kueue_pending_workloads") && !page.contains("EOF"));
    }

    #[test]
    fn local_queues_that_are_not_selected_are_left_out() {
        let mut hidden = snapshot(&[], &[]);
        let mut queues = (*hidden.queues).clone();
        queues.local_queues.values_mut().for_each(|queue| queue.shown = false);
        assert_eq!(gauges(&hidden).local_queues.len(), 1);
        hidden.queues = Arc::new(queues);
        assert_eq!(gauges(&hidden).local_queues, Vec::new());
    }

    #[test]
    fn units_of_resources() {
        let table = [
            ("cpu", 1500, 1.5),
            ("cpu", -250, -0.25),
            ("memory", 1 << 40, 1_099_511_627_776.0),
            ("example.com/gpu", 7, 7.0),
            ("memory", i64::MAX, f64::INFINITY),
        ];
        for (resource, amount, want) in table {
            assert_eq!(units(resource, Amount::new(amount)), want, "{resource} {amount}");
        }
    }
}
