//! What the engine answers to status, metrics, visibility and users.

use super::config::Charge;
use super::engine::Engine;
use super::flavor_assigner::TentativeAssignment;
use super::granular_mode::PreemptionMode;
use crate::api::ObjectKey;
use crate::queue::{PendingCounts, Verdict, Workload};
use crate::quota::{FlavorResource, NodeRef, NodeUsage, UsageLayer};
use crate::resources::Amount;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Engine {
    /// Why the workload waits; none if it is not pending or has not been judged yet.
    pub fn verdict(&self, key: &ObjectKey) -> Option<&Verdict> {
        let queue = &self.pending.workload(key)?.cluster_queue;
        self.inactive_verdicts.get(queue).or_else(|| self.pending.verdict(key).map(|verdict| &**verdict))
    }

    /// The verdict as it would be given now: since the workload was judged, other things may have come into its way, and
    /// other amounts be free, without letting it in. Nothing is changed by asking.
    pub fn fresh_verdict(&mut self, key: &ObjectKey) -> Option<Verdict> {
        let known = self.verdict(key)?.clone();
        let workload = self.pending.workload(key).filter(|_| !known.blockers.is_empty());
        let Some(workload) = workload.filter(|_| !self.capacity_reservations.contains_key(key)).cloned()
        else {
            return Some(known);
        };
        let judged = self.compute_assignment(&workload.cluster_queue, &workload, None, None);
        let short = judged
            .filter(|(plan, targets)| plan.assignment.mode != PreemptionMode::Fit && targets.is_empty());
        Some(short.map_or_else(
            || known.clone(),
            |(plan, _)| {
                let TentativeAssignment { reason, blockers, .. } = plan.assignment;
                Verdict { reason, blockers, text: Arc::clone(&known.text) }
            },
        ))
    }

    /// Up to `limit` workloads that wait for the same reason as a head that was judged, or that joined it later; each is
    /// told once per change of the message. They need a condition beside those of the decisions of `cycle`.
    pub fn take_message_updates(&mut self, limit: usize) -> Vec<ObjectKey> {
        self.pending.take_message_updates(limit)
    }

    /// Whether there are such workloads.
    pub fn has_message_updates(&self) -> bool {
        self.pending.has_message_updates()
    }

    /// The pending workload.
    pub fn workload(&self, key: &ObjectKey) -> Option<&Workload> {
        self.pending.workload(key)
    }

    /// What the workload holds.
    pub fn charge_of(&self, key: &ObjectKey) -> Option<&Charge> {
        self.reserving_workloads.get(key).map(|holder| &*holder.charge)
    }

    /// All that hold quota.
    pub fn charges(&self) -> impl Iterator<Item = (&ObjectKey, &Charge)> {
        self.reserving_workloads.iter().map(|holder| (&holder.key, &*holder.charge))
    }

    /// Limits, subtree quota and usage (reserved) of a node, with `borrowed` of each.
    pub fn usage(&self, node: &NodeRef) -> BTreeMap<FlavorResource, NodeUsage> {
        self.tree.usage(node)
    }

    /// What a ClusterQueue could take now; nothing if it is unknown or below a cycle.
    pub fn available(&self, cluster_queue: &str, pair: &FlavorResource) -> Amount {
        let place = self.tree.leaf(cluster_queue).zip(self.tree.fr_id(pair));
        let free = place.map_or(0, |(node, pair)| self.tree.available(node, pair, UsageLayer::Current));
        Amount::saturating_from_i128(free.max(0))
    }

    /// What workloads of a LocalQueue hold.
    pub fn local_usage(&self, namespace: &str, local_queue: &str) -> BTreeMap<FlavorResource, Amount> {
        let held = self.reserving_workloads.local_queue_usage(namespace, local_queue);
        let usage = held.into_iter().flat_map(|held| &held.usage);
        self.tree.to_named(usage.map(|(pair, amount)| (*pair, *amount)))
    }

    /// Number of workloads that hold quota of a ClusterQueue.
    pub fn reserving_workloads(&self, cluster_queue: &str) -> usize {
        self.tree.leaf(cluster_queue).map_or(0, |node| self.reserving_workloads.count(node))
    }

    /// Number of workloads of a LocalQueue that hold quota.
    pub fn local_reserving_workloads(&self, namespace: &str, local_queue: &str) -> usize {
        self.reserving_workloads.local_queue_usage(namespace, local_queue).map_or(0, |held| held.workloads)
    }

    /// Pending workloads of a ClusterQueue.
    pub fn pending(&self, cluster_queue: &str) -> PendingCounts {
        self.pending.counts(cluster_queue)
    }

    /// How many different scheduling hashes the pending workloads of a ClusterQueue have, by state.
    pub fn pending_hashes(&self, cluster_queue: &str) -> PendingCounts {
        self.pending.hash_counts(cluster_queue)
    }

    /// Those of them that came by a LocalQueue.
    pub fn local_pending(&self, cluster_queue: &str, local_queue: &ObjectKey) -> PendingCounts {
        self.pending.local_counts(cluster_queue, local_queue)
    }

    /// Pending workloads of a ClusterQueue in order.
    pub fn pending_in_order(&self, cluster_queue: &str) -> Vec<&Workload> {
        self.pending.in_order(cluster_queue)
    }

    /// Whether the workload takes no turns until something changes.
    pub fn is_parked(&self, key: &ObjectKey) -> bool {
        self.pending.is_parked(key) && !self.capacity_reservations.contains_key(key)
    }

    /// How many are ahead of the workload in its ClusterQueue.
    pub fn ahead_of(&self, key: &ObjectKey) -> Option<usize> {
        self.pending.ahead_of(key)
    }

    /// All nodes of the tree with their parents, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeRef, Option<&NodeRef>)> {
        self.tree.nodes()
    }

    /// The configured ClusterQueues by name.
    pub fn cluster_queues(&self) -> impl Iterator<Item = &Arc<str>> {
        self.queues.keys()
    }
}
