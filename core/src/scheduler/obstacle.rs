//! The true obstacle of a pending workload: what has to go before it is admitted, as a value.
//!
//! Invariants: it follows from the state as it is now, never from a verdict that was made before the order changed; what stays even if
//! nothing is in use comes before what goes by itself. At most one queue and the classes of its tree are passed over for one question.
//! Neighbours: `alone` says what stays, `quota_needs` what others take first; `explanation` asks, `visibility` makes texts of the answer.

use super::engine::Engine;
use super::explanation::{Explanation, WorkBudget};
use super::preemption::FlavorRules;
use super::quota_needs::{Competing, QuotaNeed, QuotaNeeds};
use crate::api::ObjectKey;
use crate::queue::{Alone, Blocker, BlockerKind, ClassBefore, NeverFits, Verdict, Workload};
use crate::quota::{FlavorResource, NodeId};
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

    /// Returns what a workload needs of each flavor-resource that it would get if nothing were in use.
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
        let needs = QuotaNeeds {
            tree: &self.tree,
            config: &self.config,
            rules: FlavorRules { gates: &self.settings.gates, topology: &self.topology },
            node,
            before: &before,
            beside: &beside,
        };
        needs.of(usage, is_behind, budget)
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
