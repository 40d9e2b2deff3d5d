//! What pending workloads of other ClusterQueues of a tree may take of its quota before a workload, at each limit above that workload.
//!
//! Invariants: nothing is changed; the amounts are upper bounds, so that quota which covers them is enough whatever order cycles choose. A
//! workload counts only where the flavor suits its pods and where it is admitted at all, now or with the quota that is added; a
//! ClusterQueue or Cohort counts at most what its own borrowing limit leaves it.
//! Neighbours: `obstacle` asks, and knows what workloads of the same ClusterQueue take.

use super::compiled::CompiledResourceGroup;
use super::engine::Engine;
use super::explanation::WorkBudget;
use super::flavor_assigner::{AssignRequest, mismatch};
use super::obstacle::Competing;
use super::requests::{pod_set_groups, requests_by_resource};
use crate::api::v1beta2::QueueingStrategy;
use crate::queue::{BlockerKind, NeverFits, Workload};
use crate::quota::{FlavorResource, FlavorResourceId, NodeId, NodeRef};
use crate::resources::{Amount, UsageLayer};
use std::collections::{BTreeMap, BTreeSet};

/// A limit between a ClusterQueue and the root of its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathLimit {
    /// The node that has the limit.
    pub node: NodeRef,
    /// What it leaves to the ClusterQueue; less than 0 if more is used than it allows.
    pub available: i128,
    /// What pending workloads of other ClusterQueues below the node may take of that first.
    pub others: i128,
}

/// A class of pending workloads of another ClusterQueue, in the order of its queue.
pub(super) struct Borrower {
    queue: NodeId,
    /// Whether the workloads behind it wait until it is admitted.
    is_strict: bool,
    /// What one of them requests of the flavor-resource.
    request: i128,
    count: i128,
    chance: Chance,
}

/// Whether a workload is admitted if nothing is in use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chance {
    Fits,
    WithMoreQuota,
    Never,
}

impl Chance {
    /// `wanted`: what would be raised.
    fn of(never: Option<&NeverFits>, wanted: &[(FlavorResource, Amount)]) -> Self {
        let Some(never) = never else { return Self::Fits };
        let lacks_quota = never.blockers.iter().any(|blocker| {
            let is_raised = |(fr, _): &(FlavorResource, Amount)| {
                fr.flavor == blocker.flavor && fr.resource == blocker.resource
            };
            blocker.kind == BlockerKind::NeverFits && wanted.iter().any(is_raised)
        });
        if lacks_quota { Self::WithMoreQuota } else { Self::Never }
    }
}

impl Engine {
    /// Returns the classes of other ClusterQueues with what they request of a flavor-resource. `wanted`: the flavor-resources of which
    /// quota would be added.
    pub(super) fn borrowers(
        &mut self,
        beside: &[Competing],
        fr: &FlavorResource,
        wanted: &[(FlavorResource, Amount)],
        budget: &mut WorkBudget<'_>,
    ) -> Vec<Borrower> {
        let mut found = Vec::new();
        for competing in beside {
            if !budget.may_visit_class() {
                break;
            }
            let first = &competing.class.first;
            let Some(queue) = self.config.cluster_queue(&first.cluster_queue) else { continue };
            let (queue, is_strict) = (queue.node, queue.config.strategy == QueueingStrategy::StrictFIFO);
            found.push(Borrower {
                queue,
                is_strict,
                request: self.requested_in(first, fr),
                count: competing.count(),
                chance: Chance::of(competing.alone.never().map(|never| &**never), wanted),
            });
        }
        found
    }

    /// Returns what the pod sets of a workload that a flavor suits request of a resource.
    fn requested_in(&mut self, workload: &Workload, fr: &FlavorResource) -> i128 {
        let context = self.scheduling_context(&workload.cluster_queue, &workload.key);
        let Some((context, queue, flavors)) = context else { return 0 };
        let is_covering = |group: &&CompiledResourceGroup| {
            group.position(&fr.resource).is_some()
                && group.flavors.iter().any(|flavor| flavor.name == fr.flavor)
        };
        let Some(group) = queue.groups.iter().find(is_covering) else { return 0 };
        let request = AssignRequest {
            workload,
            pod_sets: &workload.pod_sets,
            queue,
            flavors,
            cursor: None,
            allowed_flavors: None,
            replaced_slice: None,
            cycle: 0,
        };
        let amount_of = |members: Vec<usize>| {
            if mismatch((&context, &request), &fr.flavor, group, &members).is_some() {
                return 0;
            }
            let mut requests = requests_by_resource(&workload.pod_sets, &members, queue).into_iter();
            let of_resource = requests.find(|(resource, _)| **resource == fr.resource);
            of_resource.map_or(0, |(_, amount)| amount.to_i128())
        };
        pod_set_groups(&workload.pod_sets).into_iter().map(amount_of).fold(0, i128::saturating_add)
    }

    /// Returns the limits from a ClusterQueue to its root, the own one first, if this much quota is added.
    pub(super) fn path_limits(
        &self,
        (node, id): (NodeId, FlavorResourceId),
        borrowers: &[Borrower],
        added: i128,
    ) -> Vec<PathLimit> {
        let demand = self.demand(id, borrowers, added);
        let (mut limits, mut below, mut others) = (Vec::new(), None, 0_i128);
        for (at, available) in self.tree.headrooms(node, id, UsageLayer::Projected) {
            // The ClusterQueue itself has no children.
            for sibling in self.tree.children(at).filter(|child| Some(*child) != below) {
                others = others.saturating_add(self.passed_on(sibling, id, &demand));
            }
            if let (Some(available), Some(name)) = (available, self.tree.name(at)) {
                limits.push(PathLimit { node: name.clone(), available, others });
            }
            below = Some(at);
        }
        limits
    }

    /// Returns what the pending workloads of each ClusterQueue request that are admitted at some time.
    fn demand(&self, id: FlavorResourceId, borrowers: &[Borrower], added: i128) -> BTreeMap<NodeId, i128> {
        let (mut demand, mut blocked) = (BTreeMap::new(), BTreeSet::new());
        for borrower in borrowers {
            if blocked.contains(&borrower.queue) {
                continue;
            }
            let comes = match borrower.chance {
                Chance::Fits => true,
                Chance::WithMoreQuota => borrower.request <= self.most(borrower.queue, id, added),
                Chance::Never => false,
            };
            if comes {
                let sum: &mut i128 = demand.entry(borrower.queue).or_default();
                *sum = sum.saturating_add(borrower.request.saturating_mul(borrower.count));
            } else if borrower.is_strict {
                blocked.insert(borrower.queue);
            }
        }
        demand
    }

    /// The most that a ClusterQueue can have with nothing in use, if this much quota is added elsewhere.
    fn most(&self, queue: NodeId, id: FlavorResourceId, added: i128) -> i128 {
        let most = self.tree.potential_available(queue, id).saturating_add(added);
        let own = self.tree.borrowing_limit(queue, id);
        own.map_or(most, |limit| most.min(self.tree.subtree_quota(queue, id).saturating_add(limit)))
    }

    /// Returns what a node requests from its parent if the ClusterQueues below it take what their workloads request.
    fn passed_on(&self, node: NodeId, id: FlavorResourceId, demand: &BTreeMap<NodeId, i128>) -> i128 {
        let own = demand.get(&node).copied().unwrap_or(0);
        let below = self.tree.children(node).map(|child| self.passed_on(child, id, demand));
        let wanted = below.fold(own, i128::saturating_add);
        let limit = self.tree.own_headroom(node, id, UsageLayer::Projected);
        let taken = limit.map_or(wanted, |limit| wanted.min(limit.max(0)));
        self.tree.request_to_parent(node, id, taken, UsageLayer::Projected).amount
    }
}
