//! The facade: what is known, and what changes it. `cycle` stands in its own file, questions in `report`.

use super::again::Again;
use super::compiled::Queue;
use super::config::{Charge, ClusterQueue, Cohort, EngineSettings, Flavor, Inactive, LocalQueue};
use super::earmarks::Earmark;
use super::ledger::{Holder, Holders};
use super::matching::selects;
use super::observed::Observed;
use super::readiness::Readiness;
use super::taken::Taken;
use super::usage_order::UsageOrder;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::queue::{Queues, Rank, Verdict, Workload};
use crate::quota::{Layer, Moved, NodeConfig, NodeId, NodeRef, Tree, Usage};
use crate::topology::Cluster;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Quota, pending workloads and decisions.
#[derive(Debug, Default)]
pub struct Engine {
    pub(super) settings: EngineSettings,
    pub(super) tree: Tree,
    pub(super) topology: Cluster,
    /// Those that hold quota and are due for a second pass.
    pub(super) due: BTreeMap<ObjectKey, Again>,
    pub(super) pending: Queues,
    pub(super) holders: Holders,
    pub(super) queues: BTreeMap<Arc<str>, Queue>,
    pub(super) cohorts: BTreeMap<Arc<str>, Cohort>,
    pub(super) flavors: BTreeMap<Arc<str>, Flavor>,
    pub(super) namespaces: BTreeMap<Arc<str>, BTreeMap<String, String>>,
    /// What is said of workloads that wait in queues that admit nothing.
    pub(super) closed: BTreeMap<Arc<str>, Verdict>,
    /// Queues that admit nothing; nobody may take from them either.
    pub(super) inactive: BTreeSet<NodeId>,
    /// Room that is kept, by the workload that it is kept for.
    pub(super) earmarks: BTreeMap<ObjectKey, Earmark>,
    /// No earmark is older; what it was of may be gone.
    pub(super) oldest_earmark: Option<Timestamp>,
    /// Who was evicted for whom since the tree last changed from outside.
    pub(super) taken: Taken,
    /// Past usage of LocalQueues.
    pub(super) order: UsageOrder,
    /// Whose pods admissions wait for.
    pub(super) readiness: Readiness,
    /// What metrics tell of cycles.
    pub(super) observed: Observed,
    /// Number of cycles so far.
    pub(super) cycles: u64,
}

impl Engine {
    /// An empty engine.
    pub fn new(settings: EngineSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Sets the labels of a namespace, or removes it.
    pub fn set_namespace(&mut self, name: &str, labels: Option<BTreeMap<String, String>>) {
        let old = self.namespaces.get(name);
        let turned = |queue: &Queue| {
            let selector = queue.config.namespace_selector.as_ref();
            selects(selector, old) != selects(selector, labels.as_ref())
        };
        let queues = self.queues.iter().filter(|(_, queue)| turned(queue));
        let queues: Vec<Arc<str>> = queues.map(|(queue, _)| Arc::clone(queue)).collect();
        set(&mut self.namespaces, name, labels);
        for queue in queues {
            self.pending.config_changed(&queue, Some(name));
        }
    }

    /// Sets or removes a flavor.
    pub fn set_flavor(&mut self, name: &str, flavor: Option<Flavor>) {
        if !set(&mut self.flavors, name, flavor) {
            return;
        }
        let uses =
            |queue: &Queue| queue.groups.iter().flat_map(|group| &group.flavors).any(|f| *f.name == *name);
        for queue in self.queues.iter().filter(|(_, queue)| uses(queue)).map(|(queue, _)| queue) {
            self.pending.config_changed(queue, None);
        }
        self.flavor_changed(name);
    }

    /// Sets or removes a cohort. One that is referred to exists without quota of its own.
    pub fn set_cohort(&mut self, name: &str, cohort: Option<Cohort>) {
        if !set(&mut self.cohorts, name, cohort) {
            return;
        }
        let config = self.cohorts.get(name).map(|cohort| NodeConfig {
            parent: cohort.parent.as_deref(),
            groups: &cohort.groups,
            weight: cohort.weight.unwrap_or(1.0),
        });
        let touched = self.tree.configure(&NodeRef::Cohort(Arc::from(name)), config);
        self.reopen(touched);
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
            let node = self.tree.leaf_or_new(name);
            Queue::compile(queue, node, &mut self.tree)
        });
        if compiled.is_none() {
            self.observed.forget(name);
        }
        match compiled {
            Some(queue) => drop(self.queues.insert(Arc::from(name), queue)),
            None => drop(self.queues.remove(name)),
        }
        self.reopen(touched);
    }

    /// Sets or removes what admission fair sharing knows of a LocalQueue.
    pub fn set_local_queue(&mut self, key: &ObjectKey, queue: Option<LocalQueue>) {
        let name = queue.as_ref().map(|queue| Arc::clone(&queue.cluster_queue));
        self.order.set(key, queue);
        if let Some(name) = name {
            self.rank(key, &name);
        }
    }

    /// Brings the place of a LocalQueue in its ClusterQueue in step with its past usage.
    pub(super) fn rank(&mut self, key: &ObjectKey, cluster_queue: &str) {
        let counts = self.queues.get(cluster_queue).is_some_and(|queue| queue.config.usage_based);
        let settings = self.settings.admission_fair_sharing.as_ref().filter(|_| counts);
        let usage = settings.and_then(|settings| self.order.usage(key, settings));
        self.pending.set_rank(cluster_queue, key, usage.map(Rank::of).unwrap_or_default());
    }

    /// Opens or closes queues as their configuration and their place in the tree say, and wakes what waits in them.
    fn reopen(&mut self, queues: BTreeSet<Arc<str>>) {
        self.taken.clear();
        for queue in queues {
            self.close_or_open(&queue);
            self.pending.config_changed(&queue, None);
        }
    }

    fn close_or_open(&mut self, queue: &Arc<str>) {
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
            (None, _) => Some(missing(queue)).filter(|_| self.pending.counts(queue).total() > 0),
        };
        if verdict.is_some() {
            self.cancel_earmarks_of(queue);
        }
        set(&mut self.closed, queue, verdict);
        for local in self.order.of_queue(queue) {
            self.rank(&local, queue);
        }
    }

    /// Why a ClusterQueue admits nothing: what the caller said, or a cycle of cohorts above it.
    pub fn inactive_reason(&self, cluster_queue: &str) -> Option<Inactive> {
        let said = self.queues.get(cluster_queue).and_then(|queue| queue.config.inactive.clone());
        said.or_else(|| self.tree.cycle_above(cluster_queue).map(Inactive::cycle))
    }

    /// Inserts or replaces a pending workload. One that holds quota is not queued: release it first.
    pub fn enqueue(&mut self, workload: Workload) {
        if self.holders.get(&workload.key).is_some() {
            return;
        }
        let known = self.pending.workload(&workload.key);
        if known.is_some_and(|known| *known != workload) {
            self.taken.forget(&workload.key);
        }
        if self.earmarks.contains_key(&workload.key) {
            if known == Some(&workload) {
                return;
            }
            self.cancel_earmark(&workload.key.clone());
        }
        let queue = Arc::clone(&workload.cluster_queue);
        let from = self.pending.workload(&workload.key).map(|old| Arc::clone(&old.cluster_queue));
        self.pending.insert(workload);
        let queues: Vec<Arc<str>> = from.into_iter().chain([queue]).collect();
        for queue in queues.into_iter().filter(|queue| !self.queues.contains_key(queue)).collect::<Vec<_>>() {
            self.close_or_open(&queue);
        }
    }

    /// The workload is not pending any more.
    pub fn forget(&mut self, key: &ObjectKey) {
        self.taken.forget(key);
        self.take_from_queue(key);
    }

    fn take_from_queue(&mut self, key: &ObjectKey) {
        self.cancel_earmark(key);
        let queue = self.pending.remove(key);
        if let Some(queue) = queue.filter(|queue| !self.queues.contains_key(queue)) {
            self.close_or_open(&queue);
        }
    }

    /// The workload holds this and nothing else, and is not pending.
    pub fn charge(&mut self, key: &ObjectKey, charge: Charge) {
        let mut usage = Usage::new();
        for (pair, amount) in &charge.usage {
            usage.push((self.tree.pair_or_new(pair), amount.wide()));
        }
        usage.sort_unstable();
        self.charge_usage(key, charge, usage);
    }

    /// The same, with what it holds by number as well.
    pub(super) fn charge_usage(&mut self, key: &ObjectKey, charge: Charge, usage: Usage) {
        self.take_from_queue(key);
        let node = self.tree.leaf_or_new(&charge.cluster_queue);
        let old = self.holders.get(key).cloned();
        let same = old.as_ref().filter(|old| old.charge.uid == charge.uid && old.node == node);
        let leaves_for = same.and_then(|old| old.leaves_for.clone());
        let stand = Arc::new(self.topology.footprint(&charge.topology));
        let new = Holder { key: key.clone(), charge: Arc::new(charge), node, usage, stand, leaves_for };
        let unmoved = same.is_some_and(|old| old.usage == new.usage && old.layers() == new.layers());
        if let Some(old) = old.as_ref().filter(|_| unmoved) {
            if old.stand != new.stand {
                self.stand(&new.stand, 1, new.layers());
                self.stand(&old.stand, -1, new.layers());
            }
            self.holders.insert(new);
            return;
        }
        // The new comes before the old goes, so that its node of the tree is never without either.
        self.hold(node, &new.usage, new.layers());
        self.stand(&new.stand, 1, new.layers());
        if let Some(old) = old {
            if new.leaves_for.is_none() {
                self.has_left(&old);
            }
            self.give_back(&old);
        }
        self.holders.insert(new);
    }

    /// The workload holds nothing any more.
    pub fn release(&mut self, key: &ObjectKey) {
        self.due.remove(key);
        if let Some(old) = self.holders.remove(key) {
            self.cancel_earmark(key);
            if old.leaves_for.is_none() && !old.charge.evicted {
                self.taken.forget_tree(self.tree.root(old.node));
            }
            self.has_left(&old);
            self.give_back(&old);
        }
    }

    /// A victim that has let go is none any more, whatever it holds later.
    fn has_left(&mut self, holder: &Holder) {
        if let Some(earmark) = holder.leaves_for.as_ref().and_then(|by| self.earmarks.get_mut(by)) {
            earmark.victims.remove(&holder.key);
        }
    }

    fn give_back(&mut self, holder: &Holder) {
        let back = negated(&holder.usage);
        self.hold(holder.node, &back, holder.layers());
        self.stand(&holder.stand, -1, holder.layers());
    }

    /// Moves usage in the tree and wakes what waited for it.
    pub(super) fn hold(&mut self, node: NodeId, usage: &Usage, layers: &[Layer]) {
        let root = self.tree.root(node);
        let moved = self.tree.hold(node, usage, layers);
        self.wake(root, &moved);
    }

    fn wake(&mut self, root: NodeId, moved: &Moved) {
        for (freed, pairs) in [(true, &moved.freed), (false, &moved.taken)] {
            for pair in pairs {
                let tree = &self.tree;
                let available = |queue: &str| {
                    let leaf = tree.leaf(queue);
                    leaf.map_or(i128::MIN, |leaf| tree.available(leaf, *pair, Layer::Planned).max(0))
                };
                self.pending.usage_changed(root, *pair, freed, available);
            }
        }
    }

    /// Whether a cycle would judge anybody.
    pub fn has_work(&self) -> bool {
        self.pending.has_work() || self.has_due()
    }

    /// Whether second passes are to be judged.
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }
}

/// The same usage to be taken off.
pub(super) fn negated(usage: &Usage) -> Usage {
    usage.iter().map(|(pair, amount)| (*pair, -amount)).collect()
}

/// Sets or removes an entry and answers whether that changed anything.
fn set<T: PartialEq>(map: &mut BTreeMap<Arc<str>, T>, name: &str, value: Option<T>) -> bool {
    if map.get(name) == value.as_ref() {
        return false;
    }
    match value {
        Some(value) => map.insert(Arc::from(name), value),
        None => map.remove(name),
    };
    true
}

fn missing(queue: &str) -> Verdict {
    Verdict::plain(PendingReason::Misconfigured, &format!("ClusterQueue {queue} doesn't exist"))
}
