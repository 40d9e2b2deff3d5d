//! The facade: what is known, and what changes it. `cycle` stands in its own file, questions in `report`.

use super::afs_usage::AfsUsageLedger;
use super::capacity_reservations::CapacityReservation;
use super::compiled::CompiledClusterQueue;
use super::config::{Charge, ClusterQueue, Cohort, EngineSettings, Flavor, Inactive, LocalQueue};
use super::cycle_metrics::CycleMetrics;
use super::matching::selects;
use super::pods_ready_gate::PodsReadyGate;
use super::preemption_history::PreemptionHistory;
use super::reserving_workloads::{ReservingWorkload, ReservingWorkloads};
use super::second_pass::SecondPassRequest;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::queue::{QueueManager, UsageRank, Verdict, Workload};
use crate::quota::{NodeConfig, NodeId, NodeRef, QuotaTree, Usage, UsageChange, UsageLayer};
use crate::topology::TasCache;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Quota, pending workloads and decisions.
#[derive(Debug, Default)]
pub struct Engine {
    pub(super) settings: EngineSettings,
    pub(super) tree: QuotaTree,
    pub(super) topology: TasCache,
    /// Those that hold quota and are due for a second pass.
    pub(super) second_pass_queue: BTreeMap<ObjectKey, SecondPassRequest>,
    pub(super) pending: QueueManager,
    pub(super) reserving_workloads: ReservingWorkloads,
    pub(super) queues: BTreeMap<Arc<str>, CompiledClusterQueue>,
    pub(super) cohorts: BTreeMap<Arc<str>, Cohort>,
    pub(super) flavors: BTreeMap<Arc<str>, Flavor>,
    pub(super) namespaces: BTreeMap<Arc<str>, BTreeMap<String, String>>,
    /// What is said of workloads that wait in queues that admit nothing.
    pub(super) inactive_verdicts: BTreeMap<Arc<str>, Verdict>,
    /// Queues that admit nothing; nobody may take from them either.
    pub(super) inactive: BTreeSet<NodeId>,
    /// Room that is kept, by the workload that it is kept for.
    pub(super) capacity_reservations: BTreeMap<ObjectKey, CapacityReservation>,
    /// No earmark is older; what it was of may be gone.
    pub(super) oldest_reservation: Option<Timestamp>,
    /// Who was evicted for whom since the tree last changed from outside.
    pub(super) preemption_history: PreemptionHistory,
    /// Past usage of LocalQueues.
    pub(super) afs_usage: AfsUsageLedger,
    /// Whose pods admissions wait for.
    pub(super) pods_ready_gate: PodsReadyGate,
    /// What metrics tell of cycles.
    pub(super) cycle_metrics: CycleMetrics,
    /// Number of cycles so far.
    pub(super) cycle_count: u64,
}

impl Engine {
    /// An empty engine.
    pub fn new(settings: EngineSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Sets the labels of a namespace, or removes it.
    pub fn set_namespace(&mut self, name: &str, labels: Option<BTreeMap<String, String>>) {
        let old = self.namespaces.get(name);
        let turned = |queue: &CompiledClusterQueue| {
            let selector = queue.config.namespace_selector.as_ref();
            selects(selector, old) != selects(selector, labels.as_ref())
        };
        let queues = self.queues.iter().filter(|(_, queue)| turned(queue));
        let queues: Vec<Arc<str>> = queues.map(|(queue, _)| Arc::clone(queue)).collect();
        set_entry(&mut self.namespaces, name, labels);
        for queue in queues {
            self.pending.config_changed(&queue, Some(name));
        }
    }

    /// Sets or removes a flavor.
    pub fn set_flavor(&mut self, name: &str, flavor: Option<Flavor>) {
        if !set_entry(&mut self.flavors, name, flavor) {
            return;
        }
        let uses = |queue: &CompiledClusterQueue| {
            queue.groups.iter().flat_map(|group| &group.flavors).any(|f| *f.name == *name)
        };
        for queue in self.queues.iter().filter(|(_, queue)| uses(queue)).map(|(queue, _)| queue) {
            self.pending.config_changed(queue, None);
        }
        self.update_topology_flavor(name);
    }

    /// Sets or removes a cohort. One that is referred to exists without quota of its own.
    pub fn set_cohort(&mut self, name: &str, cohort: Option<Cohort>) {
        if !set_entry(&mut self.cohorts, name, cohort) {
            return;
        }
        let config = self.cohorts.get(name).map(|cohort| NodeConfig {
            parent: cohort.parent.as_deref(),
            groups: &cohort.groups,
            weight: cohort.weight.unwrap_or(1.0),
        });
        let touched = self.tree.configure(&NodeRef::Cohort(Arc::from(name)), config);
        self.apply_config_change(touched);
    }

    /// Sets or removes a ClusterQueue. What its workloads hold and those that wait in it stay known.
    pub fn set_cluster_queue(&mut self, name: &str, queue: Option<ClusterQueue>) {
        if self.queues.get(name).map(|queue| &queue.config) == queue.as_ref() {
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
            CompiledClusterQueue::compile(queue, node, &mut self.tree)
        });
        if compiled.is_none() {
            self.cycle_metrics.forget(name);
        }
        match compiled {
            Some(queue) => drop(self.queues.insert(Arc::from(name), queue)),
            None => drop(self.queues.remove(name)),
        }
        self.apply_config_change(touched);
    }

    /// Sets or removes what admission fair sharing knows of a LocalQueue.
    pub fn set_local_queue(&mut self, key: &ObjectKey, queue: Option<LocalQueue>) {
        let name = queue.as_ref().map(|queue| Arc::clone(&queue.cluster_queue));
        self.afs_usage.set(key, queue);
        if let Some(name) = name {
            self.update_usage_rank(key, &name);
        }
    }

    /// Brings the place of a LocalQueue in its ClusterQueue in step with its past usage.
    pub(super) fn update_usage_rank(&mut self, key: &ObjectKey, cluster_queue: &str) {
        let counts = self.queues.get(cluster_queue).is_some_and(|queue| queue.config.orders_by_past_usage);
        let settings = self.settings.admission_fair_sharing.as_ref().filter(|_| counts);
        let usage = settings.and_then(|settings| self.afs_usage.weighted_usage(key, settings));
        self.pending.set_rank(cluster_queue, key, usage.map(UsageRank::from_usage).unwrap_or_default());
    }

    /// Opens or closes queues as their configuration and their place in the tree say, and wakes what waits in them.
    fn apply_config_change(&mut self, queues: BTreeSet<Arc<str>>) {
        self.preemption_history.clear();
        for queue in queues {
            self.refresh_activity(&queue);
            self.pending.config_changed(&queue, None);
        }
    }

    fn refresh_activity(&mut self, queue: &Arc<str>) {
        let inactive = self.inactive_reason(queue);
        let strategy = self.queues.get(queue).map(|queue| queue.config.strategy);
        self.pending.configure(queue, strategy.filter(|_| inactive.is_none()));
        if let Some(node) = self.tree.leaf(queue) {
            if strategy.is_some() && inactive.is_none() {
                self.inactive.remove(&node);
            } else {
                self.inactive.insert(node);
            }
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
        set_entry(&mut self.inactive_verdicts, queue, verdict);
        for local in self.afs_usage.local_queues_of(queue) {
            self.update_usage_rank(&local, queue);
        }
    }

    /// Why a ClusterQueue admits nothing: what the caller said, or a cycle of cohorts above it.
    pub fn inactive_reason(&self, cluster_queue: &str) -> Option<Inactive> {
        let said = self.queues.get(cluster_queue).and_then(|queue| queue.config.inactive.clone());
        said.or_else(|| self.tree.cycle_above(cluster_queue).map(Inactive::cohort_cycle))
    }

    /// Inserts or replaces a pending workload. One that holds quota is not queued: release it first.
    pub fn enqueue(&mut self, workload: Workload) {
        if self.reserving_workloads.get(&workload.key).is_some() {
            return;
        }
        let known = self.pending.workload(&workload.key);
        if known.is_some_and(|known| *known != workload) {
            self.preemption_history.forget(&workload.key);
        }
        if self.capacity_reservations.contains_key(&workload.key) {
            if known == Some(&workload) {
                return;
            }
            self.cancel_reservation(&workload.key.clone());
        }
        let queue = Arc::clone(&workload.cluster_queue);
        let from = self.pending.workload(&workload.key).map(|old| Arc::clone(&old.cluster_queue));
        self.pending.insert(workload);
        let queues: Vec<Arc<str>> = from.into_iter().chain([queue]).collect();
        for queue in queues.into_iter().filter(|queue| !self.queues.contains_key(queue)).collect::<Vec<_>>() {
            self.refresh_activity(&queue);
        }
    }

    /// The workload is not pending any more.
    pub fn remove_pending(&mut self, key: &ObjectKey) {
        self.preemption_history.forget(key);
        self.remove_from_queue(key);
    }

    fn remove_from_queue(&mut self, key: &ObjectKey) {
        self.cancel_reservation(key);
        let queue = self.pending.remove(key);
        if let Some(queue) = queue.filter(|queue| !self.queues.contains_key(queue)) {
            self.refresh_activity(&queue);
        }
    }

    /// The workload holds this and nothing else, and is not pending.
    pub fn charge(&mut self, key: &ObjectKey, charge: Charge) {
        let mut usage = Usage::new();
        for (pair, amount) in &charge.usage {
            usage.push((self.tree.ensure_fr(pair), amount.to_i128()));
        }
        usage.sort_unstable();
        self.charge_usage(key, charge, usage);
    }

    /// The same, with what it holds by number as well.
    pub(super) fn charge_usage(&mut self, key: &ObjectKey, charge: Charge, usage: Usage) {
        self.remove_from_queue(key);
        let node = self.tree.ensure_leaf(&charge.cluster_queue);
        let old = self.reserving_workloads.get(key).cloned();
        let same = old.as_ref().filter(|old| old.charge.uid == charge.uid && old.node == node);
        let leaves_for = same.and_then(|old| old.preempted_by.clone());
        let stand = Arc::new(self.topology.footprint(&charge.topology));
        let new = ReservingWorkload {
            key: key.clone(),
            charge: Arc::new(charge),
            node,
            usage,
            footprint: stand,
            preempted_by: leaves_for,
        };
        let unmoved =
            same.is_some_and(|old| old.usage == new.usage && old.usage_layers() == new.usage_layers());
        if let Some(old) = old.as_ref().filter(|_| unmoved) {
            if old.footprint != new.footprint {
                self.shift_footprint(&new.footprint, 1, new.usage_layers());
                self.shift_footprint(&old.footprint, -1, new.usage_layers());
            }
            self.reserving_workloads.insert(new);
            return;
        }
        // The new comes before the old goes, so that its node of the tree is never without either.
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

    /// The workload holds nothing any more.
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

    /// A victim that has let go is none any more, whatever it holds later.
    fn forget_victim(&mut self, holder: &ReservingWorkload) {
        if let Some(earmark) =
            holder.preempted_by.as_ref().and_then(|by| self.capacity_reservations.get_mut(by))
        {
            earmark.victims.remove(&holder.key);
        }
    }

    fn release_usage(&mut self, holder: &ReservingWorkload) {
        let back = negated_usage(&holder.usage);
        self.add_usage(holder.node, &back, holder.usage_layers());
        self.shift_footprint(&holder.footprint, -1, holder.usage_layers());
    }

    /// Moves usage in the tree and wakes what waited for it.
    pub(super) fn add_usage(&mut self, node: NodeId, usage: &Usage, layers: &[UsageLayer]) {
        let root = self.tree.root(node);
        let moved = self.tree.add_usage(node, usage, layers);
        self.wake(root, &moved);
    }

    fn wake(&mut self, root: NodeId, moved: &UsageChange) {
        for (freed, pairs) in [(true, &moved.decreased), (false, &moved.increased)] {
            for pair in pairs {
                let tree = &self.tree;
                let available = |queue: &str| {
                    let leaf = tree.leaf(queue);
                    leaf.map_or(i128::MIN, |leaf| tree.available(leaf, *pair, UsageLayer::Projected).max(0))
                };
                self.pending.usage_changed(root, *pair, freed, available);
            }
        }
    }

    /// Whether a cycle would judge anybody.
    pub fn has_work(&self) -> bool {
        self.pending.has_work() || self.has_second_passes()
    }

    /// Whether second passes are to be judged.
    pub fn has_second_passes(&self) -> bool {
        !self.second_pass_queue.is_empty()
    }
}

/// The same usage to be taken off.
pub(super) fn negated_usage(usage: &Usage) -> Usage {
    usage.iter().map(|(pair, amount)| (*pair, -amount)).collect()
}

/// Sets or removes an entry and answers whether that changed anything.
fn set_entry<T: PartialEq>(map: &mut BTreeMap<Arc<str>, T>, name: &str, value: Option<T>) -> bool {
    if map.get(name) == value.as_ref() {
        return false;
    }
    match value {
        Some(value) => map.insert(Arc::from(name), value),
        None => map.remove(name),
    };
    true
}

fn missing_queue_verdict(queue: &str) -> Verdict {
    Verdict::without_blockers(PendingReason::Misconfigured, &format!("ClusterQueue {queue} doesn't exist"))
}
