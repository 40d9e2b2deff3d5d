//! Read access to the engine for status, metrics, visibility and users.
//!
//! Invariant: queries change nothing; `fresh_verdict` undoes what it simulates.

use super::config::Charge;
use super::decision::PreemptionReason;
use super::engine::Engine;
use super::granular_mode::PreemptionMode;
use super::preemption::Preemptor;
use super::tentative_assignment::TentativeAssignment;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::queue::{PendingCounts, PendingOrder, Verdict, Workload};
use crate::quota::{FlavorResource, FlavorResourceId, NodeRef, NodeUsage, Usage, UsageLayer};
use crate::resources::Amount;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Engine {
    /// Why the workload is pending; `None` if it is not pending or was not nominated yet.
    pub fn verdict(&self, key: &ObjectKey) -> Option<&Verdict> {
        let queue = &self.pending.workload(key)?.cluster_queue;
        self.inactive.verdict(queue).or_else(|| self.pending.verdict(key).map(|verdict| &**verdict))
    }

    /// The verdict recomputed now: since the last nomination the blockers and the available amounts may have changed
    /// without letting the workload in. Changes no state.
    pub fn fresh_verdict(&mut self, key: &ObjectKey) -> Option<Verdict> {
        let known = self.verdict(key)?.clone();
        if let Some((head, position)) = self.waits_behind(key) {
            let queue = self.pending.workload(key).map_or("", |workload| &workload.cluster_queue);
            let text = format!("behind {head} in the StrictFIFO ClusterQueue {queue} (position {position})");
            return Some(Verdict::without_blockers(PendingReason::WaitingForQuota, &text));
        }
        let workload = self.pending.workload(key).filter(|_| !known.blockers.is_empty());
        let Some(workload) = workload.filter(|_| !self.reservations.contains(key)).cloned() else {
            return Some(known);
        };
        let result = self.compute_assignment(&workload.cluster_queue, &workload, None, None);
        let not_fitting = result.filter(|(nominated, targets)| {
            nominated.assignment.mode != PreemptionMode::Fit && targets.is_empty()
        });
        Some(not_fitting.map_or_else(
            || known.clone(),
            |(nominated, _)| {
                let TentativeAssignment { reason, blockers, .. } = nominated.assignment;
                Verdict { reason, blockers, text: Arc::clone(&known.text) }
            },
        ))
    }

    /// Returns the workloads that a head may evict if what it needs is in use, and why: those that the search of its targets may take.
    /// Nothing is said of whether the head fits then. Heads of a ClusterQueue that admits nothing evict nothing.
    pub fn eviction_candidates(
        &mut self,
        head: &Workload,
        needs: &BTreeMap<FlavorResource, Amount>,
    ) -> BTreeMap<ObjectKey, PreemptionReason> {
        let need = |(fr, amount): (&FlavorResource, &Amount)| Some((self.tree.fr_id(fr)?, amount.to_i128()));
        let usage: Usage = needs.iter().filter_map(need).collect();
        let frs: Vec<FlavorResourceId> = usage.iter().map(|(fr, _)| *fr).collect();
        let Some((context, queue, _)) = self.scheduling_context(&head.cluster_queue, &head.key) else {
            return BTreeMap::new();
        };
        let searches = usage.iter().all(|need| context.would_search_targets(queue, *need));
        if !searches || context.inactive.contains(queue.node) {
            return BTreeMap::new();
        }
        let preemptor = Preemptor {
            queue,
            priority: head.priority,
            queued_since: head.queued_since,
            usage: &usage,
            frs_need_preemption: &frs,
            pod_set_requests: &[],
        };
        let candidates = context.candidates(&preemptor).into_iter().filter(|candidate| candidate.is_eligible);
        candidates.map(|candidate| (candidate.workload.key.clone(), candidate.reason)).collect()
    }

    /// The workload that this one waits behind in a StrictFIFO ClusterQueue, and its position there; `None` if it waits for
    /// another reason.
    pub fn waits_behind(&self, key: &ObjectKey) -> Option<(&ObjectKey, usize)> {
        let queue = &self.pending.workload(key)?.cluster_queue;
        let head = self.pending.waits_behind(key).filter(|_| self.inactive.verdict(queue).is_none())?;
        Some((head, self.pending.ahead_of(key)?))
    }

    /// Returns up to `limit` workloads whose message changed without an own decision: they share the class of a
    /// nominated head or joined it later. Each is returned once per change; they need a condition in addition to
    /// those for the decisions of `run_cycle`.
    pub fn take_message_updates(&mut self, limit: usize) -> Vec<ObjectKey> {
        self.pending.take_message_updates(limit)
    }

    /// Whether `take_message_updates` would return any workload.
    pub fn has_message_updates(&self) -> bool {
        self.pending.has_message_updates()
    }

    /// The pending workload.
    pub fn workload(&self, key: &ObjectKey) -> Option<&Workload> {
        self.pending.workload(key)
    }

    /// The charge of the workload.
    pub fn charge_of(&self, key: &ObjectKey) -> Option<&Charge> {
        self.reserving_workloads.get(key).map(|workload| &*workload.charge)
    }

    /// All charges by workload.
    pub fn charges(&self) -> impl Iterator<Item = (&ObjectKey, &Charge)> {
        self.reserving_workloads.iter().map(|workload| (&workload.key, &*workload.charge))
    }

    /// Limits, subtree quota and reserved usage of a node.
    pub fn usage(&self, node: &NodeRef) -> BTreeMap<FlavorResource, NodeUsage> {
        self.tree.usage(node)
    }

    /// Quota currently available to a ClusterQueue; 0 if it is unknown or below a cycle.
    pub fn available(&self, cluster_queue: &str, fr: &FlavorResource) -> Amount {
        let ids = self.tree.leaf(cluster_queue).zip(self.tree.fr_id(fr));
        let free = ids.map_or(0, |(node, fr)| self.tree.available(node, fr, UsageLayer::Current));
        Amount::saturating_from_i128(free.max(0))
    }

    /// The flavors with which a ClusterQueue has a quota of a resource, in the order of preference.
    pub fn flavors_with(&self, cluster_queue: &str, resource: &str) -> Vec<FlavorResource> {
        let groups = self.config.cluster_queue(cluster_queue).into_iter().flat_map(|queue| &queue.groups);
        let covering = groups.filter(|group| group.covered_resources.iter().any(|one| **one == *resource));
        covering
            .flat_map(|group| &group.flavors)
            .map(|one| FlavorResource::new(&one.name, resource))
            .collect()
    }

    /// Whether a ClusterQueue has quota for more than it is charged; with 0, whether it has it for what it is charged.
    pub fn has_room(&self, cluster_queue: &str, fr: &FlavorResource, more: Amount) -> bool {
        let ids = self.tree.leaf(cluster_queue).zip(self.tree.fr_id(fr));
        let free = ids.map_or(0, |(node, fr)| self.tree.available(node, fr, UsageLayer::Current));
        free >= i128::from(more.get())
    }

    /// Usage of the workloads of a LocalQueue.
    pub fn local_usage(&self, namespace: &str, local_queue: &str) -> BTreeMap<FlavorResource, Amount> {
        let of_local_queue = self.reserving_workloads.local_queue_usage(namespace, local_queue);
        let usage = of_local_queue.into_iter().flat_map(|of_local_queue| &of_local_queue.usage);
        self.tree.to_named(usage.map(|(fr, amount)| (*fr, *amount)))
    }

    /// Number of workloads with quota of a ClusterQueue.
    pub fn reserving_workloads(&self, cluster_queue: &str) -> usize {
        self.tree.leaf(cluster_queue).map_or(0, |node| self.reserving_workloads.count(node))
    }

    /// Number of workloads of a LocalQueue with quota.
    pub fn local_reserving_workloads(&self, namespace: &str, local_queue: &str) -> usize {
        self.reserving_workloads
            .local_queue_usage(namespace, local_queue)
            .map_or(0, |local_usage| local_usage.workloads)
    }

    /// Whether any workload is pending.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Number of pending workloads of a ClusterQueue, by state.
    pub fn pending(&self, cluster_queue: &str) -> PendingCounts {
        self.pending.counts(cluster_queue)
    }

    /// Number of distinct scheduling hashes among the pending workloads of a ClusterQueue, by state.
    pub fn pending_hashes(&self, cluster_queue: &str) -> PendingCounts {
        self.pending.hash_counts(cluster_queue)
    }

    /// Number of pending workloads of a ClusterQueue that came through one LocalQueue.
    pub fn local_pending(&self, cluster_queue: &str, local_queue: &ObjectKey) -> PendingCounts {
        self.pending.local_counts(cluster_queue, local_queue)
    }

    /// The order of all workloads that count as pending, also of those that are not nominated.
    pub const fn pending_order(&self) -> &PendingOrder {
        self.pending.order()
    }

    /// Pending workloads of a ClusterQueue in order.
    pub fn pending_in_order(&self, cluster_queue: &str) -> Vec<&Workload> {
        self.pending.in_order(cluster_queue)
    }

    /// Whether the workload is parked without a capacity reservation.
    pub fn is_parked(&self, key: &ObjectKey) -> bool {
        self.pending.is_parked(key) && !self.reservations.contains(key)
    }

    /// Number of workloads ahead of this one in its ClusterQueue.
    pub fn ahead_of(&self, key: &ObjectKey) -> Option<usize> {
        self.pending.ahead_of(key)
    }

    /// All nodes of the tree with their parents, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeRef, Option<&NodeRef>)> {
        self.tree.nodes()
    }

    /// The configured ClusterQueues by name.
    pub fn cluster_queues(&self) -> impl Iterator<Item = &Arc<str>> {
        self.config.cluster_queues().map(|(name, _)| name)
    }
}
