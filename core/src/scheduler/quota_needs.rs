//! What a pending workload needs of each flavor-resource, beside what other pending workloads take of it first: those before it in its
//! ClusterQueue, and those of other ClusterQueues of the tree, at each limit above it.
//!
//! Invariants: nothing is changed; the amounts are upper bounds, so that quota which covers them is enough whatever order cycles choose. A
//! workload counts only where the flavor suits its pods and where it is admitted at all, now or with the quota that is added; a
//! ClusterQueue or Cohort counts at most what its own borrowing limit leaves it.
//! Neighbours: `obstacle` knows which classes compete, and what they would get if nothing were in use.

use super::compiled::CompiledResourceGroup;
use super::configured_objects::ConfiguredObjects;
use super::explanation::WorkBudget;
use super::flavor_assigner::{AssignRequest, mismatch};
use super::preemption::FlavorRules;
use super::requests::{pod_set_groups, requests_by_resource};
use crate::api::v1beta2::QueueingStrategy;
use crate::queue::{Alone, BlockerKind, ClassBefore, NeverFits, PodSet, Workload};
use crate::quota::{FlavorResource, FlavorResourceId, NodeId, NodeRef, QuotaTree};
use crate::resources::{Amount, UsageLayer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a workload needs of a flavor-resource, beside what is taken before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaNeed {
    /// The flavor-resource.
    pub fr: FlavorResource,
    /// What the workload requests.
    pub requested: i128,
    /// What is available to its ClusterQueue; less than 0 if more is used than its limits allow.
    pub available: i128,
    /// What those before it in its ClusterQueue take first.
    pub ahead: i128,
    /// Their number.
    pub ahead_count: usize,
    /// The limits from its ClusterQueue to the root, with what pending workloads of other ClusterQueues may borrow first.
    pub limits: Vec<PathLimit>,
}

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

impl QuotaNeed {
    /// What pending workloads of other ClusterQueues may borrow first below a node.
    pub fn others_at(&self, node: &NodeRef) -> i128 {
        self.limits.iter().find(|limit| limit.node == *node).map_or(0, |limit| limit.others)
    }

    /// Everything that is taken at a node up to and including the workload.
    pub fn total_at(&self, node: &NodeRef) -> i128 {
        self.own().saturating_add(self.others_at(node))
    }

    /// What must be added so that all of that is admitted; 0 or less if it is there.
    pub fn lacks(&self) -> i128 {
        let own = self.own();
        let at = |limit: &PathLimit| own.saturating_add(limit.others).saturating_sub(limit.available);
        self.limits.iter().map(at).max().unwrap_or(own.saturating_sub(self.available))
    }

    /// What the workload and the workloads ahead in its ClusterQueue request.
    const fn own(&self) -> i128 {
        self.requested.saturating_add(self.ahead)
    }
}

/// Workloads that a cycle evaluates, too.
pub(super) struct Competing {
    pub(super) class: ClassBefore,
    /// What they would get if nothing were in use.
    pub(super) alone: Arc<Alone>,
}

impl Competing {
    /// Their number.
    fn count(&self) -> i128 {
        i128::try_from(self.class.count).unwrap_or(i128::MAX)
    }

    /// What they would get if nothing were in use.
    fn would_get(&self) -> impl Iterator<Item = &FlavorResource> {
        let usage = match &*self.alone {
            Alone::Fits(usage) => &usage[..],
            Alone::Never(_) => &[],
        };
        usage.iter().map(|(fr, _)| fr)
    }

    /// Whether they are admitted once there is enough of a flavor-resource: nothing stays in their way, or only its quota.
    fn waits_for(&self, fr: &FlavorResource) -> bool {
        let Some(never) = self.alone.never() else { return true };
        !never.blockers.is_empty()
            && never.blockers.iter().all(|blocker| {
                blocker.kind == BlockerKind::NeverFits
                    && blocker.flavor == fr.flavor
                    && blocker.resource == fr.resource
            })
    }
}

/// A class of pending workloads of another ClusterQueue, in the order of its queue.
struct Borrower {
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

/// What decides how much a workload of a ClusterQueue needs: the limits above it, and the workloads that compete below them.
pub(super) struct QuotaNeeds<'e> {
    pub(super) tree: &'e QuotaTree,
    pub(super) config: &'e ConfiguredObjects,
    pub(super) rules: FlavorRules<'e>,
    /// The ClusterQueue.
    pub(super) node: NodeId,
    /// Classes before the workload in its ClusterQueue.
    pub(super) before: &'e [Competing],
    /// Classes of other ClusterQueues of the tree.
    pub(super) beside: &'e [Competing],
}

impl QuotaNeeds<'_> {
    /// Returns what the workload needs of each flavor-resource of its usage. One behind a head also needs what those before it would
    /// get, as they keep it back with whatever they lack.
    pub(super) fn of(
        &self,
        usage: &[(FlavorResource, Amount)],
        is_behind: bool,
        budget: &mut WorkBudget<'_>,
    ) -> Vec<QuotaNeed> {
        let mut wanted = usage.to_vec();
        for fr in self.before.iter().filter(|_| is_behind).flat_map(Competing::would_get) {
            if !wanted.iter().any(|(known, _)| known == fr) {
                wanted.push((fr.clone(), Amount::ZERO));
            }
        }
        let mut needs = Vec::new();
        for (fr, requested) in &wanted {
            let Some(id) = self.tree.fr_id(fr) else { continue };
            let borrowers = self.borrowers(fr, &wanted, budget);
            let mut need = QuotaNeed {
                fr: fr.clone(),
                requested: requested.to_i128(),
                available: self.tree.available(self.node, id, UsageLayer::Projected),
                ahead: 0,
                ahead_count: 0,
                limits: Vec::new(),
            };
            self.add_taken_before(&mut need, id, &borrowers);
            needs.push(need);
        }
        needs
    }

    /// Adds what others take before the workload. The more quota would be added for them, the more of them fit.
    fn add_taken_before(&self, need: &mut QuotaNeed, id: FlavorResourceId, borrowers: &[Borrower]) {
        loop {
            let lacked = need.lacks();
            need.limits = self.path_limits(id, borrowers, lacked.max(0));
            self.add_ahead(need, id);
            if need.lacks() <= lacked {
                return;
            }
        }
    }

    /// Adds what those before the workload take. One that fits no quota now counts if it fits the raised one.
    fn add_ahead(&self, need: &mut QuotaNeed, id: FlavorResourceId) {
        let potential = self.tree.potential_available(self.node, id);
        let mut taken = vec![false; self.before.len()];
        (need.ahead, need.ahead_count) = (0, 0);
        loop {
            let raised = potential.saturating_add(need.lacks().max(0));
            let next = self.before.iter().zip(&taken).position(|(found, taken)| {
                let request = request_of(&found.class.first, &need.fr.resource);
                let fits = found.alone.never().is_none() || request <= raised;
                !taken && request > 0 && fits && found.waits_for(&need.fr)
            });
            let Some(next) = next else { return };
            let (Some(found), Some(taken)) = (self.before.get(next), taken.get_mut(next)) else { return };
            *taken = true;
            let request = request_of(&found.class.first, &need.fr.resource);
            need.ahead = need.ahead.saturating_add(request.saturating_mul(found.count()));
            need.ahead_count = need.ahead_count.saturating_add(found.class.count);
        }
    }

    /// Returns the classes of other ClusterQueues with what they request of a flavor-resource. `wanted`: the flavor-resources of which
    /// quota would be added.
    fn borrowers(
        &self,
        fr: &FlavorResource,
        wanted: &[(FlavorResource, Amount)],
        budget: &mut WorkBudget<'_>,
    ) -> Vec<Borrower> {
        let mut found = Vec::new();
        for competing in self.beside {
            if !budget.may_visit_class() {
                break;
            }
            let first = &competing.class.first;
            let Some(queue) = self.config.cluster_queue(&first.cluster_queue) else { continue };
            found.push(Borrower {
                queue: queue.node,
                is_strict: queue.config.strategy == QueueingStrategy::StrictFIFO,
                request: self.requested_in(first, fr),
                count: competing.count(),
                chance: Chance::of(competing.alone.never().map(|never| &**never), wanted),
            });
        }
        found
    }

    /// Returns what the pod sets of a workload that a flavor suits request of a resource.
    fn requested_in(&self, workload: &Workload, fr: &FlavorResource) -> i128 {
        let Some(queue) = self.config.cluster_queue(&workload.cluster_queue) else { return 0 };
        let is_covering = |group: &&CompiledResourceGroup| {
            group.position(&fr.resource).is_some()
                && group.flavors.iter().any(|flavor| flavor.name == fr.flavor)
        };
        let Some(group) = queue.groups.iter().find(is_covering) else { return 0 };
        let request = AssignRequest {
            workload,
            pod_sets: &workload.pod_sets,
            queue,
            flavors: self.config.flavors(),
            cursor: None,
            allowed_flavors: None,
            replaced_slice: None,
            cycle: 0,
        };
        let amount_of = |members: Vec<usize>| {
            if mismatch((self.rules, &request), &fr.flavor, group, &members).is_some() {
                return 0;
            }
            let mut requests = requests_by_resource(&workload.pod_sets, &members, queue).into_iter();
            let of_resource = requests.find(|(resource, _)| **resource == fr.resource);
            of_resource.map_or(0, |(_, amount)| amount.to_i128())
        };
        pod_set_groups(&workload.pod_sets).into_iter().map(amount_of).fold(0, i128::saturating_add)
    }

    /// Returns the limits from the ClusterQueue to its root, the own one first, if this much quota is added.
    fn path_limits(&self, id: FlavorResourceId, borrowers: &[Borrower], added: i128) -> Vec<PathLimit> {
        let demand = self.demand(id, borrowers, added);
        let (mut limits, mut below, mut others) = (Vec::new(), None, 0_i128);
        for (at, available) in self.tree.headrooms(self.node, id, UsageLayer::Projected) {
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

/// What all pods of a workload request of a resource.
fn request_of(workload: &Workload, resource: &Arc<str>) -> i128 {
    let of_set = |set: &PodSet| {
        let request = set.requests.get(resource).map_or(0, |amount| amount.to_i128());
        request.saturating_mul(set.count.into())
    };
    workload.pod_sets.iter().map(of_set).fold(0, i128::saturating_add)
}
