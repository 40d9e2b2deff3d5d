//! `Engine`: its state and the methods that change it. `cycle` runs scheduling cycles, `queries` reads.

use super::afs_usage::AfsUsageLedger;
use super::capacity_reservations::CapacityReservations;
use super::compiled::CompiledClusterQueue;
use super::config::{Charge, ClusterQueue, Cohort, EngineSettings, Flavor, Inactive, LocalQueue};
use super::configured_objects::{ConfiguredObjects, InactiveQueues};
use super::cycle_metrics::CycleMetrics;
use super::matching::selects;
use super::pods_ready_gate::PodsReadyGate;
use super::preemption_history::PreemptionHistory;
use super::reserving_workloads::{CandidateChange, ReservingWorkload, ReservingWorkloads};
use super::second_pass::SecondPassRequest;
use super::standing::Standings;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::queue::{QueueManager, UsageRank, Verdict, Workload};
use crate::quota::{NodeConfig, NodeId, NodeRef, QuotaTree, Usage, UsageChange, UsageLayer};
use crate::topology::TasCache;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Quota usage, pending workloads, and the scheduling of one by the other.
#[derive(Debug, Default)]
pub struct Engine {
    pub(super) settings: EngineSettings,
    pub(super) tree: QuotaTree,
    pub(super) topology: TasCache,
    /// Second passes requested for the next cycle, by workload.
    pub(super) second_pass_queue: BTreeMap<ObjectKey, SecondPassRequest>,
    pub(super) pending: QueueManager,
    pub(super) reserving_workloads: ReservingWorkloads,
    /// ClusterQueues, Cohorts, flavors and namespaces.
    pub(super) config: ConfiguredObjects,
    /// ClusterQueues that admit nothing.
    pub(super) inactive: InactiveQueues,
    /// Capacity reservations by preemptor.
    pub(super) reservations: CapacityReservations,
    /// Preemptions since the last external change of each tree.
    pub(super) preemption_history: PreemptionHistory,
    /// Past usage of LocalQueues.
    pub(super) afs_usage: AfsUsageLedger,
    /// Blocks admissions until all admitted pods are ready.
    pub(super) pods_ready_gate: PodsReadyGate,
    /// Counters of cycles for metrics.
    pub(super) cycle_metrics: CycleMetrics,
    /// Number of cycles so far.
    pub(super) cycle_count: u64,
    /// What keeps the workloads of ClusterQueues even if nothing is in use.
    pub(super) standings: Standings,
}

impl Engine {
    /// Returns an empty engine.
    pub fn new(settings: EngineSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Sets the labels of a namespace, or removes it.
    pub fn set_namespace(&mut self, name: &str, labels: Option<BTreeMap<String, String>>) {
        let old = self.config.namespace_labels(name);
        let match_changed = |queue: &CompiledClusterQueue| {
            let selector = queue.config.namespace_selector.as_ref();
            selects(selector, old) != selects(selector, labels.as_ref())
        };
        let queues = self.config.cluster_queues().filter(|(_, queue)| match_changed(queue));
        let queues: Vec<Arc<str>> = queues.map(|(queue, _)| Arc::clone(queue)).collect();
        self.config.set_namespace(name, labels);
        for queue in queues {
            self.pending.config_changed(&queue, Some(name));
        }
    }

    /// Sets or removes a flavor.
    pub fn set_flavor(&mut self, name: &str, flavor: Option<Flavor>) {
        if !self.config.set_flavor(name, flavor) {
            return;
        }
        let uses = |queue: &CompiledClusterQueue| {
            queue.groups.iter().flat_map(|group| &group.flavors).any(|f| *f.name == *name)
        };
        for (queue, _) in self.config.cluster_queues().filter(|(_, queue)| uses(queue)) {
            self.pending.config_changed(queue, None);
        }
        self.update_topology_flavor(name);
    }

    /// Sets or removes a Cohort. A Cohort that is only referred to exists without quota of its own.
    pub fn set_cohort(&mut self, name: &str, cohort: Option<Cohort>) {
        if !self.config.set_cohort(name, cohort) {
            return;
        }
        let config = self.config.cohort(name).map(|cohort| NodeConfig {
            parent: cohort.parent.as_deref(),
            groups: &cohort.groups,
            weight: cohort.weight.unwrap_or(1.0),
        });
        let touched = self.tree.configure(&NodeRef::Cohort(Arc::from(name)), config);
        self.apply_config_change(touched);
    }

    /// Sets or removes a ClusterQueue. Its charges and pending workloads stay.
    pub fn set_cluster_queue(&mut self, name: &str, queue: Option<ClusterQueue>) {
        if self.config.cluster_queue(name).map(|queue| &queue.config) == queue.as_ref() {
            return;
        }
        let config = queue.as_ref().map(|queue| NodeConfig {
            parent: queue.cohort.as_deref(),
            groups: &queue.groups,
            weight: queue.weight.unwrap_or(1.0),
        });
        let mut touched = self.tree.configure(&NodeRef::ClusterQueue(Arc::from(name)), config);
        touched.insert(Arc::from(name));
        let compiled = queue.map(|queue| {
            let node = self.tree.ensure_leaf(name);
            CompiledClusterQueue::compile(queue, node, &mut self.tree, &self.settings)
        });
        if compiled.is_none() {
            self.cycle_metrics.forget(name);
        }
        self.config.set_cluster_queue(name, compiled);
        self.apply_config_change(touched);
    }

    /// Sets or removes the admission fair sharing data of a LocalQueue.
    pub fn set_local_queue(&mut self, key: &ObjectKey, queue: Option<LocalQueue>) {
        let name = queue.as_ref().map(|queue| Arc::clone(&queue.cluster_queue));
        let old_name = self.afs_usage.get(key).map(|queue| Arc::clone(&queue.cluster_queue));
        self.afs_usage.set(key, queue);
        if let Some(old_name) = old_name.filter(|old_name| Some(old_name) != name.as_ref()) {
            self.wake_after_reordering(&old_name);
        }
        if let Some(name) = name {
            self.update_usage_rank(key, &name);
        }
    }

    /// Sets whether past usage follows the statuses of LocalQueues, which a manager that leads elsewhere writes.
    pub fn follow_past_usage(&mut self, follows: bool) {
        self.afs_usage.follows = follows;
    }

    /// Updates the rank of a LocalQueue in its ClusterQueue from its past usage.
    pub(super) fn update_usage_rank(&mut self, key: &ObjectKey, cluster_queue: &str) {
        let counts =
            self.config.cluster_queue(cluster_queue).is_some_and(|queue| queue.config.orders_by_past_usage);
        let settings = self.settings.admission_fair_sharing.as_ref().filter(|_| counts);
        let usage = settings.and_then(|settings| self.afs_usage.weighted_usage(key, settings));
        self.pending.set_rank(cluster_queue, key, usage.map(UsageRank::from_usage).unwrap_or_default());
        if self.afs_usage.record_order(key, usage) {
            self.wake_after_reordering(cluster_queue);
        }
    }

    /// Wakes what may preempt workloads of a ClusterQueue, after the order in which it would has changed.
    fn wake_after_reordering(&mut self, cluster_queue: &str) {
        if let Some(node) = self.tree.leaf(cluster_queue) {
            self.pending.candidate_order_changed(self.tree.root(node));
        }
    }

    /// Activates or deactivates ClusterQueues after a configuration change and wakes their parked workloads.
    fn apply_config_change(&mut self, queues: BTreeSet<Arc<str>>) {
        self.preemption_history.clear();
        self.standings.note_change();
        for queue in queues {
            self.refresh_activity(&queue);
            self.pending.config_changed(&queue, None);
        }
    }

    fn refresh_activity(&mut self, queue: &Arc<str>) {
        let inactive = self.inactive_reason(queue);
        let known = self.config.cluster_queue(queue);
        let strategy = known.map(|queue| queue.config.strategy);
        let preempts_newer = known.is_some_and(|queue| queue.policy.preempts_newer());
        self.pending.configure(queue, strategy.filter(|_| inactive.is_none()), preempts_newer);
        if let Some(node) = self.tree.leaf(queue) {
            self.inactive.set(node, strategy.is_none() || inactive.is_some());
        }
        let verdict = match (strategy, inactive) {
            (Some(_), None) => None,
            (Some(_), Some(inactive)) => Some(inactive.verdict(queue)),
            (None, _) => {
                Some(missing_queue_verdict(queue)).filter(|_| self.pending.counts(queue).total() > 0)
            }
        };
        if verdict.is_some() {
            self.cancel_reservations_in(queue);
        }
        self.inactive.set_verdict(queue, verdict);
        for local in self.afs_usage.local_queues_of(queue) {
            self.update_usage_rank(&local, queue);
        }
    }

    /// Why a ClusterQueue admits nothing: the configured reason, or a cycle of Cohorts above it.
    pub fn inactive_reason(&self, cluster_queue: &str) -> Option<Inactive> {
        let configured =
            self.config.cluster_queue(cluster_queue).and_then(|queue| queue.config.inactive.clone());
        configured.or_else(|| self.tree.cycle_above(cluster_queue).map(Inactive::cohort_cycle))
    }

    /// Inserts or replaces a pending workload. A workload with a charge is ignored: call `release` first.
    pub fn enqueue(&mut self, workload: Workload) {
        if self.reserving_workloads.get(&workload.key).is_some() {
            return;
        }
        let known = self.pending.workload(&workload.key);
        if known.is_some_and(|known| !known.is_same_request(&workload)) {
            self.preemption_history.forget(&workload.key);
        }
        if self.reservations.contains(&workload.key) {
            if known.is_some_and(|known| known.is_same_request(&workload)) {
                return;
            }
            self.cancel_reservation(&workload.key.clone());
        }
        let queue = Arc::clone(&workload.cluster_queue);
        let old_queue = self.pending.workload(&workload.key).map(|old| Arc::clone(&old.cluster_queue));
        self.pending.insert(workload);
        let queues: Vec<Arc<str>> = old_queue.into_iter().chain([queue]).collect();
        for queue in
            queues.into_iter().filter(|queue| !self.config.has_cluster_queue(queue)).collect::<Vec<_>>()
        {
            self.refresh_activity(&queue);
        }
    }

    /// Removes a pending workload, its capacity reservation and its preemption history.
    pub fn remove_pending(&mut self, key: &ObjectKey) {
        self.preemption_history.forget(key);
        self.remove_from_queue(key);
    }

    /// Lists a workload as pending that is not nominated. It loses what `remove_pending` removes.
    pub fn wait(&mut self, workload: Workload) {
        self.remove_pending(&workload.key);
        self.pending.wait(workload);
    }

    fn remove_from_queue(&mut self, key: &ObjectKey) {
        self.cancel_reservation(key);
        let queue = self.pending.remove(key);
        if let Some(queue) = queue.filter(|queue| !self.config.has_cluster_queue(queue)) {
            self.refresh_activity(&queue);
        }
    }

    /// Sets the charge of a workload, replaces an earlier one, and removes the workload from its queue.
    pub fn charge(&mut self, key: &ObjectKey, charge: Charge) {
        let mut usage = Usage::new();
        for (fr, amount) in &charge.usage {
            usage.push((self.tree.ensure_fr(fr), amount.to_i128()));
        }
        usage.sort_unstable();
        self.charge_usage(key, charge, usage);
    }

    /// Like `charge`, with the usage by id, which must match the usage by name.
    pub(super) fn charge_usage(&mut self, key: &ObjectKey, charge: Charge, usage: Usage) {
        self.remove_from_queue(key);
        let node = self.tree.ensure_leaf(&charge.cluster_queue);
        let old = self.reserving_workloads.get(key).cloned();
        let same_object = old.as_ref().filter(|old| old.charge.uid == charge.uid && old.node == node);
        let preempted_by = same_object.and_then(|old| old.preempted_by.clone());
        let footprint = Arc::new(self.topology.footprint(&charge.topology));
        let new = ReservingWorkload {
            key: key.clone(),
            charge: Arc::new(charge),
            node,
            usage,
            footprint,
            preempted_by,
        };
        let same_usage =
            same_object.is_some_and(|old| old.usage == new.usage && old.usage_layers() == new.usage_layers());
        if let Some(old) = old.as_ref().filter(|_| same_usage) {
            if old.footprint != new.footprint {
                self.shift_footprint(&new.footprint, 1, new.usage_layers());
                self.shift_footprint(&old.footprint, -1, new.usage_layers());
            }
            self.wake_preemptors_of(&new, old.candidate_change(&new));
            self.reserving_workloads.insert(new);
            return;
        }
        // More usage rarely helps a preemptor, but a ClusterQueue that starts to borrow may lose its other workloads.
        self.wake_preemptors_of(&new, CandidateChange::Order);
        // Add before remove: a leaf without usage could be dropped from the tree.
        self.add_usage(node, &new.usage, new.usage_layers());
        self.shift_footprint(&new.footprint, 1, new.usage_layers());
        if let Some(old) = old {
            if new.preempted_by.is_none() {
                self.forget_victim(&old);
            }
            self.release_usage(&old);
        }
        self.reserving_workloads.insert(new);
    }

    /// Wakes what may preempt a workload after the workload changed as a candidate.
    fn wake_preemptors_of(&mut self, workload: &ReservingWorkload, change: CandidateChange) {
        if change == CandidateChange::None || workload.is_terminating() {
            return;
        }
        let root = self.tree.root(workload.node);
        for (fr, _) in workload.usage.iter().filter(|(_, amount)| *amount > 0) {
            self.pending.candidate_changed(root, *fr, change == CandidateChange::Order);
        }
    }

    /// Removes the charge of a workload.
    pub fn release(&mut self, key: &ObjectKey) {
        self.second_pass_queue.remove(key);
        if let Some(old) = self.reserving_workloads.remove(key) {
            self.cancel_reservation(key);
            if old.preempted_by.is_none() && !old.charge.evicted {
                self.preemption_history.forget_tree(self.tree.root(old.node));
            }
            self.forget_victim(&old);
            self.release_usage(&old);
        }
    }

    /// Removes a workload from its preemptor's victims: later charges of the same workload are not part of that
    /// preemption.
    fn forget_victim(&mut self, workload: &ReservingWorkload) {
        if let Some(reservation) = workload.preempted_by.as_ref().and_then(|by| self.reservations.get_mut(by))
        {
            reservation.victims.remove(&workload.key);
        }
    }

    fn release_usage(&mut self, workload: &ReservingWorkload) {
        let negated = negated_usage(&workload.usage);
        self.add_usage(workload.node, &negated, workload.usage_layers());
        self.shift_footprint(&workload.footprint, -1, workload.usage_layers());
    }

    /// Adds usage to the quota tree and wakes the classes that wait for the change.
    pub(super) fn add_usage(&mut self, node: NodeId, usage: &Usage, layers: &[UsageLayer]) {
        let root = self.tree.root(node);
        let change = self.tree.add_usage(node, usage, layers);
        self.wake(root, &change);
    }

    fn wake(&mut self, root: NodeId, change: &UsageChange) {
        for (freed, frs) in [(true, &change.decreased), (false, &change.increased)] {
            for fr in frs {
                let tree = &self.tree;
                let available = |queue: &str| {
                    let leaf = tree.leaf(queue);
                    leaf.map_or(i128::MIN, |leaf| tree.available(leaf, *fr, UsageLayer::Projected).max(0))
                };
                self.pending.usage_changed(root, *fr, freed, available);
            }
        }
    }

    /// Whether a cycle would have a head or second pass to process.
    pub fn has_work(&self) -> bool {
        self.pending.has_work() || self.has_second_passes()
    }

    /// Whether second passes are requested.
    pub fn has_second_passes(&self) -> bool {
        !self.second_pass_queue.is_empty()
    }
}

/// The same usage with negative amounts.
pub(super) fn negated_usage(usage: &Usage) -> Usage {
    usage.iter().map(|(fr, amount)| (*fr, -amount)).collect()
}

fn missing_queue_verdict(queue: &str) -> Verdict {
    Verdict::without_blockers(PendingReason::Misconfigured, &format!("ClusterQueue {queue} doesn't exist"))
}
