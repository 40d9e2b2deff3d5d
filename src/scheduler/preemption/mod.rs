//! Who must go for whom: the choice of victims.
//!
//! Everything here is tried out in the plan of the quota tree and taken back exactly; nothing is decided. Victims that
//! must go already are not in the plan and are never chosen twice. Sources: `classic` without, `fair` with fair sharing.

mod candidates;
mod classic;
mod fair;

use super::compiled::Queue;
use super::config::EngineSettings;
use super::decision::PreemptionReason;
use super::ledger::{Holder, Holders};
use super::usage_order::UsageOrder;
use crate::api::ObjectKey;
use crate::api::v1beta2::{BorrowPolicy, ReclaimPolicy};
use crate::quota::{Layer, NodeId, PairId, Tree, Usage};
use crate::topology::{Cluster, Part, View};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the choice is made from.
pub(super) struct Field<'a> {
    pub(super) settings: &'a EngineSettings,
    pub(super) tree: &'a mut Tree,
    pub(super) queues: &'a BTreeMap<Arc<str>, Queue>,
    pub(super) holders: &'a Holders,
    /// ClusterQueues whose workloads nobody may take.
    pub(super) inactive: &'a BTreeSet<NodeId>,
    pub(super) order: &'a UsageOrder,
    pub(super) topology: &'a mut Cluster,
    /// Those who were evicted for the same workload before.
    pub(super) barred: Option<&'a BTreeSet<ObjectKey>>,
    /// What was found before. The plan is the same at every question, and who asks as well.
    pub(super) known: Vec<Known>,
}

/// A choice that was made: for which usage, and who must go. What it is short of follows from the usage.
pub(super) struct Known {
    usage: Usage,
    targets: Vec<Target>,
}

/// A workload that needs room.
#[derive(Clone, Copy)]
pub(super) struct Preemptor<'a> {
    pub(super) queue: &'a Queue,
    pub(super) priority: i64,
    pub(super) queued_since: Timestamp,
    /// All that it asks for.
    pub(super) usage: &'a Usage,
    /// Where it does not fit.
    pub(super) short: &'a [PairId],
    /// Pods that need a place on nodes.
    pub(super) parts: &'a [Part],
}

/// One that could go.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) holder: Arc<Holder>,
    pub(super) reason: PreemptionReason,
}

impl Target {
    pub(super) fn key(&self) -> &ObjectKey {
        &self.holder.key
    }
}

impl Field<'_> {
    /// Victims with whom gone the preemptor fits; none if there is no such choice.
    pub(super) fn targets(&mut self, preemptor: &Preemptor) -> Vec<Target> {
        let same = |known: &&Known| known.usage == *preemptor.usage;
        let plain = preemptor.parts.is_empty();
        if let Some(known) = self.known.iter().find(same).filter(|_| plain) {
            return known.targets.clone();
        }
        let fair = self.settings.fair_sharing.is_some();
        let targets = if fair { self.fair(preemptor) } else { self.classic(preemptor) };
        if plain {
            self.known.push(Known { usage: preemptor.usage.clone(), targets: targets.clone() });
        }
        targets
    }

    /// Whether a ClusterQueue may evict at all, so that a look for victims is worth while.
    pub(super) fn may_preempt_while_borrowing(&self, queue: &Queue) -> bool {
        let preemption = &queue.config.preemption;
        if self.settings.fair_sharing.is_some() {
            // As in Kueue, where the field is never absent but in objects that nobody defaulted.
            preemption.reclaim_within_cohort != Some(ReclaimPolicy::Never)
        } else {
            borrows_within_cohort(queue)
        }
    }

    /// Whether the usage fits the plan of the preemptor's queue, and the pods the nodes.
    fn fits(&mut self, preemptor: &Preemptor, borrowing: bool) -> bool {
        let node = preemptor.queue.node;
        // Where nothing is asked for, it does not matter who is beyond what.
        let quota = preemptor.usage.iter().filter(|(_, amount)| *amount > 0).all(|(pair, amount)| {
            let own = borrowing || !self.tree.borrows_with(node, *pair, *amount, Layer::Planned);
            own && *amount <= self.tree.available(node, *pair, Layer::Planned).max(0)
        });
        let rules = self.settings.gates.placement;
        quota
            && (preemptor.parts.is_empty() || self.topology.can_place(preemptor.parts, View::Planned, rules))
    }

    pub(super) fn take_out(&mut self, preemptor: &Preemptor, holder: &Holder) {
        self.shift(preemptor, holder, -1);
    }

    pub(super) fn put_back(&mut self, preemptor: &Preemptor, holder: &Holder) {
        self.shift(preemptor, holder, 1);
    }

    /// Nodes are left alone where no places are asked for: moving them costs far more than moving quota.
    fn shift(&mut self, preemptor: &Preemptor, holder: &Holder, sign: i128) {
        self.tree.plan(holder.node, &holder.usage, sign);
        if !preemptor.parts.is_empty() {
            self.topology.shift(&holder.stand, sign, Layer::Planned);
        }
    }

    /// Lets go of victims that turn out not to be needed, from the last but one to the first, and puts all back.
    fn fill_back(
        &mut self,
        preemptor: &Preemptor,
        mut targets: Vec<Target>,
        fits: impl Fn(&mut Self) -> bool,
    ) -> Vec<Target> {
        for at in (0..targets.len().saturating_sub(1)).rev() {
            let Some(holder) = targets.get(at).map(|target| Arc::clone(&target.holder)) else {
                continue;
            };
            self.put_back(preemptor, &holder);
            if fits(self) {
                targets.swap_remove(at);
            } else {
                self.take_out(preemptor, &holder);
            }
        }
        for target in &targets {
            self.put_back(preemptor, &target.holder);
        }
        targets
    }

    /// Whether a node uses no more than it owns of any of these.
    fn within_nominal(&self, node: NodeId, pairs: &[PairId]) -> bool {
        pairs.iter().all(|pair| self.tree.within_nominal(node, *pair, Layer::Planned))
    }
}

/// Whether workloads of other queues may be taken while the preemptor's queue borrows.
fn borrows_within_cohort(queue: &Queue) -> bool {
    let policy = queue.config.preemption.borrow_within_cohort.as_ref().and_then(|borrow| borrow.policy);
    policy.unwrap_or_default() != BorrowPolicy::Never
}
