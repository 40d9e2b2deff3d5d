//! Which running workloads may be preempted before a pending one is admitted: nothing says when these give their quota back.
//!
//! Invariant: a workload that the engine may preempt for any workload that waits in the tree, or that waits again after a preemption,
//! is among them. Whether the preemption would make room plays no part, so that more are listed than will ever be preempted.
//!
//! What a policy allows is asked of `PreemptionPolicy`. To which ClusterQueues a rule applies, the scheduler knows from usage, and this
//! module from bounds of it; `laws::not_before` compares the answers with simulations.

use super::facts::units;
use super::scope::CohortTree;
use crate::api::ObjectKey;
use crate::api::names::PRIORITY_BOOST_ANNOTATION;
use crate::api::v1beta2::ClusterQueuePreemption;
use crate::cache::Kind;
use crate::scheduler::{EngineSettings, EvictionRank, EvictionScope, PreemptionPolicy};
use crate::simulate::objects::{field, field_text, is_true, key_of, text_at, value_at};
use crate::simulate::quota_units::items;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Amounts by flavor and resource.
type Amounts = BTreeMap<(String, String), i128>;

/// A running workload.
struct Running<'a> {
    workload: &'a Value,
    queue: &'a str,
    priority: i64,
}

/// A ClusterQueue of the tree.
struct Queue<'a> {
    name: &'a str,
    policy: PreemptionPolicy,
    /// Whether it uses more than its nominal quota of something.
    borrows: bool,
}

/// Returns the workloads with quota that may be preempted. `workloads` are those of the tree that have not finished.
pub(super) fn may_be_preempted(
    workloads: &[&Value],
    (tree, objects): (&CohortTree<'_>, &[(Kind, Value)]),
    settings: &EngineSettings,
) -> BTreeSet<ObjectKey> {
    let placed = workloads.iter().copied().filter_map(|workload| Some((workload, tree.queue_of(workload)?)));
    let (reserving, waiting): (Vec<_>, Vec<_>) =
        placed.partition(|(workload, _)| is_true(workload, "QuotaReserved"));
    let queues = queues(tree, objects, &reserving, settings);
    let borrowing: BTreeSet<&str> =
        queues.iter().filter(|queue| queue.borrows).map(|queue| queue.name).collect();
    // The highest priority that waits in each ClusterQueue.
    let mut heads: BTreeMap<&str, i64> = BTreeMap::new();
    for (workload, queue) in waiting {
        let highest = heads.entry(queue).or_insert(i64::MIN);
        *highest = (*highest).max(priority(workload));
    }
    let mut left: Vec<Running<'_>> = reserving
        .into_iter()
        .map(|(workload, queue)| Running { workload, queue, priority: priority(workload) })
        .collect();
    let mut found = BTreeSet::new();
    loop {
        let (preempted, kept): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|running| queues.iter().any(|queue| queue.may_preempt(running, &heads, &borrowing)));
        if preempted.is_empty() {
            return found;
        }
        // A preempted workload waits again, and may preempt others.
        for running in preempted {
            let highest = heads.entry(running.queue).or_insert(i64::MIN);
            *highest = (*highest).max(running.priority);
            found.insert(key_of(running.workload));
        }
        left = kept;
    }
}

impl Queue<'_> {
    /// Whether a workload that waits in this ClusterQueue may preempt a running one.
    fn may_preempt(
        &self,
        running: &Running<'_>,
        heads: &BTreeMap<&str, i64>,
        borrowing: &BTreeSet<&str>,
    ) -> bool {
        let Some(priority) = heads.get(self.name).copied() else { return false };
        // One that borrows nothing and in which nothing waits never borrows.
        let may_borrow = heads.contains_key(running.queue) || borrowing.contains(running.queue);
        // The oldest of this priority against the newest.
        let head = EvictionRank { priority, queued_since: Timestamp::MIN };
        let victim = EvictionRank { priority: running.priority, queued_since: Timestamp::MAX };
        self.policy.rules().any(|rule| {
            let is_in_scope = match rule.scope {
                EvictionScope::OwnQueue => self.name == running.queue,
                EvictionScope::BorrowingQueues => self.name != running.queue && may_borrow,
            };
            is_in_scope && rule.priority.allows(head, victim)
        })
    }
}

fn queues<'a>(
    tree: &CohortTree<'_>,
    objects: &'a [(Kind, Value)],
    reserving: &[(&Value, &str)],
    settings: &EngineSettings,
) -> Vec<Queue<'a>> {
    let mut used: BTreeMap<&str, Amounts> = BTreeMap::new();
    for (workload, queue) in reserving {
        add_usage(used.entry(*queue).or_default(), workload);
    }
    let queue = |spec: &'a Value| {
        let name = text_at(spec, "/metadata/name");
        let preemption: ClusterQueuePreemption = value_at(spec, "/spec/preemption")
            .and_then(|policy| serde_json::from_value(policy.clone()).ok())
            .unwrap_or_default();
        let cohort = Some(text_at(spec, "/spec/cohortName")).filter(|cohort| !cohort.is_empty());
        let nominal = nominal_quota(spec);
        let is_more =
            |(fr, amount): (&(String, String), &i128)| *amount > nominal.get(fr).copied().unwrap_or(0);
        let borrows = used.get(name).is_some_and(|amounts| amounts.iter().any(is_more));
        Queue { name, policy: PreemptionPolicy::of(&preemption, cohort, settings), borrows }
    };
    let of_tree = objects.iter().filter(|(kind, _)| *kind == Kind::ClusterQueue).map(|(_, object)| object);
    of_tree.filter(|object| tree.has_queue(text_at(object, "/metadata/name"))).map(queue).collect()
}

/// Adds what a workload has quota for.
fn add_usage(used: &mut Amounts, workload: &Value) {
    for set in items(workload, "/status/admission/podSetAssignments") {
        let flavors = value_at(set, "/flavors");
        let usage = value_at(set, "/resourceUsage").and_then(Value::as_object);
        for (resource, quantity) in usage.into_iter().flatten() {
            let flavor = flavors.map(|flavors| field_text(flavors, resource)).unwrap_or_default();
            let sum = used.entry((flavor.to_owned(), resource.clone())).or_default();
            *sum = sum.saturating_add(units(resource, quantity));
        }
    }
}

fn nominal_quota(queue: &Value) -> Amounts {
    let mut nominal = Amounts::new();
    for group in items(queue, "/spec/resourceGroups") {
        for flavor in items(group, "/flavors") {
            for resource in items(flavor, "/resources") {
                let fr = (field_text(flavor, "name").to_owned(), field_text(resource, "name").to_owned());
                let amount = field(resource, "nominalQuota").map_or(0, |quantity| units(&fr.1, quantity));
                nominal.insert(fr, amount);
            }
        }
    }
    nominal
}

/// Returns the priority with what a controller adds to it.
fn priority(workload: &Value) -> i64 {
    let annotations = value_at(workload, "/metadata/annotations");
    let boost = annotations.map(|all| field_text(all, PRIORITY_BOOST_ANNOTATION)).unwrap_or_default();
    let own = value_at(workload, "/spec/priority").and_then(Value::as_i64).unwrap_or_default();
    own.saturating_add(boost.parse::<i32>().map_or(0, i64::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn queue(name: &str, preemption: &Value) -> (Kind, Value) {
        let groups = json!([{"flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 2}]}]}]);
        let spec = json!({"cohortName": "c", "preemption": preemption, "resourceGroups": groups});
        (Kind::ClusterQueue, json!({"metadata": {"name": name}, "spec": spec}))
    }

    fn workload(name: &str, queue: &str, priority: i64, cpu: Option<i64>) -> Value {
        let mut workload = json!({"metadata": {"namespace": "ns", "name": name}, "spec": {"queueName": queue, "priority": priority}});
        if let Some(cpu) = cpu {
            let sets = json!([{"flavors": {"cpu": "f"}, "resourceUsage": {"cpu": cpu.to_string()}}]);
            workload["status"] = json!({"admission": {"clusterQueue": queue, "podSetAssignments": sets},
                "conditions": [{"type": "QuotaReserved", "status": "True"}]});
        }
        workload
    }

    #[test]
    fn what_policies_allow_is_preempted_in_chains() {
        let (never, own) = (json!({}), json!({"withinClusterQueue": "LowerPriority"}));
        let (any, lower) =
            (json!({"reclaimWithinCohort": "Any"}), json!({"reclaimWithinCohort": "LowerPriority"}));
        let equal = json!({"withinClusterQueue": "LowerOrNewerEqualPriority"});
        for (what, policies, expected) in [
            ("nothing is allowed", [&never, &never], &[][..]),
            ("its own queue", [&own, &never], &["low"]),
            ("the same priority", [&equal, &never], &["low", "same"]),
            ("what borrows", [&any, &never], &["borrows", "small"]),
            ("only lower priorities", [&lower, &never], &["small"]),
            // The head of `a` preempts `small`, which waits again in `b` and may reclaim from `a`.
            ("a chain", [&lower, &any], &["low", "same", "small"]),
        ] {
            let mut objects = vec![queue("a", policies[0]), queue("b", policies[1])];
            for name in ["a", "b"] {
                objects.push((
                    Kind::LocalQueue,
                    json!({"metadata": {"namespace": "ns", "name": name}, "spec": {"clusterQueue": name}}),
                ));
            }
            let workloads = [
                workload("w", "a", 5, None),
                workload("low", "a", 1, Some(1)),
                workload("same", "a", 5, Some(1)),
                workload("borrows", "b", 9, Some(2)),
                workload("small", "b", 4, Some(1)),
            ];
            let tree = CohortTree::of(&workloads[0], &objects).unwrap();
            let all: Vec<&Value> = workloads.iter().collect();
            let found = may_be_preempted(&all, (&tree, &objects), &EngineSettings::default());
            let found: Vec<&str> = found.iter().map(|key| &*key.name).collect();
            assert_eq!(found, expected, "{what}");
        }
        // A ClusterQueue within its nominal quota in which nothing waits never borrows.
        let mut objects = vec![queue("a", &any), queue("b", &never)];
        objects.push((
            Kind::LocalQueue,
            json!({"metadata": {"namespace": "ns", "name": "a"}, "spec": {"clusterQueue": "a"}}),
        ));
        let workloads = [workload("w", "a", 5, None), workload("within", "b", 1, Some(2))];
        let tree = CohortTree::of(&workloads[0], &objects).unwrap();
        let all: Vec<&Value> = workloads.iter().collect();
        assert_eq!(may_be_preempted(&all, (&tree, &objects), &EngineSettings::default()), BTreeSet::new());
    }
}
