//! What flavors have on their nodes and how many pods of a shape would be placed now, for users.
//!
//! Invariants: nothing is changed; quota plays no part; no flavor is counted after `keep_going` says no.

use super::engine::Engine;
use super::job_capacity::{JobCapacity, JobPods};
use crate::api::ObjectKey;
use crate::resources::{Amount, Requests};
use crate::topology::{
    AskedFlavor, FlavorSpec, LeafView, LevelCapacity, NodeAmount, NodeAmounts, PodRequirements,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most hosts of one flavor that are reported.
const MAX_LEAVES: usize = 2_000;

/// What is asked of the capacity of flavors.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CapacityQuestion {
    /// The flavor; all if absent.
    pub flavor: Option<Arc<str>>,
    /// What one pod asks for; all of the scarcest resource of the largest node if it is empty.
    pub pod: Requests,
    /// A Workload whose pod sets are placed all together.
    pub workload: Option<ObjectKey>,
}

/// What a flavor has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlavorCapacity {
    /// Its name.
    pub name: Arc<str>,
    /// Name of its topology, if it has one.
    pub topology: Option<Arc<str>>,
    /// Whether it was counted node by node, because its topology is absent or does not exist.
    pub by_node: bool,
    /// Its nodes.
    pub nodes: NodeAmounts,
    /// Amounts by resource, the scarcest first: those of the pod, then devices, then the least free part.
    pub resources: Vec<(Arc<str>, NodeAmount)>,
    /// What one pod asks for.
    pub pod: Requests,
    /// What fits within one domain of each level, the narrowest first, and anywhere; empty if the time was over.
    pub levels: Vec<LevelCapacity>,
    /// Hosts or narrowest domains; only where one flavor was asked for.
    pub leaves: Vec<LeafView>,
    /// How often the Workload that was asked for fits.
    pub job: Option<JobCapacity>,
}

/// Capacity of flavors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CapacityReport {
    /// Flavors by name.
    pub flavors: Vec<FlavorCapacity>,
    /// Whether nodes are known at all.
    pub knows_nodes: bool,
    /// The Workload that was asked for, if there is none or its pods are not known.
    pub unknown_workload: Option<ObjectKey>,
    /// Whether the time was over before all was counted.
    pub is_cut: bool,
}

impl Engine {
    /// Returns what flavors have, and what fits, also of a job. `keep_going` is asked before each flavor and each copy of the job is
    /// counted.
    pub fn capacity(
        &mut self,
        question: &CapacityQuestion,
        job: Option<&JobPods>,
        keep_going: &mut dyn FnMut() -> bool,
    ) -> CapacityReport {
        let knows_nodes = self.settings.gates.topology;
        let mut report = CapacityReport { knows_nodes, ..CapacityReport::default() };
        let quotas = self.resources_with_quota();
        let wanted = |name: &Arc<str>| question.flavor.as_ref().is_none_or(|flavor| flavor == name);
        let names: Vec<Arc<str>> =
            self.config.flavors().keys().filter(|name| wanted(name)).cloned().collect();
        for name in names {
            let may = keep_going();
            report.is_cut |= !may;
            let covered = quotas.get(&name).cloned().unwrap_or_default();
            let found = self.flavor_capacity(&name, &covered, (question, job, may), keep_going);
            report.flavors.extend(found);
        }
        report
    }

    /// Returns the resources for which queues or cohorts have a quota, by flavor.
    fn resources_with_quota(&self) -> BTreeMap<Arc<str>, BTreeSet<Arc<str>>> {
        let mut all: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
        let of_queues = self.config.cluster_queues().flat_map(|(_, queue)| &queue.config.groups);
        let of_cohorts = self.config.cohorts().flat_map(|(_, cohort)| &cohort.groups);
        for group in of_queues.chain(of_cohorts) {
            for flavor in &group.flavors {
                all.entry(Arc::clone(&flavor.name)).or_default().extend(flavor.limits.keys().cloned());
            }
        }
        all
    }

    fn flavor_capacity(
        &mut self,
        name: &Arc<str>,
        covered: &BTreeSet<Arc<str>>,
        (question, job, may_count): (&CapacityQuestion, Option<&JobPods>, bool),
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Option<FlavorCapacity> {
        let flavor = self.config.flavors().get(name)?;
        let topology = flavor.topology_name.clone();
        let spec = FlavorSpec {
            node_labels: flavor.node_labels.clone(),
            tolerations: flavor.tolerations.clone(),
            topology: topology.clone().unwrap_or_default(),
        };
        let asked = AskedFlavor { name, spec: &spec };
        let mut found = FlavorCapacity {
            name: Arc::clone(name),
            topology,
            by_node: !self.topology.has_topology(name),
            ..FlavorCapacity::default()
        };
        if !may_count {
            return Some(found);
        }
        found.nodes = self.topology.node_amounts(asked);
        // A job with pods of one shape is also counted by domain.
        let alike = job.and_then(|job| match &*job.pod_sets {
            [only] => Some(&only.pod_requirements),
            _ => None,
        });
        found.pod = alike.map_or_else(|| question.pod.clone(), |pods| pods.requests.clone());
        found.resources = by_scarcity(&found.nodes, covered, &found.pod);
        found.job = job.map(|job| self.job_capacity(asked, job, keep_going));
        if job.is_some() && alike.is_none() {
            return Some(found);
        }
        if found.pod.is_empty()
            && let Some((resource, amount)) = found.resources.first().filter(|(_, amount)| amount.largest > 0)
        {
            let all = Amount::saturating_from_i128(amount.largest);
            found.pod.insert(Arc::clone(resource), all);
        }
        if let Some(shown) = found.resources.first().map(|(resource, _)| Arc::clone(resource)) {
            let of_job = alike.map(|pods| (**pods).clone()).unwrap_or_default();
            let pods = PodRequirements { requests: found.pod.clone(), request: None, ..of_job };
            found.levels = self.topology.level_capacities(asked, &Arc::new(pods), &shown);
            if question.flavor.is_some() {
                found.leaves = self.topology.leaf_views(asked, &shown, MAX_LEAVES);
            }
        }
        Some(found)
    }
}

/// Orders the resources that have a quota, or all of the nodes if none has one: those that the pod asks for, then devices, then by
/// the part that is free.
fn by_scarcity(
    nodes: &NodeAmounts,
    covered: &BTreeSet<Arc<str>>,
    pod: &Requests,
) -> Vec<(Arc<str>, NodeAmount)> {
    let names: BTreeSet<&Arc<str>> = if covered.is_empty() {
        nodes.amounts.keys().chain(pod.keys()).collect()
    } else {
        covered.iter().chain(pod.keys()).collect()
    };
    let mut all: Vec<(Arc<str>, NodeAmount)> = names
        .into_iter()
        .map(|name| (Arc::clone(name), nodes.amounts.get(name).copied().unwrap_or_default()))
        .collect();
    all.sort_by(|(a, x), (b, y)| {
        let rank = |name: &Arc<str>| (!pod.contains_key(name), !name.contains('/'));
        // The part that is free, without a division: x.free / x.allocatable < y.free / y.allocatable.
        let part = |one: &NodeAmount, other: &NodeAmount| one.free.saturating_mul(other.allocatable);
        rank(a).cmp(&rank(b)).then_with(|| part(x, y).cmp(&part(y, x))).then_with(|| a.cmp(b))
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scarcest_resource_is_first() {
        let amount = |allocatable, free| NodeAmount { allocatable, free, ..NodeAmount::default() };
        let amounts =
            [("cpu", amount(100, 10)), ("example.com/gpu", amount(8, 8)), ("memory", amount(100, 90))];
        let nodes = NodeAmounts {
            amounts: amounts.into_iter().map(|(name, amount)| (Arc::from(name), amount)).collect(),
            ..NodeAmounts::default()
        };
        let order = |covered: &[&str], pod: &[&str]| -> Vec<String> {
            let covered = covered.iter().map(|name| Arc::from(*name)).collect();
            let pod = pod.iter().map(|name| (Arc::from(*name), Amount::new(1))).collect();
            by_scarcity(&nodes, &covered, &pod).into_iter().map(|(name, _)| name.to_string()).collect()
        };
        assert_eq!(order(&[], &[]), ["example.com/gpu", "cpu", "memory"]);
        assert_eq!(order(&["memory", "cpu"], &[]), ["cpu", "memory"]);
        assert_eq!(order(&["memory", "cpu"], &["memory"]), ["memory", "cpu"]);
        assert_eq!(order(&["cpu"], &["disk"]), ["disk", "cpu"]);
    }
}
