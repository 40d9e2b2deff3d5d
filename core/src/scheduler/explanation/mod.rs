//! Why a pending workload is not admitted, for users: the verdict as it is now, and what would change it.
//!
//! Invariants: nothing is changed; at most `MAX_EVALUATIONS` assignments are computed, and none after `keep_going` says no, so that a
//! question delays a cycle by a bounded time.

use super::decision::PreemptionReason;
use super::engine::Engine;
use super::granular_mode::PreemptionMode;
use super::obstacle::{Obstacle, lacks_nodes_alone};
use super::preemption::{EvictionCandidate, Preemptor};
use super::quota_needs::QuotaNeed;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::queue::{Alone, Blocker, BlockerKind, PodSet, Workload};
use crate::quota::{FlavorResource, FlavorResourceId, NodeId, NodeRef};
use crate::resources::Amount;
use crate::topology::DomainPath;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most assignments that are computed for one question.
pub const MAX_EVALUATIONS: u32 = 16;
/// Most of them for fewer pods.
const MAX_SMALLER: u32 = 12;

/// Why a pending workload is not admitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// Reason; absent if the workload fits now.
    pub reason: Option<PendingReason>,
    /// Text of the verdict after the blockers.
    pub text: Arc<str>,
    /// What keeps it from being admitted, in the order in which it was found.
    pub blockers: Vec<Blocker>,
    /// What has to go before it is admitted.
    pub obstacle: Obstacle,
    /// What it needs of each flavor-resource, with what is taken before it; empty if it can never be admitted, or if nodes alone are in
    /// the way.
    pub needs: Vec<QuotaNeed>,
    /// Whether capacity is reserved for it until its victims have terminated.
    pub has_reservation: bool,
    /// Number of workloads with quota that use what it lacks: below the node of the first blocker that others cause, or, behind a head,
    /// in its ClusterQueue.
    pub users: usize,
    /// Flavors that it would get and that have a topology: their nodes need the room, too.
    pub flavors_with_nodes: Vec<Arc<str>>,
    /// What it could preempt of the flavor-resources that are in use.
    pub preemption: Option<PreemptionChances>,
    /// The greatest number of its pods that would be admitted now, if that is fewer than all and not 0.
    pub smaller: Option<SmallerFit>,
    /// What the pods of a workload with quota do. The scheduler does not know it.
    pub pods: Option<PodsExplanation>,
    /// What it would preempt, if it may and that is enough.
    pub victims: Vec<ObjectKey>,
    /// Whether the time was over before all was known.
    pub is_cut: bool,
}

/// What a workload would preempt, or why it would wait.
pub(super) type Evaluated = Result<Vec<ObjectKey>, (PendingReason, Vec<Blocker>)>;

/// What is supposed of a workload that is explained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Supposition {
    /// Its ClusterQueue, if it is in another one.
    pub cluster_queue: Option<Arc<str>>,
    /// Its priority, if it has another one.
    pub priority: Option<i64>,
}

/// What the pods of a workload with quota do, and why they do not run although they have the quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodsExplanation {
    /// Why they do not run, as a sentence without a full stop, with pods, gates and the message of the scheduler of pods; empty if
    /// nothing is known to keep them from running.
    pub text: String,
    /// Whether a scheduling gate of another controller holds a pod.
    pub is_gated: bool,
    /// States of the pods by pod set; empty if pods are not read.
    pub states: BTreeMap<Arc<str>, PodStates>,
    /// Domains of the hosts in its topology assignment, the widest level first. Hosts whose nodes are gone are absent.
    pub hosts: BTreeMap<Arc<str>, DomainPath>,
}

/// Numbers of the pods of a pod set by state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodStates {
    /// Pods whose containers run.
    pub running: u64,
    /// Pods that exist and do not run yet: held by a gate, without a node, or starting.
    pub pending: u64,
    /// Pods that have ended and are not replaced, as the job's kind reports them.
    pub ended: u64,
    /// Pods that are bound, by node.
    pub nodes: BTreeMap<Arc<str>, u64>,
}

/// Workloads that policies allow a workload to preempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreemptionChances {
    /// Whether the ClusterQueue preempts at all.
    pub is_allowed: bool,
    /// Whether a closed gate keeps the workload from preempting.
    pub is_gated: bool,
    /// Number of candidates in its own ClusterQueue.
    pub own: usize,
    /// Number of candidates in borrowing ClusterQueues of the tree.
    pub others: usize,
    /// What all candidates use of the flavor-resources that are in use.
    pub usage: BTreeMap<FlavorResource, Amount>,
}

/// Pods that would be admitted now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmallerFit {
    /// Their number.
    pub pods: i64,
    /// Number of all pods.
    pub of: i64,
    /// Whether the workload itself allows partial admission.
    pub allows_partial_admission: bool,
    /// Whether others would be preempted for them.
    pub preempts: bool,
}

impl Explanation {
    /// Takes what an evaluation says.
    fn take(&mut self, evaluated: Evaluated) {
        match evaluated {
            Ok(victims) => {
                (self.reason, self.blockers) = (None, Vec::new());
                self.victims = victims;
            }
            Err((reason, blockers)) => {
                self.obstacle = Obstacle::InUse;
                (self.reason, self.blockers) = (Some(reason), blockers);
            }
        }
    }
}

impl Engine {
    /// Explains why a workload is pending; `None` if it is not pending, or the other queue does not exist. `keep_going` is asked before
    /// each evaluation. With a supposition, says what would block it then.
    pub fn explain(
        &mut self,
        key: &ObjectKey,
        supposed: &Supposition,
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Option<Explanation> {
        let mut workload = self.pending.workload(key)?.clone();
        workload.priority = supposed.priority.unwrap_or(workload.priority);
        let mut explanation = Explanation::default();
        let mut budget = WorkBudget { keep_going, evaluations: 0, is_cut: false };
        let alone = if let Some(queue) = &supposed.cluster_queue {
            self.config.cluster_queue(queue)?;
            workload.cluster_queue = Arc::clone(queue);
            if self.explain_kept_out(&workload, &mut explanation) {
                return Some(explanation);
            }
            Arc::new(self.alone(&workload))
        } else if self.explain_as_known(&workload, &mut explanation) {
            return Some(explanation);
        } else {
            let class = self.pending.class_of(key)?;
            self.alone_in_class(class, &workload)
        };
        let is_own_order = *supposed == Supposition::default();
        match &*alone {
            Alone::Never(never) => {
                (explanation.reason, explanation.blockers) = (Some(never.reason), never.blockers.clone());
                explanation.obstacle = Obstacle::NeverFits(Arc::clone(never));
            }
            Alone::Fits(usage) => {
                if let Some(behind) = self.behind_head(key, &mut budget).filter(|_| is_own_order) {
                    explanation.reason = Some(PendingReason::WaitingForQuota);
                    (explanation.text, explanation.blockers) = (Arc::default(), Vec::new());
                    explanation.obstacle = Obstacle::Behind(Box::new(behind));
                } else if budget.may_evaluate()
                    && let Some(evaluated) = self.evaluate(&workload)
                {
                    explanation.take(evaluated);
                }
                if explanation.obstacle != Obstacle::None {
                    let is_behind = matches!(explanation.obstacle, Obstacle::Behind(_));
                    let needs = self.quota_needs(&workload, usage, is_behind, &mut budget);
                    if !lacks_nodes_alone(&explanation, &needs) {
                        explanation.needs = needs;
                    }
                }
            }
        }
        let in_use = explanation.blockers.iter().find(|blocker| blocker.kind == BlockerKind::InUse);
        if let Some(blocker) = in_use {
            let fr = FlavorResource::new(&blocker.flavor, &blocker.resource);
            explanation.users = self.users(blocker.node.as_ref(), &fr);
            explanation.preemption = self.preemption_chances(&workload, &explanation.blockers);
        } else if let Some(need) = explanation.needs.iter().find(|need| need.lacks() > 0) {
            // Behind a head nothing was evaluated, and yet some of what it lacks is in use.
            let own = NodeRef::ClusterQueue(Arc::clone(&workload.cluster_queue));
            explanation.users = self.users(Some(&own), &need.fr);
        }
        if self.settings.gates.topology {
            let flavors = explanation.needs.iter().map(|need| &need.fr.flavor);
            let placed: BTreeSet<&Arc<str>> =
                flavors.filter(|flavor| self.config.has_topology(flavor)).collect();
            explanation.flavors_with_nodes = placed.into_iter().cloned().collect();
        }
        if !explanation.blockers.is_empty() {
            explanation.smaller = self.smaller_fit(&workload, &mut budget);
        }
        explanation.is_cut = budget.is_cut;
        Some(explanation)
    }

    /// Says what is known without an evaluation. Returns whether that is all: an evaluation would say nothing of what it waits for.
    fn explain_as_known(&self, workload: &Workload, explanation: &mut Explanation) -> bool {
        let known = self.verdict(&workload.key);
        explanation.reason = known.map(|verdict| verdict.reason).or(Some(PendingReason::PendingEvaluation));
        explanation.text = known.map(|verdict| Arc::clone(&verdict.text)).unwrap_or_default();
        explanation.blockers = known.map(|verdict| verdict.blockers.clone()).unwrap_or_default();
        explanation.has_reservation = self.reservations.contains(&workload.key);
        let is_kept_out = self.explain_kept_out(workload, explanation);
        let is_text = known.is_some_and(|verdict| verdict.blockers.is_empty() && !verdict.text.is_empty());
        let is_behind = self.waits_behind(&workload.key).is_some();
        is_kept_out || explanation.has_reservation || (is_text && !is_behind)
    }

    /// Says which object keeps a workload out of its ClusterQueue: that queue, a check, the namespace. Returns whether there is one.
    fn explain_kept_out(&self, workload: &Workload, explanation: &mut Explanation) -> bool {
        let inactive = self.inactive.verdict(&workload.cluster_queue).cloned();
        let Some(verdict) = inactive.or_else(|| self.kept_out(workload)) else { return false };
        (explanation.reason, explanation.text) = (Some(verdict.reason), Arc::clone(&verdict.text));
        (explanation.blockers, explanation.obstacle) = (Vec::new(), Obstacle::Object(Arc::new(verdict)));
        true
    }

    /// Computes what a workload would get: what it would preempt, or the blockers if it would have to wait. A workload that may preempt
    /// does not wait.
    pub(super) fn evaluate(&mut self, workload: &Workload) -> Option<Evaluated> {
        let (nominated, targets) = self.compute_assignment(&workload.cluster_queue, workload, None, None)?;
        let assignment = nominated.assignment;
        let victims = targets.iter().map(|target| target.workload.key.clone()).collect();
        let waits = assignment.mode != PreemptionMode::Fit && targets.is_empty();
        Some(if waits { Err((assignment.reason, assignment.blockers)) } else { Ok(victims) })
    }

    /// Counts the workloads below a node that use a flavor-resource.
    fn users(&self, node: Option<&NodeRef>, fr: &FlavorResource) -> usize {
        let fr = self.tree.fr_id(fr);
        let node = node.and_then(|node| self.tree.find(node));
        let (Some(fr), Some(node)) = (fr, node) else { return 0 };
        let is_below = |queue: &NodeId| {
            std::iter::successors(Some(*queue), |below| self.tree.parent(*below)).any(|above| above == node)
        };
        let queues = self.reserving_workloads.cluster_queues().filter(is_below);
        let workloads = queues.flat_map(|queue| self.reserving_workloads.in_cluster_queue(queue));
        workloads
            .filter(|workload| workload.usage.iter().any(|(used, amount)| *used == fr && *amount > 0))
            .count()
    }

    /// Counts what a workload may preempt of the flavor-resources that are in use.
    fn preemption_chances(&mut self, workload: &Workload, blockers: &[Blocker]) -> Option<PreemptionChances> {
        let in_use = blockers.iter().filter(|blocker| blocker.kind == BlockerKind::InUse);
        let names: Vec<FlavorResource> =
            in_use.map(|blocker| FlavorResource::new(&blocker.flavor, &blocker.resource)).collect();
        let frs: Vec<FlavorResourceId> = names.iter().filter_map(|fr| self.tree.fr_id(fr)).collect();
        let usage = frs.iter().map(|fr| (*fr, 1)).collect();
        let (context, queue, _) = self.scheduling_context(&workload.cluster_queue, &workload.key)?;
        let preemptor = Preemptor {
            queue,
            priority: workload.priority,
            queued_since: workload.queued_since,
            usage: &usage,
            frs_need_preemption: &frs,
            pod_set_requests: &[],
        };
        let is_allowed = queue.policy.may_preempt();
        let candidates = context.candidates(&preemptor);
        let mut sums: BTreeMap<FlavorResourceId, i128> = BTreeMap::new();
        for candidate in &candidates {
            for (fr, amount) in candidate.workload.usage.iter().filter(|(fr, _)| frs.contains(fr)) {
                *sums.entry(*fr).or_default() += amount;
            }
        }
        let is_own = |candidate: &&EvictionCandidate| candidate.reason == PreemptionReason::InClusterQueue;
        let own = candidates.iter().filter(is_own).count();
        let others = candidates.len() - own;
        let usage = self.tree.to_named(sums);
        Some(PreemptionChances { is_allowed, is_gated: workload.preemption_gated, own, others, usage })
    }

    /// Searches the greatest number of pods that would be admitted now. Pod sets are made smaller in proportion.
    fn smaller_fit(&mut self, workload: &Workload, budget: &mut WorkBudget<'_>) -> Option<SmallerFit> {
        let greatest =
            workload.pod_sets.iter().map(|set| i64::from(set.count)).max().filter(|most| *most > 1)?;
        let smaller = |size: i64| {
            let sets = workload.pod_sets.iter().map(|set| {
                let count = i64::from(set.count).saturating_mul(size).saturating_add(greatest - 1) / greatest;
                // A smaller count than `count` has 32 bits as well.
                PodSet { count: i32::try_from(count).unwrap_or(set.count), min_count: None, ..set.clone() }
            });
            Workload { pod_sets: sets.collect(), ..workload.clone() }
        };
        let (mut fits, mut too_many, mut searched, mut preempts) = (0, greatest, 0, false);
        while too_many - fits > 1 && searched < MAX_SMALLER && budget.may_evaluate() {
            searched += 1;
            let middle = i64::midpoint(fits, too_many);
            if let Some(Ok(victims)) = self.evaluate(&smaller(middle)) {
                (fits, preempts) = (middle, !victims.is_empty());
            } else {
                too_many = middle;
            }
        }
        let pods = |workload: &Workload| workload.pod_sets.iter().map(|set| i64::from(set.count)).sum();
        (fits > 0).then(|| SmallerFit {
            pods: pods(&smaller(fits)),
            of: pods(workload),
            allows_partial_admission: workload.pod_sets.iter().any(|set| set.min_count.is_some()),
            preempts,
        })
    }
}

/// Bounds the work for one explanation, and records whether it was cut short.
pub(super) struct WorkBudget<'a> {
    keep_going: &'a mut dyn FnMut() -> bool,
    evaluations: u32,
    is_cut: bool,
}

impl WorkBudget<'_> {
    /// Returns whether another evaluation may begin.
    pub(super) fn may_evaluate(&mut self) -> bool {
        let may = self.evaluations < MAX_EVALUATIONS && (self.keep_going)();
        self.evaluations = self.evaluations.saturating_add(1);
        self.is_cut |= !may;
        may
    }

    /// Returns whether another class of pending workloads may be visited.
    pub(super) fn may_visit_class(&mut self) -> bool {
        let may = (self.keep_going)();
        self.is_cut |= !may;
        may
    }
}

#[cfg(test)]
mod tests;
