//! The facade: what is known, and what changes it. `cycle` stands in its own file, questions in `report`.

use super::config::{Charge, ClusterQueue, Cohort, EngineSettings, Flavor, Inactive};
use super::ledger::Holders;
use super::matching::selects;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::queue::{Queues, Verdict, Workload};
use crate::quota::{FlavorResource, NodeRef, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Quota, pending workloads and decisions.
#[derive(Debug, Default)]
pub struct Engine {
    pub(super) settings: EngineSettings,
    pub(super) tree: Tree,
    pub(super) pending: Queues,
    pub(super) holders: Holders,
    pub(super) queues: BTreeMap<Arc<str>, ClusterQueue>,
    pub(super) cohorts: BTreeMap<Arc<str>, Cohort>,
    pub(super) flavors: BTreeMap<Arc<str>, Flavor>,
    pub(super) namespaces: BTreeMap<Arc<str>, BTreeMap<String, String>>,
    /// What is said of workloads that wait in queues that admit nothing.
    pub(super) closed: BTreeMap<Arc<str>, Verdict>,
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
        let turned = |queue: &ClusterQueue| {
            let selector = queue.namespace_selector.as_ref();
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
        let uses = |queue: &ClusterQueue| {
            queue.groups.iter().flat_map(|group| &group.flavors).any(|f| *f.name == *name)
        };
        for queue in self.queues.iter().filter(|(_, queue)| uses(queue)).map(|(queue, _)| queue) {
            self.pending.config_changed(queue, None);
        }
    }

    /// Sets or removes a cohort. One that is referred to exists without quota of its own.
    pub fn set_cohort(&mut self, name: &str, cohort: Option<Cohort>) {
        if !set(&mut self.cohorts, name, cohort) {
            return;
        }
        let config = self.cohorts.get(name).map(|cohort| (cohort.parent.as_deref(), &*cohort.groups));
        let touched = self.tree.configure(&NodeRef::Cohort(Arc::from(name)), config);
        self.reopen(touched);
    }

    /// Sets or removes a ClusterQueue. What its workloads hold and those that wait in it stay known.
    pub fn set_cluster_queue(&mut self, name: &str, queue: Option<ClusterQueue>) {
        if !set(&mut self.queues, name, queue) {
            return;
        }
        let config = self.queues.get(name).map(|queue| (queue.cohort.as_deref(), &*queue.groups));
        let mut touched = self.tree.configure(&NodeRef::ClusterQueue(Arc::from(name)), config);
        touched.insert(Arc::from(name));
        self.reopen(touched);
    }

    /// Opens or closes queues as their configuration and their place in the tree say, and wakes what waits in them.
    fn reopen(&mut self, queues: BTreeSet<Arc<str>>) {
        for queue in queues {
            self.close_or_open(&queue);
            self.pending.config_changed(&queue, None);
        }
    }

    fn close_or_open(&mut self, queue: &Arc<str>) {
        let inactive = self.inactive_reason(queue);
        let strategy = self.queues.get(queue).map(|queue| queue.strategy);
        self.pending.configure(queue, strategy.filter(|_| inactive.is_none()));
        let verdict = match (strategy, inactive) {
            (Some(_), None) => None,
            (Some(_), Some(inactive)) => Some(inactive.verdict(queue)),
            (None, _) => Some(missing(queue)).filter(|_| self.pending.counts(queue).total() > 0),
        };
        set(&mut self.closed, queue, verdict);
    }

    /// Why a ClusterQueue admits nothing: what the caller said, or a cycle of cohorts above it.
    pub fn inactive_reason(&self, cluster_queue: &str) -> Option<Inactive> {
        let said = self.queues.get(cluster_queue).and_then(|queue| queue.inactive.clone());
        said.or_else(|| self.tree.cycle_above(cluster_queue).map(Inactive::cycle))
    }

    /// Inserts or replaces a pending workload. One that holds quota is not queued: release it first.
    pub fn enqueue(&mut self, workload: Workload) {
        if self.holders.get(&workload.key).is_some() {
            return;
        }
        let queue = Arc::clone(&workload.cluster_queue);
        let from = self.pending.workload(&workload.key).map(|old| Arc::clone(&old.cluster_queue));
        self.pending.insert(workload);
        for queue in from
            .into_iter()
            .chain([queue])
            .filter(|queue| !self.queues.contains_key(queue))
            .collect::<Vec<_>>()
        {
            self.close_or_open(&queue);
        }
    }

    /// The workload is not pending any more.
    pub fn forget(&mut self, key: &ObjectKey) {
        let Some(queue) = self.pending.workload(key).map(|w| Arc::clone(&w.cluster_queue)) else {
            return;
        };
        self.pending.remove(key);
        if !self.queues.contains_key(&queue) {
            self.close_or_open(&queue);
        }
    }

    /// The workload holds this and nothing else, and is not pending.
    pub fn charge(&mut self, key: &ObjectKey, charge: Charge) {
        self.forget(key);
        let mut moves = BTreeMap::from([(Arc::clone(&charge.cluster_queue), changes(&charge, 1))]);
        if let Some(old) = self.holders.insert(key, charge) {
            let back = moves.entry(Arc::clone(&old.cluster_queue)).or_default();
            for (pair, amount) in changes(&old, -1) {
                *back.entry(pair).or_default() += amount;
            }
        }
        self.hold(moves);
    }

    /// The workload holds nothing any more.
    pub fn release(&mut self, key: &ObjectKey) {
        if let Some(old) = self.holders.remove(key) {
            let back = changes(&old, -1);
            self.hold(BTreeMap::from([(old.cluster_queue, back)]));
        }
    }

    /// Moves usage in the tree and wakes what waited for it.
    fn hold(&mut self, by_queue: BTreeMap<Arc<str>, BTreeMap<FlavorResource, i128>>) {
        for (queue, change) in by_queue {
            let moved = self.tree.hold(&queue, &change);
            let Some(root) = self.tree.root(&queue) else {
                continue;
            };
            let sides = [(true, moved.freed), (false, moved.taken)];
            for (freed, pair) in
                sides.iter().flat_map(|(freed, pairs)| pairs.iter().map(|pair| (*freed, pair)))
            {
                let available =
                    |queue: &str| self.tree.path(queue, pair).map_or(i128::MIN, |p| p.available().max(0));
                self.pending.usage_changed(root, pair, freed, available);
            }
        }
    }

    /// Whether a cycle would judge anybody.
    pub fn has_work(&self) -> bool {
        !self.pending.ready().is_empty()
    }
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

fn changes(charge: &Charge, sign: i128) -> BTreeMap<FlavorResource, i128> {
    charge.usage.iter().map(|(pair, amount)| (pair.clone(), sign * amount.wide())).collect()
}
