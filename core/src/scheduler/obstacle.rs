//! The true obstacle of a pending workload: what has to go before it is admitted, as a value.
//!
//! Invariants: it follows from the state as it is now, never from a verdict that was made before the order changed; what stays even if
//! nothing is in use comes before what goes by itself; of those before a workload their amounts count, too. At most one queue and the
//! classes of its tree are passed over for one question.
//! Neighbours: `alone` says what stays, `explanation` asks, `visibility` makes texts of the answer.

use super::borrowers::{Borrower, PathLimit};
use super::engine::Engine;
use super::explanation::{Explanation, WorkBudget};
use crate::api::ObjectKey;
use crate::queue::{Alone, Blocker, BlockerKind, ClassBefore, NeverFits, Verdict, Workload};
use crate::quota::{FlavorResource, FlavorResourceId, NodeId, NodeRef, UsageLayer};
use crate::resources::Amount;
use std::sync::Arc;

/// What has to go before a pending workload is admitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Obstacle {
    /// None is known: it fits, was not evaluated, or waits for what its verdict says.
    #[default]
    None,
    /// The state of an object, which the verdict names: a queue, a check, a namespace, the workload itself.
    Object(Arc<Verdict>),
    /// It is not admitted even if nothing is in use.
    NeverFits(Arc<NeverFits>),
    /// It is behind the head of a StrictFIFO ClusterQueue.
    Behind(Box<BehindHead>),
    /// Others use what it needs.
    InUse,
}

impl Obstacle {
    /// Whether it stays, if all that holds quota ends, pending workloads keep their order and no object changes.
    pub fn stays(&self) -> bool {
        match self {
            Self::None | Self::InUse => false,
            // A check that asks for another try is answered without a change.
            Self::Object(verdict) => verdict.reason.keeps_out(),
            Self::NeverFits(_) => true,
            Self::Behind(behind) => behind.never.is_some(),
        }
    }
}

/// The head that a workload is behind.
#[derive(Clone, Debug, PartialEq)]
pub struct BehindHead {
    /// The head.
    pub head: ObjectKey,
    /// What the head lacks; nothing if it fits now, or may preempt for it.
    pub lacks: Vec<Blocker>,
    /// The first workload before this one that can never be admitted, so that all behind it wait without end.
    pub never: Option<(ObjectKey, Arc<NeverFits>)>,
}

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

/// Whether only nodes are in the way of a workload, or of the head that it is behind: its quota is free. What workloads ahead would take
/// of that quota once there are nodes is no obstacle yet; an answer that names it would send a user to raise quota in vain.
pub(super) fn lacks_nodes_alone(explanation: &Explanation, needs: &[QuotaNeed]) -> bool {
    let (blockers, is_behind) = match &explanation.obstacle {
        Obstacle::Behind(behind) => (&behind.lacks, true),
        _ => (&explanation.blockers, false),
    };
    let lacks_nodes = blockers.iter().any(|blocker| matches!(blocker.kind, BlockerKind::NodesInUse(_)));
    // Quota of a flavor that the workload would not get anyway is not what it waits for.
    let is_wanted = |flavor: &Arc<str>| is_behind || needs.iter().any(|need| need.fr.flavor == *flavor);
    let lacks_quota =
        blockers.iter().any(|blocker| blocker.kind == BlockerKind::InUse && is_wanted(&blocker.flavor));
    lacks_nodes && !lacks_quota && needs.iter().all(|need| need.requested <= need.available)
}

impl Engine {
    /// Returns the head that a workload is behind, with what that one waits for.
    pub(super) fn behind_head(&mut self, key: &ObjectKey, budget: &mut WorkBudget<'_>) -> Option<BehindHead> {
        let head = self.waits_behind(key)?.0.clone();
        let mut never = None;
        for before in self.pending.classes_before(key) {
            if !budget.may_visit_class() {
                break;
            }
            if self.is_nominated(&before.first)
                && let Alone::Never(found) = &*self.alone_in_class(before.class, &before.first)
            {
                never = Some((before.first.key.clone(), Arc::clone(found)));
                break;
            }
        }
        let waiting = self.pending.workload(&head).cloned().filter(|_| budget.may_evaluate());
        let evaluated = waiting.and_then(|waiting| self.evaluate(&waiting));
        let lacks = evaluated.and_then(Result::err).map(|(_, blockers)| blockers).unwrap_or_default();
        Some(BehindHead { head, lacks, never })
    }

    /// Whether a cycle evaluates the workload: it is not kept out before, and capacity is not yet reserved for it.
    pub(super) fn is_nominated(&self, workload: &Workload) -> bool {
        !self.reservations.contains(&workload.key) && self.kept_out(workload).is_none()
    }

    /// Why a workload is not evaluated at all. A namespace that is not known may be one that cannot be read.
    pub(super) fn kept_out(&self, workload: &Workload) -> Option<Verdict> {
        let is_known = self.config.namespace_labels(&workload.key.namespace).is_some();
        let own = || workload.precheck_failure.as_ref().map(|verdict| (**verdict).clone());
        if is_known { self.precheck_failure(&workload.cluster_queue, workload) } else { own() }
    }

    /// Returns what a workload needs of each flavor-resource that it would get if nothing were in use. One behind a head also needs what
    /// those before it would get, as they keep it back with whatever they lack.
    pub(super) fn quota_needs(
        &mut self,
        workload: &Workload,
        usage: &[(FlavorResource, Amount)],
        is_behind: bool,
        budget: &mut WorkBudget<'_>,
    ) -> Vec<QuotaNeed> {
        let Some(node) = self.tree.leaf(&workload.cluster_queue) else { return Vec::new() };
        let before = self.competing(self.pending.classes_before(&workload.key), budget);
        let beside = self.competing_beside(node, budget);
        let mut wanted = usage.to_vec();
        for fr in before.iter().filter(|_| is_behind).flat_map(Competing::would_get) {
            if !wanted.iter().any(|(known, _)| known == fr) {
                wanted.push((fr.clone(), Amount::ZERO));
            }
        }
        let mut needs = Vec::new();
        for (fr, requested) in &wanted {
            let Some(id) = self.tree.fr_id(fr) else { continue };
            let borrowers = self.borrowers(&beside, fr, &wanted, budget);
            let mut need = QuotaNeed {
                fr: fr.clone(),
                requested: requested.to_i128(),
                available: self.tree.available(node, id, UsageLayer::Projected),
                ahead: 0,
                ahead_count: 0,
                limits: Vec::new(),
            };
            self.add_taken_before(&mut need, (node, id), &before, &borrowers);
            needs.push(need);
        }
        needs
    }

    /// Adds what others take before a workload. The more quota would be added for them, the more of them fit.
    fn add_taken_before(
        &self,
        need: &mut QuotaNeed,
        at: (NodeId, FlavorResourceId),
        before: &[Competing],
        borrowers: &[Borrower],
    ) {
        loop {
            let lacked = need.lacks();
            need.limits = self.path_limits(at, borrowers, lacked.max(0));
            self.add_ahead(need, at, before);
            if need.lacks() <= lacked {
                return;
            }
        }
    }

    /// Adds what those before a workload take. One that fits no quota now counts if it fits the raised one.
    fn add_ahead(&self, need: &mut QuotaNeed, (node, id): (NodeId, FlavorResourceId), before: &[Competing]) {
        let potential = self.tree.potential_available(node, id);
        let mut taken = vec![false; before.len()];
        (need.ahead, need.ahead_count) = (0, 0);
        loop {
            let raised = potential.saturating_add(need.lacks().max(0));
            let next = before.iter().zip(&taken).position(|(found, taken)| {
                let request = request_of(&found.class.first, &need.fr.resource);
                let fits = found.alone.never().is_none() || request <= raised;
                !taken && request > 0 && fits && found.waits_for(&need.fr)
            });
            let Some(next) = next else { return };
            let (Some(found), Some(taken)) = (before.get(next), taken.get_mut(next)) else { return };
            *taken = true;
            let request = request_of(&found.class.first, &need.fr.resource);
            need.ahead = need.ahead.saturating_add(request.saturating_mul(found.count()));
            need.ahead_count = need.ahead_count.saturating_add(found.class.count);
        }
    }

    fn competing(&mut self, classes: Vec<ClassBefore>, budget: &mut WorkBudget<'_>) -> Vec<Competing> {
        let mut found = Vec::new();
        for class in classes {
            if !budget.may_visit_class() {
                break;
            }
            if self.is_nominated(&class.first) {
                let alone = self.alone_in_class(class.class, &class.first);
                found.push(Competing { class, alone });
            }
        }
        found
    }

    /// The classes of other active ClusterQueues of the same tree.
    fn competing_beside(&mut self, node: NodeId, budget: &mut WorkBudget<'_>) -> Vec<Competing> {
        if self.tree.parent(node).is_none() {
            return Vec::new();
        }
        let root = self.tree.root(node);
        let queues: Vec<Arc<str>> = self
            .config
            .cluster_queues()
            .filter(|(name, queue)| {
                queue.node != node
                    && self.tree.root(queue.node) == root
                    && self.inactive.verdict(name).is_none()
            })
            .map(|(name, _)| Arc::clone(name))
            .collect();
        let mut found = Vec::new();
        for queue in queues {
            found.extend(self.competing(self.pending.classes_of(&queue), budget));
        }
        found
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
    pub(super) fn count(&self) -> i128 {
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

/// What all pods of a workload request of a resource.
fn request_of(workload: &Workload, resource: &Arc<str>) -> i128 {
    let of_set = |set: &crate::queue::PodSet| {
        let request = set.requests.get(resource).map_or(0, |amount| amount.to_i128());
        request.saturating_mul(set.count.into())
    };
    workload.pod_sets.iter().map(of_set).fold(0, i128::saturating_add)
}
